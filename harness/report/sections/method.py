"""How the verdict was reached: the rule, the order of steps, n, and every number that was used."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from markupsafe import Markup

from harness.comparison import Comparison
from harness.report.page import Section, draw
from harness.report.tables import Column, Row, facts, numbers, table
from harness.stats.rule import Endpoint
from harness.stats.sequential import Look
from harness.units import change, milliseconds, percent, plural
from harness.verdict import detectable_text

TEMPLATE: Final = """
<ol class="rule">
{% for line in rule %}
<li>{{ line }}</li>
{% endfor %}
</ol>
{% if looks %}
<h3>Every look</h3>
{{ looks }}
{% endif %}
{% if d %}
<p class="note">d of the launch pairs, in the order they were made: {{ d }}. These and the table are ln(head/base), so
that +0.01 is about +1 %.</p>
{% endif %}
<h3>Particulars</h3>
{{ facts }}
"""


def section(comparison: Comparison) -> Section:
    """Return the rule in words and every number of every look."""
    d = [f"{math.log(pair.ratio):+.5f}" for pair in comparison.pairs if pair.ratio is not None]
    return Section(
        anchor="method",
        title="How the verdict was reached",
        html=draw(
            TEMPLATE,
            rule=_rule(comparison),
            looks=_looks(comparison) if comparison.verdict.looks else None,
            d=", ".join(d),
            facts=facts(_facts(comparison), long=True),
        ),
    )


def _rule(comparison: Comparison) -> list[str]:
    rule = comparison.rule
    looks = ", ".join(map(str, rule.looks))
    levels = ", ".join(f"{rule.level(pairs):.2g}" for pairs in rule.looks)
    above = percent(rule.null_effect) if rule.null_effect else "0"
    floor = f" and at least {milliseconds(rule.min_abs_ns)} ms" if rule.min_abs_ns else ""
    return [
        "A step’s time is that of its slowest rank. Each launch pair gives d = ln(head/base) three times: of the total "
        "time with hiccups of the machine capped (what is judged first), of the typical step, and of the plain total.",
        f"The rule looks at {looks} launch pairs and shares α = {rule.alpha:g} among looks and figures: the total is "
        f"tested at {levels}, one-sided, the others at an eighth of that.",
        f"Slower: a mean of d minus t(1 − level, ν)·√(v/K) is above {above}, and the mean is at least "
        f"{percent(rule.min_effect)}{floor}. Faster is the mirror image for the total, if no other figure contradicts.",
        f"Same: the means of total and typical step ± t({rule.pass_level:g}, ν)·√(v/K) lie within "
        f"±{percent(rule.margin)}, and capped steps are no more frequent on one side than chance allows.",
        "Otherwise more launch pairs are made; after the last look the duel is undecided.",
        _prior(comparison),
    ]


def _prior(comparison: Comparison) -> str:
    prior = comparison.prior
    if prior is None:
        return "The variance v is that of these launch pairs alone: too few same-code duels are stored to lend any."
    return (
        f"{plural(prior.duels, 'same-code duel')} of this machine and scenario lend {prior.dof:.1f} degrees of "
        f"freedom at variance {prior.variance:.3g}; lending never makes the observed variance smaller."
    )


def _looks(comparison: Comparison) -> Markup:
    columns = [
        Column(title="Pairs", kind="name"),
        Column(title="Outcome", kind="name"),
        Column(title="Figure", kind="name"),
        *numbers("Mean of d", "Against 0", "Against the margin", "p", "Variance seen", "Variance used", "ν"),
        *numbers("Capped base, head", "Smallest effect", "Margin", "Detectable"),
    ]
    return table("Every look", columns, [row for look in comparison.verdict.looks for row in _look_rows(look)])


def _look_rows(look: Look) -> Iterator[Row]:
    """One row a figure; what belongs to the look as a whole stands in the first."""
    for endpoint, estimate in look.estimates.items():
        first = endpoint is Endpoint.TOTAL
        whole = [f"{look.base_cut_steps}, {look.head_cut_steps}", f"{look.smallest_effect:.5f}", f"±{look.margin:.5f}"]
        yield Row(
            cells=[
                str(look.pairs),
                look.outcome.value if endpoint is look.endpoint else "",
                endpoint.value,
                f"{estimate.mean:+.5f}",
                f"[{estimate.low:+.5f}, {estimate.high:+.5f}]",
                f"[{estimate.pass_low:+.5f}, {estimate.pass_high:+.5f}]",
                f"{estimate.p:.2g}",
                f"{estimate.observed_variance:.3g}",
                f"{estimate.variance:.3g}",
                f"{estimate.dof:.1f}",
                *([*whole, f"{look.detectable_effect:.5f}"] if first else [""] * 4),
            ]
        )


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    duel, verdict, work = comparison.duel, comparison.verdict, comparison.same_work
    first, whole = sum(pair.base_first for pair in comparison.pairs), sum(pair.steps for pair in comparison.pairs)
    turns = "launches in turn (blocks)" if duel.interleave == "blocks" else "steps in turn, a coin for each step pair"
    forecast = (
        "none" if duel.detectable_effect is None else f"{detectable_text(duel.detectable_effect)} at the last look"
    )
    pairs = plural(len(comparison.pairs), "pair")
    largest = "none" if work.max_abs_diff is None else f"{work.max_abs_diff:g}"
    alone = None if comparison.interleaving is None else comparison.interleaving.bias
    found = (("bias of interleaving, alone by in turn", alone), ("second slot by first", comparison.second_slot))
    effects = [(name, change(effect.ratio, effect.ci)) for name, effect in found if effect is not None]
    return [
        ("verdict", verdict.line),
        ("reason code", verdict.reason.value),
        ("order", f"{turns}; base first in {first} of {whole} step pairs; seed {duel.seed}"),
        ("launches", f"{pairs} of {duel.steps or 0} steps after {duel.warmup_steps} of warm-up"),
        *effects,
        ("ranks of both sides", comparison.placement),
        ("collector while timing", duel.collector),
        ("forecast before measuring", forecast),
        ("losses", f"{work.steps_compared} compared, tolerance {work.tolerance:g}, largest difference {largest}"),
        ("ended", duel.status + (f": {duel.reason}" if duel.reason else "")),
        ("duel", f"{duel.id}, scenario hash {duel.scenario_hash}"),
    ]
