"""Runs a duel: launch pair after launch pair, each stored as it ends, until the rule decides or the time is up.

After every pair the comparison is computed from the database, by the function that reports use. So what decides whether
to go on is what is printed at the end, and `--resume` only has to find the stored pairs.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from statistics import median
from typing import Any

import harness
from harness.collectors.registry import collectors
from harness.comparison import Comparison, compare_stored
from harness.conditions import Conditions, between, snapshot
from harness.duel.homes import Homes
from harness.duel.launches import collected_trace, range_records
from harness.duel.lockstep import (
    BudgetSpentError,
    ClockError,
    PairRequest,
    PairRun,
    RefusedError,
    run_in_blocks,
    run_in_lockstep,
)
from harness.duel.pacing import (
    first_look_s,
    forecast,
    least_steps,
    measured_steps,
    steps_in_time,
    warmed_up,
    warmup_noise,
)
from harness.duel.plan import DuelPlan, DuelSide
from harness.duel.pooled_prior import SameCodeDuel, pooled_prior, same_code_duels
from harness.duel.progress import Progress
from harness.duel.stopped import DuelStoppedError
from harness.environment import read_environment
from harness.errors import StepduelError, UsageError
from harness.launch import Pace, interrupted_once
from harness.stats.turns import turn_of
from harness.store import RESULTS, SIDES, DuelRecord, Duels, PairRecord, SideName, Store, new_run_id
from harness.verdict import Reason, State


def run_duel(plan: DuelPlan, progress: Progress, *, resume: bool = False) -> Comparison:
    """Run the duel and return what it found. Whole launch pairs are stored whatever ends it.

    Raises UsageError when both sides refuse the scenario, LaunchError when a launch fails, and DuelStoppedError when it
    is interrupted with a launch pair stored.
    """
    with interrupted_once(), Store(plan.reports / RESULTS) as store, Homes(plan=plan) as homes:
        duel = _Duel(plan, Duels(store), progress, homes)
        duel.open(resume)
        return duel.run()


class _Duel:
    """One duel under way."""

    def __init__(self, plan: DuelPlan, duels: Duels, progress: Progress, homes: Homes) -> None:
        self._plan, self._duels, self._progress, self._homes = plan, duels, progress, homes
        self._environment = read_environment()
        self._deadline = math.inf if plan.budget_s is None else time.monotonic() + plan.budget_s
        self._same_code: list[SameCodeDuel] = []
        self._pace = self._fixed_pace()
        self._turn = turn_of(1)
        self._told = False
        self._id = ""

    def open(self, resume: bool) -> None:
        """Find the unfinished duel to go on with, or write down a new one."""
        plan = self._plan
        key = plan.key(self._environment)
        if plan.interleave == "steps":  # launches in turn are noisier, and learn nothing from steps in turn
            machine = self._environment.machine
            self._same_code = same_code_duels(
                self._duels, plan.scenario.hash, machine, plan.head.collector, pinned=plan.pinned
            )
        stored = self._unfinished(key) if resume else None
        if stored is not None:
            self._adopt(stored)
            return
        if resume:
            self._progress.nothing_to_resume()
        self._id = new_run_id()
        record = DuelRecord(
            id=self._id,
            kind=plan.kind,
            started_at=_now(),
            scenario=plan.scenario.name,
            scenario_hash=plan.scenario.hash,
            scenario_document=plan.scenario.document(),
            key=key,
            base=plan.base.document(),
            head=plan.head.document(),
            environment_id=self._environment.id,
            collector=plan.head.collector,
            interleave=plan.interleave,
            ranks=plan.scenario.run.ranks,
            warmup_steps=plan.scenario.run.warmup_steps,
            steps=None,
            seed=plan.seed,
            rule=plan.rule_document(),
            limits=dict(plan.limits),
            prior=None,
            status="running",
            reason=None,
            objection=None if plan.cannot_run is None else _objection(Reason.CANNOT_RUN, plan.cannot_run),
            detectable_effect=None,
            device=None,
            explanation=None,
            harness_version=harness.__version__,
            logs=f"duels/{self._id}",
            pinned=plan.pinned,
        )
        self._duels.add(record, self._environment)

    def run(self) -> Comparison:
        """Make launch pairs until there is a verdict."""
        comparison = compare_stored(self._duels, self._id)
        try:
            while _goes_on(comparison) and not (self._plan.stop_at_limit and comparison.beyond_limits):
                self._turn = turn_of(comparison.next_turn_steps)
                self._make_pair(len(comparison.pairs) + 1)
                comparison = compare_stored(self._duels, self._id)
                self._progress.paired(comparison)
            if self._plan.explain is not None and comparison.pairs and comparison.duel.explanation is None:
                self._explain(self._plan.explain, len(comparison.pairs) + 1)
        except BudgetSpentError as error:
            self._duels.update(self._id, status="interrupted", reason=str(error))
        except RefusedError as error:
            self._refused(error)
        except ClockError as error:
            objection = _objection(Reason.CLOCK, str(error))
            self._duels.update(self._id, status="completed", reason=str(error), objection=objection)
        except KeyboardInterrupt:
            self._duels.update(self._id, status="interrupted", reason="interrupted")
            if not self._duels.pairs(self._id):
                raise
            raise DuelStoppedError(compare_stored(self._duels, self._id)) from None
        except BaseException as error:
            self._duels.update(self._id, status="failed", reason=" ".join(str(error).split()))
            raise
        else:
            self._duels.update(self._id, status="completed", reason=None)
        return compare_stored(self._duels, self._id)

    def _unfinished(self, key: str) -> DuelRecord | None:
        """The newest duel of this key that has no verdict yet."""
        found = self._duels.find(key=key)
        for duel in found:
            if compare_stored(self._duels, duel.id).verdict.state is State.UNDECIDED and self._duels.pairs(duel.id):
                return duel
        return None

    def _adopt(self, duel: DuelRecord) -> None:
        """Go on with a stored duel, at its own pace and order, under the rule that was asked for now."""
        plan = self._plan
        if plan.steps not in (None, duel.steps):
            raise UsageError(f"--steps {plan.steps}: the stored launch pairs have {duel.steps}; leave --steps out")
        self._id = duel.id
        if duel.steps is not None:
            self._pace, self._told = Pace(warmup_steps=duel.warmup_steps, steps=duel.steps), True
        self._duels.update(duel.id, rule=plan.rule_document(), limits=dict(plan.limits), status="running", reason=None)
        self._progress.resumed(len(self._duels.pairs(duel.id)), duel.id)

    def _fixed_pace(self) -> Pace | None:
        """The pace, where it must be known before the first launch: a tool is told beforehand which steps to record."""
        plan, run = self._plan, self._plan.scenario.run
        known = collectors()
        if not any(known[side.collector].abilities.fixed_pace for side in plan.sides.values()):
            return None
        return Pace(warmup_steps=max(run.warmup_steps, 1), steps=plan.steps or max(run.steps, least_steps(run.period)))

    def _make_pair(self, pair: int) -> None:
        if time.monotonic() > self._deadline:
            raise BudgetSpentError("the time that --budget allows is spent")
        self._progress.starting(pair, self._plan.rule.looks[-1])
        started_at, before = _now(), snapshot()
        request = self._request(pair, self._plan.sides)
        run = self._run(request)
        self._store(request, run, started_at, between(before, snapshot()))

    def _run(self, request: PairRequest) -> PairRun:
        run_pair = run_in_blocks if self._plan.interleave == "blocks" else run_in_lockstep
        return run_pair(request, self._decide, lambda done: self._stepped(request.pair, done))

    def _request(self, pair: int, sides: Mapping[SideName, DuelSide], folder: str | None = None) -> PairRequest:
        """The launches of a pair. Everything random comes from the duel's seed and the pair's number."""
        duel = self._duels.duel(self._id)
        order_seed = random.Random(f"{duel.seed} {pair}").getrandbits(31)
        starter: SideName = "base" if (duel.seed + pair) % 2 else "head"
        logs = self._plan.reports / "duels" / self._id / (folder or f"pair{pair:02d}")
        if logs.exists():  # of an attempt that failed, whose logs somebody may want to read
            logs.rename(logs.with_name(f"{logs.name}-failed-{time.time_ns()}"))
        run = self._plan.scenario.run
        pace = self._pace or Pace(warmup_steps=run.warmup_steps, steps=self._plan.steps or run.steps)
        env = {"PYTHONHASHSEED": str(order_seed)}
        return PairRequest(
            pair=pair,
            requests={name: self._homes.request(name, sides[name], logs / name, pace, env) for name in SIDES},
            starter=starter,
            order_seed=order_seed,
            pinned=self._plan.pinned,
            loss_tolerance=self._plan.scenario.compare.loss_tolerance,
            turn=self._turn,
            parked=self._fixed_pace() is None,
            deadline=self._deadline,
        )

    def _decide(self, start_s: float, warmup: Sequence[tuple[int, int]]) -> Pace | None:
        """Set the pace in the first launch pair, once its warm-up has shown what steps cost; say what it will see."""
        if self._told:
            return self._pace
        plan, rule = self._plan, self._plan.rule
        if self._pace is None:
            elapsed_s = sum(base + head for base, head in warmup) / 1e9
            if not warmed_up(len(warmup), elapsed_s, plan.scenario.run.warmup_steps):
                return None
            step_pair_s = min(base + head for base, head in warmup) / 1e9
            noise = pooled_prior(self._same_code).noise or warmup_noise(warmup)
            period, looks = plan.scenario.run.period, rule.looks
            steps = plan.steps or measured_steps(start_s, step_pair_s, noise, looks[0], len(warmup), period=period)
            costs = (start_s, step_pair_s, looks[0], len(warmup))
            left_s = self._deadline - time.monotonic()
            if left_s < math.inf and plan.steps is None:
                steps = max(least_steps(period), min(steps, steps_in_time(left_s, *costs)))
            if (needed_s := first_look_s(steps, *costs)) > left_s:
                self._progress.out_of_reach(needed_s, left_s, looks[0])
            self._pace = Pace(warmup_steps=len(warmup), steps=steps)
        elif len(warmup) < self._pace.warmup_steps:
            return None
        self._tell(self._pace, warmup)
        return self._pace

    def _tell(self, pace: Pace, warmup: Sequence[tuple[int, int]]) -> None:
        """Say what the duel will see, and write down its pace and what history lends it."""
        rule = self._plan.rule
        known = pooled_prior(self._same_code, pace.steps)
        seen = forecast(rule, pace.steps, known, warmup, in_turn=self._plan.interleave == "steps")
        self._duels.update(
            self._id,
            steps=pace.steps,
            warmup_steps=pace.warmup_steps,
            prior=None if known.prior is None else asdict(known.prior),
            detectable_effect=seen.last_look,
        )
        self._told = True
        self._progress.forecast(seen, rule.looks[0], rule.looks[-1], rule.margin, pace.steps)

    def _stepped(self, pair: int, done: int) -> None:
        steps = self._pace.steps if self._pace else 0
        self._progress.stepped(pair, done, self._turn.turns(steps) * self._turn.measured)

    def _store(self, request: PairRequest, run: PairRun, started_at: str, conditions: Conditions) -> None:
        """Write the pair, and what only a launch could tell about both sides."""
        self._homes.look(request.requests)
        if run.pair == 1:
            sides = {
                name: {
                    **self._plan.sides[name].document(),
                    "versions": dict(run.ready[name].versions),
                    "loaded": self._homes.document(name),
                }
                for name in SIDES
            }
            self._duels.update(self._id, device=run.ready["base"].device, **sides)
        known = collectors()
        ranges = [
            record
            for name, side in self._plan.sides.items()
            if known[side.collector].abilities.traces and not run.parted
            for record in range_records(collected_trace(side, request.requests[name].plan.launch_dir), run, name)
        ]
        launches: dict[str, Any] = {f"{name}_launch": _launch_document(run, name) for name in SIDES}
        record = PairRecord(
            pair=run.pair,
            started_at=started_at,
            order_seed=request.order_seed,
            starter=request.starter,
            start_ns=run.start_ns,
            conditions=asdict(conditions),
            turns=_turns_document(run, request) if self._plan.interleave == "steps" else None,
            **launches,
        )
        self._duels.add_pair(self._id, record, run.steps, ranges)
        found = self._homes.finding(parted=run.parted)
        if found is not None:
            self._duels.update(self._id, objection=_objection(found.reason, found.detail))

    def _explain(self, collector: str, pair: int) -> None:
        """Run one more pair, traced by a tool that slows steps down; its times are no evidence and are not stored."""
        self._progress.starting(pair, pair)
        sides = {name: replace(side, collector=collector) for name, side in self._plan.sides.items()}
        request = self._request(pair, sides, folder="explain")
        explanation = {"collector": collector}
        try:
            self._run(request)
            for name in SIDES:
                trace = collected_trace(sides[name], request.requests[name].plan.launch_dir)
                explanation[f"{name}_trace"] = str(trace.relative_to(self._plan.reports))
        except StepduelError as error:
            explanation["problem"] = str(error)
            self._progress.unexplained(str(error))
        self._duels.update(self._id, explanation=explanation)

    def _refused(self, error: RefusedError) -> None:
        """One side that cannot run the scenario is a finding; both are a scenario that fits nothing here."""
        if len(error.reasons) == len(SIDES):
            self._duels.update(self._id, status="failed", reason=str(error))
            raise error
        reason = "; ".join([str(error), *self._homes.hints(error.reasons)])
        objection = _objection(Reason.CANNOT_RUN, reason)
        self._duels.update(self._id, status="completed", reason=reason, objection=objection)


def _goes_on(comparison: Comparison) -> bool:
    if not comparison.pairs and comparison.duel.objection is None:
        return True
    return comparison.verdict.reason is Reason.MORE_PAIRS


def _objection(reason: Reason, detail: str) -> dict[str, str]:
    return {"reason": reason.value, "detail": detail}


def _launch_document(run: PairRun, side: SideName) -> dict[str, Any]:
    ready = run.ready[side]
    return {
        "pids": list(ready.pids),
        "cores": [list(cores) for cores in run.placements[side]] if side in run.placements else None,
        "device": ready.device,
        "engine": dict(ready.engine_description),
        "start_ns": ready.start_ns,
        "precision": ready.precision,
        "state": [[x if math.isfinite(x) else str(x) for x in rank] for rank in run.states[side]],
    }


def _turns_document(run: PairRun, request: PairRequest) -> dict[str, Any]:
    return {
        **asdict(request.turn),
        "alone_base_ns": run.alone_ns.get("base", []),
        "alone_head_ns": run.alone_ns.get("head", []),
        "parking_ns": median(run.parking_ns) if run.parking_ns else None,
    }


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
