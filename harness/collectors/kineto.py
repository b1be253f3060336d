"""Traces a launch with torch.profiler: the recorder's ranges, and kineto's CUDA activity in the same file.

For machines with CUDA and without Nsight Systems. In every rank the recorder records the ranges; from the first
measured step to the last, torch.profiler collects CUDA's activity alone (no operators: they would slow every call
down), and when the rank ends that is appended to the rank's trace. Without CUDA the trace holds the ranges.

Kernels of a CUDA graph get rows of their own here, as with nsys' `--cuda-graph-trace=node`. Times of the two sources
are lined up by `kineto_events.ClockMap`.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final

from harness.collectors import cupti
from harness.collectors.base import FINISH_TIMEOUT_S, Abilities, Availability
from harness.collectors.kineto_events import ChromeTrace, ClockMap, ClockReading, write_events
from harness.collectors.recorder import Recorder
from harness.errors import UsageError
from harness.trace.merge import merge_launch

NAME: Final = "kineto"


class KinetoRank:
    """Rank side; see `harness.collectors.base.RankSide`."""

    def __init__(self, recorder: Recorder, chrome_path: Path) -> None:
        self._recorder = recorder
        self._chrome_path = chrome_path
        self._profiler: Any = None
        self._first: ClockReading | None = None
        self._last: ClockReading | None = None

    def begin_capture(self) -> None:
        """Start CUPTI, let it allocate its buffers on a first kernel, and start collecting."""
        import torch

        if not torch.cuda.is_available():
            return
        from torch._C._profiler import _ExperimentalConfig
        from torch.profiler.profiler import _KinetoProfile

        profiler = _KinetoProfile(
            activities=[torch.profiler.ProfilerActivity.CUDA],
            experimental_config=_ExperimentalConfig(enable_cuda_sync_events=True),
        )
        profiler.prepare_trace()
        torch.zeros(1, device="cuda").add_(1)
        torch.cuda.synchronize()
        self._first = ClockReading.take()
        profiler.start_trace()
        self._profiler = profiler

    def end_capture(self) -> None:
        """Stop collecting, after the device has done what was asked of it."""
        if self._profiler is None or self._last is not None:
            return
        import torch

        torch.cuda.synchronize()
        self._profiler.stop_trace()
        self._last = ClockReading.take()

    def flush(self) -> None:
        """Write the ranges seen so far. CUPTI's records stay in its buffers until the end."""
        self._recorder.flush()

    def close(self) -> list[Path]:
        """Append what kineto saw to the recorder's file, and close it."""
        self._recorder.flush()  # a device that hangs keeps us below: the ranges are safe then
        try:
            self.end_capture()
            if self._profiler is not None:
                self._append()
        finally:
            paths = self._recorder.close()
        return paths

    def _append(self) -> None:
        assert self._first is not None
        assert self._last is not None
        self._profiler.export_chrome_trace(str(self._chrome_path))
        trace = ChromeTrace(self._chrome_path.read_text(encoding="utf-8", errors="replace"))
        clock = ClockMap(first=self._first, last=self._last)
        written = write_events(trace, self._recorder.writer, clock=clock, threads=thread_ids())
        print(f"kineto: {json.dumps(asdict(written))}", file=sys.stderr, flush=True)
        self._chrome_path.unlink()


def thread_ids() -> dict[int, int]:
    """Low 32 bits of the pthread id → thread id, of every thread that Python knows."""
    return {
        thread.ident & 0xFFFFFFFF: thread.native_id
        for thread in threading.enumerate()
        if thread.ident is not None and thread.native_id is not None
    }


def start_rank(trace_path: Path, rank: int) -> KinetoRank:
    """Start this rank's recorder; the profiler starts with the capture.

    Raises UsageError inside another CUPTI client: torch.profiler would record nothing, and not say so.
    """
    client = cupti.active_client(os.environ)
    if client is not None:
        raise UsageError(f"kineto cannot trace inside {client}: only one profiler can trace CUDA at a time")
    recorder = Recorder(trace_path, rank=rank, collector=NAME, sees_gpu=True)
    recorder.install()
    return KinetoRank(recorder, trace_path.with_suffix(".kineto.json"))


@dataclass(frozen=True, kw_only=True)
class Kineto:
    """Host side; see `harness.collectors.base.Collector`."""

    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    device_folder: Path = Path("/dev")

    name: str = NAME
    finish_timeout_s: float = FINISH_TIMEOUT_S
    abilities: ClassVar[Abilities] = Abilities(rank_side=__name__, sees_gpu=True, fixed_pace=True, automatic="on_cuda")

    def available(self) -> Availability:
        """Refuse another CUPTI client around us. Without a CUDA device there is nothing to trace with it."""
        client = cupti.active_client(self.env)
        if client is not None:
            return Availability(ok=False, reason=f"already inside {client}: only one profiler can trace CUDA at a time")
        if not cupti.cuda_device_present(self.env, self.device_folder):
            return Availability(ok=True, reason="no CUDA device: records ranges only, as the recorder does")
        return Availability(ok=True, reason="CUDA device found")

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path) -> tuple[list[str], dict[str, str]]:  # noqa: ARG002 - the protocol's signature
        """The launch as it is: the profiler runs in the ranks."""
        availability = self.available()
        if not availability.ok:
            raise UsageError(f"cannot trace with kineto: {availability.reason}")
        return list(argv), dict(env)

    def collect(self, launch_dir: Path, ranks: int, destination: Path) -> Path:
        """Merge the ranks' traces, as for the recorder."""
        return merge_launch(launch_dir, ranks, destination)
