"""`index.html` of the reports folder: every report that lies there, newest first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Final
from urllib.parse import quote

from markupsafe import Markup

from harness.report.page import Page, Section, draw
from harness.report.page import name as shown
from harness.report.sections import headline
from harness.report.tables import Column, Row, table
from harness.report.writing import write_report
from harness.store import DuelRecord
from harness.units import plural

INDEX: Final = "index.html"
HEAD_CHARACTERS: Final = 4096
"""A report's title and id stand at its beginning."""
_TITLE: Final = re.compile(r"<title>(.*?)</title>", re.DOTALL)
_IDENTITY: Final = re.compile(r'<meta name="stepduel-id" content="(.*?)">')
_OURS: Final = '<meta name="generator" content="stepduel '
_LINK: Final = Markup('<a href="./{}">{}</a>')

TEMPLATE: Final = """
{% if table %}
{{ table }}
{% else %}
<p class="nothing">No report lies here yet. “stepduel compare SCENARIO BASE HEAD --html FILE” writes one.</p>
{% endif %}
"""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One report: its file's path below the folder, its title, and the id of what it shows, empty for a trace."""

    path: str
    title: str
    identity: str = ""


def find_reports(folder: Path) -> list[Entry]:
    """Return the reports in `folder` and one level below, by name, newest name first. Other HTML is left out."""
    files = [*folder.glob("*.html"), *folder.glob("*/*.html")]
    entries = []
    for file in sorted(files, key=lambda file: file.name, reverse=True):
        if file.name == INDEX or not file.is_file():
            continue
        with file.open(encoding="utf-8", errors="replace") as opened:
            head = opened.read(HEAD_CHARACTERS)
        title = _TITLE.search(head)
        if _OURS in head and title is not None:
            identity = _IDENTITY.search(head)
            shows = unescape(identity[1]) if identity else ""
            entries.append(Entry(path=str(file.relative_to(folder)), title=unescape(title[1]), identity=shows))
    return entries


def render_index(entries: Iterable[Entry], duels: Iterable[DuelRecord] = ()) -> str:
    """Return the index as one HTML file. `duels` tell when what a report shows was measured."""
    by_id = {duel.id: duel for duel in duels}
    listed = list(entries)
    columns = [Column(title=title, kind="name") for title in ("Report", "File", "Scenario", "Measured", "Ended")]
    rows = [_row(entry, by_id) for entry in listed]
    html = draw(TEMPLATE, table=table("Reports", columns, rows) if rows else None)
    return Page(
        kind="Reports",
        heading="all reports",
        lead=headline.section(crumb="Stepduel", sentence=plural(len(listed), "report"), tiles=[]),
        sections=(Section(anchor="reports", title="All reports", html=html),),
    ).render()


def write_index(folder: Path, duels: Iterable[DuelRecord] = ()) -> Path:
    """Write the index of the reports in `folder` and return its path. UsageError where it cannot be written."""
    target = folder / INDEX
    write_report(target, render_index(find_reports(folder), duels))
    return target


def _row(entry: Entry, duels: Mapping[str, DuelRecord]) -> Row:
    duel = duels.get(entry.identity)
    about = ("", "", "") if duel is None else (duel.scenario, duel.started_at[:16].replace("T", " "), duel.status)
    link = _LINK.format(quote(entry.path), shown(entry.title, 120))
    return Row(cells=[link, shown(entry.path, 80), *(shown(text, 80) for text in about)])
