"""The step table and its finder, on traces that go through the writer and the reader."""

from __future__ import annotations

import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nsys_exports import every_stepped, real
from scene import Scene

from harness import names
from harness.analysis.analyze import analyze
from harness.analysis.step_finder import INCOMPLETE, OUTLYING_FIRST, TRUNCATED, WARM_UP, find_steps, whole_capture
from harness.analysis.steps import step_table, summarise
from harness.errors import TraceError
from harness.trace import schema
from harness.trace.model import NO_RANK, Trace
from harness.trace.nesting import range_tree
from harness.trace.reader import read_trace
from harness.trace.writer import TraceWriter

PUSH, START_END, MARK = schema.NVTX_PUSH_POP, schema.NVTX_START_END, schema.NVTX_MARK

Row = tuple[str, int, int | None]
"""Name, start, end; a mark has its payload as the name's part after `=` and no end."""


def write(path: Path, rows: Sequence[Row], *, rank: int = 0, domain: str = names.NVTX_DOMAIN, kind: int = PUSH) -> Path:
    pid = 5_000 + rank
    tid = schema.global_tid(pid, pid)
    with TraceWriter(
        path, collector="recorder", process_id=pid, process_name="python", session_start_utc_ns=0, system_clock_ns=0,
        rank=rank,
    ) as writer:  # fmt: skip
        domain_id = writer.domain_id(domain)
        writer.add_ranges(
            (start, end, MARK if "=" in name else kind, name.split("=")[0], tid, None, domain_id,
             int(name.split("=")[1]) if "=" in name else None)
            for name, start, end in rows
        )  # fmt: skip
    return path


def read(folder: Path, *ranks: Sequence[Row], domain: str = names.NVTX_DOMAIN) -> Trace:
    paths = [write(folder / f"r{rank}.sqlite", rows, rank=rank, domain=domain) for rank, rows in enumerate(ranks)]
    return read_trace(*paths)


def worker_step(at: int, *, enter: int = 30, collected: int = 7) -> list[Row]:
    """A step of 100 ns: train_mode_enter with a load and a collection, then forward_backward."""
    return [
        ("step", at, at + 100),
        ("train_mode_enter", at + 5, at + 5 + enter),
        ("load_fsdp_model_to_gpu", at + 6, at + 16),
        ("moved_bytes=640", at + 15, None),
        ("gc.collect", at + 20, at + 25),
        (f"collected_objects={collected}", at + 24, None),
        ("gc.collect", at + 27, at + 29),
        ("forward_backward", at + 5 + enter, at + 90),
    ]


def test_cells_hold_calls_times_and_payloads(tmp_path: Path) -> None:
    table = step_table(read(tmp_path, [*worker_step(0), *worker_step(1_000)]), warmup_steps=1)
    rows = {(row.sequence, row.path): row for row in table.rows()}
    assert [row.path for row in table.rows() if row.sequence == 1] == [
        "step",
        "step/train_mode_enter",
        "step/forward_backward",
        "step/train_mode_enter/load_fsdp_model_to_gpu",
        "step/train_mode_enter/gc.collect",
    ]
    collect = rows[1, "step/train_mode_enter/gc.collect"]
    assert (collect.calls, collect.total_ns, collect.self_ns) == (2, 7, 7)
    assert (collect.moved_bytes, collect.collected_objects) == (None, 7)
    load = rows[1, "step/train_mode_enter/load_fsdp_model_to_gpu"]
    assert (load.moved_bytes, load.collected_objects) == (640, None)
    assert rows[1, "step"].self_ns == 100 - 30 - 55
    assert table.steps.dropped == (WARM_UP, None)


def test_a_summary_takes_each_step_from_its_slowest_rank(tmp_path: Path) -> None:
    fast = [("step", 0, 100), ("a", 10, 20), ("step", 200, 300), ("a", 210, 220), ("a", 230, 240), ("b", 250, 255)]
    slow = [("step", 0, 400), ("a", 10, 310), ("moved_bytes=50", 15, None), ("step", 500, 550)]
    summary = {one.path: one for one in summarise(step_table(read(tmp_path, fast, slow)))}
    # Step 0 from rank 1 (400 ns), step 1 from rank 0 (100 ns).
    assert summary["step"].median_ns == pytest.approx((400 + 100) / 2)
    assert summary["step"].p90_ns == pytest.approx(100 + 0.9 * 300)
    assert summary["step/a"].calls_per_step == pytest.approx(1.5)
    assert summary["step/a"].share == pytest.approx(320 / 500)
    assert summary["step/a"].moved_bytes_per_step == pytest.approx(25)
    assert summary["step/b"].median_ns == pytest.approx(2.5)
    assert summary["step/b"].moved_bytes_per_step is None
    assert list(summary) == ["step", "step/a", "step/b"]


def test_truncated_and_incomplete_steps_are_dropped(tmp_path: Path) -> None:
    whole: list[Row] = [("step", 0, 100), ("step", 200, 300), ("step", 400, 500)]
    cut: list[Row] = [("step", 0, 100), ("step", 200, None)]
    steps = step_table(read(tmp_path, whole, cut)).steps
    assert list(zip(steps.rank.tolist(), steps.index.tolist(), steps.dropped, strict=True)) == [
        (0, 0, None),
        (0, 1, INCOMPLETE),
        (0, 2, INCOMPLETE),
        (1, 0, None),
        (1, 1, TRUNCATED),
    ]


def numbered(folder: Path, first: int) -> Trace:
    """Four of the worker's steps whose payloads count from `first`, as when a trace begins late."""
    path = write(folder / f"from{first}.sqlite", [("step", at, at + 90) for at in range(0, 400, 100)])
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE NVTX_EVENTS SET int64Value = ? + start / 100", (first,))
    return read_trace(path)


def test_warm_up_goes_by_the_number_in_the_launch(tmp_path: Path) -> None:
    whole, late = numbered(tmp_path, 0), numbered(tmp_path, 2)
    found = analyze(whole, warmup_steps=3)
    assert found.steps.index.tolist() == [0, 1, 2, 3]
    assert found.steps.dropped == (WARM_UP, WARM_UP, WARM_UP, None)
    assert [path.calls_per_step for path in found.per_step] == [1]
    found = analyze(late, warmup_steps=3)
    assert found.steps.index.tolist() == [2, 3, 4, 5]
    assert found.steps.dropped == (WARM_UP, None, None, None)
    assert find_steps(late, range_tree(late), step_name="step").index.tolist() == [0, 1, 2, 3]
    assert analyze(late).steps.dropped == (None,) * 4


def test_no_steps_and_no_ranges(tmp_path: Path) -> None:
    table = step_table(read(tmp_path, []))
    assert len(table.steps) == 0
    assert list(table.rows()) == []
    assert summarise(table) == []


def test_a_whole_capture_gives_each_rank_its_own_ranges(tmp_path: Path) -> None:
    trace = read(tmp_path, [("work", 10, 90), ("load", 20, 30)], [("work", 5, 65)])
    table = step_table(trace, steps=whole_capture(trace))
    paths = {int(path): table.paths.text[int(path)] for path in np.unique(table.path)}
    cells = {
        (int(table.steps.rank[step]), paths[int(path)]): int(total)
        for step, path, total in zip(table.step, table.path, table.total_ns, strict=True)
    }
    assert cells == {(0, "work"): 80, (0, "work/load"): 10, (1, "work"): 60}


def test_a_process_that_is_no_rank_has_no_capture_as_a_step() -> None:
    scene = Scene()
    scene.range("work", 10, 90, rank=0)
    scene.call("cudaMalloc", 5, 8, rank=0)
    scene.kernel("gemm", 80, 120, rank=0)
    scene.range("wait", 0, 500, rank=1)
    trace = scene.trace()
    rank, other = trace.processes
    steps = whole_capture(replace(trace, processes=(rank, replace(other, rank=NO_RANK))))
    assert [(int(r), int(s), int(e)) for r, s, e in zip(steps.rank, steps.start_ns, steps.end_ns, strict=True)] == [
        (0, 5, 120)
    ]


@st.composite
def nested_rows(draw: st.DrawFn) -> list[Row]:
    """Steps with random trees below them, and ranges between the steps."""
    rows: list[Row] = []
    time = 0
    for _ in range(draw(st.integers(1, 3))):
        stack: list[tuple[str, int]] = [("step", time)]
        for action in draw(st.lists(st.sampled_from(["push", "pop", "mark"]), max_size=12)):
            time += draw(st.integers(0, 3))
            if action == "push":
                stack.append((draw(st.sampled_from(["a", "b", "c/d"])), time))
            elif action == "mark":
                rows.append((f"moved_bytes={draw(st.integers(0, 9))}", time, None))
            elif len(stack) > 1:
                name, start = stack.pop()
                rows.append((name, start, time))
        while stack:
            name, start = stack.pop()
            rows.append((name, start, time))
            time += draw(st.integers(0, 2))
        # Marks and ranges at a step's very border would belong to either side.
        rows.append(("between", time + 1, time + 2))
        time += 4
    return rows


@given(nested_rows())
@settings(max_examples=60, deadline=None)
def test_self_times_and_payloads_of_a_step_add_up_exactly(rows: list[Row]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = step_table(read(Path(folder), rows))
    by_step: dict[int, int] = defaultdict(int)
    moved = 0
    for cell in table.rows():
        by_step[cell.sequence] += cell.self_ns
        moved += cell.moved_bytes or 0
        assert cell.self_ns >= 0
    assert [by_step[step] for step in range(len(table.steps))] == table.steps.duration_ns.tolist()
    # Marks within a step are all counted, each once.
    steps = [(start, end) for name, start, end in rows if name == "step" and end is not None]
    said = [(int(name.split("=")[1]), start) for name, start, _ in rows if "=" in name]
    assert moved == sum(value for value, time in said if any(start <= time <= end for start, end in steps))


def spaced(*names_of_step: str, count: int = 3, length: int = 90) -> list[Row]:
    """`count` steps 100 ns apart; `#` in a name becomes the step's number, and each name lies in the one before."""
    return [
        (name.replace("#", str(step)), step * 100 + inner, step * 100 + length - inner)
        for step in range(count)
        for inner, name in enumerate(names_of_step)
    ]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        pytest.param(spaced("training_step_#"), ("training_step_*", 3), id="numbers folded"),
        pytest.param([("fit", 0, 999), *spaced("ProfilerStep##")], ("ProfilerStep*", 3), id="inside another"),
        pytest.param(spaced("iter #", "batch #"), ("iter *", 3), id="the outer of two"),
        pytest.param(spaced("train"), ("train", 3), id="fills its thread"),
        pytest.param(spaced("train", "item #"), ("item *", 3), id="a number says more than being the outer one"),
        pytest.param(spaced("item #", "train_step"), ("train_step", 3), id="a name says more than a number"),
        pytest.param(
            [("load", 0, 300), ("load", 310, 312), ("load", 314, 316)], (None, 1), id="one call makes up its time"
        ),
        pytest.param(spaced("aten::add", "optimizer_step", length=20), (None, 1), id="neither"),
        pytest.param([("only", 0, 10)], (None, 1), id="no repetition"),
    ],
)
def test_foreign_steps_are_found(tmp_path: Path, rows: list[Row], expected: tuple[str | None, int]) -> None:
    trace = read(tmp_path, rows, domain="")
    steps = find_steps(trace, range_tree(trace))
    assert (steps.name, len(steps)) == expected


def test_a_named_step_and_its_nearest_name(tmp_path: Path) -> None:
    trace = read(tmp_path, [("Forward", 0, 10), ("Forward", 20, 30), ("Forward", 22, 25)], domain="")
    tree = range_tree(trace)
    assert find_steps(trace, tree, step_name="Forward").start_ns.tolist() == [0, 20]
    with pytest.raises(TraceError, match=r"no range is called 'Foward'.* Did you mean 'Forward'"):
        find_steps(trace, tree, step_name="Foward")


def test_an_outlying_first_step_is_dropped_in_foreign_traces_alone(tmp_path: Path) -> None:
    rows: list[Row] = [("step 0", 0, 1_000), *((f"step {i}", i * 1_000, i * 1_000 + 100) for i in range(1, 5))]
    trace = read(tmp_path, rows, domain="")
    assert find_steps(trace, range_tree(trace)).dropped == (OUTLYING_FIRST, None, None, None, None)
    ours = tmp_path / "ours"
    ours.mkdir()
    trace = read(ours, [(name.split()[0], start, end) for name, start, end in rows])
    assert find_steps(trace, range_tree(trace)).dropped == (None,) * 5


@every_stepped
def test_the_self_times_of_each_step_of_an_export_add_up_to_it(export: Path) -> None:
    table = step_table(read_trace(export))
    sums = np.zeros(len(table.steps), dtype=np.int64)
    np.add.at(sums, table.step, table.self_ns)
    assert sums.tolist() == table.steps.duration_ns.tolist()


def test_real_exports() -> None:
    table = step_table(read_trace(real("pytorch_steps_2025.1")))
    assert table.steps.name == "Warm-up Step *"
    assert table.steps.dropped == (OUTLYING_FIRST, None, None, None, None)
    assert (table.steps.duration_ns // 1_000_000).tolist() == [772, 223, 244, 223, 223]

    two_ranks = step_table(read_trace(real("torchrun_2rank_base_2026.2")))
    assert two_ranks.steps.name is None
    assert two_ranks.steps.rank.tolist() == [0, 1]
    assert sum(two_ranks.calls) == 19_118
