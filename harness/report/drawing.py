"""A plot in two widths: text keeps its size, so a phone gets a drawing of its own instead of a smaller one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

WIDE: Final = 920
NARROW: Final = 346
"""CSS pixels that a page 380 pixels wide has for a plot."""


@dataclass(frozen=True, kw_only=True)
class Plots:
    """The same plot for wide and for narrow pages."""

    wide: Markup
    narrow: Markup


def both_widths(name: str, draw: Callable[[int, str], Markup]) -> Plots:
    """Draw a plot for both widths. `draw` takes the width in CSS pixels and a name that keeps ids apart."""
    return Plots(wide=draw(WIDE, f"{name}-wide"), narrow=draw(NARROW, f"{name}-narrow"))
