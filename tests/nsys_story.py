"""What happens in the made-up exports of `nsys_years`, and what is known of it by arithmetic alone.

Two ranks train four steps; all times in µs from the start of a step's work, `slow` µs being added to its forward pass:

    0 ................................................................ 1000  train step N     (text; payload: N)
      10 ....... 310  forward          (text)             20, 40: two kernels that overlap on the GPU
           60 80      na<ff>ve         (StringIds, not UTF-8)
             250 ....... 400  prefetch (start/end; crosses forward and ends on the autograd thread)
                    320 ....... 700  backward (registered)
                      325 360  emit_nvtx's name, on the autograd thread: two kernels launched there
                           600 650  ncclAllReduce, in domain NCCL: one kernel, by the driver's API
                                     710 760  load: a copy and a memset
                                              770 800  replay: a CUDA graph, where the version traces graphs
                                                       850 880: the host waits for the stream

The first step begins 3,000 µs of `compile` earlier, at a negative time. The last one of rank 1 has no end. Both ranks
number their calls alike (rank 1 from another number on), every call has its backtrace row, and one kernel was launched
before the capture began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

US: Final = 1_000
RANKS: Final = 2
STEPS: Final = 4
KEPT: Final = (1, 2)
"""Steps that count: the first is an outlier, the last has no end on one rank."""
FIRST_US: Final = -2_000
COMPILE_US: Final = 3_000
PERIOD_US: Final = 1_500
STEP_US: Final = 1_000
COPY_BYTES: Final = 4_096
"""Of the copy in step N: N + 1 times this."""
PIDS: Final = (4_000_101, 4_000_202)
BROKEN: Final = b"na\xffve"
AUTOGRAD_NAME: Final = "autograd::engine::evaluate_function: MmBackward0"

KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
MEMCPYS: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
MEMSETS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
GRAPHS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
SYNCS: Final = "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"

# Busy time of a step in µs: [100, 180] and [150, 220], 2 × 50 backward, all-reduce, copy, memset.
_BUSY_US: Final = 120 + 100 + 70 + 20 + 2
GRAPH_US: Final = 50

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What must come out of one export, per step where not said otherwise."""

    step_ns: int
    busy_ns: int
    exposed_ns: int
    """Time of the all-reduce, beside which nothing runs."""
    operations: dict[str, tuple[int, int]]
    """By the range's name: GPU operations by thread and by process."""
    copied_bytes: int
    """Host to device from pageable memory, all steps and ranks."""
    graph_ns: int
    """All steps and ranks."""


def figures(*, slow_us: int, graphs: bool) -> Figures:
    """The arithmetic of the story above."""
    graph = int(graphs)
    return Figures(
        step_ns=(STEP_US + slow_us) * US,
        busy_ns=(_BUSY_US + graph * GRAPH_US) * US,
        exposed_ns=70 * US,
        operations={
            "forward": (2, 2),
            "backward": (1, 3),
            "prefetch": (0, 2),
            AUTOGRAD_NAME: (2, 2),
            "ncclAllReduce": (1, 1),
            "load": (2, 2),
            **({"replay": (1, 1)} if graphs else {}),
        },
        copied_bytes=RANKS * COPY_BYTES * sum(range(1, STEPS + 1)),
        graph_ns=RANKS * STEPS * graph * GRAPH_US * US,
    )


@dataclass
class Story:
    """The rows of one export by table, in the order of time; `string` gives the ids that they refer to."""

    slow_us: int
    graphs: bool
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    strings: dict[str | bytes, int] = field(default_factory=dict)
    correlation: int = 0

    def string(self, text: str | bytes) -> int:
        return self.strings.setdefault(text, 10 * len(self.strings) + 7)

    def told(self) -> Story:
        for rank in range(RANKS):
            self.correlation = 2 * rank  # the same numbers, for other calls
            self._rank(_Rank(self, rank))
        # Launched before the capture began: its call is not there.
        stray = _Rank(self, 0).gpu(1, 5, FIRST_US, 9_999)
        self.rows[KERNELS].append({**stray, **self._kernel("warm_up<int>(int *)")})
        return self

    def _kernel(self, name: str) -> Row:
        short = name.split("<")[0].split("(")[0].split()[-1]
        return {"demangledName": self.string(name), "shortName": self.string(short), "gridX": 64, "blockX": 128}

    def _rank(self, rank: _Rank) -> None:
        domain = {"eventType": 75, "textId": self.string("NCCL"), "domainId": 1, "globalTid": rank.main}
        self.rows["NVTX_EVENTS"] += [
            {"start": FIRST_US * US - 9, **domain},
            {"start": FIRST_US * US - 8, "eventType": 39, "text": "main", "globalTid": rank.main},
            {"start": FIRST_US * US - 7, "eventType": 33, "text": "phase", "category": 1, "globalTid": rank.main},
        ]
        for number, begin in enumerate(_begins(rank.number)):
            self._step(rank, number, begin)
        last = self.rows["NVTX_EVENTS"][-1]["start"] + 900 * US
        self.rows["NVTX_EVENTS"].append({"start": last, **domain, "eventType": 76})

    def _step(self, rank: _Rank, number: int, at: int) -> None:
        before, then = (COMPILE_US if number == 0 else 0), at + self.slow_us
        cut = number == STEPS - 1 and rank.number == 1
        rank.range(at - before, None if cut else then + STEP_US, text=f"train step {number}", int64Value=number)
        if before:
            rank.range(at - before + 5, at, text="compile")
        rank.range(at + 10, then + 310, text="forward")
        rank.range(at + 60, at + 80, textId=self.string(BROKEN))
        rank.launch(at + 20, at + 100, 80, "void gemm<float>(float *, int)", stream=7)
        rank.launch(at + 40, at + 150, 70, "void gemm<float>(float *, int)", stream=8)
        rank.range(at + 250, then + 400, text="prefetch", eventType=60, rangeId=number, endGlobalTid=rank.autograd)
        rank.range(then + 320, then + 700, textId=self.string("backward"))
        decorated = f"{AUTOGRAD_NAME}, seq = {number}, op_id = {40 + number}"
        rank.range(then + 325, then + 360, text=decorated, globalTid=rank.autograd)
        for launched, runs in ((330, 400), (350, 450)):
            rank.launch(then + launched, then + runs, 50, "mm_backward(float *)", tid=rank.autograd)
        rank.range(then + 600, then + 650, textId=self.string("ncclAllReduce"), domainId=1)
        rank.launch(then + 610, then + 620, 70, "ncclDevKernel_AllReduce_Sum_f32(int)", api="cuLaunchKernel", driver=1)
        rank.range(then + 710, then + 760, text="load")
        copy = rank.call(then + 715, "cudaMemcpyAsync_v3020")
        size = {"bytes": COPY_BYTES * (number + 1), "copyKind": 1, "srcKind": 0, "dstKind": 2}
        self.rows[MEMCPYS].append({**rank.gpu(then + 720, then + 740, 7, copy), **size})
        memset = rank.call(then + 745, "cudaMemsetAsync_v3020")
        self.rows[MEMSETS].append({**rank.gpu(then + 750, then + 752, 7, memset), "bytes": 64, "memKind": 2})
        if self.graphs:
            rank.range(then + 770, then + 800, text="replay")
            graph = rank.call(then + 775, "cudaGraphLaunch_v10000")
            one = {"graphId": 3, "graphExecId": 4}
            self.rows[GRAPHS].append({**rank.gpu(then + 780, then + 780 + GRAPH_US, 7, graph), **one})
        wait = rank.call(then + 850, "cudaStreamSynchronize_v3020", length=30)
        self.rows[SYNCS].append({**rank.gpu(then + 851, then + 880, 7, wait), "syncType": 3, "eventId": 0})
        mark = {"eventType": 34, "text": "loss", "doubleValue": 2.5 / (number + 1), "globalTid": rank.main}
        self.rows["NVTX_EVENTS"].append({"start": (then + 890) * US, **mark})


def _begins(rank: int) -> Iterator[int]:
    """When each step's work begins, µs; ranks run 7 µs apart."""
    first = FIRST_US + COMPILE_US + 7 * rank
    return (first + PERIOD_US * number for number in range(STEPS))


@dataclass(frozen=True)
class _Rank:
    """Adds rows of one process: its main thread and autograd's."""

    story: Story
    number: int

    @property
    def process(self) -> int:
        return 1 << 48 | PIDS[self.number] << 24

    @property
    def main(self) -> int:
        return self.process | PIDS[self.number]

    @property
    def autograd(self) -> int:
        return self.main + 50

    def range(self, start_us: int, end_us: int | None, **more: Any) -> None:
        end = None if end_us is None else end_us * US
        row = {"start": start_us * US, "end": end, "eventType": 59, "globalTid": self.main, "domainId": 0}
        self.story.rows["NVTX_EVENTS"].append(row | more)

    def call(self, start_us: int, name: str, *, length: int = 5, tid: int | None = None, driver: int = 0) -> int:
        """An API call and its backtrace; returns its correlation id."""
        self.story.correlation += 1
        row = {
            "start": start_us * US,
            "end": (start_us + length) * US,
            "eventClass": driver,
            "globalTid": self.main if tid is None else tid,
            "correlationId": self.story.correlation,
            "nameId": self.story.string(name),
        }
        # A backtrace names the same call, at other times: an operation must not be joined to it.
        self.story.rows[CALLS] += [row, {**row, "eventClass": 67, "start": (start_us - 200) * US}]
        return self.story.correlation

    def gpu(self, start_us: int, end_us: int, stream: int, correlation: int) -> Row:
        return {
            "start": start_us * US,
            "end": end_us * US,
            "deviceId": self.number,
            "contextId": 1,
            "streamId": stream,
            "correlationId": correlation,
            "globalPid": self.process,
        }

    def launch(
        self,
        call_us: int,
        start_us: int,
        length: int,
        name: str,
        *,
        stream: int = 7,
        tid: int | None = None,
        api: str = "cudaLaunchKernel_v7000",
        driver: int = 0,
    ) -> None:
        correlation = self.call(call_us, api, tid=tid, driver=driver)
        row = self.gpu(start_us, start_us + length, stream, correlation)
        self.story.rows[KERNELS].append({**row, **self.story._kernel(name)})
