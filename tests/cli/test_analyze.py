"""`stepduel analyze` on exports whose figures are known, on real ones, and on what is none."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from nsys_exports import every_export, every_training, real
from nsys_story import RANKS, STEPS
from nsys_years import Year
from trace_files import MS, training, write

from harness.cli.__main__ import run

DATA = Path(__file__).resolve().parents[1] / "data"

KEYS = {
    "schema", "trace", "steps", "dropped_steps", "ranges", "per_step", "kernels", "api", "copies", "gpu", "coverage",
    "findings", "warnings",
}  # fmt: skip


def analyze(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """The document, which must be all that stdout holds."""
    assert run(["analyze", "--json", *map(str, arguments)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def by_path(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["path"]: row for row in rows}


def test_steps_ranges_and_gpu_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = analyze(capsys, training(tmp_path / "t.sqlite"))
    assert set(found) >= KEYS
    assert found["schema"] == "stepduel/analyze/2"
    assert found["trace"]["nsys_version"] == "2025.1.3.140"
    assert found["trace"]["ranks"] == 1
    assert found["trace"]["duration_ns"] == (1_000 + 5 * 80 + 4) * MS
    assert found["dropped_steps"] == [{"rank": 0, "index": 0, "reason": "outlying first step"}]
    assert [step["index"] for step in found["steps"]] == [1, 2, 3, 4]
    assert {step["duration_ns"] for step in found["steps"]} == {80 * MS}
    assert {step["gpu_busy_ns"] for step in found["steps"]} == {40 * MS}
    typical = by_path(found["per_step"])
    assert list(typical) == ["train_step_*", "train_step_*/forward", "train_step_*/backward"]
    assert typical["train_step_*"] == {
        "path": "train_step_*",
        "name": "train_step_*",
        "depth": 0,
        "calls_per_step": 1,
        "median_ns": 80 * MS,
        "p90_ns": 80 * MS,
        "self_median_ns": 10 * MS,
        "share": None,
        "moved_bytes_per_step": None,
        "gpu_median_ns": 40 * MS,
    }
    assert typical["train_step_*/backward"]["gpu_median_ns"] == 20 * MS  # launched from another thread
    whole = by_path(found["ranges"])
    assert whole["train_step_*"]["calls"] == 5
    assert whole["train_step_*"]["total_ns"] == 1_400 * MS
    assert whole["train_step_*/forward"]["median_ns"] == 40 * MS
    assert whole["train_step_*/forward"]["gpu_ops"] == 5
    assert found["kernels"] == [{"name": "gemm<float>(float *, int)", "calls": 10, "total_ns": 200 * MS}]
    assert found["api"] == [{"name": "cudaLaunchKernel", "calls": 10, "total_ns": 10_000}]
    assert found["gpu"] == {"busy_ns": 200 * MS, "kernel_ns": 200 * MS, "copy_ns": 0, "graph_ns": 0}
    assert found["coverage"] == {"thread": 0.5, "process": 1.0}


def test_rule_thread_is_nvidias(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = analyze(capsys, training(tmp_path / "t.sqlite"), "--rule", "thread")
    assert by_path(found["ranges"])["train_step_*/backward"]["gpu_ops"] == 0
    assert by_path(found["ranges"])["train_step_*"]["gpu_ops"] == 5
    assert found["rule"] == "thread"


def test_step_can_be_named_and_the_nearest_name_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = training(tmp_path / "t.sqlite")
    found = analyze(capsys, trace, "--step", "backward")
    assert [step["duration_ns"] for step in found["steps"]] == [30 * MS] * 5
    assert run(["analyze", str(trace), "--step", "bakward"]) == 2
    assert "Did you mean 'backward'" in capsys.readouterr().err


def test_warm_up_steps_are_left_out_of_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = training(tmp_path / "t.sqlite")
    found = analyze(capsys, trace, "--warmup-steps", 2)
    assert found["dropped_steps"] == [{"rank": 0, "index": index, "reason": "warm-up"} for index in (0, 1)]
    assert [step["index"] for step in found["steps"]] == [2, 3, 4]
    assert "outlying_step" in {finding["rule"] for finding in analyze(capsys, trace)["findings"]}
    assert "outlying_step" not in {finding["rule"] for finding in found["findings"]}


def test_several_files_are_one_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fast = training(tmp_path / "0.sqlite", forward_ms=40)
    both = training(tmp_path / "both.sqlite", ranks=2)
    found = analyze(capsys, both)
    assert found["trace"]["ranks"] == 2
    assert len(found["steps"]) == 8
    slow = tmp_path / "1.sqlite"
    shutil.copy(training(tmp_path / "slow.sqlite", forward_ms=60), slow)
    connection = sqlite3.connect(slow)
    for table, column in (("NVTX_EVENTS", "globalTid"), ("CUPTI_ACTIVITY_KIND_RUNTIME", "globalTid")):
        connection.execute(f"UPDATE {table} SET {column} = {column} + (1 << 24)")
    connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET globalPid = globalPid + (1 << 24)")
    connection.commit()
    connection.close()
    found = analyze(capsys, fast, slow)
    assert found["trace"]["ranks"] == 2
    assert found["slowest_rank"]["rank"] == 1
    assert [rank["median_ns"] for rank in found["ranks"]] == [80 * MS, 100 * MS]
    straggling = [finding for finding in found["findings"] if finding["rule"] == "rank_straggling"]
    assert straggling[0]["ns_per_step"] == 20 * MS
    assert straggling[0]["evidence"]["figures"]["rank"] == 1


def test_a_truncated_step_is_left_out_and_said_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(
        tmp_path / "t.sqlite",
        [(at * MS, at * MS + 9 * MS, f"step {at}", 0, 0) for at in (0, 10, 20)] + [(30 * MS, None, "step 30", 0, 0)],
    )
    found = analyze(capsys, trace)
    assert found["dropped_steps"] == [{"rank": 0, "index": 3, "reason": "truncated"}]
    assert run(["analyze", str(trace)]) == 0
    assert "Left out, truncated: step 3 of rank 0" in capsys.readouterr().out


def test_without_steps_the_whole_capture_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = write(tmp_path / "t.sqlite", [(0, 10 * MS, "load", 0, 0)], [(MS, 2 * MS, 4 * MS, 0, 0)])
    found = analyze(capsys, trace)
    assert [(step["start_ns"], step["duration_ns"]) for step in found["steps"]] == [(0, 10 * MS)]
    assert found["per_step"][0]["path"] == "load"
    assert any("whole capture" in warning for warning in found["warnings"])


@pytest.mark.parametrize("width", [80, 200])
def test_text_fits_the_terminal_and_obeys_no_name(
    width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    hostile = "\x1b]0;owned\x07\x1b[31mfor\u202eward[bold]" + "x" * 300
    trace = training(tmp_path / "t.sqlite", ranks=2, forward=hostile, extra="line\nbreak")
    assert run(["analyze", str(trace)]) == 0
    out, err = capsys.readouterr()
    assert not set(out + err) & {"\x1b", "\x07", "\u202e"}
    assert max(map(len, out.splitlines())) <= width
    assert "line\\x0abreak" in out
    assert "Slowest: rank" in out


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("ranks", [1, 2])
def test_steps_show_idle_and_communication_where_there_is_any(
    width: int, ranks: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    trace = training(tmp_path / "t.sqlite", ranks=ranks)
    assert run(["analyze", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "exposed" not in out
    with closing(sqlite3.connect(trace)) as connection, connection:
        connection.execute("INSERT INTO StringIds VALUES (3, 'ncclDevKernel_AllReduce_Sum_f32_RING_LL')")
        connection.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET demangledName = 3 WHERE correlationId % 2 = 0")
    assert run(["analyze", str(trace)]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= width
    lines = out.splitlines()
    header = next(line for line in lines if line.split()[:1] == ["step"])
    step = next(line for line in lines if line.split()[:1] == ["1"])
    assert header.split()[-4:] == ["idle", "ms", "exposed", "ms"]
    assert step.split()[-2:] == ["40.00", "20.00"]
    assert f"the host was longest in train_step_*/forward ({4 * ranks} of {4 * ranks} steps)" in " ".join(out.split())
    with closing(sqlite3.connect(trace)) as connection, connection:
        connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL")
    assert run(["analyze", str(trace)]) == 0
    out = capsys.readouterr().out
    assert "idle ms" not in out
    assert "exposed" not in out


def test_bad_input_is_one_line_and_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = training(tmp_path / "whole.sqlite").read_bytes()
    (tmp_path / "text.sqlite").write_text("hello " * 100)
    (tmp_path / "cut.sqlite").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "report.nsys-rep").write_bytes(b"report" * 100)
    other = sqlite3.connect(tmp_path / "other.sqlite")
    other.executescript("CREATE TABLE people (name TEXT); INSERT INTO people VALUES ('x')")
    other.close()
    for name in ("text.sqlite", "cut.sqlite", "report.nsys-rep", "other.sqlite", ".", "absent.sqlite"):
        for command in (["analyze"], ["export", "--to", "csv", "-o", str(tmp_path / "out")]):
            assert run([*command, str(tmp_path / name)]) == 2, name
            out, err = capsys.readouterr()
            assert out == ""
            assert len(err.splitlines()) == 1, err
            assert "Traceback" not in err
    assert not (tmp_path / "out").exists()


def test_a_report_is_exported_where_nsys_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    export = training(tmp_path / "made.sqlite")
    report = tmp_path / "run 1.nsys-rep"
    report.write_bytes(b"report")
    nsys = tmp_path / "nsys"
    nsys.write_text(
        '#!/bin/sh\n[ "$1" = export ] || exit 9\n'
        f'for a; do case "$a" in --output=*) cp "{export}" "${{a#--output=}}";; esac; done\n'
    )
    nsys.chmod(0o755)
    monkeypatch.setenv("STEPDUEL_NSYS", str(nsys))
    assert analyze(capsys, report)["trace"]["ranks"] == 1
    nsys.write_text("#!/bin/sh\necho 'the report is damaged' >&2\nexit 1\n")
    assert run(["analyze", str(report)]) == 2
    assert "the report is damaged" in capsys.readouterr().err
    monkeypatch.delenv("STEPDUEL_NSYS")
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert run(["analyze", str(report)]) == 2
    assert "nsys is not on PATH" in capsys.readouterr().err


@every_export
def test_every_export_goes_through(
    export: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both as JSON and as text; and scrubbed, it says the same."""
    before = analyze(capsys, export)
    assert set(before) >= KEYS
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["analyze", str(export)]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80
    scrubbed = tmp_path / "scrubbed.sqlite"
    assert run(["scrub", str(export), str(scrubbed), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["texts_removed"] > 0
    assert analyze(capsys, scrubbed) == before
    for finding in before["findings"]:
        rows = finding["evidence"]["ranges"] + finding["evidence"]["calls"]
        assert rows, finding["rule"]
        assert finding["ns_per_step"] > 0


@every_training
def test_work_that_autograd_launches_is_found_by_process(year: Year, capsys: pytest.CaptureFixture[str]) -> None:
    for rule, operations in zip(("thread", "process"), year.figures.operations["backward"], strict=True):
        found = analyze(capsys, year.path, "--rule", rule)
        (backward,) = (row for row in found["ranges"] if row["name"] == "backward")
        assert (backward["calls"], backward["gpu_ops"]) == (RANKS * STEPS, RANKS * STEPS * operations)
    assert found["gpu"]["graph_ns"] == year.figures.graph_ns
    assert any("--cuda-graph-trace=node" in warning for warning in found["warnings"]) == year.graphs
    (copies,) = found["copies"][:-1]  # the last one is the memset
    assert (copies["kind"], copies["bytes"]) == ("Host-to-Device", year.figures.copied_bytes)
    assert copies["pageable_bytes"] == year.figures.copied_bytes


def test_the_backward_ranges_of_a_pytorch_trace(capsys: pytest.CaptureFixture[str]) -> None:
    export = real("pytorch_steps_2025.1")
    for rule, operations in (("thread", 507), ("process", 7_742)):
        found = analyze(capsys, export, "--rule", rule)
        backward = [row for row in found["ranges"] if row["name"] == "Backward"]
        assert sum(row["calls"] for row in backward) == 5
        assert sum(row["gpu_ops"] for row in backward) == operations
    assert found["step"] == "Warm-up Step *"
    assert [step["reason"] for step in found["dropped_steps"]] == ["outlying first step"]
    assert len(found["steps"]) == 4


@every_training
def test_copies_of_each_year_are_shown_by_range(
    year: Year, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["analyze", str(year.path)]) == 0
    lines = capsys.readouterr().out.split("Copies by range, whole capture\n")[1].splitlines()
    shown = f"{year.figures.copied_bytes / 1e3:.1f}"
    assert lines[2].split() == ["train", "step", "*/load", "h2d", "pageable", shown, "kB", "0.5"]


def test_copies_are_shown_by_range(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert run(["analyze", str(real("pytorch_steps_2025.1"))]) == 0
    lines = capsys.readouterr().out.split("Copies by range, whole capture\n")[1].splitlines()
    assert lines[0].split() == ["range", "copies", "bytes", "GB/s"]
    assert lines[3].split() == ["Run", "Benchmark/Initialize", "Model", "h2d", "pageable", "515", "MB", "8.5"]
    assert run(["analyze", str(real("mpi_saxpy_2022.2"))]) == 0
    assert "Copies by range" not in capsys.readouterr().out


def test_graph_launches_are_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    found = analyze(capsys, real("cuda_graphs_2024.6"))
    assert found["gpu"]["graph_ns"] == 7_811_141_695
    assert any("--cuda-graph-trace=node" in warning for warning in found["warnings"])


def test_ranges_of_the_autograd_profiler_are_told_to_cost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = training(tmp_path / "t.sqlite")
    assert not any("emit_nvtx" in warning for warning in analyze(capsys, trace)["warnings"])
    connection = sqlite3.connect(trace)
    connection.execute("UPDATE NVTX_EVENTS SET text = 'aten::add, op_id = 7', textId = NULL WHERE rowid = 1")
    connection.execute("UPDATE StringIds SET value = value || ', op_id = 7' WHERE value = 'forward'")
    connection.commit()
    connection.close()
    assert any("emit_nvtx" in warning for warning in analyze(capsys, trace)["warnings"])


def test_operations_without_a_launch_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = training(tmp_path / "t.sqlite")
    assert not any("no launch" in warning for warning in analyze(capsys, trace)["warnings"])
    connection = sqlite3.connect(trace)
    connection.execute("DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId <= 4")
    connection.commit()
    connection.close()
    found = analyze(capsys, trace)
    assert any(warning.startswith("4 of 10 GPU operations have no launch") for warning in found["warnings"])
    assert found["coverage"]["process"] == pytest.approx(0.6)


@pytest.mark.parametrize("script", sorted(DATA.glob("*.sql")), ids=lambda path: path.stem)
def test_every_schema_version_goes_through_all_commands(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace, scrubbed = tmp_path / "t.sqlite", tmp_path / "scrubbed.sqlite"
    connection = sqlite3.connect(trace)
    connection.executescript(script.read_text(encoding="utf-8"))
    connection.close()
    assert set(analyze(capsys, trace)) >= KEYS
    for command in (
        ["analyze", str(trace)],
        ["diff", str(trace), str(trace)],
        ["export", str(trace), "--to", "perfetto", "-o", str(tmp_path / "t.json")],
        ["export", str(trace), "--to", "csv", "-o", str(tmp_path / "csv")],
        ["export", str(trace), "--to", "parquet", "-o", str(tmp_path / "parquet")],
        ["scrub", str(trace), str(scrubbed)],
        ["analyze", str(scrubbed)],
    ):
        assert run(command) == 0, command
