"""How the verdict was reached: the rule, the order of steps, n, and every number that was used."""

from __future__ import annotations

import math
from typing import Final

from harness.comparison import Comparison
from harness.metrics import milliseconds, percent
from harness.report import figures
from harness.report.page import Section, draw

TEMPLATE: Final = """
<ol class="rule">
{% for line in rule %}<li>{{ line }}</li>
{% endfor %}
</ol>
{% if looks %}
<h3>Every look</h3>
<div class="scroll" role="region" aria-label="Looks" tabindex="0"><table><thead><tr>
<th scope="col">Pairs</th><th scope="col" class="n">Mean of d</th><th scope="col" class="n">Variance of d</th><th scope="col" class="n">Used</th>
<th scope="col" class="n">ν</th><th scope="col" class="n">Against 0</th><th scope="col" class="n">Against the margin</th><th scope="col" class="n">p</th>
<th scope="col" class="n">Smallest effect</th><th scope="col" class="n">Margin</th><th scope="col" class="n">Can see</th><th scope="col">Outcome</th></tr></thead><tbody>
{% for look in looks %}<tr><th scope="row">{{ look.pairs }}</th><td class="n">{{ "%+.5f" | format(look.mean) }}</td><td class="n">{{ "%.3g" | format(look.observed_variance) }}</td><td class="n">{{ "%.3g" | format(look.variance) }}</td>
<td class="n">{{ "%.1f" | format(look.dof) }}</td><td class="n">{{ m.interval("%+.5f" | format(look.low), "%+.5f" | format(look.high)) }}</td><td class="n">{{ m.interval("%+.5f" | format(look.pass_low), "%+.5f" | format(look.pass_high)) }}</td>
<td class="n">{{ "%.2g" | format(look.p) }}</td><td class="n">{{ "%.5f" | format(look.smallest_effect) }}</td><td class="n">±{{ "%.5f" | format(look.margin) }}</td><td class="n">{{ "%.5f" | format(look.detectable_effect) }}</td><td>{{ look.outcome.value }}</td></tr>
{% endfor %}</tbody></table></div>
{% endif %}
{% if d %}<p class="note">d of the launch pairs, in the order they were made: {{ d }}. Everything in this section is ln(head/base), so that +0.01 is about +1 %.</p>{% endif %}
<table class="facts"><tbody>
{% for row in facts %}<tr><th scope="row">{{ row[0] }}</th><td>{{ row[1] | name(400) }}</td></tr>
{% endfor %}</tbody></table>
"""


def section(comparison: Comparison) -> Section:
    """Return the rule in words and every number of every look."""
    d = [f"{math.log(pair.ratio):+.5f}" for pair in comparison.pairs if pair.ratio is not None]
    return Section(
        anchor="method",
        title="How the verdict was reached",
        html=draw(
            TEMPLATE, rule=_rule(comparison), looks=comparison.verdict.looks, d=", ".join(d), facts=_facts(comparison)
        ),
    )


def _rule(comparison: Comparison) -> list[str]:
    rule = comparison.rule
    looks = ", ".join(map(str, rule.looks))
    floor = f" and at least {milliseconds(rule.min_abs_ns)} ms" if rule.min_abs_ns else ""
    return [
        "A step’s time is that of its slowest rank. Each launch pair gives one number, d: the median over its step pairs "
        "of ln(head/base).",
        f"The rule looks at {looks} launch pairs and shares α = {rule.alpha:g} equally: {rule.level:g} a look, one-sided.",
        f"Slower: the mean of d minus t(1 − {rule.level:g}, ν)·√(v/K) is above 0, and the mean is at least "
        f"{percent(rule.min_effect)}{floor}. Faster is the mirror image.",
        f"Same: the mean ± t({rule.pass_level:g}, ν)·√(v/K) lies within ±{percent(rule.margin)}.",
        "Otherwise more launch pairs are made; after the last look the duel is undecided.",
        _prior(comparison),
    ]


def _prior(comparison: Comparison) -> str:
    prior = comparison.prior
    if prior is None:
        return "The variance v is that of these launch pairs alone: too few same-code duels are stored to lend any."
    return (
        f"{figures.plural(prior.duels, 'same-code duel')} of this machine and scenario lend {prior.dof:.1f} degrees of "
        f"freedom at variance {prior.variance:.3g}; lending never makes the observed variance smaller."
    )


def _facts(comparison: Comparison) -> list[tuple[str, str]]:
    duel, verdict, work = comparison.duel, comparison.verdict, comparison.same_work
    first, whole = sum(pair.base_first for pair in comparison.pairs), sum(pair.steps for pair in comparison.pairs)
    turns = "launches in turn (blocks)" if duel.interleave == "blocks" else "steps in turn, a coin for each step pair"
    told = "nothing" if duel.detectable_effect is None else f"≥ {percent(duel.detectable_effect)}"
    return [
        ("Verdict", verdict.line),
        ("Reason code", verdict.reason.value),
        ("Order", f"{turns}; base first in {first} of {whole} step pairs; seed {duel.seed}"),
        ("Launches", f"{len(comparison.pairs)} pairs of {duel.steps or 0} steps after {duel.warmup_steps} of warm-up"),
        ("Collector while timing", duel.collector),
        ("Told before measuring", f"{told} at the first look"),
        (
            "Losses",
            f"{work.steps_compared} steps compared, tolerance {work.tolerance:g}, "
            f"largest difference {work.max_abs_diff if work.max_abs_diff is not None else 'none'}",
        ),
        ("Ended", duel.status + (f": {duel.reason}" if duel.reason else "")),
        ("Duel", f"{duel.id}, scenario hash {duel.scenario_hash}"),
    ]
