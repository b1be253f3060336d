"""What host calls cost the GPU, on scenes whose idle gaps are worked out by hand."""

from __future__ import annotations

import numpy as np
from scene import MS, US, Scene

from harness.analysis.stalls import Stalls, stalls


def step_with(*kernels: tuple[int, int], calls: list[tuple[int, int]]) -> Stalls:
    """The stalls of `calls` in a step of 100 ms; all times in us."""
    scene = Scene()
    scene.range("step", 0, 100 * MS)
    for start, end in kernels:
        scene.kernel("gemm", start * US, end * US)
    for start, end in calls:
        scene.call("cudaStreamSynchronize", start * US, end * US)
    return stalls(scene.capture(), np.arange(len(calls)))


def test_a_gpu_that_never_idles_stalls_nothing() -> None:
    found = step_with((0, 100_000), calls=[(1_000, 3_000)])
    assert (found.blocked_ns.tolist(), found.idle_ns.tolist(), found.total_idle_ns) == ([2 * MS], [0], 0)


def test_a_stall_lasts_until_the_next_operation_and_a_millisecond_at_most() -> None:
    # The GPU runs dry at 10 ms, within the first call, and works again 300 us after it; after the second call it stays
    # idle for longer than launching takes. The third call returns while the GPU works.
    kernels = [(0, 10_000), (12_300, 20_000), (30_000, 100_000)]
    found = step_with(*kernels, calls=[(9_000, 12_000), (19_000, 21_000), (40_000, 41_000)])
    assert found.idle_ns.tolist() == [2_300 * US, 2_000 * US, 0]
    assert found.total_idle_ns == 4_300 * US


def test_idle_time_that_two_calls_share_is_counted_once_in_total() -> None:
    found = step_with((0, 10_000), (15_000, 100_000), calls=[(9_000, 11_000), (11_500, 14_500)])
    assert found.idle_ns.tolist() == [2_000 * US, 3_500 * US]
    # From 10 to 12 ms and from 11.5 to 15 ms.
    assert found.total_idle_ns == 5_000 * US
    assert len(found) == 2


def test_before_the_first_gap_nothing_is_idle() -> None:
    found = step_with((0, 50_000), (60_000, 100_000), calls=[(1_000, 2_000)])
    assert (found.idle_ns.tolist(), found.total_idle_ns) == ([0], 0)
