"""How a result becomes its JSON document: every field under its own name, and the figures computed from them.

A result's class may say two things about its document:

- `ALSO_IN_DOCUMENT`: properties that are in it as well;
- `NOT_IN_DOCUMENT`: fields that are not, each with the reason.

Whatever else a result gets reaches its document by itself. Units are in the names: all times are in ns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from pathlib import PurePath
from typing import Any


def document(schema: str, result: object) -> dict[str, Any]:
    """Return a result's document: `schema`, then its fields."""
    return {"schema": schema, **plain(result)}


def plain(value: object) -> Any:
    """Return a value as what JSON has. Not-a-number and infinity become None: JSON has neither.

    Results, mappings, lists and tuples of such values may be nested in each other. Raises TypeError for anything else,
    arrays included.
    """
    if isinstance(value, float):
        return float(value) if value - value == 0 else None
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in names(type(value))}
    if getattr(value, "ndim", None) == 0:
        return plain(value.item())  # type: ignore[attr-defined]  # a numpy scalar; numpy itself is not needed here
    raise TypeError(f"a document has no place for a {type(value).__name__}")


def names(kind: Any) -> list[str]:
    """Return the keys that a result of dataclass `kind` has in its document."""
    left_out = getattr(kind, "NOT_IN_DOCUMENT", {})
    own = [field.name for field in fields(kind) if field.name not in left_out]
    return [*own, *getattr(kind, "ALSO_IN_DOCUMENT", ())]


def json_text(content: Mapping[str, Any]) -> str:
    """Return a document as text that any reader takes, and a terminal obeys nothing of."""
    return json.dumps(plain(content), indent=2, ensure_ascii=True, allow_nan=False) + "\n"
