"""One launch pair: base and head alive together, in turns of k steps, the order of each two turns by a seeded coin.

While one side steps the other is stopped (`launch.parking`), so slow noise (clocks, neighbours, heat) meets both sides
alike and cancels. At the end each side steps alone for a while, the other stopped throughout: what that changes is the
bias of interleaving (`stats.interleaving`). What a launch is born with does not cancel, so both sides get the same
environment, hash seed included, folders with names of equal length, and take turns at being started first.

`blocks` is for sides that do not fit into memory together: whole launches in turn, with the same records.
"""

from __future__ import annotations

import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from harness.comparison.same_work import agree, tolerance
from harness.errors import LaunchError, StepduelError, UsageError
from harness.launch import BUILD_RAISED, CLOCK, Launch, LaunchFailedError, LaunchRequest, Pace, Ready, StepReport
from harness.launch.placement import Placement, fits, place_ranks, unplaced
from harness.launch.rows import step_records
from harness.stats.turns import TURNS, Turn, stretches_alone
from harness.store import SIDES, DuelStepRecord, SideName


class RefusedError(StepduelError):
    """Sides whose engine cannot run the scenario, with the reason of each: it refused the plan, or raised when built.

    `exit_code` is what it comes to when no side can run: a plan that fits nothing, or a launch that failed.
    """

    def __init__(self, reasons: Mapping[SideName, StepduelError]) -> None:
        super().__init__("; ".join(f"{side} cannot run the scenario: {reason}" for side, reason in reasons.items()))
        self.reasons = dict(reasons)
        self.exit_code = max(reason.exit_code for reason in reasons.values())


class PairFailedError(LaunchError):
    """A launch of the pair failed; the message says which side, why, and where its logs are."""


class ClockError(StepduelError):
    """A side's times cannot be true; the launch pair under way is not evidence, and no other would be."""


class BudgetSpentError(StepduelError):
    """The duel's time is up; the launch pair under way is not evidence."""


@dataclass(frozen=True, kw_only=True)
class PairRequest:
    """What to start and how to step it."""

    pair: int
    requests: Mapping[SideName, LaunchRequest]
    starter: SideName
    order_seed: int
    pinned: bool
    """Whether ranks on a CPU keep to cores that both sides share (`harness.launch.placement`)."""
    loss_tolerance: float
    """What the scenario allows (`harness.comparison.same_work`)."""
    turn: Turn = TURNS[0]
    parked: bool = False
    """Whether a side is stopped while it waits, and each steps alone for a while. Not under a tool around the launch:
    its daemons must answer, and it was told which steps to record."""
    deadline: float = math.inf
    """`time.monotonic()` by which the pair must have ended."""


Decide = Callable[[float, Sequence[tuple[int, int]]], Pace | None]
"""Given what starting took (s) and the (base, head) times of the warm-up so far (ns): the pace, or None to go on."""
Stepped = Callable[[int], None]
"""Called after every step pair with the number of measured ones, below 1 during the warm-up."""


@dataclass(kw_only=True)
class PairRun:
    """What a launch pair did, in the order it did it."""

    pair: int
    loss_tolerance: float
    began_ns: int = field(default_factory=time.monotonic_ns)
    start_ns: int = 0
    pace: Pace | None = None
    ready: dict[SideName, Ready] = field(default_factory=dict)
    placements: dict[SideName, Placement] = field(default_factory=dict)
    """Cores of a side's ranks, the same for both sides; a side that is absent ran wherever the scheduler liked."""
    cores_used: dict[SideName, float] = field(default_factory=dict)
    """On how many cores a side computed at once, in the step of the warm-up with the fewest: the first may compile."""
    steps: list[DuelStepRecord] = field(default_factory=list)
    alone_ns: dict[SideName, list[int]] = field(default_factory=dict)
    """Times of the steps that a side made alone, each of its slowest rank; without the first of each stretch."""
    parking_ns: list[int] = field(default_factory=list)
    """What stopping a side after its turn took."""

    @property
    def measured(self) -> set[int]:
        """The measured steps by their place in the launch."""
        return {step.sequence for step in self.steps if step.measured}

    states: dict[SideName, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    """By side and rank, what the steps made of the parameters (`harness.worker.state`)."""
    parted: bool = False
    """Whether the losses of a step differ: from there on both sides do different work."""
    _losses: dict[int, Sequence[float | None]] = field(default_factory=dict)
    """Those of the steps that one side has made and the other has not yet."""

    def stop(self, launches: Mapping[SideName, Launch]) -> None:
        """Let launches finish, at once: nothing is measured any more."""
        for side, launch in launches.items():
            with _NamedFailure(side, self.pair):
                launch.request_stop()
        for side, launch in launches.items():
            self._await_stop(side, launch)

    def _await_stop(self, side: SideName, launch: Launch) -> None:
        """One that did its steps and then fails to end properly has failed."""
        with _NamedFailure(side, self.pair):
            outcome = launch.await_stop()
        self.states[side] = outcome.states
        if not outcome.clean_exit:
            how = "did not end" if outcome.exit_status is None else f"ended with status {outcome.exit_status}"
            raise PairFailedError(
                f"launch pair {self.pair}, {side}: every step was done, but the launch {how} after its stop "
                f"(log: {launch.launch_dir}/torchrun.log)"
            )

    def take(self, side: SideName, launch: Launch, slot: int, *, measured: bool) -> StepReport:
        """Run one step of one side and keep what it reports; figures over all ranks go with rank 0."""
        began_ns = time.monotonic_ns() - self.began_ns
        computed_ns = 0 if measured else launch.processor_ns()
        with _NamedFailure(side, self.pair):
            report = launch.step()
        if not measured:
            wall_ns = time.monotonic_ns() - self.began_ns - began_ns
            used = (launch.processor_ns() - computed_ns) / wall_ns
            self.cores_used[side] = min(used, self.cores_used.get(side, used))
        self.steps.extend(
            DuelStepRecord(**vars(record), pair=self.pair, side=side, slot=slot, began_ns=began_ns)
            for record in step_records(report, measured=measured)
        )
        self._compare(report)
        return report

    def _compare(self, report: StepReport) -> None:
        """Hold the losses of the side that makes a step second against those of the first."""
        others = self._losses.pop(report.index, None)
        if others is None:
            self._losses[report.index] = report.losses
            return
        base, head = (self.ready[side] for side in SIDES)
        allowed = tolerance(self.loss_tolerance, dict(base.versions), dict(head.versions), base.precision)
        self.parted |= not all(map(lambda one, other: agree(one, other, allowed), others, report.losses))


def run_in_lockstep(request: PairRequest, decide: Decide, stepped: Stepped) -> PairRun:
    """Run a launch pair with both sides alive. Whatever ends it, no process of either side is left.

    Raises RefusedError, PairFailedError or BudgetSpentError.
    """
    run = PairRun(pair=request.pair, loss_tolerance=request.loss_tolerance)
    coin = random.Random(request.order_seed)
    with ExitStack() as stack:
        launches = {side: Launch(request.requests[side]) for side in _order(request.starter)}
        for launch in launches.values():
            stack.enter_context(launch)
        _await_ready(run, launches)
        pair = _Pair(request=request, run=run, launches=launches, coin=coin)
        for side in launches:
            pair.park(side)
        warmup: list[tuple[int, int]] = []
        for done in _paced(run, warmup, decide, request.turn):
            if done == 1 and request.pinned:
                _place(run, launches)
            times = pair.take_turns(request.turn if done else TURNS[0], measured=done > 0)
            if done < 1:
                warmup.append((times["base"], times["head"]))
            stepped(done * request.turn.measured)
            if run.parted:
                break
        if request.parked and not run.parted:
            pair.step_alone()
        run.stop(launches)
    return run


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Both launches of a pair; between its turns each is stopped."""

    request: PairRequest
    run: PairRun
    launches: Mapping[SideName, Launch]
    coin: random.Random

    def take_turns(self, turn: Turn, *, measured: bool) -> dict[SideName, int]:
        """Let both sides take a turn, and return the time of each one's last step."""
        last: dict[SideName, int] = {}
        for slot, side in enumerate(self._drawn()):
            for step in range(turn.steps):
                _check_time(self.request)
                counts = measured and step >= turn.discarded
                last[side] = self.run.take(side, self.launches[side], slot, measured=counts).duration_ns
            self.park(side)
        return last

    def step_alone(self) -> None:
        """Let each side make stretches of steps in a row. They are no evidence of the verdict."""
        in_turn = [
            step.began_ns for step in self.run.steps if step.sequence >= min(self.run.measured) and not step.rank
        ]
        in_turn_s = (time.monotonic_ns() - self.run.began_ns - min(in_turn)) / 1e9
        order = self._drawn()
        for stretch in stretches_alone(self.run.start_ns / 1e9, in_turn_s, 2 * in_turn_s / len(in_turn)):
            for side in order:
                times = self._in_a_row(side, stretch.steps)
                self.run.alone_ns.setdefault(side, []).extend(times[stretch.discarded :])
            order = _order(order[1])

    def _in_a_row(self, side: SideName, steps: int) -> list[int]:
        """Return the times of so many steps of one side, which waits again after them."""
        times = []
        for _ in range(steps):
            _check_time(self.request)
            with _NamedFailure(side, self.run.pair):
                times.append(self.launches[side].step().duration_ns)
        self.park(side)
        return times

    def _drawn(self) -> tuple[SideName, SideName]:
        return _order("base" if self.coin.random() < 0.5 else "head")

    def park(self, side: SideName) -> None:
        """Stop a side until its next step."""
        if self.request.parked:
            began_ns = time.monotonic_ns()
            self.launches[side].park()
            self.run.parking_ns.append(time.monotonic_ns() - began_ns)


def run_in_blocks(request: PairRequest, decide: Decide, stepped: Stepped) -> PairRun:
    """Run a launch pair one launch after the other, the starter first; otherwise as `run_in_lockstep`."""
    run = PairRun(pair=request.pair, loss_tolerance=request.loss_tolerance)
    for slot, side in enumerate(_order(request.starter)):
        with Launch(request.requests[side]) as launch:
            _await_ready(run, {side: launch})
            warmup: list[tuple[int, int]] = []
            for done in _paced(run, warmup, decide, TURNS[0]):
                _check_time(request)
                if done == 1 and request.pinned:
                    _place(run, {side: launch})
                duration_ns = run.take(side, launch, slot, measured=done > 0).duration_ns
                if done < 1:
                    # The other side is not alive to compare with: its step is taken to cost the same.
                    warmup.append((duration_ns, duration_ns))
                stepped(done)
                if run.parted:
                    break
            run.stop({side: launch})
    return run


def _paced(run: PairRun, warmup: Sequence[tuple[int, int]], decide: Decide, turn: Turn) -> Iterator[int]:
    """Yield 0 for every step of the warm-up, then 1, 2, … for the turns that are measured."""
    while run.pace is None:
        run.pace = decide(run.start_ns / 1e9, warmup)
        if run.pace is None:
            yield 0
    for _ in range(len(warmup), run.pace.warmup_steps):
        yield 0
    yield from range(1, turn.turns(run.pace.steps) + 1)


def _await_ready(run: PairRun, launches: Mapping[SideName, Launch]) -> None:
    """Wait until all launches are ready; RefusedError names every side that cannot run the scenario.

    An engine that raises when built cannot, unless it was built before: then a launch has failed.
    """
    began_ns = time.monotonic_ns()
    refused: dict[SideName, StepduelError] = {}
    for side, launch in launches.items():
        with _NamedFailure(side, run.pair):
            try:
                run.ready[side] = launch.wait_ready()
            except UsageError as error:
                refused[side] = error
            except LaunchFailedError as error:
                if error.reason != BUILD_RAISED or run.pair > 1:
                    raise
                refused[side] = error
    if refused:
        raise RefusedError(refused)
    run.start_ns += time.monotonic_ns() - began_ns


def _place(run: PairRun, launches: Mapping[SideName, Launch]) -> None:
    """Bind the ranks of `launches` to cores, the same for every side of the pair.

    Not before the warm-up has shown how many cores they use; starting uses all of them. On a GPU a step hardly waits
    for the core that feeds it; and what an engine has placed itself is left alone.
    """
    ready = [run.ready[side] for side in launches]
    if any(one.device != "cpu" or not unplaced(one.pids) for one in ready):
        return
    placement = place_ranks(ready[0].ranks, max(one.threads for one in ready), os.sched_getaffinity(0))
    if placement is None or not all(fits(placement, run.cores_used.get(side, 0.0)) for side in launches):
        return
    for side, launch in launches.items():
        launch.keep_to(placement)
        run.placements[side] = placement


class _NamedFailure:
    """Turns a launch's failure into one that says which side of which launch pair it was."""

    def __init__(self, side: SideName, pair: int) -> None:
        self._side, self._pair = side, pair

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, LaunchFailedError):
            if error.reason == CLOCK:
                raise ClockError(f"launch pair {self._pair}, {self._side}: {error}") from error
            raise PairFailedError(f"launch pair {self._pair}, {self._side}: {error}") from error


def _order(first: SideName) -> tuple[SideName, SideName]:
    return ("base", "head") if first == "base" else ("head", "base")


def _check_time(request: PairRequest) -> None:
    if time.monotonic() > request.deadline:
        raise BudgetSpentError("the time that --budget allows is spent")
