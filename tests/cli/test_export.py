"""`stepduel export`: what is written holds every event, opens in its tool, and is whole or absent."""

from __future__ import annotations

import csv
import gzip
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nsys_exports import REAL
from nsys_years import YEARS
from trace_files import MS, training, write

from harness.cli.__main__ import run
from harness.trace.export import TABLES
from harness.trace.export.perfetto import lanes_of


def perfetto(trace: Path, target: Path) -> list[dict[str, Any]]:
    assert run(["export", str(trace), "--to", "perfetto", "-o", str(target)]) == 0
    raw = gzip.decompress(target.read_bytes()) if target.suffix == ".gz" else target.read_bytes()
    events = json.loads(raw)["traceEvents"]
    assert isinstance(events, list)
    return events


def assert_viewers_can_show(events: list[dict[str, Any]]) -> None:
    """What Perfetto's JSON importer needs: known phases, times from 0, slices of a track nested, flows paired."""
    tracks: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    flows: dict[int, list[str]] = defaultdict(list)
    for event in events:
        assert event["ph"] in {"X", "M", "i", "b", "e", "s", "f"}
        assert 0 < event["pid"] < 2**31
        assert 0 <= event["tid"] < 2**32
        if event["ph"] == "M":
            continue
        assert event["ts"] >= 0
        if event["ph"] == "X":
            begin = round(event["ts"] * 1000)
            tracks[event["pid"], event["tid"]].append((begin, -(begin + round(event["dur"] * 1000))))
        elif event["ph"] in "sf":
            flows[event["id"]].append(event["ph"])
    for slices in tracks.values():
        open_until: list[int] = []
        for begin, minus_end in sorted(slices):
            while open_until and open_until[-1] <= begin:
                open_until.pop()
            assert not open_until or -minus_end <= open_until[-1]
            open_until.append(-minus_end)
    assert all(phases == ["s", "f"] for phases in flows.values())


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_perfetto_shows_ranks_as_processes_and_streams_as_tracks(suffix: str, tmp_path: Path) -> None:
    events = perfetto(training(tmp_path / "t.sqlite", ranks=2), tmp_path / f"t{suffix}")
    assert_viewers_can_show(events)
    names = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == {100: "rank 0", 101: "rank 1"}
    tracks = {(e["pid"], e["args"]["name"]): e["tid"] for e in events if e["name"] == "thread_name"}
    assert tracks[100, "main thread"] == 100
    assert {label for _, label in tracks} == {
        "main thread",
        "CUDA calls of thread 100",
        "CUDA calls of thread 101",
        "CUDA calls of thread 1100",
        "CUDA calls of thread 1101",
        "GPU 0 stream 7",
        "GPU 1 stream 7",
    }
    kernels = [e for e in events if e.get("cat") == "kernel"]
    assert len(kernels) == 20
    assert all(e["tid"] == tracks[e["pid"], f"GPU {e['pid'] - 100} stream 7"] for e in kernels)
    forward = [e for e in events if e["name"] == "forward" and e["pid"] == 100]
    assert [(e["ts"], e["dur"]) for e in forward][:1] == [(1_000_000, 40_000)]  # microseconds
    assert sum(e["ph"] == "s" for e in events) == 20


def test_times_keep_every_ns_and_names_are_escaped(tmp_path: Path) -> None:
    name = 'quote " \\ \x1b[31m \u2028 </script>'
    trace = write(
        tmp_path / "t.sqlite", [(1_000_000_001, 1_000_002_003, name, 0, 0), (1_000_000_003, 1_000_000_004, "b", 0, 0)]
    )
    target = tmp_path / "t.json"
    events = [event for event in perfetto(trace, target) if event["ph"] == "X"]
    assert [(round(e["ts"] * 1000), round(e["dur"] * 1000), e["name"]) for e in events] == [
        (0, 2_002, name),
        (2, 1, "b"),
    ]
    assert target.read_bytes().isascii()


def test_ranges_that_cross_are_asynchronous(tmp_path: Path) -> None:
    trace = write(tmp_path / "t.sqlite", [(0, 10, "a", 0, 0), (5, 15, "b", 0, 0)])
    events = perfetto(trace, tmp_path / "t.json")
    assert_viewers_can_show(events)
    assert sorted(e["ph"] for e in events if e["ph"] != "M") == ["X", "b", "e"]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), max_size=15))
def test_operations_of_one_lane_never_overlap(pairs: list[tuple[int, int]]) -> None:
    pairs.sort()
    starts = np.array([start for start, _ in pairs], dtype=np.int64)
    ends = starts + np.array([length for _, length in pairs], dtype=np.int64)
    lanes = lanes_of(starts, ends)
    for lane in set(lanes.tolist()):
        own = lanes == lane
        assert (starts[own][1:] >= ends[own][:-1]).all()
    busiest = max((sum(s <= tick < e for s, e in zip(starts, ends, strict=True)) for tick in range(40)), default=0)
    assert len(set(lanes.tolist())) <= max(busiest, 1)


def test_csv_and_parquet_hold_the_same_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = training(tmp_path / "t.sqlite", forward='a,"b"\nc')
    for to in ("csv", "parquet"):
        assert run(["export", str(trace), "--to", to, "-o", str(tmp_path / to), "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        assert document["schema"] == "stepduel/export/1"
        assert document["bytes"] > 0
    assert {path.stem for path in (tmp_path / "csv").iterdir()} == {"ranges", "marks", "operations", "api", "syncs"}
    with (tmp_path / "csv" / "ranges.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    table = pyarrow.parquet.read_table(tmp_path / "parquet" / "ranges.parquet").to_pylist()
    assert len(rows) == len(table) == 15
    assert [(row["name"], int(row["duration_ns"]), row["path"]) for row in rows] == [
        (row["name"], row["duration_ns"], row["path"]) for row in table
    ]
    assert sum(row["self_ns"] for row in table if row["name"].startswith("train_step")) == (1_000 + 50) * MS
    operations = pyarrow.parquet.read_table(tmp_path / "parquet" / "operations.parquet").to_pylist()
    assert {(row["kind"], row["name"], row["duration_ns"]) for row in operations} == {
        ("kernel", "gemm<float>(float *, int)", 20 * MS)
    }


def test_one_table_as_one_file(tmp_path: Path) -> None:
    trace = training(tmp_path / "t.sqlite")
    assert run(["export", str(trace), "--to", "csv", "-o", str(tmp_path / "api.csv"), "--table", "api"]) == 0
    assert (tmp_path / "api.csv").read_text().count("cudaLaunchKernel") == 10
    assert run(["export", str(trace), "--to", "csv", "-o", str(tmp_path / "r.csv")]) == 0
    assert '"backward"' in (tmp_path / "r.csv").read_text()


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_force_replaces_its_own_files_in_a_folder_and_no_other(to: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    (folder / "notes").mkdir(parents=True)
    (folder / "notes" / "thesis.txt").write_text("precious")
    (folder / f"ranges.{to}").write_text("old")
    trace = training(folder / "t.sqlite")
    before = trace.read_bytes()
    assert run(["export", str(trace), "--to", to, "-o", str(folder), "--force"]) == 0
    assert (folder / "notes" / "thesis.txt").read_text() == "precious"
    assert trace.read_bytes() == before
    assert (folder / f"ranges.{to}").read_bytes() != b"old"
    assert {path.name for path in folder.iterdir()} == {"notes", "t.sqlite", *(f"{name}.{to}" for name in TABLES)}
    assert [path.name for path in tmp_path.iterdir()] == ["work"]


@pytest.mark.parametrize(("to", "output"), [("perfetto", "ranges.csv"), ("csv", "ranges.csv"), ("csv", ".")])
def test_force_never_replaces_the_trace(
    to: str, output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = training(tmp_path / "ranges.csv")
    before = trace.read_bytes()
    assert run(["export", str(trace), "--to", to, "-o", str(tmp_path / output), "--force"]) == 2
    assert "would replace the trace" in capsys.readouterr().err
    assert trace.read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["ranges.csv"]


def test_refuses_what_is_there_and_leaves_nothing_half_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = training(tmp_path / "t.sqlite")
    target = tmp_path / "out.json"
    target.write_text("precious")
    arguments = ["export", str(trace), "--to", "perfetto", "-o", str(target)]
    assert run(arguments) == 2
    assert "exists already" in capsys.readouterr().err
    assert target.read_text() == "precious"

    def fails(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("harness.trace.export.perfetto._Writer.operations", fails)
        assert run([*arguments, "--force"]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert target.read_text() == "precious"
    assert run([*arguments, "--force"]) == 0
    assert json.loads(target.read_text())["traceEvents"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.json", "t.sqlite"]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "out.json"
    assert run(["export", str(training(tmp_path / "t.sqlite")), "--to", "perfetto", "-o", str(target)]) == 0
    assert json.loads(target.read_text())["traceEvents"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--to", "csv", "-o", "/dev/null/x.csv"], "/dev/null/x.csv cannot be written"),
        (["--to", "csv", "-o", "x.csv", "--table", "rangs"], "Did you mean 'ranges'"),
        (["--to", "perfetto", "-o", "x.json", "--table", "api"], "--table is for csv"),
        (["--to", "excel", "-o", "x"], "excel"),
    ],
)
def test_wrong_requests(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["export", str(training(tmp_path / "t.sqlite")), *arguments]) == 2
    assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.sqlite"]


@pytest.mark.parametrize(
    "export",
    [*(year.path for year in YEARS), *(pytest.param(path, marks=pytest.mark.slow) for path in REAL)],
    ids=lambda path: path.stem,
)
def test_every_export_goes_through(export: Path, tmp_path: Path) -> None:
    assert_viewers_can_show(perfetto(export, tmp_path / "t.json.gz"))
    for to in ("csv", "parquet"):
        assert run(["export", str(export), "--to", to, "-o", str(tmp_path / to)]) == 0
    sizes = {path.stem: pyarrow.parquet.read_metadata(path).num_rows for path in (tmp_path / "parquet").iterdir()}
    for table, rows in sizes.items():
        with (tmp_path / "csv" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
            assert sum(1 for _ in csv.reader(file)) == rows + 1
