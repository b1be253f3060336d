"""How a page sets figures: a real minus, units that stay beside them, and a role for the direction of a difference."""

from __future__ import annotations

import re
from typing import Final

MINUS: Final = "−"
NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_SIGN: Final = re.compile(r"(?<![\w-])-(?=\d)")
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|ms|k?B|MB|GB|TB)(?!\w))")


def typographic(text: str) -> str:
    """Return figures of `harness.units` as a page shows them: with a real minus, never broken before their unit."""
    return _UNIT.sub(NO_BREAK, _SIGN.sub(MINUS, text))


def direction(value: float) -> str:
    """Return the palette's role for a difference of times: `slower` above zero, `faster` below."""
    return "slower" if value > 0 else "faster"
