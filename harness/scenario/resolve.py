"""Makes a scenario of its layers, and refuses what it cannot be: file, key, what is allowed, nearest known name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path, PurePosixPath
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from packaging.requirements import InvalidRequirement, Requirement

from harness import names
from harness.errors import UsageError, closest
from harness.scenario.layers import SECTIONS, Entry, Layer, shown, shown_path
from harness.scenario.model import (
    CompareSettings,
    PayloadName,
    Probe,
    RunSettings,
    Scenario,
    SubjectSettings,
    Value,
)

_FACTORY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+")

_LARGEST = 2**63 - 1
"""Largest number of any setting: what torch takes as a seed on every device, and what the database can hold."""


def resolve(path: Path, layer: Layer) -> Scenario:
    """Return the scenario that the merged `layer` of the file at `path` describes. Raises UsageError."""
    by_section: dict[str, dict[str, Entry]] = {section: {} for section in ("", *SECTIONS)}
    for (section, key), entry in layer.items():
        by_section[section][key] = entry
    engine, factory = _engine(by_section["engine"], shown_path(path))
    if "seed" in by_section["run"]:
        engine["seed"] = by_section["run"]["seed"].value
    description = by_section[""].get("description")
    if description is None:
        raise UsageError(f"{shown_path(path)}: description is missing: expected one line on what it measures")
    if not isinstance(description.value, str) or not description.value.strip():
        raise UsageError(f"{description.origin}: description = {shown(description.value)}: expected one line of text")
    return Scenario(
        name=path.stem,
        description=" ".join(description.value.split()),
        factory=factory,
        run=_settings(RunSettings, "run", by_section["run"]),
        engine=engine,
        probes=tuple(_probe(name, entry) for name, entry in by_section["probes"].items()),
        compare=_settings(CompareSettings, "compare", by_section["compare"]),
        source=path,
        subject=_subject(by_section["subject"]),
    )


def _engine(entries: Mapping[str, Entry], file: str) -> tuple[dict[str, Value], str]:
    if "factory" not in entries:
        raise UsageError(f"{file}: engine.factory is missing: expected 'package.module:callable'")
    for key, entry in entries.items():
        if not _is_plain(entry.value):
            raise UsageError(
                f"{entry.origin}: engine.{key} = {shown(entry.value)}: "
                "expected text, a number, a boolean, a list or a table"
            )
    if "seed" in entries:
        raise UsageError(f"{entries['seed'].origin}: engine.seed: set run.seed, which reaches the engine as its seed")
    factory = entries["factory"]
    if not isinstance(factory.value, str) or not _FACTORY.fullmatch(factory.value):
        raise UsageError(
            f"{factory.origin}: engine.factory = {shown(factory.value)}: expected 'package.module:callable'"
        )
    return {key: entry.value for key, entry in entries.items() if key != "factory"}, factory.value


def _probe(name: str, entry: Entry) -> Probe:
    where = f"{entry.origin}: probes.{name} = {shown(entry.value)}"
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


def _subject(entries: Mapping[str, Entry]) -> SubjectSettings:
    found: dict[str, Any] = {}
    for key, entry in entries.items():
        where, value = f"{entry.origin}: subject.{key} = {shown(entry.value)}", entry.value
        if key == "package":
            if not isinstance(value, str) or not value.isidentifier():
                raise UsageError(f"{where}: expected the name of an import package, as in 'verl'")
            found[key] = value
        elif key == "requirements":
            if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
                raise UsageError(f"{where}: expected a list of requirements, as in ['torch==2.13.0', 'numpy<2']")
            found[key] = tuple(_requirement(text, where) for text in value)
        elif key == "shared":
            if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
                raise UsageError(f"{where}: expected a list of paths in the working tree, as in ['data/']")
            found[key] = tuple(value)
        elif key == "build":
            if not isinstance(value, str) or not value.strip():
                raise UsageError(f"{where}: expected a command, as in 'python setup.py build_ext --inplace'")
            found[key] = value
        elif key == "root":
            if not isinstance(value, str) or not _is_inside(value):
                raise UsageError(f"{where}: expected a folder of the repository, as in 'packages/train'")
            found[key] = value
        elif key == "environment":
            if not isinstance(value, str) or not _is_inside(value):
                raise UsageError(f"{where}: expected 'lock', or a requirements file of the tree, as in 'gpu.txt'")
            found[key] = value
        elif key == "uv_options":
            if not isinstance(value, list) or not all(isinstance(text, str) and text for text in value):
                raise UsageError(f"{where}: expected a list of options of uv, as in ['--extra', 'gpu']")
            found[key] = tuple(value)
        else:
            known = [item.name for item in fields(SubjectSettings)]
            raise UsageError(
                f"{entry.origin}: [subject] has no key {key!r}.{closest(key, known)} Allowed: {', '.join(known)}"
            )
    if "environment" in found and "requirements" in found:
        raise UsageError(
            f"{entries['environment'].origin}: subject.environment and subject.requirements exclude each other: one "
            "makes an environment for each side, the other one for both"
        )
    return SubjectSettings(**found)


def _is_inside(path: str) -> bool:
    """Whether it names a file below the folder that it is relative to."""
    given = PurePosixPath(path)
    return bool(given.name) and not given.is_absolute() and ".." not in given.parts


def _requirement(text: str, where: str) -> str:
    """Return a requirement in the one spelling that equal ones share."""
    try:
        return str(Requirement(text))
    except InvalidRequirement as error:
        reason = str(error).splitlines()[0]
        raise UsageError(f"{where}: {text!r} is no requirement, as pip takes them: {reason}") from error


_Settings = TypeVar("_Settings", RunSettings, CompareSettings)


def _settings(kind: type[_Settings], section: str, entries: Mapping[str, Entry]) -> _Settings:
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


def _checked(key: str, entry: Entry, kind: Any, metadata: Mapping[str, Any]) -> Any:
    """Return the value as `kind`, or raise naming the key and what it takes. An integer may stand for a float."""
    value = entry.value
    where = f"{entry.origin}: {key} = {shown(value)}"
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            allowed = ", ".join(repr(choice) for choice in get_args(kind))
            raise UsageError(f"{where}: expected one of {allowed}.{closest(str(value), get_args(kind))}")
        return value
    if kind is bool:
        if not isinstance(value, bool):
            raise UsageError(f"{where}: expected true or false")
        return value
    number = {int: "an integer", float: "a number"}[kind]
    at_least, above = metadata["at_least"], metadata["above"]
    if isinstance(value, str) and metadata["read"] is not None:
        value = _read(where, value, metadata["read"])
    limit = f" of at least {at_least:g}" if at_least is not None else f" above {above:g}" if above is not None else ""
    fits = isinstance(value, int if kind is int else (int, float)) and not isinstance(value, bool)
    if fits and isinstance(value, int) and value > _LARGEST:
        within = f"from {at_least:g} to" if at_least is not None else "of at most"
        raise UsageError(f"{where}: expected {number} {within} {_LARGEST}")
    if not fits or not math.isfinite(value):
        raise UsageError(f"{where}: expected {number}{limit}")
    if (at_least is not None and value < at_least) or (above is not None and value <= above):
        raise UsageError(f"{where}: expected {number}{limit}")
    return kind(value if metadata["read"] is None else _read(where, value, metadata["read"]))


def _read(where: str, value: object, read: Callable[[object], float]) -> float:
    try:
        return read(value)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def _is_plain(value: object) -> bool:
    """Whether JSON can carry the value unchanged to the worker (TOML's dates and not-a-numbers cannot)."""
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    return isinstance(value, str | int | bool)
