"""The report of a duel: one page from a comparison, the rows behind it, and the commits between both sides."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from harness.comparison import Comparison
from harness.comparison.rows import DuelRows, StepTree
from harness.report.page import Page
from harness.report.sections import (
    attribution,
    commits,
    environment,
    findings,
    gpu,
    launch_pairs,
    method,
    metrics,
    range_trees,
    reproduce,
    steps,
    verdict,
)
from harness.store import DuelStepRecord, SideName
from harness.subject.commits import CommitRange

TREES_NOTE: Final = (
    "The median step of each side, on its slowest rank, drawn to one time axis. Repeated calls of a range are one box, "
    "and its own time comes last in it. Orange and teal boxes are ranges whose own time moved by as much as matters."
)
STEPS_NOTE: Final = (
    "Base and head step in turn, so that slow noise meets both alike. All panels share one axis of milliseconds, which "
    "does not begin at zero; across is the order in which steps ran."
)


def render_comparison(
    comparison: Comparison, evidence: DuelRows, commit_range: CommitRange | None = None, *, folder: str = "."
) -> str:
    """Return the report of a duel as one HTML file. Equal input gives equal bytes.

    `folder` is the reports folder as seen from the file's own, for links to traces and logs.
    """
    moved = {part.path: part.delta_ns for part in comparison.moved}
    analyses = evidence.analyses
    found = {side: one.findings for side, one in analyses.items()}
    return Page(
        kind=comparison.verdict.state.value.capitalize(),
        heading=comparison.duel.scenario,
        identity=comparison.duel.id,
        lead=verdict.section(comparison),
        sections=(
            launch_pairs.section(comparison),
            attribution.of_comparison(comparison),
            range_trees.section([_tree(side, tree) for side, tree in evidence.trees.items()], TREES_NOTE, moved),
            steps.section(list(_panels(evidence.steps)), STEPS_NOTE),
            gpu.section({str(side): one for side, one in analyses.items()}, comparison.duel.device),
            findings.section(found.get("base"), found.get("head")),
            metrics.section(comparison),
            environment.of_comparison(comparison),
            commits.section(comparison, commit_range),
            method.section(comparison),
            reproduce.of_comparison(comparison, {str(side): path for side, path in evidence.traces.items()}, folder),
        ),
    ).render()


def _tree(side: str, tree: StepTree) -> range_trees.Tree:
    caption = f"step {tree.sequence} of launch pair {tree.pair}, rank {tree.rank}"
    return range_trees.Tree(side=side, caption=caption, ranges=tree.ranges)


def _panels(rows: Iterable[DuelStepRecord]) -> Iterable[steps.Panel]:
    """One panel a launch pair; a step's position is its place in the order in which the coordinator let them run."""
    by_pair: dict[int, list[DuelStepRecord]] = {}
    for row in rows:
        by_pair.setdefault(row.pair, []).append(row)
    for pair, own in sorted(by_pair.items()):
        turns = sorted({(row.began_ns, row.sequence, row.slot, row.side): row.measured for row in own}.items())
        order = {(side, sequence): at for at, ((_, sequence, _, side), _) in enumerate(turns)}
        lines: dict[tuple[SideName, int], list[DuelStepRecord]] = {}
        for row in own:
            lines.setdefault((row.side, row.rank), []).append(row)
        yield steps.Panel(
            title=f"Launch pair {pair}",
            warmup=next((at for at, (_, measured) in enumerate(turns) if measured), len(turns)),
            lines=[
                steps.Line(
                    side=side,
                    rank=rank,
                    order=[order[side, row.sequence] for row in line],
                    times_ns=[row.duration_ns for row in line],
                )
                for (side, rank), line in sorted(lines.items())
            ],
        )
