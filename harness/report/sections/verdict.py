"""The first screen: the verdict in a sentence, step time, what moved, same work or not, and what could be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.analysis.range_part import RangePart
from harness.comparison import Comparison, MetricChange, SameWork
from harness.report import figures
from harness.report.page import Section, draw
from harness.units import change, percent, plural, signed, signed_ms, signed_percent
from harness.verdict import (
    USELESS_EFFECT,
    Reason,
    State,
    Verdict,
    detectable_text,
    period_text,
    slower_text,
    slowing_text,
)

MOST_MOVED: Final = 3
INVALID: Final = {
    Reason.DIFFERENT_WORK: "base and head did different work",
    Reason.CANNOT_RUN: "one side cannot run the scenario",
    Reason.NO_STEPS: "nothing was measured",
}

TEMPLATE: Final = """
<p class="crumb">{{ c.duel.scenario | name(80) }} <span>{{ description | name(200) }}</span></p>
<h1 class="verdict {{ state }}"><span class="pill">{{ state }}</span> {{ sentence }}</h1>
<p class="explain">{{ explanation }}</p>
{% if c.verdict.next_step %}
<p class="explain"><strong>Next:</strong> {{ c.verdict.next_step | name(400) }}</p>
{% endif %}
<dl class="sides">
{% for which in (c.base, c.head) %}
<div><dt>{{ m.side(which.name) }}</dt>
<dd>{{ "working tree" if which.subject == "." else which.subject | name(90) }}
{%- if which.revision %} <code>{{ which.revision[:10] | name }}</code>{% endif %}
{%- if which.dirty %} with uncommitted changes{% endif %}
{%- for text in which.overrides %} <code>{{ text | name(60) }}</code>{% endfor %}
{%- if which.commit_subject and c.base.revision != c.head.revision %}
<br>{{ which.commit_subject | name(120) }}
{%- endif %}</dd></div>
{% endfor %}
</dl>
<dl class="tiles">
<div class="tile wide">
<dt>Mean step</dt>
{% if c.base.step_ns is not none and c.head.step_ns is not none %}
<dd class="value"><span class="side base">{{ c.base.step_ns | ms }}</span> <span class="arrow" aria-label="to">→</span>
<span class="side head">{{ c.head.step_ns | ms }}</span> <span class="unit">ms</span></dd>
{% else %}
<dd class="value none">not measured</dd>
{% endif %}
{% if strip %}
<dd><div class="strip" role="img" aria-label="{{ strip.alt }}">
<span class="band" style="left:{{ strip.margin_left }}%;width:{{ strip.margin_width }}%"></span>
<span class="zero" style="left:{{ strip.zero }}%"></span>
<span class="whisker {{ state }}" style="left:{{ strip.left }}%;width:{{ strip.width }}%"></span>
<span class="point {{ state }}" style="left:{{ strip.point }}%"></span>
</div></dd>
<dd class="scale" aria-hidden="true">
<span>{{ strip.low_label }}</span><span class="origin" style="left:{{ strip.zero }}%">0</span>
<span>{{ strip.high_label }}</span>
</dd>
{% endif %}
{% if c.verdict.ratio is not none %}
<dd><strong class="{{ state }}">{{ c.verdict.ratio | change }}</strong>
{% if c.verdict.ci %}
{{ m.interval(c.verdict.ci[0] | change, c.verdict.ci[1] | change) }}, {{ level }} interval
{%- endif %}
{%- if c.verdict.p is not none %}, p&nbsp;{{ p }}{% endif %}, in total</dd>
{% if c.verdict.typical_ratio is not none %}
<dd><strong>{{ c.verdict.typical_ratio | change }}</strong> in the typical step
{%- if period %}: {{ period | name(120) }}{% endif %}
{%- if slower %}; {{ slower | name(120) }}{% endif %}</dd>
{% endif %}
{% if slowing %}
<dd><strong class="slower">{{ slowing | name(120) }}</strong></dd>
{% endif %}
{% else %}
<dd>There is no difference to give.</dd>
{% endif %}
</div>
<div class="tile wide">
<dt>What moved</dt>
{% for part in moved or noise %}
<dd class="moved{{ "" if moved else " quiet" }}"><span class="path">{{ part.path | path(60) }}</span>
<strong class="{{ ("slower" if part.delta_ns > 0 else "faster") if moved }}">
{{- part.delta_ns | signed_ms }} ms</strong></dd>
{% endfor %}
<dd>{{ moved_note }}</dd>
</div>
<div class="tile">
<dt>Same work</dt>
<dd class="value small {{ work.role }}">{{ work.answer }}</dd>
<dd>{{ work.detail }}</dd>
</div>
<div class="tile">
<dt>This duel could find</dt>
<dd class="value small">{{ seen.value }}</dd>
<dd>{{ seen.detail }}</dd>
</div>
{% if c.caveats %}
<div class="tile wide">
<dt>Mind</dt>
{% for caveat in c.caveats %}
<dd>{{ caveat | name(300) }}</dd>
{% endfor %}
</div>
{% endif %}
{% if c.load %}
<div class="tile">
<dt>Load while measuring</dt>
<dd class="value small">{{ load }}</dd>
<dd>{{ cores }}{{ "; " + c.disturbances if c.disturbances }}</dd>
</div>
{% endif %}
{% for change in c.metrics if change.bound is not none %}
<div class="tile">
<dt>{{ change.metric.title }}</dt>
<dd class="value small {{ 'slower' if change.exceeded }}">{{ change.metric.text(change.head) }}</dd>
<dd>{{ against_base(change) }}</dd>
</div>
{% endfor %}
</dl>
"""


def section(comparison: Comparison) -> Section:
    """Return the first screen of a comparison."""
    verdict = comparison.verdict
    moved = comparison.moved[:MOST_MOVED]
    return Section(
        anchor="verdict",
        title="Verdict",
        html=draw(
            TEMPLATE,
            c=comparison,
            description=str(comparison.duel.scenario_document.get("description") or ""),
            state=verdict.state.value,
            sentence=sentence(verdict),
            explanation=explanation(comparison),
            level=f"{comparison.ci_level * 100:.3g} %",
            p=f"<{figures.NO_BREAK}0.0001"
            if verdict.p is not None and verdict.p < 0.0001
            else f"={figures.NO_BREAK}{verdict.p or 0:.2g}",
            strip=_strip(comparison),
            slower=None if verdict.slower_range is None else figures.typographic(slower_text(verdict.slower_range)),
            slowing=None if verdict.slowing is None else figures.typographic(slowing_text(verdict.slowing)),
            period=None if verdict.period is None else figures.typographic(period_text(verdict.period)),
            moved=moved,
            noise=[part for part in comparison.ranges if part.delta_ns][:MOST_MOVED],
            moved_note=_moved_note(comparison, moved),
            work=_work(comparison.same_work),
            seen=_seen(comparison),
            load=_range(comparison.load),
            cores=f"of {plural(comparison.environment.get('usable_cores', 0), 'core')}",
            against_base=_against_base,
        ),
    )


def sentence(verdict: Verdict) -> str:
    """Return the verdict as one sentence without an interval."""
    if verdict.state is State.INVALID:
        return f"No verdict: {INVALID.get(verdict.reason, 'this comparison does not hold')}."
    if verdict.ratio is None:
        return "Too few launch pairs for a first look."
    size = figures.typographic(percent(abs(verdict.ratio - 1)))
    match verdict.state:
        case State.SLOWER:
            return f"Head is {size} slower than base in total."
        case State.FASTER:
            return f"Head is {size} faster than base in total." if verdict.ratio < 1 else "Head is faster than base."
        case State.SAME:
            return "Head takes as long as base."
        case _:
            return f"Head looks {size} {'slower' if verdict.ratio > 1 else 'faster'}, which may be chance."


def explanation(comparison: Comparison) -> str:
    """Return the second sentence: why the verdict is what it is."""
    verdict, rule = comparison.verdict, comparison.rule
    evidence = f"{plural(verdict.pairs, 'launch pair')} of {plural(verdict.steps_per_pair, 'step')}"
    match verdict.state:
        case State.INVALID:
            said = verdict.detail or "No more is known"
            return f"{said[:1].upper()}{said[1:]} ({verdict.reason.value})."
        case State.SAME:
            return f"Over {evidence} the whole interval lies within ±{percent(rule.margin)}."
        case State.UNDECIDED:
            return f"{evidence} so far ({verdict.reason.value})."
        case _:
            excluded = percent(rule.null_effect) if rule.null_effect else "zero"
            return (
                f"Over {evidence} the interval excludes {excluded} and the difference exceeds the smallest that "
                f"matters, {percent(rule.min_effect)}."
            )


def _strip(comparison: Comparison) -> dict[str, object] | None:
    """Positions of the interval on a scale around zero that also shows the margin, in percent of its width."""
    verdict, margin = comparison.verdict, comparison.rule.margin
    if verdict.ci is None or verdict.ratio is None:
        return None
    low, high, point = (ratio - 1 for ratio in (*verdict.ci, verdict.ratio))
    # Room enough at both ends that zero, which lies within the margin, never meets the labels of the ends.
    room = 0.3 * (max(high, margin) - min(low, -margin))
    left, right = min(low, -margin) - room, max(high, margin) + room

    def at(value: float) -> float:
        return round(100 * (value - left) / (right - left), 2)

    return {
        "left": at(low),
        "width": round(at(high) - at(low), 2),
        "point": at(point),
        "margin_left": at(-margin),
        "margin_width": round(at(margin) - at(-margin), 2),
        "zero": at(0),
        "low_label": figures.typographic(signed_percent(left)),
        "high_label": figures.typographic(signed_percent(right)),
        "alt": figures.typographic(
            f"Difference {change(verdict.ratio)}, interval from {change(verdict.ci[0])} "
            f"to {change(verdict.ci[1])}; margin ±{percent(margin)}"
        ),
    }


def _moved_note(comparison: Comparison, moved: Sequence[RangePart]) -> str:
    if not comparison.ranges:
        return "Nothing was traced."
    if not moved:
        return "No range moved beyond its noise by an amount that matters."
    whole = sum(part.delta_ns for part in comparison.ranges)
    count = len(comparison.moved)
    more = f"; {plural(count - len(moved), 'more range')} moved" if count > len(moved) else ""
    return figures.typographic(f"of {signed_ms(whole)} ms in the whole step{more}")


def _work(work: SameWork) -> dict[str, str]:
    steps = plural(work.steps_compared, "step")
    if work.first_difference is not None:
        return {"answer": "No", "role": "invalid", "detail": work.first_difference.detail}
    if work.not_a_number:
        detail = f"training has diverged on both sides: no number as loss at {plural(work.not_a_number, 'step')}"
        return {"answer": "Yes, but", "role": "undecided", "detail": detail}
    if not work.steps_compared:
        return {"answer": "Unknown", "role": "undecided", "detail": "there are no losses to compare"}
    if not work.max_abs_diff:
        return {"answer": "Yes, to the bit", "role": "", "detail": f"losses identical over {steps}"}
    detail = f"losses within {work.tolerance:g} over {steps}, at most {work.max_abs_diff:.2g} apart"
    return {"answer": "Yes, within tolerance", "role": "", "detail": detail}


def _seen(comparison: Comparison) -> dict[str, str]:
    """What this duel could have found: the figures before and after are both those of its last planned look."""
    verdict, forecast = comparison.verdict, comparison.duel.detectable_effect
    before = (
        f"forecast before measuring: {detectable_text(forecast)}"
        if forecast is not None
        else "no forecast before measuring"
    )
    if verdict.detectable_effect is None:
        return {"value": "none yet" if forecast is None else detectable_text(forecast), "detail": before}
    if verdict.interval_says_more and verdict.ci is not None:
        return {"value": f"beyond {change(verdict.ci[1])}", "detail": f"the interval excludes that; {before}"}
    seen = "slowdowns, four times in five; " if verdict.detectable_effect < USELESS_EFFECT else ""
    return {"value": verdict.detectable_text, "detail": f"{seen}{before}"}


def _range(load: tuple[float, float] | None) -> str:
    low, high = (f"{each:.1f}" for each in load or (0.0, 0.0))
    return low if low == high else f"{low} to {high}"


def _against_base(change: MetricChange) -> str:
    delta = signed(change.metric.text(change.head - change.base))
    return figures.typographic(f"{delta} against base") + (", beyond its limit" if change.exceeded else "")
