"""A duel or a gate as Markdown, for a job summary or a comment on a pull request.

Names are untrusted: on GitHub a name could close a table, ping people, link elsewhere or hide text in HTML.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from harness.comparison import Comparison, RangePart, SameWork
from harness.metrics import bytes_text, milliseconds, percent
from harness.report import figures
from harness.report.outcome import Outcome, Standing
from harness.visible import shortened

MOST_PARTS: Final = 8
MOST_CHARACTERS: Final = 60_000
"""GitHub refuses comments of more than 65,536 characters."""
NAME_WIDTH: Final = 120
MARKS: Final[dict[Standing, str]] = {
    "passed": "✅ passed",
    "regressed": "❌ regressed",
    "undecided": "⚠️ undecided",
    "failed": "💥 failed",
}
_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#|~&@:$]|(?<=www)\.)")


def text(name: object, width: int = NAME_WIDTH) -> str:
    """Return a name as Markdown that shows it and nothing else: every character with a meaning is written as a number.

    A backslash before `@` or `:` would not keep GitHub from mentioning people and showing emoji; a character reference
    does.
    """
    return _SPECIAL.sub(lambda found: f"&#{ord(found[1])};", shortened(str(name), width))


def code(name: object, width: int = NAME_WIDTH) -> str:
    """Return a name in fixed width; HTML, because backticks cannot hold every name inside a table."""
    return f"<code>{text(name, width)}</code>"


def gate_markdown(outcomes: Sequence[Outcome], base: str, head: str) -> str:
    """Return the whole gate: what stands in a line, a table of scenarios, and the parts of each that moved."""
    counts = {mark: sum(outcome.standing == mark for outcome in outcomes) for mark in MARKS}
    said = ", ".join(f"{count} {standing}" for standing, count in counts.items() if count)
    lines = [f"## Performance: {said or 'nothing was measured'}", "", f"{code(base)} → {code(head)}", ""]
    lines += [
        "| scenario | result | step time | difference | same work | memory |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [_gate_row(outcome) for outcome in outcomes]
    for outcome in outcomes:
        lines += ["", *_details(outcome)]
    return _limited("\n".join(lines) + "\n")


def comparison_markdown(comparison: Comparison) -> str:
    """Return one duel: its verdict, the parts that moved, same work, memory and how it was reached."""
    lines = [
        f"## {text(comparison.duel.scenario)}: {text(comparison.verdict.line, 400)}",
        "",
        f"{code(comparison.base.label)} → {code(comparison.head.label)}",
        "",
    ]
    if comparison.verdict.next_step:
        lines += [f"Next: {text(comparison.verdict.next_step, 400)}", ""]
    lines += [
        f"- step time: {_step_time(comparison)}",
        f"- same work: {_same_work(comparison.same_work)}",
        f"- peak memory: {_memory(comparison)}",
        "",
        *_parts(comparison.ranges),
        _method(comparison),
    ]
    return _limited("\n".join(lines) + "\n")


def _gate_row(outcome: Outcome) -> str:
    comparison = outcome.comparison
    name = text(outcome.scenario)
    if comparison is None:
        return f"| {name} | {MARKS[outcome.standing]} | {text(outcome.message, 300)} | | | |"
    ratio = comparison.verdict.ratio
    cells = [
        name,
        MARKS[outcome.standing],
        _step_time(comparison),
        "" if ratio is None else f"**{figures.change(ratio)}**{_interval(comparison)}",
        _same_work(comparison.same_work),
        _memory(comparison),
    ]
    return f"| {' | '.join(cells)} |"


def _details(outcome: Outcome) -> list[str]:
    lines = [f"**{text(outcome.scenario)}**: {text(outcome.message, 600)}", ""]
    if outcome.comparison is not None:
        lines += _parts(outcome.comparison.ranges)
        lines.append(_method(outcome.comparison))
    return lines


def _parts(ranges: Sequence[RangePart]) -> list[str]:
    moved = [part for part in ranges if part.significant and part.delta_ns]
    if not moved:
        return ["No range moved beyond its noise." if ranges else "Nothing was traced.", ""]
    lines = ["| range, own time | base ms | head ms | difference ms |", "| --- | ---: | ---: | ---: |"]
    lines += [
        f"| {code(part.path)} | {milliseconds(part.base_ns)} | {milliseconds(part.head_ns)} "
        f"| {figures.signed_ms(part.delta_ns)} |"
        for part in moved[:MOST_PARTS]
    ]
    if len(moved) > MOST_PARTS:
        lines.append(f"| {len(moved) - MOST_PARTS} more | | | |")
    return [*lines, ""]


def _method(comparison: Comparison) -> str:
    verdict, rule, duel = comparison.verdict, comparison.rule, comparison.duel
    seen = "" if verdict.detectable_effect is None else f"; can see ≥ {percent(verdict.detectable_effect)}"
    looks = ", ".join(map(str, rule.looks))
    return (
        f"<sub>{verdict.pairs} launch pairs of {verdict.steps_per_pair} steps, looks at {looks}, α = {rule.alpha:g}, "
        f"margin ±{percent(rule.margin)}{seen}; {text(duel.interleave)} in turn, seed {duel.seed}, "
        f"duel {text(duel.id)}</sub>"
    )


def _step_time(comparison: Comparison) -> str:
    base, head = comparison.base.step_ns, comparison.head.step_ns
    return "not measured" if base is None or head is None else f"{milliseconds(base)} → {milliseconds(head)} ms"


def _interval(comparison: Comparison) -> str:
    interval = comparison.verdict.ci
    return "" if interval is None else f" [{', '.join(map(figures.change, interval))}]"


def _same_work(work: SameWork) -> str:
    if work.parting is not None:
        return f"**no**, {text(work.parting.detail)}"
    if not work.steps_compared:
        return "unknown"
    return "yes" if not work.max_abs_diff else f"within {work.tolerance:g}"


def _memory(comparison: Comparison) -> str:
    memory = comparison.memory
    if memory is None:
        return "unknown"
    delta = figures.signed_bytes(memory.head_peak_bytes - memory.base_peak_bytes)
    return f"{bytes_text(memory.head_peak_bytes)} ({delta}{', above its limit' if memory.exceeded else ''})"


def _limited(markdown: str) -> str:
    """Cut between lines, so that no table row and no character reference is left half."""
    if len(markdown) <= MOST_CHARACTERS:
        return markdown
    return markdown[: markdown.rindex("\n", 0, MOST_CHARACTERS)] + "\n\nThe rest is in the HTML report.\n"
