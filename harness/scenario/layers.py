"""The layers of a scenario: flat tables of values that remember where they were written, to complain in those words."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError, closest


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One value and the layer that set it, as a user would name that layer."""

    value: Any
    """None, which TOML has no word for, takes away what an earlier layer set."""
    origin: str


Layer = dict[tuple[str, str], Entry]
TOP_LEVEL: Final = ("description", "extends")
SECTIONS: Final = ("run", "engine", "probes", "compare", "subject")
_BARE_WORD = re.compile(r"[^\s\"'\[\]{}#]+( [^\s\"'\[\]{}#]+)*")


def read_layer(path: Path) -> Layer:
    """Return the file as one flat layer; its sections are checked to be known tables, its values not yet."""
    file = shown_path(path)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: not valid TOML: {error}") from error
    except (OSError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{file}: cannot be read as a TOML file: {error}") from error
    layer: Layer = {}
    for key, value in document.items():
        if key in SECTIONS:
            if not isinstance(value, dict):
                raise UsageError(f"{file}: {key} = {shown(value)}: expected a table, written as [{key}]")
            layer.update({(key, inner): Entry(value=item, origin=file) for inner, item in value.items()})
        elif key in TOP_LEVEL:
            layer["", key] = Entry(value=value, origin=file)
        else:
            allowed = [*TOP_LEVEL, *(f"[{section}]" for section in SECTIONS)]
            raise UsageError(
                f"{file}: unknown key {key!r}.{closest(key, [*TOP_LEVEL, *SECTIONS])} Allowed: {', '.join(allowed)}"
            )
    return layer


def parse_override(text: str) -> Layer:
    """Return `section.key=value` as a layer. The value has TOML's syntax; a bare word stands for a string.

    Without a value the entry's is None, which takes the key out of the layers before.
    """
    origin = f"--set {text}"
    dotted, equals, written = text.partition("=")
    section, dot, key = dotted.strip().partition(".")
    if dotted.strip() == "description":
        section, dot, key = "", ".", "description"
    if not (equals and dot and key):
        raise UsageError(f"{origin}: expected SECTION.KEY=VALUE, as in engine.lora_rank=16")
    if section and section not in SECTIONS:
        raise UsageError(
            f"{origin}: no section {section!r}.{closest(section, SECTIONS)} Allowed: {', '.join(SECTIONS)}"
        )
    written = written.strip()
    if not written and section:
        return {(section, key): Entry(value=None, origin=origin)}
    try:
        document = tomllib.loads(f"value = {written}")
    except tomllib.TOMLDecodeError as error:
        if not _BARE_WORD.fullmatch(written):
            raise UsageError(f"{origin}: the value is neither TOML nor a bare word: {error}") from error
        document = {"value": written}
    if set(document) != {"value"}:
        raise UsageError(f"{origin}: expected one value on one line")
    return {(section, key): Entry(value=document["value"], origin=origin)}


def shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def shown_path(path: Path) -> str:
    """Return the path as a user would type it: relative when it lies below the current folder."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
