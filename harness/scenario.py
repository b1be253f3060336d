"""Reads a scenario: one TOML file that says which engine runs, how it is configured, for how long, what is probed.

A scenario is made of layers, later ones winning key by key: the file named by `extends` (one level, no chains), the
file itself, then `--set KEY=VALUE`. Each value remembers the layer it came from, so a complaint names the right file.
Keys of `[engine]` other than `factory` are passed to the factory as they are; the worker checks them against the
factory's own dataclass, because only there is the engine importable.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from harness import names
from harness.errors import UsageError, closest

PayloadName = Literal["moved_bytes", "collected_objects"]
Value = str | int | float | bool | list[Any] | dict[str, Any]


def _setting(default: Any, meaning: str, *, at_least: float | None = None, above: float | None = None) -> Any:
    """Declare one key: its default, its meaning in one line, and the numbers it takes."""
    return field(default=default, metadata={"meaning": meaning, "at_least": at_least, "above": above})


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """`[run]`: how a launch is driven."""

    mode: Literal["train", "eval"] = _setting("train", "what a step does")
    ranks: int = _setting(1, "processes that torchrun starts", at_least=1)
    warmup_steps: int = _setting(2, "steps before the measured ones, left out of every figure", at_least=0)
    steps: int = _setting(10, "measured steps", at_least=1)
    timeout_s: float = _setting(60.0, "longest a single step may take", above=0)
    start_timeout_s: float = _setting(120.0, "longest that building the engine may take", above=0)
    seed: int = _setting(0, "seed of parameters and batches; the engine gets it as `seed`", at_least=0)


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """`[compare]`: when two subjects count as doing the same work."""

    loss_tolerance: float = _setting(
        0.0, "largest relative difference of two losses of the same step; 0 asks for the same bits", at_least=0
    )


@dataclass(frozen=True, kw_only=True)
class Probe:
    """A callable to wrap in a range: `name` of the range, dotted `target`, and what its return value counts."""

    name: str
    target: str
    result: PayloadName | None = None


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One resolved scenario. `engine` holds only the keys that the scenario sets, seed included when it sets one."""

    name: str
    description: str
    factory: str
    run: RunSettings
    engine: Mapping[str, Value]
    probes: tuple[Probe, ...]
    compare: CompareSettings
    source: Path

    def document(self) -> dict[str, Any]:
        """Return the resolved scenario as plain JSON-ready values, in the shape of its file."""
        return {
            "description": self.description,
            "run": asdict(self.run),
            "engine": {"factory": self.factory, **{k: v for k, v in self.engine.items() if k != "seed"}},
            "probes": {probe.name: {"target": probe.target, "result": probe.result} for probe in self.probes},
            "compare": asdict(self.compare),
        }

    @property
    def hash(self) -> str:
        """16 hexadecimal digits over everything that shapes what is measured; results with different ones never mix.

        Words, limits on waiting and tolerances are left out: changing them does not make older results incomparable.
        """
        measured = self.document()
        run = {k: v for k, v in measured["run"].items() if k not in ("timeout_s", "start_timeout_s")}
        content = {"run": run, "engine": measured["engine"], "probes": measured["probes"]}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """One value and the layer that set it, as a user would name that layer."""

    value: Any
    origin: str


_Layer = dict[tuple[str, str], _Entry]
_TOP_LEVEL = ("description", "extends")
_SECTIONS = ("run", "engine", "probes", "compare")
_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")
_BARE_WORD = re.compile(r"[^\s\"'\[\]{}#]+( [^\s\"'\[\]{}#]+)*")


def search_path() -> list[Path]:
    """Return the folders searched for scenarios: `./scenarios` first, then those that came with Stepduel."""
    package = Path(__file__).resolve().parent
    packaged = package / "_scenarios"  # in a wheel; a checkout has them beside the package
    own = packaged if packaged.is_dir() else package.parent / "scenarios"
    return list(dict.fromkeys(path.resolve() for path in (Path("scenarios"), own) if path.is_dir()))


def scenario_files() -> dict[str, Path]:
    """Return every scenario by name. Files that begin with `_` are there to be extended only."""
    found: dict[str, Path] = {}
    for folder in search_path():
        for path in sorted(folder.glob("*.toml")):
            if not path.name.startswith("_"):
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


def load_scenario(name: str, overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario called `name` (or in the file `name`, when it ends in `.toml`), `overrides` applied.

    Raises UsageError naming the file, the key, what is allowed and the nearest known name.
    """
    path = _find(name)
    layer = _read(path)
    extends = layer.pop(("", "extends"), None)
    if extends is not None:
        layer = {**_read_base(extends, path), **layer}
    for text in overrides:
        layer.update(_parse_override(text))
    return _resolve(path, layer)


def _find(name: str) -> Path:
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"no scenario file {name}: expected a path to an existing TOML file")
        return path.resolve()
    known = scenario_files()
    if name not in known:
        hint = closest(name, known) or " `stepduel scenarios` lists them."
        raise UsageError(f"no scenario named {name!r}.{hint}")
    return known[name]


def _read_base(extends: _Entry, child: Path) -> _Layer:
    if not isinstance(extends.value, str):
        raise UsageError(f"{extends.origin}: extends = {_shown(extends.value)}: expected the name of a scenario")
    folders = [child.parent, *search_path()]
    for folder in folders:
        path = folder / f"{extends.value}.toml"
        if path.is_file():
            break
    else:
        known = {path.stem for folder in folders for path in folder.glob("*.toml")}
        raise UsageError(
            f"{extends.origin}: extends = {extends.value!r}: no such scenario.{closest(extends.value, known)}"
        )
    base = _read(path)
    if ("", "extends") in base:
        raise UsageError(
            f"{extends.origin}: extends {extends.value!r}, which itself extends another: one level is allowed, "
            "so that a scenario is read in two files at most"
        )
    return base


def _read(path: Path) -> _Layer:
    """Return the file as one flat layer; its sections are checked to be known tables, its values not yet."""
    shown = _shown_path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{shown}: not valid TOML: {error}") from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{shown}: cannot be read as a TOML file: {error}") from error
    layer: _Layer = {}
    for key, value in document.items():
        if key in _SECTIONS:
            if not isinstance(value, dict):
                raise UsageError(f"{shown}: {key} = {_shown(value)}: expected a table, written as [{key}]")
            layer.update({(key, inner): _Entry(value=item, origin=shown) for inner, item in value.items()})
        elif key in _TOP_LEVEL:
            layer["", key] = _Entry(value=value, origin=shown)
        else:
            allowed = [*_TOP_LEVEL, *(f"[{section}]" for section in _SECTIONS)]
            raise UsageError(
                f"{shown}: unknown key {key!r}.{closest(key, [*_TOP_LEVEL, *_SECTIONS])} Allowed: {', '.join(allowed)}"
            )
    return layer


def _parse_override(text: str) -> _Layer:
    """Return `section.key=value` as a layer. The value has TOML's syntax; a bare word stands for a string."""
    origin = f"--set {text}"
    dotted, equals, written = text.partition("=")
    section, dot, key = dotted.strip().partition(".")
    if dotted.strip() == "description":
        section, dot, key = "", ".", "description"
    if not (equals and dot and key):
        raise UsageError(f"{origin}: expected SECTION.KEY=VALUE, as in engine.lora_rank=16")
    if section and section not in _SECTIONS:
        raise UsageError(
            f"{origin}: no section {section!r}.{closest(section, _SECTIONS)} Allowed: {', '.join(_SECTIONS)}"
        )
    written = written.strip()
    try:
        document = tomllib.loads(f"value = {written}")
    except tomllib.TOMLDecodeError as error:
        if not _BARE_WORD.fullmatch(written):
            raise UsageError(f"{origin}: the value is neither TOML nor a bare word: {error}") from error
        document = {"value": written}
    if set(document) != {"value"}:
        raise UsageError(f"{origin}: expected one value on one line")
    return {(section, key): _Entry(value=document["value"], origin=origin)}


def _resolve(path: Path, layer: _Layer) -> Scenario:
    by_section: dict[str, dict[str, _Entry]] = {section: {} for section in ("", *_SECTIONS)}
    for (section, key), entry in layer.items():
        by_section[section][key] = entry
    engine, factory = _engine(by_section["engine"], _shown_path(path))
    if "seed" in by_section["run"]:
        engine["seed"] = by_section["run"]["seed"].value
    description = by_section[""].get("description", _Entry(value="", origin=""))
    if not isinstance(description.value, str) or not description.value.strip():
        origin = description.origin or _shown_path(path)
        raise UsageError(f"{origin}: description = {_shown(description.value)}: expected one line of text")
    return Scenario(
        name=path.stem,
        description=" ".join(description.value.split()),
        factory=factory,
        run=_settings(RunSettings, "run", by_section["run"]),
        engine=engine,
        probes=tuple(_probe(name, entry) for name, entry in by_section["probes"].items()),
        compare=_settings(CompareSettings, "compare", by_section["compare"]),
        source=path,
    )


def _engine(entries: Mapping[str, _Entry], shown: str) -> tuple[dict[str, Value], str]:
    if "factory" not in entries:
        raise UsageError(f"{shown}: engine.factory is missing: expected 'package.module:callable'")
    for key, entry in entries.items():
        if not _is_plain(entry.value):
            raise UsageError(
                f"{entry.origin}: engine.{key} = {_shown(entry.value)}: "
                "expected text, a number, a boolean, a list or a table"
            )
    if "seed" in entries:
        raise UsageError(f"{entries['seed'].origin}: engine.seed: set run.seed, which reaches the engine as its seed")
    factory = entries["factory"]
    if not isinstance(factory.value, str) or not _FACTORY.fullmatch(factory.value):
        raise UsageError(
            f"{factory.origin}: engine.factory = {_shown(factory.value)}: expected 'package.module:callable'"
        )
    return {key: entry.value for key, entry in entries.items() if key != "factory"}, factory.value


def _probe(name: str, entry: _Entry) -> Probe:
    where = f"{entry.origin}: probes.{name} = {_shown(entry.value)}"
    if (
        not name.strip()
        or names.PATH_SEPARATOR in name
        or not name.isprintable()
        or name in (names.STEP, names.CAPTURE)
    ):
        raise UsageError(f"{where}: {name!r} cannot name a range: expected printable text without '/', not 'step'")
    table = {"target": entry.value} if isinstance(entry.value, str) else entry.value
    if not isinstance(table, dict) or "target" not in table:
        raise UsageError(f"{where}: expected 'dotted.target' or {{target = 'dotted.target', result = '…'}}")
    for key in table:
        if key not in ("target", "result"):
            raise UsageError(
                f"{where}: unknown key {key!r}.{closest(key, ('target', 'result'))} Allowed: target, result"
            )
    if not isinstance(table["target"], str) or not _DOTTED.fullmatch(table["target"]):
        raise UsageError(f"{where}: expected the target as a dotted path, as in 'gc.collect'")
    result = table.get("result")
    if result is not None and result not in get_args(PayloadName):
        known = ", ".join(get_args(PayloadName))
        raise UsageError(
            f"{where}: unknown result {result!r}.{closest(str(result), get_args(PayloadName))} Allowed: {known}"
        )
    return Probe(name=name, target=table["target"], result=result)


_Settings = TypeVar("_Settings", RunSettings, CompareSettings)


def _settings(kind: type[_Settings], section: str, entries: Mapping[str, _Entry]) -> _Settings:
    hints = get_type_hints(kind)
    declared = {item.name: item for item in fields(kind)}
    values: dict[str, Any] = {}
    for key, entry in entries.items():
        if key not in declared:
            raise UsageError(
                f"{entry.origin}: [{section}] has no key {key!r}.{closest(key, declared)} "
                f"Allowed: {', '.join(declared)}"
            )
        values[key] = _checked(f"{section}.{key}", entry, hints[key], declared[key].metadata)
    assert all(item.default is not MISSING for item in declared.values()), "every setting has a default"
    return kind(**values)


def _checked(key: str, entry: _Entry, kind: Any, metadata: Mapping[str, Any]) -> Any:
    """Return the value as `kind`, or raise naming the key and what it takes. An integer may stand for a float."""
    value = entry.value
    where = f"{entry.origin}: {key} = {_shown(value)}"
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            allowed = ", ".join(repr(choice) for choice in get_args(kind))
            raise UsageError(f"{where}: expected one of {allowed}.{closest(str(value), get_args(kind))}")
        return value
    number = {int: "an integer", float: "a number"}[kind]
    at_least, above = metadata["at_least"], metadata["above"]
    limit = f" of at least {at_least:g}" if at_least is not None else f" above {above:g}" if above is not None else ""
    fits = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if not fits or not math.isfinite(value):
        raise UsageError(f"{where}: expected {number}{limit}")
    if (at_least is not None and value < at_least) or (above is not None and value <= above):
        raise UsageError(f"{where}: expected {number}{limit}")
    return kind(value)


def _is_plain(value: object) -> bool:
    """Whether JSON can carry the value unchanged to the worker (TOML's dates and not-a-numbers cannot)."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return isinstance(value, str | int | bool)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _shown_path(path: Path) -> str:
    """Return the path as a user would type it: relative when it lies below the current folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
