"""The plan of one launch: made by the host, read by every rank. One JSON file, described in docs/architecture.md.

Writing is `asdict`, reading goes by the dataclass's own fields, so a setting is spelt in one place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from harness import names
from harness.errors import UsageError, closest

PLAN_VERSION: Final = 4
_JSON_KINDS: Final[dict[Any, tuple[type, ...]]] = {Path: (str,), Mapping: (dict,), tuple: (list,), float: (int, float)}
"""How JSON holds what it has no type for, and what it may hold instead."""


@dataclass(frozen=True, kw_only=True)
class ProbeSpec:
    """One probe: the range's `name`, the dotted `target`, and the mark (`names.PAYLOAD_MARKS`) for what it returns."""

    name: str
    target: str
    result: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the ranks of one launch have to know."""

    factory: str
    engine: Mapping[str, Any] = field(default_factory=dict)
    engine_root: Path | None = None
    """Goes first on the ranks' `sys.path`; None leaves the engine to the interpreter's own packages."""
    measured_root: Path | None = None
    """What that engine adapts; goes before it."""
    side_root: Path | None = None
    """Folder with the files of this side; None where the engine is measured where it lies."""
    working_tree: Path | None = None
    """The user's, which those files belong to: what would be imported from there is imported from `side_root`."""
    mode: Literal["train", "eval"] = "train"
    seed: int = 0
    time_batch: bool = True
    """Whether making the batch is part of the step."""
    warmup_steps: int = 0
    steps: int = 1
    capture: tuple[int, int] | None = None
    """First and last step index that an outside tool records, both included."""
    probes: tuple[ProbeSpec, ...] = ()
    rank_side: str | None = None
    """This and the next two are the collector's `Abilities` of those names."""
    settle_s: float = 0.0
    ends_in_order: bool = False
    launch_dir: Path
    """The launch's own folder."""
    control_socket: Path = Path()
    """Rank 0's way to the coordinator, who fills it in when the launch starts."""
    start_timeout_s: float = 120.0
    timeout_s: float = 60.0

    def write(self, path: Path) -> None:
        """Write the plan to a file that must not exist yet."""
        with path.open("x", encoding="utf-8") as file:
            json.dump({"plan": PLAN_VERSION, **asdict(self)}, file, indent=1, default=str)

    @staticmethod
    def read(path: Path) -> Plan:
        """Return the plan in the file `path`. Raises UsageError naming the key that does not fit."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: no plan: {error}") from error
        return parse_plan(document)


def parse_plan(document: object) -> Plan:
    """Return the plan in a JSON `document`. Raises UsageError naming the key that does not fit."""
    if not isinstance(document, dict):
        raise UsageError(f"plan: expected an object, got {type(document).__name__}")
    hints = get_type_hints(Plan)
    kinds = {"plan": (int,), **{item.name: _json_kinds(hints[item.name]) for item in fields(Plan)}}
    for key in document:
        if key not in kinds:
            raise UsageError(f"plan: unknown key {key!r}.{closest(key, kinds)}")
    for key, allowed in kinds.items():
        if key not in document:
            raise UsageError(f"plan: key {key!r} is missing")
        value = document[key]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in allowed)
            raise UsageError(f"plan: {key} is {value!r}; expected {expected}")
    _require(document["plan"] == PLAN_VERSION, "plan", document["plan"], f"{PLAN_VERSION}, from the same Stepduel")
    return Plan(**{key: _value(key, document[key], hint) for key, hint in hints.items()})


def _json_kinds(hint: Any) -> tuple[type, ...]:
    """Return the types that a field so annotated may have in JSON."""
    if get_origin(hint) is UnionType:
        return tuple(kind for part in get_args(hint) for kind in _json_kinds(part))
    if get_origin(hint) is Literal:
        return tuple({type(value) for value in get_args(hint)})
    return _JSON_KINDS.get(get_origin(hint) or hint, (hint,))


def _value(key: str, value: Any, hint: Any) -> Any:
    """Return what the plan holds for a value of the right JSON type, or raise for one that is not allowed."""
    if value is None:
        return None
    if get_origin(hint) is Literal:
        _require(value in get_args(hint), key, value, f"one of {', '.join(get_args(hint))}")
    if key in _PARSERS:
        return _PARSERS[key](value)
    if Path in (hint, *get_args(hint)):
        return Path(value)
    return float(value) if hint is float else value


def parse_probes(entries: list[Any]) -> tuple[ProbeSpec, ...]:
    """Return the probes in `entries`, each in our form or in that of nsys' `--python-functions-trace`.

    Ours is `{"name", "target", "result"}`. NVIDIA's is `{"module", "functions", "domain", "color"}` with functions as
    strings or as objects with a `function` key; every range of ours goes into the one domain, without a color.
    """
    probes: list[ProbeSpec] = []
    for entry in entries:
        if not isinstance(entry, dict):
            raise UsageError(f"plan: probe {entry!r}; expected an object")
        probes.extend(_nvidia_probes(entry) if "functions" in entry else [_own_probe(entry)])
    return tuple(probes)


def _own_probe(entry: dict[str, Any]) -> ProbeSpec:
    name, target, result = entry.get("name"), entry.get("target"), entry.get("result")
    if not isinstance(name, str) or not name or not isinstance(target, str) or not target:
        raise UsageError(f"plan: probe {entry!r}; expected a name and a target")
    _require(result is None or result in names.PAYLOAD_MARKS, f"probe {name}: result", result, _results())
    return ProbeSpec(name=name, target=target, result=result)


def _nvidia_probes(entry: dict[str, Any]) -> list[ProbeSpec]:
    module, functions = entry.get("module"), entry["functions"]
    if not isinstance(module, str) or not isinstance(functions, list):
        raise UsageError(f"plan: probe {entry!r}; expected a module and a list of functions")
    found: list[ProbeSpec] = []
    for function in functions:
        name = function.get("function") if isinstance(function, dict) else function
        if not isinstance(name, str):
            raise UsageError(f"plan: function {function!r} of module {module}; expected a name")
        found.append(ProbeSpec(name=f"{module}.{name}", target=f"{module}.{name}"))
    return found


def _parse_capture(value: list[Any]) -> tuple[int, int]:
    fits = len(value) == 2 and all(type(index) is int for index in value) and 0 <= value[0] <= value[1]
    _require(fits, "capture", value, "[first, last] step")
    return value[0], value[1]


def _parse_rank_side(module: str) -> str:
    _require(module.startswith("harness.collectors."), "rank_side", module, "null or a module of harness.collectors")
    return module


def _parse_timeout(key: str) -> Callable[[float], float]:
    def parse(value: float) -> float:
        _require(value > 0, key, value, "above 0")
        return float(value)

    return parse


def _results() -> str:
    return f"null or one of {', '.join(names.PAYLOAD_MARKS)}"


def _require(fits: bool, key: str, value: object, allowed: str) -> None:
    if not fits:
        raise UsageError(f"plan: {key} is {value!r}; allowed: {allowed}")


_PARSERS: Final[dict[str, Callable[[Any], Any]]] = {
    "capture": _parse_capture,
    "probes": parse_probes,
    "rank_side": _parse_rank_side,
    "start_timeout_s": _parse_timeout("start_timeout_s"),
    "timeout_s": _parse_timeout("timeout_s"),
}
