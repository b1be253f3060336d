"""Computes a comparison from a duel's stored rows: verdict, same work, step time, ranges, memory.

Only whole launch pairs are stored, so the same function serves a duel under way, one that was interrupted, and one
read back years later. What only a running duel can find out (a side that cannot run the scenario) is stored with it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from harness import names
from harness.analysis.attribution import Attribution, attribute, dearest_path
from harness.comparison.alone import weigh_interleaving
from harness.comparison.launch_figures import launch_figures, slowing_of
from harness.comparison.metric_changes import MetricChange, metric_changes
from harness.comparison.result import LEAST_SHARE_OF_EFFECT, Comparison, Pair, Side
from harness.comparison.same_work import SameWork, same_work, tolerance
from harness.metrics import DEFAULT_LIMITS
from harness.stats.estimands import PairDifference, cap_pairs, pair_differences
from harness.stats.interleaving import AlonePair, interleaving, second_slot
from harness.stats.paired import StepPairs, UnusableError, step_times
from harness.stats.periods import Period, find_period, longest_period
from harness.stats.rule import Rule
from harness.stats.turns import Turn, longer_turn, turn_of
from harness.stats.variance_prior import VariancePrior
from harness.store import SIDES, DuelRangeRecord, DuelRecord, Duels, DuelStepRecord, PairRecord, SideName
from harness.verdict import Objection, Reason, SlowerRange, State, decide

CERTAIN_Q = 0.01
"""q-value up to which a range is told beside an undecided verdict: ten times as strict as a mark in a table."""


def compare_stored(duels: Duels, duel_id: str) -> Comparison:
    """Return everything that the stored launch pairs of a duel say. UsageError when there is no such duel."""
    duel = duels.duel(duel_id)
    steps, pairs = duels.steps(duel_id), duels.pairs(duel_id)
    rule = rule_of(duel)
    stated = float(duel.scenario_document["compare"]["loss_tolerance"])
    precision = pairs[0].base_launch.get("precision") if pairs else None
    allowed = tolerance(stated, duel.base.get("versions"), duel.head.get("versions"), precision)
    work = same_work(steps, allowed, pairs)
    step_pairs = {pair.pair: step_pairs_of(steps, pair.pair) for pair in pairs}
    turn_steps = max((pair.turn_steps for pair in pairs), default=1)
    # What is lent was measured in turns of one step.
    prior = None if duel.prior is None or turn_steps > 1 else VariancePrior(**duel.prior)
    stepped = {pair.pair: step_pairs[pair.pair] for pair in pairs if pair.turn_steps == turn_steps}
    turn = turn_of(turn_steps)
    judged = {number: turn.means(times) if _can_be_judged(times) else times for number, times in stepped.items()}
    usable = {number: times for number, times in judged.items() if _can_be_judged(times)}
    alone = interleaving(_alone_pairs(pairs, {number: stepped[number] for number in usable}))
    longer = longer_turn(turn_steps) if alone is not None and alone.beyond else None
    verdict = decide(list(judged.values()), rule, prior=prior, objection=_objection(duel, work))
    if turn_steps > 1:
        steps_per_pair = verdict.steps_per_pair * turn.measured
        verdict = replace(verdict, steps_per_pair=steps_per_pair, longest_period=longest_period(steps_per_pair))
    verdict = weigh_interleaving(verdict, alone, longer)
    said = dict(zip(usable, pair_differences(list(usable.values())), strict=True))
    sides = _self_times(steps, duels.slowest_ranges(duel_id), stepped)
    counted = _counted(usable, steps, turn)
    split = attribute(sides["base"], sides["head"], counted) if all(sides.values()) else None
    figures = launch_figures(steps, pairs, duel.limits or {}, duels.growth(duel_id))
    verdict = replace(
        verdict,
        # With longer turns steps are missing between those that were measured.
        period=_period(usable, sides, duel.warmup_steps) if turn_steps == 1 else None,
        slower_range=None if split is None or verdict.state is not State.UNDECIDED else _slower(split, rule),
        slowing=None if verdict.state is State.INVALID else slowing_of(figures),
    )
    return Comparison(
        duel=duel,
        environment=duels.environment(duel_id),
        base=_side("base", duel.base, None if split is None else split.base_ns),
        head=_side("head", duel.head, None if split is None else split.head_ns),
        rule=rule,
        prior=prior,
        verdict=verdict,
        ranges=() if split is None else split.parts,
        uncapped_delta_ns=None if split is None else split.uncapped_delta_ns,
        same_work=work,
        metrics=_metrics(steps, pairs, DEFAULT_LIMITS if duel.limits is None else duel.limits),
        launch_figures=figures,
        pairs=tuple(_pair(pair, step_pairs[pair.pair], said.get(pair.pair), steps) for pair in pairs),
        turn_steps=turn_steps,
        next_turn_steps=longer or turn_steps,
        interleaving=alone,
        second_slot=second_slot([(stepped[pair], _base_first(steps, pair)) for pair in usable]),
    )


def _alone_pairs(pairs: Sequence[PairRecord], usable: Mapping[int, StepPairs]) -> list[AlonePair]:
    """Return the judged launch pairs in which each side also stepped alone."""
    return [
        AlonePair(
            in_turn=usable[pair.pair],
            base_ns=np.array(pair.turns["alone_base_ns"], dtype=np.float64),
            head_ns=np.array(pair.turns["alone_head_ns"], dtype=np.float64),
        )
        for pair in pairs
        if pair.pair in usable and pair.turns is not None and pair.turns["alone_base_ns"]
    ]


def _base_first(steps: Sequence[DuelStepRecord], pair: int) -> NDArray[np.bool_]:
    """Return of each measured step of a launch pair whether base was first."""
    own = (step for step in steps if step.pair == pair and step.side == "base" and step.rank == 0 and step.measured)
    return np.array([step.slot == 0 for step in sorted(own, key=lambda step: step.sequence)])


def _metrics(
    steps: Sequence[DuelStepRecord], pairs: Sequence[PairRecord], limits: Mapping[str, float]
) -> tuple[MetricChange, ...]:
    """Return the metrics of all launch pairs, each with the number of pairs that are beyond its limit alone."""

    def changes(pair: int | None) -> tuple[MetricChange, ...]:
        own = [step for step in steps if pair in (None, step.pair)]
        base, head = ([step for step in own if step.side == side] for side in SIDES)
        return metric_changes(base, head, limits)

    beyond = Counter(change.name for pair in pairs for change in changes(pair.pair) if change.exceeded)
    return tuple(replace(change, pairs_beyond=beyond[change.name]) for change in changes(None))


def rule_of(duel: DuelRecord) -> Rule:
    """Return the rule the duel was made under."""
    return Rule(**{**duel.rule, "looks": tuple(duel.rule["looks"])})


def step_pairs_of(steps: Sequence[DuelStepRecord], pair: int) -> StepPairs:
    """Return the measured step times of one launch pair, (steps, ranks) a side."""
    times = {side: _durations(steps, pair, side) for side in SIDES}
    return StepPairs(base_ns=times["base"], head_ns=times["head"])


def _durations(steps: Sequence[DuelStepRecord], pair: int, side: str) -> NDArray[np.int64]:
    rows: dict[int, dict[int, int]] = {}
    for step in steps:
        if step.measured and step.pair == pair and step.side == side:
            rows.setdefault(step.sequence, {})[step.rank] = step.duration_ns
    ordered = [[ranks[rank] for rank in sorted(ranks)] for _, ranks in sorted(rows.items())]
    return np.array(ordered, dtype=np.int64) if ordered else np.empty((0, 1), dtype=np.int64)


_PARTS_FROM_ITSELF: Final = (
    "; both sides are one code, so it parts from itself: it draws from a generator that run.seed does not seed "
    "(numpy.random.default_rng(), os.urandom), or adds in no fixed order"
)
_WHY_AA: Final = "tells whether one code parts from itself"


def _objection(duel: DuelRecord, work: SameWork) -> Objection | None:
    if duel.objection is not None:
        return Objection(reason=Reason(duel.objection["reason"]), detail=str(duel.objection["detail"]))
    if work.first_difference is not None:
        one_code = duel.kind == "aa" or duel.base["identity"] == duel.head["identity"]
        return Objection(
            reason=Reason.DIFFERENT_WORK,
            detail=f"{work.first_difference.detail}{_PARTS_FROM_ITSELF if one_code else ''}",
            next_step=None if one_code else f"if no commit should change it: stepduel aa {duel.scenario} {_WHY_AA}",
        )
    return None


def _can_be_judged(times: StepPairs) -> bool:
    try:
        step_times(times)
    except UnusableError:
        return False
    return True


def _self_times(
    steps: Sequence[DuelStepRecord], ranges: Sequence[DuelRangeRecord], judged: Collection[int]
) -> dict[SideName, list[DuelRangeRecord]]:
    """Return the ranges of both sides in the judged pairs; where one was not traced, each step is one range."""
    if {record.side for record in ranges} != set(SIDES):
        ranges = [_whole_step(step) for step in steps if step.measured]
    return {side: [record for record in ranges if record.side == side and record.pair in judged] for side in SIDES}


def _counted(
    usable: Mapping[int, StepPairs], steps: Sequence[DuelStepRecord], turn: Turn
) -> dict[str, dict[tuple[int, int], float]]:
    """Return by side, launch pair and step the share that the cap counts."""
    if not usable:
        return {}
    capped = cap_pairs(list(usable.values()))
    sequences: dict[int, list[int]] = {}
    for step in steps:
        if step.measured and step.side == "base" and step.rank == 0:
            sequences.setdefault(step.pair, []).append(step.sequence)
    counted: dict[str, dict[tuple[int, int], float]] = {side: {} for side in SIDES}
    for at, pair in enumerate(usable):
        for side, shares in zip(SIDES, capped.counted_shares(at), strict=True):
            keys = [(pair, sequence) for sequence in sorted(sequences[pair])]
            counted[side].update(zip(keys, shares.repeat(turn.measured).tolist(), strict=True))
    return counted


def _period(
    usable: Mapping[int, StepPairs], sides: Mapping[SideName, Sequence[DuelRangeRecord]], warmup_steps: int
) -> Period | None:
    """Return what one side pays at every Nth step, and in which range."""
    times = [step_times(pair) for pair in usable.values()]
    found = find_period([base_ns for base_ns, _ in times], [head_ns for _, head_ns in times])
    if found is None:
        return None
    last = max((record.sequence for record in sides["head"]), default=0)
    path = dearest_path(sides["base"], sides["head"], range(warmup_steps + found.first, last + 1, found.every))
    return replace(found, path=path)


def _slower(split: Attribution, rule: Rule) -> SlowerRange | None:
    """Return the range that certainly takes longer and costs most, if any costs what matters."""
    least_ns = LEAST_SHARE_OF_EFFECT * rule.min_effect * split.base_ns
    for part in split.parts:  # the largest first
        certain = part.q is not None and part.q <= CERTAIN_Q
        if certain and part.ci_ns is not None and part.delta_ns > max(least_ns, 0) and part.path != names.STEP:
            return SlowerRange(path=part.path, delta_ns=part.delta_ns, ci_ns=part.ci_ns)
    return None


def _whole_step(step: DuelStepRecord) -> DuelRangeRecord:
    return DuelRangeRecord(
        pair=step.pair,
        side=step.side,
        sequence=step.sequence,
        rank=step.rank,
        path=names.STEP,
        calls=1,
        total_ns=step.duration_ns,
        self_ns=step.duration_ns,
    )


def _side(name: SideName, subject: Mapping[str, Any], step_ns: float | None) -> Side:
    return Side(
        name=name,
        subject=subject["subject"],
        revision=subject["revision"],
        dirty=subject["dirty"],
        commit_subject=subject.get("commit_subject"),
        overrides=tuple(subject.get("overrides", ())),
        versions=_versions(subject),
        step_ns=step_ns,
        loaded=subject.get("loaded"),
    )


def _versions(subject: Mapping[str, Any]) -> dict[str, str]:
    """Return the versions of a release and of what it imports, and those that the side's ranks told."""
    return {**(subject.get("imports") or {}), **(subject.get("versions") or {})}


def _pair(
    record: PairRecord, times: StepPairs, difference: PairDifference | None, steps: Sequence[DuelStepRecord]
) -> Pair:
    return Pair(
        number=record.pair,
        started_at=record.started_at,
        starter=record.starter,
        start_ns=record.start_ns,
        ratio=None if difference is None else math.exp(difference.total),
        typical_ratio=None if difference is None else math.exp(difference.typical),
        base_ns=None if difference is None else difference.base_ns,
        head_ns=None if difference is None else difference.head_ns,
        steps=len(times.base_ns),
        turn_steps=record.turn_steps,
        base_first=int(_base_first(steps, record.pair).sum()),
        conditions=record.conditions,
        base_launch=record.base_launch,
        head_launch=record.head_launch,
        base_steps_ns=tuple(int(ns) for ns in times.base_ns.max(axis=1)) if times.base_ns.size else (),
        head_steps_ns=tuple(int(ns) for ns in times.head_ns.max(axis=1)) if times.head_ns.size else (),
    )
