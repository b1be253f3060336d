"""Matplotlib figures as SVG inside the page: text stays text, colours follow the theme, bytes repeat.

A figure is drawn with stand-in colours, one a role of the palette, which then become CSS variables. Its size in inches
is its size in CSS pixels over 72, so that a 12 point label is 12 pixels where the figure is shown at its own size.
"""

from __future__ import annotations

import io
import itertools
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import matplotlib as mpl
from markupsafe import Markup, escape
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from harness.report.palette import COLOURS
from harness.visible import shortened, visible

ALT_WIDTH: Final = 1000

_STAND_INS: Final = {role: f"#0{index:05x}" for index, role in enumerate(COLOURS, start=0xA000)}
_ROLE_OF: Final = {colour: role for role, colour in _STAND_INS.items()}
_SETTINGS: Final[Any] = {  # matplotlib types its keys one by one
    "svg.fonttype": "none",
    "svg.hashsalt": "stepduel",
    # A range may be called `$x$`: nobody's name is a formula.
    "text.parse_math": False,
    "axes.formatter.use_mathtext": False,
    "axes.unicode_minus": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 12,
    "axes.labelsize": 12,
    "xtick.labelsize": 12,
    "ytick.labelsize": 12,
    "path.simplify": False,
}
_PROLOGUE: Final = re.compile(r"^.*?(?=<svg)|<metadata>.*?</metadata>|<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_FONT: Final = re.compile(r"font-family: [^;\"]*;? ?")
_NUMBER: Final = re.compile(r"(?<=[ \"(])(-?\d+\.\d{2})\d+")
_ID: Final = re.compile(r"(\bid=\"|href=\"#|url\(#)")
_HEX: Final = re.compile(r"#[0-9a-f]{6}\b")
_GAP: Final = re.compile(r">\s+<")
_LABEL: Final = re.compile(r"(<text [^>]*>)(.*?)(</text>)", re.DOTALL)
_SIZE: Final = re.compile(r"<svg [^>]*?width=\"([\d.]+)pt\" height=\"([\d.]+)pt\"[^>]*>")


def colour(role: str) -> str:
    """Return the stand-in that becomes the CSS variable of a role of the palette."""
    return _STAND_INS[role]


@contextmanager
def plot(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """Yield a figure of this many CSS pixels with one set of axes that fills it; draw, then call `svg` inside."""
    with mpl.rc_context(_SETTINGS), warnings.catch_warnings():
        # Text is laid out by the reader's browser, which has glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        figure = Figure(figsize=(width / 72, height / 72), facecolor="none")
        FigureCanvasSVG(figure)
        axes = figure.add_axes((0, 0, 1, 1), facecolor="none")
        for side in ("top", "right", "left", "bottom"):
            axes.spines[side].set_visible(False)
        axes.tick_params(length=0, labelcolor=colour("muted"), pad=5)
        axes.set_axisbelow(True)
        yield figure, axes


def place(figure: Figure, axes: Axes, *, left: float, right: float, top: float, bottom: float) -> None:
    """Set the margins around the axes in CSS pixels."""
    width, height = figure.get_size_inches() * 72
    axes.set_position((left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height))


def svg(figure: Figure, name: str, alt: str) -> Markup:
    """Return the figure as one `<svg>` with a role and a label. `name` keeps its ids apart from other figures'."""
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    text = _PROLOGUE.sub("", buffer.getvalue())
    # Labels are put aside while the drawing is rewritten: one may look like an id or a colour.
    labels = [found[2] for found in _LABEL.finditer(text)]
    number = itertools.count()
    text = _LABEL.sub(lambda found: f"{found[1]}{next(number)}{found[3]}", text)
    text = _FONT.sub("", text)
    text = _NUMBER.sub(r"\1", text)
    text = _ID.sub(lambda found: f"{found[1]}{name}-", text)
    text = text.replace("xlink:href", "href")
    text = _HEX.sub(lambda found: f"var(--{_ROLE_OF[found[0]]})" if found[0] in _ROLE_OF else found[0], text)
    text = _GAP.sub("><", text)
    size = _SIZE.search(text)
    assert size is not None
    width, height = float(size[1]), float(size[2])
    opening = (
        f'<svg class="plot" role="img" aria-label="{escape(shortened(alt, ALT_WIDTH))}" '
        f'viewBox="0 0 {width:g} {height:g}" style="max-width:{width:g}px">'
    )
    text = opening + text[size.end() :]
    text = _LABEL.sub(lambda found: f"{found[1]}{visible(labels[int(found[2])])}{found[3]}", text)
    return Markup(text.strip())
