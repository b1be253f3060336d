"""A comparison for people: the verdict first, then where the difference lies, then how it was reached."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from harness import names
from harness.analysis.range_part import JudgedPart
from harness.cli.output import clean, print_wrapped, stdout_console
from harness.cli.trace_tables import WIDE, print_table
from harness.comparison import Comparison
from harness.units import milliseconds, percent, plural, signed_ms
from harness.verdict import State

STYLES = {
    State.SLOWER: "bold red",
    State.FASTER: "bold green",
    State.SAME: "bold",
    State.UNDECIDED: "bold yellow",
    State.INVALID: "bold magenta",
}
MOST_PARTS = 12
"""Rows of the table of parts; the rest is summed up in one row."""


def print_comparison(comparison: Comparison) -> None:
    """Print everything a person needs to believe the verdict, or to see why there is none."""
    duel, verdict = comparison.duel, comparison.verdict
    _say(f"{duel.scenario}  base: {comparison.base.label}   head: {comparison.head.label}")
    if duel.status == "interrupted" and comparison.unfinished:
        made = plural(len(comparison.pairs), "launch pair")
        _say(f"INTERRUPTED with {made} of at most {comparison.rule.looks[-1]} stored, so far:", "bold yellow")
    _say(verdict.line, STYLES[verdict.state])
    if verdict.detail is not None and verdict.ratio is not None:
        print_wrapped(f"  {verdict.detail}", indent="    ")
    if verdict.next_step is not None:
        print_wrapped(f"  next: {verdict.next_step}", indent="    ")
    if comparison.ranges:
        _print_parts(comparison)
    print_wrapped(_same_work_line(comparison))
    for caveat in comparison.caveats:
        print_wrapped(caveat, "yellow")
    for change in comparison.metrics:
        if change.bound is not None:
            text = change.metric.text
            mark = f"  beyond the limit of {text(change.bound)}" if change.exceeded else ""
            print_wrapped(f"{change.metric.title.lower()}: base {text(change.base)}, head {text(change.head)}{mark}")
    for figure in comparison.launch_figures:
        if not figure.figure.per_step or figure.grows or figure.bound is not None:
            print_wrapped(figure.line, "bold" if figure.exceeded or (figure.figure.per_step and figure.grows) else "")
    for line in _method_lines(comparison):
        print_wrapped(line, "dim")


def _say(text: str, style: str = "") -> None:
    stdout_console().print(Text(clean(text), style=style), soft_wrap=True)


def _print_parts(comparison: Comparison) -> None:
    """The step difference in parts that add up, largest first; `*` marks what is not chance (Benjamini-Hochberg)."""
    parts, wide = comparison.ranges, stdout_console().width >= WIDE
    shown = parts if len(parts) <= MOST_PARTS else parts[: MOST_PARTS - 1]
    rest = parts[len(shown) :]
    whole_ns = sum(part.delta_ns for part in parts)
    rows = [_row(_name(part), [part], whole_ns) for part in shown]
    if rest:
        rows.append(_row(f"({len(rest)} more)", rest, whole_ns))
    rows.append(_row("= step", parts, whole_ns))
    headers = ("self time", "base ms", "head ms", "delta ms", "95 % interval", "share")
    columns = len(headers) if wide else len(headers) - 1
    print_table("Where the difference lies", headers[:columns], [row[:columns] for row in rows])


def _name(part: JudgedPart) -> str:
    return part.path.removeprefix(f"{names.STEP}{names.PATH_SEPARATOR}")


def _row(name: str, parts: Sequence[JudgedPart], whole_ns: float) -> tuple[str, ...]:
    base_ns, head_ns = sum(part.base_ns for part in parts), sum(part.head_ns for part in parts)
    delta_ns = head_ns - base_ns
    single = parts[0] if len(parts) == 1 else None
    mark = "*" if single is not None and single.significant else " "
    interval = ""
    if single is not None and single.ci_ns is not None:
        interval = f"[{signed_ms(single.ci_ns[0])}, {signed_ms(single.ci_ns[1])}]"
    share = percent(delta_ns / whole_ns) if whole_ns else ""
    return name, milliseconds(base_ns), milliseconds(head_ns), f"{signed_ms(delta_ns)}{mark}", interval, share


def _same_work_line(comparison: Comparison) -> str:
    work = comparison.same_work
    if not work.steps_compared:
        return "same work: no losses to compare"
    if work.first_difference is not None:
        return f"same work: NO, {work.first_difference.detail}"
    if work.not_a_number:
        return (
            f"same work: training has diverged on both sides: no number as loss at {plural(work.not_a_number, 'step')}"
        )
    if not work.max_abs_diff:
        return f"same work: losses identical over {plural(work.steps_compared, 'step')}"
    limit = f"within the tolerance of {work.tolerance:g} over {plural(work.steps_compared, 'step')}"
    return f"same work: losses differ by at most {work.max_abs_diff:.3g}, {limit}"


def _method_lines(comparison: Comparison) -> list[str]:
    duel, rule, pairs = comparison.duel, comparison.rule, comparison.pairs
    looks = f"{'looks' if len(rule.looks) > 1 else 'one look'} at {', '.join(map(str, rule.looks))} launch pairs"
    effects = f"slower or faster from {percent(rule.min_effect)}, same within ±{percent(rule.margin)}"
    level = f"; interval of {100 * comparison.ci_level:.3g} %" if comparison.verdict.ci else ""
    lent = f"; variance lent by {plural(comparison.prior.duels, 'same-code duel')}" if comparison.prior else ""
    lines = [f"rule: {looks}, α = {rule.alpha:g} over all; {effects}{level}{lent}"]
    if pairs:
        lines.append(
            f"made: {plural(len(pairs), 'launch pair')} x {duel.steps or 0} steps "
            f"after {duel.warmup_steps} of warm-up, {_order(comparison)}, "
            f"collector {duel.collector}, {plural(duel.ranks, 'rank')} on {duel.device or 'no device'}, "
            f"both sides {comparison.placement}"
        )
        lines.append(f"machine: {comparison.environment['cpu_model']}, {_conditions(comparison)}")
    lines.append(f"stored as {duel.id}" + (f"; logs in {duel.logs} of the reports folder" if duel.logs else ""))
    return lines


def _order(comparison: Comparison) -> str:
    first = sum(pair.base_first for pair in comparison.pairs)
    whole = sum(pair.steps for pair in comparison.pairs)
    unit = "launches in turn" if comparison.duel.interleave == "blocks" else "steps in turn"
    return f"{unit}, base first in {first} of {whole} (seed {comparison.duel.seed})"


def _conditions(comparison: Comparison) -> str:
    low, high = comparison.load or (0.0, 0.0)
    return ", ".join(filter(None, (f"load {low:.1f} to {high:.1f}", comparison.disturbances)))
