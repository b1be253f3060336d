"""The plan of one launch, as the worker reads it: one JSON file, described in docs/architecture.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness import names
from harness.errors import UsageError, closest

PLAN_VERSION: Final = 1
MODES: Final = ("train", "eval")
COLLECTORS: Final = ("recorder", "kineto", "nsys", "none")
_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "plan": (int,),
    "engine_root": (str, type(None)),
    "measured_root": (str, type(None)),
    "factory": (str,),
    "engine": (dict,),
    "mode": (str,),
    "seed": (int,),
    "warmup_steps": (int,),
    "steps": (int,),
    "capture": (list, type(None)),
    "probes": (list,),
    "collector": (str,),
    "launch_dir": (str,),
    "control_socket": (str,),
    "start_timeout_s": (int, float),
    "timeout_s": (int, float),
}


@dataclass(frozen=True, kw_only=True)
class ProbeSpec:
    """One probe: the range's `name`, the dotted `target`, and the mark (`names.PAYLOAD_MARKS`) for what it returns."""

    name: str
    target: str
    result: str | None = None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One launch. `capture` is the first and last step index that an outside tool records, both included."""

    engine_root: Path | None
    measured_root: Path | None
    factory: str
    engine: Mapping[str, Any]
    mode: str
    seed: int
    warmup_steps: int
    steps: int
    capture: tuple[int, int] | None
    probes: tuple[ProbeSpec, ...]
    collector: str
    launch_dir: Path
    control_socket: Path
    start_timeout_s: float
    timeout_s: float

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
    for key in document:
        if key not in _KINDS:
            raise UsageError(f"plan: unknown key {key!r}.{closest(key, _KINDS)}")
    for key, kinds in _KINDS.items():
        if key not in document:
            raise UsageError(f"plan: key {key!r} is missing")
        value = document[key]
        if not isinstance(value, kinds) or (isinstance(value, bool)):
            expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in kinds)
            raise UsageError(f"plan: {key} is {value!r}; expected {expected}")
    _require(document["plan"] == PLAN_VERSION, "plan", document["plan"], f"{PLAN_VERSION}, from the same Stepduel")
    _require(document["mode"] in MODES, "mode", document["mode"], f"one of {', '.join(MODES)}")
    _require(document["collector"] in COLLECTORS, "collector", document["collector"], f"one of {', '.join(COLLECTORS)}")
    for key in ("start_timeout_s", "timeout_s"):
        _require(document[key] > 0, key, document[key], "above 0")
    engine_root, measured_root = document["engine_root"], document["measured_root"]
    return Plan(
        engine_root=None if engine_root is None else Path(engine_root),
        measured_root=None if measured_root is None else Path(measured_root),
        factory=document["factory"],
        engine=document["engine"],
        mode=document["mode"],
        seed=document["seed"],
        warmup_steps=document["warmup_steps"],
        steps=document["steps"],
        capture=_parse_capture(document["capture"]),
        probes=parse_probes(document["probes"]),
        collector=document["collector"],
        launch_dir=Path(document["launch_dir"]),
        control_socket=Path(document["control_socket"]),
        start_timeout_s=float(document["start_timeout_s"]),
        timeout_s=float(document["timeout_s"]),
    )


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


def _parse_capture(value: list[Any] | None) -> tuple[int, int] | None:
    if value is None:
        return None
    fits = len(value) == 2 and all(type(index) is int for index in value) and 0 <= value[0] <= value[1]
    _require(fits, "capture", value, "[first, last] step")
    return value[0], value[1]


def _results() -> str:
    return f"null or one of {', '.join(names.PAYLOAD_MARKS)}"


def _require(fits: bool, key: str, value: object, allowed: str) -> None:
    if not fits:
        raise UsageError(f"plan: {key} is {value!r}; allowed: {allowed}")
