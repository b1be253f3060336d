"""The exports in `tests/data/nsys_exports`: they are what their writer writes, and are read as what it put in."""

from __future__ import annotations

from pathlib import Path

import pytest
from nsys_exports import every_training, every_year, made
from nsys_story import AUTOGRAD_NAME, KEPT, PIDS, RANKS, STEPS, US
from nsys_years import PRIVATE, SESSION_START_NS, YEARS, Year, content, write

from harness.analysis.analyze import analyze
from harness.analysis.step_finder import INCOMPLETE, OUTLYING_FIRST, TRUNCATED
from harness.trace.model import GRAPH
from harness.trace.projection import RULES
from harness.trace.reader import read_trace


@every_year
def test_the_writer_makes_what_lies_there(year: Year, tmp_path: Path) -> None:
    assert content(year.path) == content(write(year, tmp_path / "again.sqlite"))


def test_all_years_lie_there_small() -> None:
    folder = YEARS[0].path.parent
    assert sorted(path.name for path in folder.iterdir()) == sorted(year.path.name for year in YEARS)
    assert max(year.path.stat().st_size for year in YEARS) < 50_000


@pytest.mark.parametrize(
    ("table", "column", "first"),
    [
        ("PROCESSES", "pid", "2022.2"),
        ("ENUM_NSYS_EVENT_TYPE", "label", "2022.4"),
        ("META_DATA_CAPTURE", "value", "2023.4"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "greenContextId", "2023.4"),
        ("DIAGNOSTIC_EVENT", "text", "2024.5"),
        ("NVTX_EVENTS", "binaryData", "2024.6"),
        ("CUDA_GRAPH_EVENTS", "graphExecId", "2024.6"),
        ("CUPTI_ACTIVITY_KIND_MEMCPY", "copyCount", "2025.1"),
        ("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", "deprecatedSyncType", "2025.1"),
        ("CUPTI_ACTIVITY_KIND_OVERHEAD", "overheadType", "2025.5"),
        ("CUPTI_ACTIVITY_KIND_KERNEL", "clusterX", "2025.5"),
        ("TARGET_INFO_SESSION_START_TIME", "systemClockNs", "2025.6"),
    ],
)
def test_a_schema_change_comes_with_its_version(table: str, column: str, first: str) -> None:
    have = [
        year for year in YEARS if table in (tables := content(year.path)) and f'"{column}"'.encode() in tables[table][0]
    ]
    assert have[0].name == first


@every_year
def test_the_reader_says_what_was_written_of_the_session(year: Year) -> None:
    info = read_trace(year.path).info
    old = year.name.startswith("2021")
    assert info.nsys_version == (None if old else f"{year.name}.1.0")
    assert info.schema_version == (None if old else year.schema)
    assert info.session_start_utc_ns == (None if old else SESSION_START_NS)
    assert not any(word in repr(info) for word in PRIVATE)


@every_year
def test_ranks_are_the_processes_in_order(year: Year) -> None:
    processes = read_trace(year.path).processes
    assert [(process.rank, process.pid) for process in processes] == list(enumerate(PIDS))


@every_training
def test_operations_are_put_on_ranges_as_the_story_has_it(year: Year) -> None:
    trace = read_trace(year.path)
    for rule, by_name in zip(RULES, zip(*year.figures.operations.values(), strict=True), strict=True):
        found = {total.name: total.gpu_ops for total in analyze(trace, rule=rule).ranges}
        for name, operations in zip(year.figures.operations, by_name, strict=True):
            assert found[name] == RANKS * STEPS * operations, (rule, name)


@every_training
def test_steps_are_found_and_measured_as_the_story_has_it(year: Year) -> None:
    trace = read_trace(year.path)
    found = analyze(trace)
    expected = [
        (rank, number, reason)
        for rank, last in enumerate((INCOMPLETE, TRUNCATED))
        for number, reason in enumerate((OUTLYING_FIRST, None, None, last))
    ]
    steps = found.steps
    assert steps.name == "train step *"
    assert list(zip(steps.rank.tolist(), steps.index.tolist(), steps.dropped, strict=True)) == expected
    figures = year.figures
    kept = [row for row, (_, number, _) in enumerate(expected) if number in KEPT]
    assert set(steps.duration_ns[kept].tolist()) == {figures.step_ns}
    assert set(found.step_gpu.busy_ns[kept].tolist()) == {figures.busy_ns}
    assert set(found.step_gpu.idle_ns[kept].tolist()) == {figures.step_ns - figures.busy_ns}
    assert set(found.step_gpu.communication_exposed_ns[kept].tolist()) == {figures.exposed_ns}
    assert set(found.step_gpu.coverage[kept].tolist()) == {1.0}
    graphs = trace.operations.kind == GRAPH
    assert int((trace.operations.end_ns - trace.operations.start_ns)[graphs].sum()) == figures.graph_ns


@pytest.mark.parametrize("name", ["2021.3", "2022.4", "2026.2"])
def test_names_are_read_from_wherever_they_are_written(name: str) -> None:
    year = made(name)
    trace = read_trace(year.path)
    ranges = {row.path: row for row in analyze(trace).ranges}
    calls = RANKS * STEPS
    assert ranges["train step */backward/ncclAllReduce"].calls == calls
    assert ranges["train step */forward/na\N{REPLACEMENT CHARACTER}ve"].calls == calls
    assert ranges["train step */prefetch"].total_ns == calls * (150 + year.slow_us) * US
    assert ranges[AUTOGRAD_NAME].calls == calls
    domains = {trace.strings[one] for one in trace.ranges.domain_id.tolist() if one >= 0}
    assert domains == {"NCCL"}
    assert trace.marks.payload.tolist() == [2.5 / (number + 1) for number in range(STEPS) for _ in range(RANKS)]
