"""The first screen of a page without a verdict: one sentence and a few figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.report.page import Section, draw

TEMPLATE: Final = """
<p class="crumb">{{ crumb | name }} <span>{{ description | name(200) }}</span></p>
<h1 class="verdict {{ role }}">
{% if pill %}
<span class="pill">{{ pill }}</span>
{% endif %}
{{ sentence }}</h1>
{% for line in lines %}
<p class="explain">{{ line | name(600) }}</p>
{% endfor %}
<dl class="tiles">
{% for tile in tiles %}
<div class="tile{{ " wide" if tile.wide }}"><dt>{{ tile.title }}</dt>
{% if tile.value %}
<dd class="value{{ "" if tile.wide else " small" }}">{{ tile.value }}</dd>
{% endif %}
{% for label, figure in tile.rows %}
<dd class="moved"><span class="path">{{ label | path(60) }}</span> <strong>{{ figure }}</strong></dd>
{% endfor %}
{% if tile.detail %}
<dd>{{ tile.detail | name(300) }}</dd>
{% endif %}
</div>
{% endfor %}
</dl>
"""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One figure with its title, or a few rows of names and figures."""

    title: str
    value: str = ""
    detail: str = ""
    rows: Sequence[tuple[str, str]] = ()
    wide: bool = False


def section(
    *,
    crumb: str,
    sentence: str,
    tiles: Sequence[Tile],
    description: str = "",
    lines: Sequence[str] = (),
    pill: str = "",
    role: str = "same",
) -> Section:
    """Return the first screen. `role` is the state of the palette that colours the `pill`."""
    html = draw(
        TEMPLATE,
        crumb=crumb,
        description=description,
        sentence=sentence,
        lines=lines,
        tiles=tiles,
        pill=pill,
        role=role,
    )
    return Section(anchor="summary", title="Summary", html=html)
