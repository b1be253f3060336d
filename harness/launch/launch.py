"""One launch: the processes of one job that step when they are told to.

    with Launch(request) as launch:
        ready = launch.wait_ready()
        reports = [launch.step() for _ in range(12)]
        outcome = launch.stop()

Two launches may be alive at once and be stepped in turn: between its steps a launch sleeps. Whatever ends the `with`
block, an exception or Ctrl-C included, leaves no process and no socket behind; should this process itself be killed,
a supervisor process (see `supervisor.py`) ends the tree.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from harness.errors import UsageError
from harness.launch.channel import AwaitTimeoutError, Channel, TreeEndedError
from harness.launch.clock import clock_problem
from harness.launch.failure import CLOCK, LaunchFailedError, diagnose, has_stacks, read_phases, timed_out
from harness.launch.interrupts import interrupts_deferred
from harness.launch.parking import Parking
from harness.launch.placement import Placement, keep_to, let_go, processor_ns
from harness.launch.request import LaunchOutcome, LaunchRequest, Ready, StepReport

_STACK_DUMP_S: Final = 2.0


class Launch:
    """See the module. Methods raise UsageError when the plan does not fit the engine (`wait_ready` only), else
    LaunchFailedError; after either the tree has ended already."""

    def __init__(self, request: LaunchRequest) -> None:
        self.request = request
        self.launch_dir = request.plan.launch_dir.resolve()
        self.launch_id = uuid.uuid4().hex
        self.command: list[str] = []
        """The command line that was run, as a collector wrapped it."""
        self._channel: Channel | None = None
        self._parking: Parking | None = None
        self._placement: Placement | None = None
        self._pids: tuple[int, ...] = ()

    def __enter__(self) -> Launch:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()

    def start(self) -> None:
        """Start the processes and return at once."""
        with interrupts_deferred():  # or its folder might be nobody's
            channel = self._channel = Channel()
        try:
            self.command, env = self.request.command(self.request.write_plan(channel.path))
            channel.start(self.launch_id, self.command, env, self.launch_dir, self.request.cwd)
        except BaseException:
            self.kill()
            raise
        self._started_ns = time.perf_counter_ns()
        self._start_deadline = time.monotonic() + self.request.plan.start_timeout_s

    def wait_ready(self) -> Ready:
        """Sleep until every rank has built its engine. Raises UsageError when the plan is refused."""
        event = self._await(self._start_deadline, "start", self.request.plan.start_timeout_s)
        if event["event"] == "refused":
            self.kill()
            raise UsageError(event["message"])
        assert self._channel is not None
        self._pids = tuple(event["pids"])
        self._parking = Parking(self._channel.supervisor_pid, self._pids)
        return Ready(
            ranks=event["ranks"],
            device=event["device"],
            pids=self._pids,
            threads=event["threads"],
            start_ns=event.get("ready_ns", time.perf_counter_ns()) - self._started_ns,
            precision=event.get("precision"),
            versions=event["versions"],
            engine_description=event["engine_description"],
        )

    def park(self) -> None:
        """Stop every process of the launch but its keepers (`parking`), until the next `resume`, step or stop."""
        if self._parking is not None:
            started = self._parking.stop()
            if self._placement is not None:
                let_go(started.difference(self._pids), self._placement)

    def keep_to(self, placement: Placement) -> None:
        """Bind each rank to its cores. What the ranks start later works beside them, from the next `park` on."""
        keep_to(self._pids, placement)
        self._placement = placement

    def resume(self) -> None:
        """Let a parked launch go on; does nothing to another."""
        if self._parking is not None:
            self._parking.resume()

    def processor_ns(self) -> int:
        """Return the processor time that the ranks and what they started have had so far."""
        return 0 if self._parking is None else processor_ns(self._parking.processes())

    def step(self) -> StepReport:
        """Run one step on all ranks and return its figures."""
        self.request_step()
        return self.await_step()

    def request_step(self) -> None:
        """Let the next step begin and return at once; `await_step` must follow."""
        self.resume()
        self._step_deadline = time.monotonic() + self.request.plan.timeout_s
        self._sent_ns = time.perf_counter_ns()
        self._send("step")

    def await_step(self) -> StepReport:
        """Sleep until the step that `request_step` began has ended on all ranks, and return its figures."""
        event = self._await(self._step_deadline, "step", self.request.plan.timeout_s)
        wrong = clock_problem(event, self._sent_ns, time.perf_counter_ns())
        if wrong is not None:
            self.kill()
            raise LaunchFailedError(wrong, reason=CLOCK, launch_dir=self.launch_dir, step=event["index"])
        return StepReport(
            index=event["index"],
            durations_ns=tuple(event["durations_ns"]),
            losses=tuple(event["losses"]),
            tokens=event["tokens"],
            figures=event["figures"],
        )

    def stop(self) -> LaunchOutcome:
        """Have the ranks finish their traces, and wait until the tree has ended."""
        self.request_stop()
        return self.await_stop()

    def request_stop(self) -> None:
        """Have the ranks finish their traces and return at once; `await_stop` must follow."""
        self.resume()
        self._stop_deadline = time.monotonic() + self.request.plan.timeout_s
        self._send("stop")

    def await_stop(self) -> LaunchOutcome:
        """Sleep until the traces that `request_stop` asked for are written and the tree has ended."""
        event = self._await(self._stop_deadline, "stop", self.request.plan.timeout_s)
        assert self._channel is not None
        status = self._channel.wait_exit(self.request.exit_timeout_s)
        self.kill()
        traces = tuple(Path(trace) for trace in event["traces"])
        states = tuple(tuple(figures) for figures in event.get("states", ()))
        return LaunchOutcome(traces=traces, clean_exit=status == 0, exit_status=status, states=states)

    def kill(self) -> None:
        """End every process of the launch at once, by SIGKILL, and remove its socket. Does nothing the second time."""
        if self._channel is not None:
            try:
                left = self._channel.close()
            finally:
                self._channel = None
            if left:
                raise LaunchFailedError(
                    f"processes {left} of the launch cannot be killed; they hang in the kernel",
                    reason="rank_died",
                    launch_dir=self.launch_dir,
                )

    def _send(self, command: str) -> None:
        if self._channel is None:
            raise UsageError(f"launch {self.launch_dir}: has ended; start a new one")
        try:
            self._channel.send(command)
        except TreeEndedError:
            raise self._ended() from None

    def _await(self, deadline: float, waited_for: str, timeout_s: float) -> dict[str, Any]:
        if self._channel is None:
            raise UsageError(f"launch {self.launch_dir}: has ended; start a new one")
        try:
            return self._channel.receive(deadline)
        except TreeEndedError:
            raise self._ended() from None
        except AwaitTimeoutError:
            raise self._hung(waited_for, timeout_s) from None

    def _ended(self) -> LaunchFailedError:
        """The failure of a tree that ended by itself. The ranks' parent ends the others and says what it saw."""
        assert self._channel is not None
        status = self._channel.wait_exit(self.request.exit_timeout_s)
        self.kill()
        return diagnose(self.launch_dir, self.request.ranks, status)

    def _hung(self, waited_for: str, timeout_s: float) -> LaunchFailedError:
        """The failure of a launch that is late. Its ranks write their stacks to their logs (`worker.stacks`)."""
        assert self._channel is not None
        phases = read_phases(self.launch_dir, self.request.ranks)
        logs = [self.launch_dir / f"rank{phase.rank}.log" for phase in phases]
        patience = time.monotonic() + _STACK_DUMP_S  # one that started late is late with its stacks
        while not all(map(has_stacks, logs)) and time.monotonic() < patience:
            time.sleep(0.05)
        failure = timed_out(self.launch_dir, self.request.ranks, waited_for, timeout_s)
        # A collector around the tree gets the time to write its report, once the ranks are gone.
        for phase in phases:
            with contextlib.suppress(ProcessLookupError):
                os.kill(phase.pid, signal.SIGKILL)
        self._channel.wait_exit(self.request.exit_timeout_s)
        self.kill()
        return failure
