"""The life of one rank: take the plan, load the engine, say ready, step when told, leave a trace and a reason.

Two kinds of end are kept apart. A plan that does not fit the engine (no such factory, unknown key, probe that matches
nothing) is *refused* before anything is built: rank 0 tells the coordinator, nothing is stored. Whatever is raised
later is a *failure*: each rank that raises writes `rank{r}.failure.json` and ends with status 1.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import math
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from harness import names
from harness.collectors.base import RankSide
from harness.errors import UsageError
from harness.metrics import METRICS
from harness.worker import control
from harness.worker.control import Coordinator, Followers
from harness.worker.garbage import AutomaticCollections
from harness.worker.loaded import Loaded
from harness.worker.options import bind_options, load_factory
from harness.worker.plan import Plan
from harness.worker.probes import Probes
from harness.worker.ranges import Ranges
from harness.worker.refusal import leave_the_word_to_rank_0
from harness.worker.side_paths import import_from_side
from harness.worker.stacks import StackTimer
from harness.worker.state import precision_of, state_of
from harness.worker.step import Instrument, StepFigures, StepRunner


def main(plan_path: Path) -> NoReturn:
    """Run this process' rank (torchrun's `RANK`) of the plan, and end the process."""
    control.die_with_parent()
    rank = int(os.environ["RANK"])
    plan = Plan.read(plan_path)
    _redirect(plan.launch_dir / f"rank{rank}.log")
    life = _Rank(plan, rank, int(os.environ["WORLD_SIZE"]))
    status = life.run()
    sys.stdout.flush()
    sys.stderr.flush()
    if status == 0 and plan.ends_in_order:
        dist.destroy_process_group()
        sys.exit(0)
    # At once: everything of ours is on disk, and the finalisers of a large process take their time. After a failure
    # they may even wait for collectives whose other side is gone.
    os._exit(status)


def _redirect(log: Path) -> None:
    """Send stdout and stderr of this process and its children to `log`, and stacks there if it crashes."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable()


class _Phase:
    """Says in a small file, as `PID PHASE [STEP]`, what this rank is doing, for whoever finds it hanging or dead."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
        self.enter("start")

    def enter(self, name: str, step: int | None = None) -> None:
        self.name, self.step = name, step
        text = f"{os.getpid()} {name}" if step is None else f"{os.getpid()} {name} {step}"
        os.pwrite(self._file, text.ljust(48).encode(), 0)  # one short write in place: cheap, and never half there


class _Rank:
    def __init__(self, plan: Plan, rank: int, ranks: int) -> None:
        self._plan, self._rank, self._ranks = plan, rank, ranks
        self._phase = _Phase(plan.launch_dir / f"rank{rank}.phase")
        self._stacks = StackTimer(sys.stderr.fileno())
        self._stacks.set(plan.start_timeout_s)
        self._coordinator = Coordinator(plan.control_socket) if rank == 0 else None
        self._side: RankSide | None = None
        self._instrument = Instrument()

    def run(self) -> int:
        """Return the exit status: 0, 1 after a failure, 2 when the plan was refused."""
        try:
            try:
                build, ranges = self._prepare()
            except UsageError as error:
                self._refuse(str(error))
                return 2
            engine, followers = self._build(build)
            self._serve(engine, followers, ranges)
        except BaseException as error:  # anything an engine may raise, SystemExit included, ends this launch
            self._record_failure(error)
            return 1
        return 0

    def _prepare(self) -> tuple[Callable[[], Any], Ranges]:
        """Start recording, import the engine, and check everything that can be refused. Builds nothing."""
        self._phase.enter("import")
        plan = self._plan
        if plan.rank_side is not None:
            module = importlib.import_module(plan.rank_side)
            self._side = module.start_rank(plan.launch_dir / f"rank{self._rank}.sqlite", self._rank)
        ranges = Ranges()  # before the engine, as the instrument
        self._loaded = Loaded(plan.working_tree, plan.side_root)
        sys.path[:0] = [str(root) for root in (plan.measured_root, plan.engine_root) if root is not None]
        if plan.working_tree is not None and plan.side_root is not None:
            import_from_side(plan.working_tree, plan.side_root)
        factory = load_factory(plan.factory)
        build = bind_options(factory, plan.engine)
        Probes(plan.probes, ranges).install()
        AutomaticCollections(ranges).install()
        return build, ranges

    def _build(self, build: Callable[[], Any]) -> tuple[Any, Followers]:
        self._phase.enter("build")
        self._cuda = _uses_cuda(self._plan.engine)
        if self._cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group(backend="cpu:gloo,cuda:nccl" if self._cuda else "gloo")
        followers = Followers(self._rank, self._ranks)
        _seed(self._plan.seed)
        engine = build()
        pids = followers.gather([os.getpid()])
        if self._coordinator is not None:
            self._coordinator.send(self._ready(engine, [int(pid) for (pid,) in pids]))
        return engine, followers

    def _ready(self, engine: Any, pids: list[int]) -> dict[str, Any]:
        description = getattr(engine, "description", {})
        return {
            "event": "ready",
            "ranks": self._ranks,
            "device": "cuda" if self._cuda else "cpu",
            "pids": pids,
            "ready_ns": self._instrument.now_ns(),
            "threads": torch.get_num_threads(),
            "precision": precision_of(engine),
            "versions": {
                "python": python_version(),
                "torch": torch.__version__,
                "nvtx": _nvtx_version(),
                "cuda": torch.version.cuda if self._cuda else None,
            },
            "engine_description": dict(description) if isinstance(description, Mapping) else {},
        }

    def _serve(self, engine: Any, followers: Followers, ranges: Ranges) -> None:
        """Step as often as rank 0 is told to; then finish the traces."""
        plan = self._plan
        runner = StepRunner(
            engine,
            plan.mode,
            ranges,
            self._rank,
            cuda=self._cuda,
            time_batch=plan.time_batch,
            instrument=self._instrument,
        )
        capture = _Capture(plan, ranges if self._rank == 0 else None, self._side, cuda=self._cuda)
        index = 0
        while True:
            self._phase.enter("wait", index)
            command = control.STOP
            if self._coordinator is not None and self._coordinator.receive() == "step":
                command = control.STEP
            if followers.share(command) == control.STOP:
                break
            self._stacks.set(plan.timeout_s)
            self._phase.enter("batch", index)
            runner.prepare(index)
            capture.before(index)
            followers.align()
            self._phase.enter("step", index)
            figures = runner.run(index)
            self._phase.enter("gather", index)
            if self._side is not None:
                self._side.flush()
            everyone = followers.gather(_packed(figures))
            capture.after(index)
            if self._coordinator is not None:
                self._coordinator.send({"event": "step", "index": index, **_summary(everyone)})
            index += 1
        self._stacks.set(plan.timeout_s)
        self._phase.enter("stop")
        capture.end()
        self._loaded.write(plan.launch_dir / f"rank{self._rank}.loaded.json")
        self._finish(followers, followers.gather(state_of(engine).packed()))

    def _finish(self, followers: Followers, states: list[list[float]]) -> None:
        traces = self._side.close() if self._side is not None else []
        followers.align()  # when `done` is sent, the traces of all ranks are complete
        if self._coordinator is not None:
            self._coordinator.finish()
            own = [path.name for path in traces]
            everyone = [name.replace("rank0", f"rank{rank}", 1) for rank in range(self._ranks) for name in own]
            named = [str(self._plan.launch_dir / name) for name in everyone]
            self._coordinator.send({"event": "done", "traces": named, "states": states})

    def _refuse(self, message: str) -> None:
        """Every rank refuses the same plan for the same reason; rank 0 says it."""
        if self._coordinator is None:
            leave_the_word_to_rank_0()
        else:
            self._coordinator.finish()
            self._coordinator.send({"event": "refused", "message": message})

    def _record_failure(self, error: BaseException) -> None:
        """Leave the reason and what was recorded so far. Rank 0's end of the connection closes with the process."""
        traceback.print_exception(error)
        failure = {
            "rank": self._rank,
            "phase": self._phase.name,
            "step": self._phase.step,
            "error": f"{type(error).__name__}: {error}",
            "traceback": "".join(traceback.format_exception(error)),
            "time_ns": self._instrument.now_ns(),
        }
        path = self._plan.launch_dir / f"rank{self._rank}.failure.json"
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps(failure), encoding="utf-8")
        partial.rename(path)
        if self._side is not None:
            self._side.close()


class _Capture:
    """Opens and closes what an outside tool records: a range in our domain, and the collector's own part.

    The range is rank 0's alone (`ranges` is None on the others). nsys starts collecting in all processes when one opens
    it, and stops in all when it ends: so it opens before the barrier in front of the first measured step, and ends
    after the gather behind the last.
    """

    def __init__(self, plan: Plan, ranges: Ranges | None, side: RankSide | None, *, cuda: bool) -> None:
        self._steps, self._ranges, self._side, self._cuda = plan.capture, ranges, side, cuda
        self._settle_s = plan.settle_s
        self._open = False
        self._started: Any = None

    def before(self, index: int) -> None:
        if self._steps is None or index != self._steps[0]:
            return
        self._open = True
        if self._cuda:
            # Work launched before the capture would land in the trace without its launches.
            torch.cuda.synchronize()
        if self._side is not None:
            self._side.begin_capture()
        if self._ranges is not None:
            self._started = self._ranges.start(names.CAPTURE)
            time.sleep(self._settle_s)

    def after(self, index: int) -> None:
        if self._steps is not None and index == self._steps[1]:
            self.end()

    def end(self) -> None:
        if not self._open:
            return
        self._open = False
        if self._ranges is not None:
            self._ranges.end(self._started)
        if self._side is not None:
            self._side.end_capture()


def _seed(seed: int) -> None:
    """Seed every generator that a training script draws from without naming it."""
    random.seed(seed)
    torch.manual_seed(seed)
    with contextlib.suppress(ImportError):
        import numpy as np

        np.random.seed(seed % 2**32)  # the global generator, which scripts draw from


def _uses_cuda(engine: Mapping[str, Any]) -> bool:
    return engine.get("device") != "cpu" and torch.cuda.is_available()


def _nvtx_version() -> str | None:
    try:
        return version("nvtx")
    except PackageNotFoundError:
        return None


def _packed(figures: StepFigures) -> list[float]:
    """One rank's figures as numbers for the gather. A flag tells a loss that is unknown from one that is NaN."""
    loss = math.nan if figures.loss is None else figures.loss
    tokens = -1 if figures.tokens is None else figures.tokens
    known = 0.0 if figures.loss is None else 1.0
    own = (figures.began_ns, figures.duration_ns, loss, known, tokens)
    return [*own, *(figures.figures.get(name, math.nan) for name in METRICS)]


def _summary(everyone: list[list[float]]) -> dict[str, Any]:
    """Figures of a step over ranks: times and losses of each, the sum of the tokens, metrics as their table says."""
    begins, durations, losses, known, tokens, *figures = zip(*everyone, strict=True)
    return {
        "begins_ns": [int(began) for began in begins],
        "durations_ns": [int(duration) for duration in durations],
        "losses": [loss if told else None for loss, told in zip(losses, known, strict=True)],
        "tokens": int(sum(tokens)) if min(tokens) >= 0 else None,
        "figures": {
            name: value
            for (name, metric), told in zip(METRICS.items(), figures, strict=True)
            if (value := metric.of_ranks(told)) is not None
        },
    }
