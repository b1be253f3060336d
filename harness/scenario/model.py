"""What a scenario holds, once resolved: small frozen settings, each key with its meaning and the numbers it takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from harness.units import parse_seconds, parse_share

PayloadName = Literal["moved_bytes", "collected_objects"]
Value = str | int | float | bool | list[Any] | dict[str, Any]


def _setting(
    default: Any,
    meaning: str,
    *,
    at_least: float | None = None,
    above: float | None = None,
    read: Callable[[object], float] | None = None,
) -> Any:
    """Declare one key: its default, its meaning in one line, the numbers it takes, and what reads it with a unit."""
    return field(default=default, metadata={"meaning": meaning, "at_least": at_least, "above": above, "read": read})


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """`[run]`: how a launch is driven."""

    mode: Literal["train", "eval"] = _setting("train", "what a step does")
    ranks: int = _setting(1, "processes of a launch", at_least=1)
    warmup_steps: int = _setting(2, "steps before the measured ones, left out of every figure", at_least=0)
    steps: int = _setting(10, "measured steps", at_least=1)
    period: int = _setting(1, "steps until the rarest cost (checkpoint, evaluation, log) comes again", at_least=1)
    timeout_s: float = _setting(60.0, "longest a single step may take", above=0, read=parse_seconds)
    start_timeout_s: float = _setting(120.0, "longest that building the engine may take", above=0, read=parse_seconds)
    time_batch: bool = _setting(True, "whether making or loading a step's batch counts as part of the step")
    seed: int = _setting(0, "seed of parameters and batches; the engine gets it as `seed`", at_least=0)


@dataclass(frozen=True, kw_only=True)
class CompareSettings:
    """`[compare]`: when two subjects count as doing the same work."""

    loss_tolerance: float = _setting(
        0.0,
        "largest relative difference of two losses of the same step; 0 asks for the same bits",
        at_least=0,
        read=parse_share,
    )


@dataclass(frozen=True, kw_only=True)
class SubjectSettings:
    """`[subject]`: what of the engine is measured, where its factory only adapts it, and what it needs installed.

    `package` is the import package that a revision or a release must hold; None where that is the factory's own.
    `requirements` are of an environment that is made for it, the same for all subjects; none asks for none.
    `environment` has each side run in one of its own, made by uv from the file of that name in its tree (`lock`:
    uv.lock or requirements.txt); `uv_options` are given to uv. `shared` are paths of the working tree that all sides
    see; `build` is a command that makes a tree ready to be imported; `root` is the folder of the repository that the
    engine lies in, where it is not found by itself.
    """

    package: str | None = None
    requirements: tuple[str, ...] = ()
    shared: tuple[str, ...] = ()
    build: str | None = None
    root: str | None = None
    environment: str | None = None
    uv_options: tuple[str, ...] = ()


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
    subject: SubjectSettings = field(default_factory=SubjectSettings)

    def document(self) -> dict[str, Any]:
        """Return the resolved scenario as plain JSON-ready values, in the shape of its file."""
        document = {
            "description": self.description,
            "run": asdict(self.run),
            "engine": {"factory": self.factory, **{k: v for k, v in self.engine.items() if k != "seed"}},
            "probes": {probe.name: {"target": probe.target, "result": probe.result} for probe in self.probes},
            "compare": asdict(self.compare),
        }
        subject = {
            "package": self.subject.package,
            "requirements": list(self.subject.requirements),
            "shared": list(self.subject.shared),
            "build": self.subject.build,
            "root": self.subject.root,
            "environment": self.subject.environment,
            "uv_options": list(self.subject.uv_options),
        }
        return document | {"subject": given} if (given := {k: v for k, v in subject.items() if v}) else document

    @property
    def hash(self) -> str:
        """16 hexadecimal digits over everything that shapes what is measured; results with different ones never mix.

        Words, limits on waiting, the period and tolerances are left out: changing them does not make older results
        incomparable.
        """
        return hashlib.sha256(json.dumps(measured(self.document()), sort_keys=True).encode()).hexdigest()[:16]


def measured(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a scenario's document that shapes what is measured."""
    content = {key: document[key] for key in ("run", "engine", "probes", "subject") if key in document}
    unmeasured = ("timeout_s", "start_timeout_s", "period")
    run = {key: value for key, value in content.get("run", {}).items() if key not in unmeasured}
    return content | {"run": run}
