"""Builds captures by hand, with nesting and joins worked out one by one: the slow, obvious way."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from harness.analysis.capture import Capture
from harness.analysis.step_finder import OUTLYING_FIRST, Steps, whole_capture
from harness.trace import model, schema
from harness.trace.model import Trace
from harness.trace.nesting import Nesting, RangeTree
from harness.trace.paths import PathTable

US = 1_000
MS = 1_000_000


@dataclass
class Scene:
    """Events in the order they are told; times in ns. `rank` stands for a process of that number with one thread."""

    strings: list[str] = field(default_factory=list)
    ranges: list[tuple[int, int, str, int]] = field(default_factory=list)
    marks: list[tuple[int, str, float, int]] = field(default_factory=list)
    calls: list[tuple[int, int, str, int, int]] = field(default_factory=list)
    operations: list[tuple[int, int, int, str, int, int, int, int, int, int]] = field(default_factory=list)

    def tid(self, rank: int, thread: int = 0) -> int:
        return schema.global_tid(100 + rank, 100 + rank + thread)

    def name(self, text: str) -> int:
        if text not in self.strings:
            self.strings.append(text)
        return self.strings.index(text)

    def range(self, text: str, start: int, end: int, *, rank: int = 0, thread: int = 0) -> None:
        self.ranges.append((start, end, text, self.tid(rank, thread)))

    def mark(self, text: str, time: int, payload: float, *, rank: int = 0) -> None:
        self.marks.append((time, text, payload, self.tid(rank)))

    def call(self, text: str, start: int, end: int, *, rank: int = 0, thread: int = 0) -> int:
        """An API call; returns its correlation id."""
        self.calls.append((start, end, text, self.tid(rank, thread), len(self.calls) + 1))
        return len(self.calls)

    def kernel(self, text: str, start: int, end: int, *, launched: int | None = None, rank: int = 0) -> None:
        """A kernel, and its launch 1 us long that begins at `launched` (no launch at all when None)."""
        correlation = (
            -1 if launched is None else self.call("cudaLaunchKernel_v7000", launched, launched + US, rank=rank)
        )
        self._operation(model.KERNEL, start, end, text, rank, correlation)

    def copy(
        self,
        start: int,
        end: int,
        size: int,
        *,
        kind: int = 1,
        host: int = schema.PAGEABLE,
        call: int = -1,
        rank: int = 0,
    ) -> None:
        source, target = (host, 2) if kind == 1 else (2, host)
        self._operation(model.MEMCPY, start, end, "", rank, call, size, kind, source, target)

    def _operation(
        self,
        kind: int,
        start: int,
        end: int,
        text: str,
        rank: int,
        correlation: int,
        size: int = 0,
        copy_kind: int = -1,
        source: int = -1,
        target: int = -1,
    ) -> None:
        self.operations.append((start, end, kind, text, rank, correlation, size, copy_kind, source, target))

    # ----------------------------------------------------------------------------------------------------------------

    def trace(self) -> Trace:
        self.ranges.sort(key=lambda r: (r[0], -r[1]))
        self.marks.sort()
        self.calls.sort()
        self.operations.sort()
        int64 = np.int64
        ranks = sorted({tid >> 24 & 0xFFFFFF for *_, tid in self.ranges} | {100 + o[4] for o in self.operations})

        def ids(texts: list[str]) -> model.Int32Array:
            return np.array([self.name(t) if t else model.NO_NAME for t in texts], dtype=np.int32)

        ranges = model.NvtxRanges(
            start_ns=np.array([r[0] for r in self.ranges], dtype=int64),
            end_ns=np.array([r[1] for r in self.ranges], dtype=int64),
            closed=np.ones(len(self.ranges), dtype=np.bool_),
            name_id=ids([r[2] for r in self.ranges]),
            domain_id=np.full(len(self.ranges), model.NO_NAME, dtype=np.int32),
            push_pop=np.ones(len(self.ranges), dtype=np.bool_),
            global_tid=np.array([r[3] for r in self.ranges], dtype=int64),
            end_global_tid=np.array([r[3] for r in self.ranges], dtype=int64),
            payload=np.full(len(self.ranges), np.nan),
        )
        marks = model.NvtxMarks(
            time_ns=np.array([m[0] for m in self.marks], dtype=int64),
            name_id=ids([m[1] for m in self.marks]),
            global_tid=np.array([m[3] for m in self.marks], dtype=int64),
            payload=np.array([m[2] for m in self.marks], dtype=np.float64),
        )
        ops = self.operations
        operations = model.GpuOperations(
            kind=np.array([o[2] for o in ops], dtype=np.int8),
            start_ns=np.array([o[0] for o in ops], dtype=int64),
            end_ns=np.array([o[1] for o in ops], dtype=int64),
            name_id=ids([o[3] for o in ops]),
            global_pid=np.array([schema.global_pid(100 + o[4]) for o in ops], dtype=int64),
            correlation_id=np.array([o[5] for o in ops], dtype=int64),
            device_id=np.array([o[4] for o in ops], dtype=np.int32),
            stream_id=np.full(len(ops), 7, dtype=int64),
            bytes=np.array([o[6] for o in ops], dtype=int64),
            copy_kind=np.array([o[7] for o in ops], dtype=np.int8),
            src_kind=np.array([o[8] for o in ops], dtype=np.int8),
            dst_kind=np.array([o[9] for o in ops], dtype=np.int8),
        )
        api = model.ApiCalls(
            start_ns=np.array([c[0] for c in self.calls], dtype=int64),
            end_ns=np.array([c[1] for c in self.calls], dtype=int64),
            name_id=ids([c[2] for c in self.calls]),
            global_tid=np.array([c[3] for c in self.calls], dtype=int64),
            correlation_id=np.array([c[4] for c in self.calls], dtype=int64),
        )
        empty = np.empty(0, dtype=int64)
        return Trace(
            strings=self.strings,
            ranges=ranges,
            marks=marks,
            operations=operations,
            api=api,
            syncs=model.Synchronizations(
                start_ns=empty,
                end_ns=empty,
                sync_type=empty.astype(np.int8),
                global_pid=empty,
                correlation_id=empty,
            ),
            processes=tuple(
                model.Process(global_pid=schema.global_pid(pid), pid=pid, name="python", rank=pid - 100, source=0)
                for pid in ranks
            ),
            info=model.TraceInfo(
                sources=("scene",),
                collector="nsys",
                nsys_version="2025.1.3",
                schema_version=None,
                session_start_utc_ns=0,
                host_count=1,
            ),
            warnings=(),
        )

    def capture(
        self, step: str | None = "step", dropped: tuple[int, ...] = (), reason: str = OUTLYING_FIRST
    ) -> Capture:
        """Nest ranges, join calls, and take every range called `step` as a step (None: the whole capture)."""
        trace = self.trace()
        tree = self._tree()
        calls = {(c[3] & schema.GLOBAL_PID_MASK, c[4]): at for at, c in enumerate(self.calls)}
        op_call = [calls.get((schema.global_pid(100 + o[4]), o[5]), -1) for o in self.operations]
        chosen = sorted((r for r in self.ranges if r[2] == step), key=lambda r: (r[3], r[0]))
        index_of: dict[int, int] = {}
        indexes = []
        for _, _, _, tid in chosen:
            indexes.append(index_of.get(tid, 0))
            index_of[tid] = indexes[-1] + 1
        if step is None:
            steps = whole_capture(trace)
        else:
            steps = Steps(
                name=step,
                rank=np.array([(tid >> 24 & 0xFFFFFF) - 100 for *_, tid in chosen], dtype=np.int32),
                index=np.array(indexes, dtype=np.int64),
                start_ns=np.array([r[0] for r in chosen], dtype=np.int64),
                end_ns=np.array([r[1] for r in chosen], dtype=np.int64),
                global_tid=np.array([r[3] for r in chosen], dtype=np.int64),
                range_row=np.array([self.ranges.index(r) for r in chosen], dtype=np.int64),
                dropped=tuple(reason if index in dropped else None for index in indexes),
            )
        return Capture(
            trace=trace,
            steps=steps,
            tree=tree,
            op_call=np.array(op_call, dtype=np.int64),
            op_range=np.array([self._around(call) for call in op_call], dtype=np.int64),
        )

    def _around(self, call: int) -> int:
        """The tightest range on the thread of a call that contains its start; -1 for none."""
        if call < 0:
            return -1
        start, _, _, tid, _ = self.calls[call]
        return max((at for at, r in enumerate(self.ranges) if r[3] == tid and r[0] <= start <= r[1]), default=-1)

    def _tree(self) -> RangeTree:
        parents: list[int] = []
        texts: list[str] = []
        own = [end - start for start, end, *_ in self.ranges]
        for at, (start, end, text, tid) in enumerate(self.ranges):
            around = [
                other
                for other in range(at)
                if self.ranges[other][3] == tid and self.ranges[other][0] <= start and end <= self.ranges[other][1]
            ]
            parents.append(max(around, default=-1))
            texts.append(f"{texts[parents[-1]]}/{text}" if around else text)
            if around:
                own[parents[-1]] -= end - start
        paths = sorted(set(texts))
        nesting = Nesting(
            parent=np.array(parents, dtype=np.int64),
            depth=np.array([text.count("/") for text in texts], dtype=np.int32),
            self_ns=np.array(own, dtype=np.int64),
            detached=np.zeros(len(texts), dtype=np.bool_),
        )
        table = PathTable(
            parent=tuple(paths.index(text.rpartition("/")[0]) if "/" in text else -1 for text in paths),
            name=tuple(text.rpartition("/")[2] for text in paths),
            text=tuple(paths),
        )
        path_id = np.array([paths.index(text) for text in texts], dtype=np.int32)
        return RangeTree(nesting=nesting, path_id=path_id, paths=table)
