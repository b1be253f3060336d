"""Text that nobody vouches for, made safe to show: names of ranges, branches, scenarios, commit subjects.

Escape sequences can retitle a terminal, bidirectional overrides can make a page read other than it is written, and a
name can be a hundred thousand characters long. What a reader could not see is written as an escape instead.
"""

from __future__ import annotations

import unicodedata
from typing import Final

_HIDDEN_CATEGORIES: Final = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
"""Control, format (bidirectional overrides among them), surrogate, private, unassigned; line and paragraph ends."""


def visible(text: str) -> str:
    """Return `text` with everything that a terminal would obey, or not show, written as an escape instead."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def shortened(text: str, width: int) -> str:
    """Return `visible(text)` in at most `width` characters, the middle left out: both ends of a path tell something.

    Only as much of `text` is looked at as can be shown.
    """
    if len(text) <= width:
        shown = visible(text)
        return shown if len(shown) <= width else f"{shown[: width - 1]}…"
    head, tail = visible(text[: width // 3])[: width // 3], visible(text[-width:])
    return f"{head}…{tail[-(width - len(head) - 1) :]}"


def _escaped(character: str) -> str:
    if unicodedata.category(character) not in _HIDDEN_CATEGORIES:
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
