"""Reads what a project demands: `[tool.stepduel.gate]` of pyproject.toml, or `[gate]` of stepduel.toml.

    [tool.stepduel.gate]
    scenarios = ["fsdp2_lora_no_offload", "smoke"]
    max_slowdown = "5%"
    budget = "15m"

    [tool.stepduel.gate.scenario.smoke]
    max_slowdown = "10%"

A policy is strict: a key that is misspelt would otherwise be a limit that nobody holds.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from harness.errors import UsageError, closest
from harness.metrics import LAUNCH_FIGURES, LIMITED
from harness.units import parse_bytes, parse_milliseconds, parse_seconds, parse_share

PYPROJECT: Final = "pyproject.toml"
OWN_FILE: Final = "stepduel.toml"

_METRICS: Final = {name: limit.gate_share for name, (_, limit) in LIMITED.items()}

_LAUNCH: Final = {figure.policy_key: figure for figure in LAUNCH_FIGURES.values() if figure.policy_key is not None}

Undecided = Literal["fail", "pass"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a scenario may lose. Shares are fractions; a head that is faster, or within its limits, passes."""

    max_slowdown: float = 0.05
    """Step time: a slowdown of at least this share, and significantly above 0.8 of it, is a regression."""
    min_abs_ms: float = 0.0
    """The same as a time: slowdowns of less than so many ms of a step are none."""
    metrics: Mapping[str, float] = field(default_factory=lambda: _METRICS)
    """By metric: head worse by more than this share is a regression."""
    launch: Mapping[str, float] = field(default_factory=dict)
    """By key of the policy: how much a figure of a launch may grow; none but those it names are held."""
    max_creep: float | None = None
    """Step time against the pinned baseline (`stepduel baseline set`), duelled as well; None for no such duel."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What the gate demands, and of which scenarios. `source` is the file it was read from."""

    source: str
    scenarios: tuple[str, ...]
    limits: Mapping[str, Limits]
    """By scenario, every one of them."""
    base: str | None = None
    """Revision to hold the code against; None for where the branch left the main branch."""
    pairs: int = 10
    """Most launch pairs of one duel."""
    steps: int | None = None
    """Measured steps of a launch; None lets each duel choose from what they cost."""
    budget_s: float | None = None
    """Time for all duels together; None for no bound."""
    alpha: float = 0.05
    """Chance of failing any scenario although each is slower by 0.8 of its limit, or less (`limit`)."""
    undecided: Undecided = "fail"
    """What a scenario counts as that could not be decided."""
    machines: tuple[str, ...] = ()
    """Fingerprints of the machines that may judge; empty for any."""
    allow_machine_mismatch: bool = False
    """Judge on other machines as well, and say so."""


def _limit(value: object) -> float:
    share = parse_share(value)
    if not share:
        raise ValueError("expected a share above 0, such as 2% or 0.02")
    return share


def _alpha(value: object) -> float:
    share = parse_share(value)
    if not 0 < share < 0.5:
        raise ValueError("expected a number above 0 and below 0.5, such as 0.01")
    return share


def _count(at_least: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
            raise ValueError(f"expected an integer of at least {at_least}")
        return value

    return read


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(item, str) and item.strip() for item in value):
        raise ValueError('expected a list of names, such as ["smoke"]')
    if len(set(value)) != len(value):
        raise ValueError("expected each name once")
    return tuple(value)


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError('expected a git revision, such as "origin/main"')
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _undecided(value: object) -> Undecided:
    if value == "fail" or value == "pass":
        return value
    raise ValueError(f"expected 'fail' or 'pass'.{closest(str(value), ('fail', 'pass'))}")


# key in the file: (field, what reads it)
_LIMITS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "max_slowdown": ("max_slowdown", _limit),
    "min_abs": ("min_abs_ms", parse_milliseconds),
    "max_creep": ("max_creep", _limit),
    **{limit.policy_key: (name, _limit) for name, (_, limit) in LIMITED.items()},
    **{key: (key, parse_bytes if figure.per_step else _limit) for key, figure in _LAUNCH.items()},
}
_POLICY: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "scenarios": ("scenarios", _texts),
    "base": ("base", _text),
    "pairs": ("pairs", _count(2)),
    "steps": ("steps", _count(2)),
    "budget": ("budget_s", parse_seconds),
    "alpha": ("alpha", _alpha),
    "undecided": ("undecided", _undecided),
    "machines": ("machines", _texts),
    "allow_machine_mismatch": ("allow_machine_mismatch", _flag),
}
_SCENARIO_TABLES: Final = "scenario"


def find_policy(folder: Path) -> Path:
    """Return the file that holds the policy: in `folder` or the nearest folder above it, up to a repository's root.

    UsageError where there is none.
    """
    for place in (folder, *folder.parents):
        for name in (OWN_FILE, PYPROJECT):
            if (place / name).is_file() and _table(_document(place / name), place / name) is not None:
                return place / name
        if (place / ".git").exists():
            break
    raise UsageError(
        f"no gate policy in {folder}: expected [tool.stepduel.gate] in {PYPROJECT}, or [gate] in {OWN_FILE}, "
        'with at least scenarios = ["…"]'
    )


def read_policy(path: Path) -> Policy:
    """Return the policy of a file. UsageError names the file, the key, what is allowed and the nearest known name."""
    table = _table(_document(path), path)
    if table is None:
        raise UsageError(f"{path}: no [tool.stepduel.gate] table (in {OWN_FILE} also [gate])")
    values, common, own = {}, {}, {}
    for key, value in table.items():
        if key in _POLICY:
            name, reader = _POLICY[key]
            values[name] = _read(path, key, value, reader)
        elif key in _LIMITS:
            name, reader = _LIMITS[key]
            common[name] = _read(path, key, value, reader)
        elif key == _SCENARIO_TABLES and isinstance(value, dict):
            own = {name: _limits(path, name, item) for name, item in value.items()}
        else:
            allowed = [*_POLICY, *_LIMITS, _SCENARIO_TABLES]
            raise UsageError(
                f"{path}: [tool.stepduel.gate] has no key {key!r}.{closest(key, allowed)} Allowed: {', '.join(allowed)}"
            )
    if "scenarios" not in values:
        raise UsageError(f'{path}: scenarios is missing: expected a list of names, such as ["smoke"]')
    for name in own:
        if name not in values["scenarios"]:
            raise UsageError(
                f"{path}: limits for {name!r}, which is not in scenarios.{closest(name, values['scenarios'])}"
            )
    limits = {name: _limits_of({**common, **own.get(name, {})}) for name in values["scenarios"]}
    return Policy(source=str(path), limits=limits, **values)


def _limits_of(values: Mapping[str, Any]) -> Limits:
    metrics = {name: values.get(name, share) for name, share in _METRICS.items()}
    launch = {name: value for name, value in values.items() if name in _LAUNCH}
    others = {name: value for name, value in values.items() if name not in {**metrics, **launch}}
    return Limits(**others, metrics=metrics, launch=launch)


def _limits(path: Path, scenario: str, table: object) -> dict[str, Any]:
    where = f"{_SCENARIO_TABLES}.{scenario}"
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {where} = {table!r}: expected a table of limits")
    values = {}
    for key, value in table.items():
        if key not in _LIMITS:
            raise UsageError(
                f"{path}: [{where}] has no key {key!r}.{closest(key, _LIMITS)} Allowed: {', '.join(_LIMITS)}"
            )
        name, reader = _LIMITS[key]
        values[name] = _read(path, f"{where}.{key}", value, reader)
    return values


def _read(path: Path, key: str, value: object, reader: Callable[[Any], Any]) -> Any:
    try:
        return reader(value)
    except ValueError as wrong:
        shown = repr(value)
        raise UsageError(f"{path}: {key} = {shown if len(shown) <= 60 else shown[:57] + '...'}: {wrong}") from None


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: not valid TOML: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read as a TOML file: {error}") from error


def _table(document: Mapping[str, Any], path: Path) -> dict[str, Any] | None:
    """The policy's table, wherever the file keeps it; None where it has none."""
    keys = (("tool", "stepduel", "gate"), ("gate",)) if path.name != PYPROJECT else (("tool", "stepduel", "gate"),)
    found = [table for table in (_at(document, key) for key in keys) if table is not None]
    if len(found) > 1:
        raise UsageError(f"{path}: both [gate] and [tool.stepduel.gate]: keep one")
    if found and not isinstance(found[0], dict):
        raise UsageError(f"{path}: gate = {found[0]!r}: expected a table")
    return found[0] if found else None


def _at(document: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        document = document.get(key) if isinstance(document, dict) else None
    return document
