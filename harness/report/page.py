"""One self-contained page from its sections: style and script inlined, everything that is a name escaped.

A section is a heading and a piece of HTML that one file of `harness.report.sections` makes from what it is given. The
page has no clock, no random id and no link to anything on a network, so equal content gives equal bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from harness import __version__
from harness.report.figures import typographic
from harness.report.palette import stylesheet
from harness.units import bytes_text, change, count_text, milliseconds, percent, signed_ms
from harness.visible import shortened

TEMPLATES: Final = Path(__file__).resolve().parent / "templates"
NAME_WIDTH: Final = 160
"""Characters of a name that are shown at most."""
TEXT_WIDTH: Final = 1000
"""Characters of any other text, such as a command line with names in it."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One part of a page. `anchor` is its id, `title` its heading; a part without a title stands above the others."""

    anchor: str
    title: str
    html: Markup


@dataclass(frozen=True, kw_only=True)
class Page:
    """A whole page. `heading` is the name of what it shows, `kind` the word before it in the window's title."""

    kind: str
    heading: str
    lead: Section
    sections: tuple[Section, ...]
    identity: str = ""
    """Id of the duel or run that it shows: how an index of reports knows them."""

    def render(self) -> str:
        """Return the page as HTML."""
        return (
            _environment()
            .get_template("page.html")
            .render(
                page=self,
                version=__version__,
                style=Markup(stylesheet() + (TEMPLATES / "style.css").read_text(encoding="utf-8")),
                script=Markup((TEMPLATES / "script.js").read_text(encoding="utf-8")),
            )
        )


def draw(template: str, **values: Any) -> Markup:
    """Fill a section's template. Values are escaped unless they are `Markup`; macros of `macros.html` are `m`."""
    environment = _environment()
    macros = environment.get_template("macros.html").module
    return Markup(_compiled(template).render(m=macros, **values))


def name(text: object, width: int = NAME_WIDTH) -> str:
    """Return a name as it is shown: hidden characters as escapes, the middle of a long one left out."""
    return shortened(str(text), width)


def names(texts: Iterable[object], width: int = NAME_WIDTH) -> str:
    """Return names joined by commas."""
    return ", ".join(name(text, width) for text in texts)


def path(text: object, width: int = NAME_WIDTH) -> Markup:
    """Return a name as it is shown, with places where a long one may be broken: after `/`, `_` and `.`."""
    return Markup(re.sub(r"(?<=[/_.])(?=[^/_.])", "<wbr>", str(escape(name(text, width)))))


def _safe(value: object) -> object:
    """What every value that is not `Markup` becomes before it is escaped: nothing hidden and nothing endless."""
    return shortened(value, TEXT_WIDTH) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_safe,
    )
    environment.filters.update(
        name=name,
        names=names,
        path=path,
        ms=milliseconds,
        bytes=bytes_text,
        count=count_text,
        percent=percent,
        signed_ms=lambda ns: typographic(signed_ms(ns)),
        change=lambda ratio: typographic(change(ratio)),
    )
    return environment


@cache
def _compiled(template: str) -> Any:
    return _environment().from_string(template)
