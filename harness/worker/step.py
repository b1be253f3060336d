"""Runs one step of an engine inside its ranges, and measures it. The step's shape is in docs/architecture.md."""

from __future__ import annotations

import numbers
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch

from harness import names
from harness.worker.growth import GrowthMarks
from harness.worker.meters import Meters
from harness.worker.ranges import Range, Ranges


@dataclass(frozen=True, kw_only=True)
class StepFigures:
    """What one rank measured of one step; `figures` are by metric."""

    began_ns: int
    """CLOCK_MONOTONIC, which the coordinator reads as well."""
    duration_ns: int
    loss: float | None
    tokens: int | None
    figures: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """What a step is measured with. Made before the engine is imported, so that it has the interpreter's own calls.

    They are kept in an object: what replaces clocks (freezegun, say) replaces them in every module that names them.
    """

    now_ns: Callable[[], int] = field(default_factory=lambda: time.perf_counter_ns)
    synchronize: Callable[[], None] = field(default_factory=lambda: torch.cuda.synchronize)


class StepRunner:
    """Steps one engine. `mode` is `train` or `eval`; `cuda` says whether a step ends with a device synchronise.

    `time_batch` says whether the batch is made in the step, as its range `batch`, or before it.
    """

    def __init__(
        self,
        engine: Any,
        mode: str,
        ranges: Ranges,
        rank: int,
        *,
        cuda: bool,
        time_batch: bool = True,
        instrument: Instrument | None = None,
    ) -> None:
        self._engine, self._ranges, self._rank, self._cuda = engine, ranges, rank, cuda
        self._time_batch = time_batch
        self._batch: Any = None
        self._instrument = instrument or Instrument()
        self._meters = Meters(cuda=cuda)
        self._growth = GrowthMarks(ranges, self._meters.allocated_bytes, self._instrument.now_ns)
        self._body: Callable[[Any], Any] = self._train if mode == "train" else self._evaluate
        self._context: Callable[[], AbstractContextManager[Any]] | None = getattr(engine, f"{mode}_mode", None)
        self._enter = self._growth.range(names.TRAIN_MODE_ENTER if mode == "train" else names.EVAL_MODE_ENTER)
        self._exit = self._growth.range(names.TRAIN_MODE_EXIT if mode == "train" else names.EVAL_MODE_EXIT)
        self._halves = hasattr(engine, "forward_backward")
        train = "forward_backward" if self._halves else "train_batch"
        self._returned_by = train if mode == "train" else "infer_batch"
        self._forward_backward = self._growth.range(names.FORWARD_BACKWARD)
        self._optimizer_step = self._growth.range(names.OPTIMIZER_STEP)
        self._train_batch = self._growth.range(names.TRAIN_BATCH)
        self._forward = self._growth.range(names.FORWARD)
        self._batch_range = self._growth.range(names.BATCH)

    def prepare(self, index: int) -> None:
        """Get ready for step `index`: make its batch, where that is not part of the step."""
        self._meters.reset()
        if not self._time_batch:
            self._batch = self._engine.batch(index)

    def run(self, index: int) -> StepFigures:
        """Run step `index`. Whatever the engine raises goes through, its ranges closed."""
        ranges, now_ns = self._ranges, self._instrument.now_ns
        attributes = ranges.attributes(names.STEP, payload=index)
        began_ns = now_ns()
        ranges.push(attributes)
        try:
            ranges.mark(names.RANK_MARK, self._rank)
            self._growth.begin(index)
            if self._time_batch:
                with self._batch_range:
                    self._batch = self._engine.batch(index)
            output = self._in_mode(self._batch)
            if self._cuda:
                self._instrument.synchronize()
        finally:
            ranges.pop()
        duration_ns = now_ns() - began_ns
        self._growth.end(duration_ns)
        return self._figures(began_ns, duration_ns, output)

    def _in_mode(self, batch: Any) -> Any:
        if self._context is None:
            return self._body(batch)
        with self._enter:
            context = self._context()
            context.__enter__()
        try:
            output = self._body(batch)
        except BaseException:
            with self._exit:
                context.__exit__(*sys.exc_info())
            raise
        with self._exit:
            context.__exit__(None, None, None)
        return output

    def _train(self, batch: Any) -> Any:
        if not self._halves:
            return self._within(self._train_batch, self._engine.train_batch, batch)
        loss = self._within(self._forward_backward, self._engine.forward_backward, batch)
        with self._optimizer_step:
            self._engine.optimizer_step()
        return loss

    def _evaluate(self, batch: Any) -> Any:
        return self._within(self._forward, self._engine.infer_batch, batch)

    @staticmethod
    def _within(span: Range, function: Callable[[Any], Any], batch: Any) -> Any:
        with span:
            return function(batch)

    def _figures(self, began_ns: int, duration_ns: int, output: Any) -> StepFigures:
        count = getattr(self._engine, "num_tokens", None)
        return StepFigures(
            began_ns=began_ns,
            duration_ns=duration_ns,
            loss=loss_of(output, self._returned_by),
            tokens=None if count is None else int(count(self._batch)),
            figures=self._meters.read(),
        )


def loss_of(output: Any, returned_by: str) -> float | None:
    """Return the one figure that tells two steps' results apart: the loss, or the mean of an output that is none.

    None for an output in eval mode that has no such figure. A training step's loss has to: TypeError, or it would pass
    for the same work as anything else.
    """
    if isinstance(output, torch.Tensor):
        return float(output.detach().double().mean().item())
    if isinstance(output, dict):
        return loss_of(output.get("loss"), returned_by)
    if output is None or (returned_by == "infer_batch" and not isinstance(output, numbers.Real)):
        return None
    if isinstance(output, numbers.Real):  # numpy's are, too
        return float(output)
    raise TypeError(f"{returned_by} returned a {type(output).__name__}; expected a float, a 0-d tensor or None")
