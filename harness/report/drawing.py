"""A plot in two widths: text keeps its size, so a phone gets a drawing of its own instead of a smaller one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

NARROW: Final = 328
"""CSS pixels that a page 380 pixels wide has for a plot."""


@dataclass(frozen=True, kw_only=True)
class Plots:
    """The same plot for wide and for narrow pages; `narrow` None where one serves both."""

    wide: Markup
    narrow: Markup | None = None


def both_widths(name: str, width: int, draw: Callable[[int, str], str]) -> Plots:
    """Draw a plot at `width` and for narrow pages. `draw` takes the width and a name that keeps ids apart."""
    return Plots(wide=Markup(draw(width, f"{name}-wide")), narrow=Markup(draw(NARROW, f"{name}-narrow")))
