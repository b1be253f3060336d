"""What the marks of memory say of each range of a step, and what the device's allocator is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from harness.worker.growth import EVERY, GrowthMarks
from harness.worker.meters import Meters
from harness.worker.ranges import Ranges


class Marks(Ranges):
    """Ranges that keep the payloads of their marks."""

    def __init__(self) -> None:
        super().__init__()
        self.payloads: list[int] = []

    def mark(self, name: str, payload: int) -> None:
        assert name == "grown_bytes"
        self.payloads.append(payload)


class Clock:
    """A clock that each reading of the heap moves on."""

    def __init__(self, held: Iterator[int], reading_ns: int) -> None:
        self.held, self.reading_ns, self.ns = held, reading_ns, 0

    def now_ns(self) -> int:
        return self.ns

    def read(self) -> int:
        self.ns += self.reading_ns
        return next(self.held)


def steps(growth: GrowthMarks, count: int, duration_ns: int = 10**7) -> None:
    ranges = [growth.range(name) for name in ("batch", "forward_backward")]
    for index in range(count):
        growth.begin(index)
        for span in ranges:
            with span:
                pass
        growth.end(duration_ns)


def test_each_range_is_told_with_what_grew_since_the_one_before() -> None:
    marks, clock = Marks(), Clock(iter([100, 105, 103, 200, 200, 210]), 1000)
    steps(GrowthMarks(marks, clock.read, clock.now_ns), 2 * EVERY)
    assert marks.payloads == [5, -2, 0, 10], "the steps between are not read"


def test_a_heap_that_takes_long_to_sum_up_is_read_no_more() -> None:
    marks, clock = Marks(), Clock(iter(range(100)), 200_000)
    steps(GrowthMarks(marks, clock.read, clock.now_ns), 5 * EVERY)
    assert len(marks.payloads) == 2
    cheap = Marks()
    steps(GrowthMarks(cheap, Clock(iter(range(100)), 100_000).read, clock.now_ns), 5 * EVERY)
    assert len(cheap.payloads) == 10


def test_where_nothing_tells_what_is_allocated_nothing_is_marked() -> None:
    marks = Marks()
    steps(GrowthMarks(marks, None, lambda: 0), EVERY)
    assert marks.payloads == []


def test_malloc_tells_what_is_allocated_even_where_the_resident_set_does_not() -> None:
    meters = Meters(cuda=False)
    assert meters.allocated_bytes is not None
    before, figures = meters.allocated_bytes(), meters.read()
    kept = torch.empty(10_000_000)  # no page of it is touched
    assert meters.allocated_bytes() - before == pytest.approx(kept.nbytes, rel=0.01)
    after = meters.read()
    assert after["allocated_bytes"] - figures["allocated_bytes"] == pytest.approx(kept.nbytes, rel=0.01)
    assert after["fragmented_bytes"] == after["reserved_bytes"] - after["allocated_bytes"] >= 0


def test_a_gpu_s_allocator_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "allocated_bytes.all.current": 700,
        "allocated_bytes.all.peak": 900,
        "reserved_bytes.all.current": 1000,
        "reserved_bytes.all.peak": 1200,
    }
    nested: dict[str, Any] = {}
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda: told)
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda: nested)
    meters = Meters(cuda=True)
    allocated: Callable[[], int] | None = meters.allocated_bytes
    assert allocated is not None
    assert allocated() == 0, "nothing has used the device yet"
    nested["allocated_bytes"] = {"all": {"current": 700}}
    assert allocated() == 700
    device = ("peak_memory_bytes", "allocated_bytes", "reserved_bytes", "fragmented_bytes")
    assert [meters.read()[name] for name in device] == [900, 700, 1000, 300]
