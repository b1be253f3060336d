"""How differences are written: a sign always, a real minus, and a word for their direction."""

from __future__ import annotations

from harness.metrics import bytes_text, milliseconds
from harness.metrics import plural as plural

MINUS = "−"
NO_BREAK = "\N{NO-BREAK SPACE}"
"""Between a figure and its unit, so that a line never ends there."""


def signed_ms(ns: float) -> str:
    """Return a difference of times in ms: `+4.125`, `−12.35`, `0.000` for what rounds to nothing."""
    return signed(milliseconds(abs(ns)), ns)


def signed_percent(share: float, digits: int = 1) -> str:
    """Return a fraction as a signed percentage: `+3.1 %`."""
    return f"{signed(f'{abs(share) * 100:.{digits}f}', share)}{NO_BREAK}%"


def change(ratio: float, digits: int = 1) -> str:
    """Return head/base as the change it means: 1.031 is `+3.1 %`."""
    return signed_percent(ratio - 1, digits)


def signed_bytes(count: float) -> str:
    """Return a difference of bytes: `+19.1 MB`."""
    return signed(bytes_text(abs(count)), count)


def signed(magnitude: str, value: float) -> str:
    """Put the sign of `value` before a written magnitude; none before one that reads as zero."""
    if not any(digit in magnitude for digit in "123456789"):
        return magnitude
    return f"{MINUS if value < 0 else '+'}{magnitude}"


def direction(value: float) -> str:
    """Return the palette's role for a difference of times: `slower` above zero, `faster` below."""
    return "slower" if value > 0 else "faster"
