"""The gate as Markdown, for a job's summary or a comment on a pull request.

Names (branches, ranges, scenarios) and messages of engines are untrusted: they appear in code spans only, where no
markup, link or mention has a meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from harness.comparison import Comparison, MetricChange
from harness.gate.decision import GateResult, Judgement, Result
from harness.gate.limit import CAUGHT, POWER, SPARED
from harness.metrics import LIMITED
from harness.names import PATH_SEPARATOR, STEP
from harness.units import change, milliseconds, percent, signed_ms
from harness.visible import shortened

MARKER: Final = "<!-- stepduel gate -->"
"""First line: tells a comment of the gate from others, so that it can be replaced instead of repeated."""
MOST_RANGES: Final = 8
PROMISE: Final = (
    f"A step that is slower by {SPARED:g} × its limit fails in at most α of duels, one by {CAUGHT:g} × in at least "
    f"{100 * POWER:.0f} %, if launch pairs scatter as little as `stepduel gate --explain-limit` says. "
    "p is that of a slowdown of more than the former."
)
_MARKS: Final = {Result.PASS: "✅", Result.REGRESSION: "❌", Result.UNDECIDED: "❔"}


def markdown(gate: GateResult, pages: Mapping[str, str]) -> str:
    """Return the gate's answer. `pages` names the HTML report of each duel, by the duel's id."""
    lines = [MARKER, f"## Stepduel gate: {_mark(gate.result)} {gate.result}", "", f"{code(gate.line)}", ""]
    metrics = [metric.title.lower() for metric, _ in LIMITED.values()]
    headings = ["scenario", "result", "step time", "change", "limit", "p (Holm)", *metrics]
    lines += [f"| {' | '.join(headings)} |", f"|---|---|{'--:|' * (len(headings) - 2)}"]
    lines += [f"| {' | '.join(_row(judgement))} |" for judgement in gate.judgements]
    lines += ["", PROMISE]
    for judgement in gate.judgements:
        lines += ["", *_details(judgement, pages)]
    return "\n".join([*lines, ""])


def code(text: str, width: int = 300) -> str:
    """Return text as one code span that also stands in a table."""
    shown = shortened(" ".join(text.split()), width) or " "
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}".replace("|", "\\|")


def _mark(result: Result) -> str:
    return _MARKS.get(result, "⚠️")


def _row(judgement: Judgement) -> Iterable[str]:
    comparison, job = judgement.comparison, judgement.job
    yield code(job.name)
    yield f"{_mark(judgement.result)} {judgement.result}" + _allowed(judgement)
    yield "" if comparison is None else _step_time(comparison)
    verdict = None if comparison is None else comparison.verdict
    yield "" if verdict is None or verdict.ratio is None else change(verdict.ratio, verdict.ci)
    yield percent(job.max_slowdown)
    yield "" if judgement.adjusted_p is None else f"{judgement.adjusted_p:.2g}"
    changes = {} if comparison is None else {change.name: change for change in comparison.metrics}
    yield from (_both_sides(changes.get(name)) for name in LIMITED)


def _allowed(judgement: Judgement) -> str:
    return " (the policy lets it pass)" if judgement.result is not Result.PASS and not judgement.counts else ""


def _step_time(comparison: Comparison) -> str:
    base, head = comparison.base.step_ns, comparison.head.step_ns
    return "" if base is None or head is None else f"{milliseconds(base)} → {milliseconds(head)} ms"


def _both_sides(found: MetricChange | None) -> str:
    return "" if found is None else f"{found.metric.text(found.base)} → {found.metric.text(found.head)}"


def _details(judgement: Judgement, pages: Mapping[str, str]) -> Iterable[str]:
    comparison = judgement.comparison
    yield f"### {code(judgement.job.name)}: {judgement.result}"
    yield ""
    yield code(judgement.detail, 600)
    if comparison is None:
        return
    yield ""
    yield f"base {code(comparison.base.label)}, head {code(comparison.head.label)}  "
    yield code(comparison.verdict.line)
    for caveat in comparison.caveats:
        yield ""
        yield code(caveat, 600)
    yield from _ranges(comparison)
    yield ""
    yield _work(comparison)
    yield f"Report: {code(pages[comparison.duel.id])} in the reports folder; duel {code(comparison.duel.id)}."


def _ranges(comparison: Comparison) -> Iterable[str]:
    """What moved beyond chance and by an amount that matters, largest first."""
    moved = comparison.moved
    if not moved:
        return
    yield ""
    yield "| range (self time) | base ms | head ms | Δ ms | 95 % interval |"
    yield "|---|--:|--:|--:|--:|"
    for part in moved[:MOST_RANGES]:
        interval = "" if part.ci_ns is None else f"[{signed_ms(part.ci_ns[0])}, {signed_ms(part.ci_ns[1])}]"
        name = code(part.path.removeprefix(f"{STEP}{PATH_SEPARATOR}"), 120)
        figures = f"{milliseconds(part.base_ns)} | {milliseconds(part.head_ns)} | {signed_ms(part.delta_ns)}"
        yield f"| {name} | {figures} | {interval} |"
    if len(moved) > MOST_RANGES:
        rest = sum(part.delta_ns for part in moved[MOST_RANGES:])
        yield f"| {len(moved) - MOST_RANGES} others | | | {signed_ms(rest)} | |"


def _work(comparison: Comparison) -> str:
    work = comparison.same_work
    if work.first_difference is not None:
        return f"**Not the same work**: {code(work.first_difference.detail)}."
    if work.not_a_number:
        return f"Same work, but training has diverged on both sides: no number as loss at {work.not_a_number} steps."
    if not work.steps_compared:
        return "Same work: the engine reports no losses to compare."
    return f"Same work: losses agree over {work.steps_compared} steps (tolerance {work.tolerance:g})."
