"""Facts about waste in the traces: which head adds, which it removed, which both have."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from harness.analysis.findings.finding import Finding
from harness.report.page import Section, draw, path
from harness.report.page import name as shown
from harness.report.tables import Column, Row, numbers, table
from harness.units import bytes_text, milliseconds

EVIDENCE_ROWS: Final = 5

TEMPLATE: Final = """
<p>{{ sentence }}</p>
{% if cards %}
<ul class="findings">
{% for card in cards %}
<li class="{{ card.state }}">
<h3>{{ card.finding.rule | name }}
{% if card.word %}
<span class="tag {{ card.state }}">{{ card.word }}</span>
{% endif %}
<span class="cost">{{ card.cost }} ms a step</span></h3>
<p>{{ card.finding.summary | name(600) }}</p>
<p class="advice"><strong>Try:</strong> {{ card.finding.advice | name(600) }}</p>
{% if card.evidence %}
<details><summary>Evidence</summary>
{{ card.evidence }}
</details>
{% endif %}
</li>
{% endfor %}
</ul>
{% endif %}
"""
WORDS: Final = {"new": "new in head", "gone": "gone in head", "both": "both sides"}


@dataclass(frozen=True, kw_only=True)
class Card:
    """One finding as it is shown. `state` is a key of `WORDS`, or empty for a trace by itself."""

    finding: Finding
    state: str
    cost: str

    @property
    def word(self) -> str:
        """What its state means."""
        return WORDS.get(self.state, "")

    @property
    def evidence(self) -> Markup | None:
        """The rows that prove it."""
        found = self.finding.evidence
        rows = [*found.ranges[:EVIDENCE_ROWS], *found.calls[:EVIDENCE_ROWS]]
        columns = [Column(title="Range or call", kind="path"), *numbers("Calls", "ms in all", "Bytes")]
        cells = [
            Row(cells=[path(r.name), f"{r.calls:,}", milliseconds(r.total_ns), bytes_text(r.bytes) if r.bytes else ""])
            for r in rows
        ]
        return table(f"Evidence of {shown(self.finding.rule)}", columns, cells) if rows else None


def section(base: Sequence[Finding] | None, head: Sequence[Finding] | None) -> Section:
    """Return the findings of both sides: new ones, gone ones, then those of both. None is a side without a trace."""
    if base is None and head is None:
        return _section("No trace of either side was kept, so nothing was looked for.", [])
    if base is None or head is None:
        return _section(f"Only {'head' if base is None else 'base'} has a trace: there is nothing to compare.", [])
    cards = [_card(rule, base, head) for rule in dict.fromkeys(f.rule for f in (*head, *base))]
    cards.sort(key=lambda card: list(WORDS).index(card.state))
    if not cards:
        return _section("No rule found waste on either side.", [])
    return _section(
        "Facts that rows of the traces prove, one launch a side. Their times overlap and must not be added up.", cards
    )


def of_trace(found: Sequence[Finding]) -> Section:
    """Return the findings of one trace, as they are ordered."""
    cards = [Card(finding=one, state="", cost=milliseconds(one.ns_per_step)) for one in found]
    if not cards:
        return _section("No rule found waste in this trace.", [])
    return _section("Facts that rows of the trace prove. Their times overlap and must not be added up.", cards)


def _section(sentence: str, cards: Sequence[Card]) -> Section:
    return Section(anchor="findings", title="Findings", html=draw(TEMPLATE, sentence=sentence, cards=cards))


def _card(rule: str, base: Sequence[Finding], head: Sequence[Finding]) -> Card:
    sides = {name: [one for one in side if one.rule == rule] for name, side in (("base", base), ("head", head))}
    state = "both" if all(sides.values()) else "new" if sides["head"] else "gone"
    shown_finding = (sides["head"] or sides["base"])[0]
    costs = [milliseconds(side[0].ns_per_step) for side in sides.values() if side]
    return Card(finding=shown_finding, state=state, cost=" → ".join(costs))
