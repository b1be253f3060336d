"""Facts about waste in the traces: which head adds, which it removed, which both have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.analysis.findings.finding import Finding
from harness.report.page import Section, draw

EVIDENCE_ROWS: Final = 5

TEMPLATE: Final = """
{% if unread %}
<p class="nothing">{{ unread }}</p>
{% elif not cards %}
<p class="nothing">No rule found waste {{ "on either side" if two else "in this trace" }}.</p>
{% else %}
<p>Facts that rows of a trace prove{{ ", one launch a side" if two }}. Their times overlap and must not be added up.</p>
<ul class="findings">
{% for card in cards %}
<li class="{{ card.state }}">
<h3>{{ card.rule | name }}{% if two %} <span class="tag {{ card.state }}">{{ card.word }}</span>{% endif %}
<span class="cost">{% if card.base and card.head %}{{ card.base.ns_per_step | ms }} → {{ card.head.ns_per_step | ms }}{% else %}{{ card.shown.ns_per_step | ms }}{% endif %} ms a step</span></h3>
<p>{{ card.shown.summary | name(600) }}</p>
<p class="advice"><strong>Try:</strong> {{ card.shown.advice | name(600) }}</p>
{% if card.shown.evidence.ranges or card.shown.evidence.calls %}
<details><summary>Evidence</summary>
<div class="scroll" role="region" aria-label="Evidence of {{ card.rule | name }}" tabindex="0"><table><thead><tr><th scope="col">Range or call</th><th scope="col" class="n">Calls</th><th scope="col" class="n">ms in all</th><th scope="col" class="n">Bytes</th></tr></thead><tbody>
{% for row in (card.shown.evidence.ranges[:most] | list) + (card.shown.evidence.calls[:most] | list) %}
<tr><th scope="row" class="path">{{ row.name | name }}</th><td class="n">{{ row.count | count }}</td><td class="n">{{ row.ns | ms }}</td><td class="n">{{ row.bytes | bytes if row.bytes else "–" }}</td></tr>
{% endfor %}
</tbody></table></div></details>
{% endif %}
</li>
{% endfor %}
</ul>
{% endif %}
"""


def section(base: Sequence[Finding] | None, head: Sequence[Finding] | None) -> Section:
    """Return the findings of both sides: new ones, gone ones, then those of both. None is a side without a trace."""
    cards = []
    unread = "No trace of either side was kept, so nothing was looked for."
    if base is not None and head is not None:
        unread = ""
        cards = [_card(rule, base, head) for rule in dict.fromkeys(f.rule for f in (*head, *base))]
        cards.sort(key=lambda card: ("new", "gone", "both").index(str(card["state"])))
    elif base is not None or head is not None:
        unread = f"Only {'base' if base is not None else 'head'} has a trace: there is nothing to compare."
    return _section(cards, unread, two=True)


def of_trace(found: Sequence[Finding]) -> Section:
    """Return the findings of one trace, as they are ordered."""
    cards = [{"rule": f.rule, "state": "both", "word": "", "base": None, "head": None, "shown": f} for f in found]
    return _section(cards, "", two=False)


def _section(cards: Sequence[dict[str, object]], unread: str, *, two: bool) -> Section:
    html = draw(TEMPLATE, cards=cards, unread=unread, two=two, most=EVIDENCE_ROWS)
    return Section(anchor="findings", title="Findings", html=html)


def _card(rule: str, base: Sequence[Finding], head: Sequence[Finding]) -> dict[str, object]:
    in_base = next((finding for finding in base if finding.rule == rule), None)
    in_head = next((finding for finding in head if finding.rule == rule), None)
    state = "both" if in_base and in_head else "new" if in_head else "gone"
    word = {"both": "both sides", "new": "new in head", "gone": "gone in head"}[state]
    return {"rule": rule, "state": state, "word": word, "base": in_base, "head": in_head, "shown": in_head or in_base}
