"""Names that differ between calls of one thing become one."""

from __future__ import annotations

import numpy as np
import pytest

from harness.trace.naming import api_name, folded, range_name, range_names


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("aten::copy_, op_id = 991065", "aten::copy_"),
        ("AllToAll4D, seq = 45440, op_id = 990760", "AllToAll4D"),
        ("aten::add, seq = 1, op_id = 2, sizes = [[2, 3], []], input_op_ids = [(1,0)]", "aten::add"),
        ("aten::add, sizes = [[2, 3]]", "aten::add"),
        ("myelinGraphExecute ", "myelinGraphExecute"),
        ("loss = 3", "loss = 3"),
        ("a, sequence = 3", "a, sequence = 3"),
        ("", "?"),
        (" ", "?"),
    ],
)
def test_range_names_lose_what_makes_a_call_unique(recorded: str, expected: str) -> None:
    assert range_name(recorded) == expected
    assert range_name(expected) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [("training_step_12", "training_step_*"), ("ProfilerStep#3", "ProfilerStep#*"), ("step", "step"), ("1/20", "*/*")],
)
def test_numbers_fold(name: str, expected: str) -> None:
    assert folded(name) == expected
    assert folded(expected) == expected


@pytest.mark.parametrize(
    ("recorded", "expected"),
    [
        ("cudaLaunchKernel_v7000", "cudaLaunchKernel"),
        ("cudaStreamIsCapturing_v10000", "cudaStreamIsCapturing"),
        ("cudaLaunchKernel_ptsz_v7000", "cudaLaunchKernel"),
        ("cuMemAlloc_v2", "cuMemAlloc"),
        ("cuProfilerStart", "cuProfilerStart"),
    ],
)
def test_api_names_lose_their_version(recorded: str, expected: str) -> None:
    assert api_name(recorded) == expected


def test_a_column_of_names_is_looked_at_once_each() -> None:
    strings = ["aten::add, op_id = 1", "aten::add, op_id = 2", "step"]
    rows, names = range_names(strings, np.array([2, 0, 1, -1, 0], dtype=np.int32))
    assert [names[row] for row in rows] == ["step", "aten::add", "aten::add", "?", "aten::add"]
    assert len(names) == 3
