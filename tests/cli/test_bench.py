"""`stepduel bench` from the outside: real launches of a small engine, their figures, and every way they end."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psutil
import pytest
from child_process import PIPE, child

pytestmark = pytest.mark.slow

ENGINE = '''
"""An engine that does what its scenario says, and nothing else."""
import contextlib, gc, os, signal, time
import torch.distributed as dist

def load(): time.sleep(0.004); return 1000
def unload(): time.sleep(0.002); return 500

class Engine:
    description = {"device_memory": "emulated in RAM"}
    def __init__(self, trouble, at_step): self.trouble, self.at_step = trouble, at_step
    def batch(self, step): return step
    def num_tokens(self, batch): return 50
    @contextlib.contextmanager
    def train_mode(self):
        load(); load(); gc.collect()
        yield
        unload()
    def forward_backward(self, batch):
        if batch == self.at_step and dist.get_rank() == dist.get_world_size() - 1:
            print("about to make trouble", flush=True)
            if self.trouble == "raise": raise AssertionError("may not move alone \\x1b]0;owned\\x07")
            if self.trouble == "die": os.kill(os.getpid(), signal.SIGKILL)
            if self.trouble == "hang": time.sleep(600)
        time.sleep(0.003)
        return 8.0 / (batch + 1)
    def optimizer_step(self): time.sleep(0.001)

def build(*, trouble: str = "none", at_step: int = 2): return Engine(trouble, at_step)
'''
SCENARIO = """
description = "A small engine"
[run]
warmup_steps = 1
steps = 4
timeout_s = 5
[engine]
factory = "small_engine:build"
[probes]
load = { target = "small_engine.load", result = "moved_bytes" }
unload = { target = "small_engine.unload", result = "moved_bytes" }
"gc.collect" = { target = "gc.collect", result = "collected_objects" }
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder: an engine, a scenario, no repository."""
    (tmp_path / "small_engine.py").write_text(ENGINE)
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "small.toml").write_text(SCENARIO)
    return tmp_path


def start(
    folder: Path, *arguments: str, columns: int = 80, before: Sequence[str] = (), **variables: str
) -> AbstractContextManager[subprocess.Popen[str]]:
    command = [*before, sys.executable, "-m", "harness.cli", "bench", *arguments]
    environment = {**os.environ, "COLUMNS": str(columns), "OMP_NUM_THREADS": "1", **variables}
    return child(command, cwd=folder, env=environment, stdout=PIPE, stderr=PIPE)


def bench(folder: Path, *arguments: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    with start(folder, *arguments, columns=columns) as process:
        out, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def stored(folder: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / "reports" / "results.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def processes_of(folder: Path) -> list[psutil.Process]:
    """Every living process that mentions `folder` in its command line or works in it."""
    found = []
    for process in psutil.process_iter(["cmdline", "cwd", "status"]):
        about = process.info
        if about["status"] == psutil.STATUS_ZOMBIE:
            continue
        if about["cwd"] == str(folder) or any(str(folder) in part for part in about["cmdline"] or ()):
            found.append(process)
    return found


def step_ranges(trace: Path) -> dict[int, list[tuple[int, int]]]:
    """(index, duration in ns) of every step, by process, read with SQL of our own."""
    connection = sqlite3.connect(f"file:{trace}?mode=ro", uri=True)
    rows = connection.execute(
        """select globalTid >> 24, coalesce(uint64Value, int64Value, uint32Value, int32Value), end - start
        from NVTX_EVENTS left join StringIds on StringIds.id = textId
        where coalesce(value, text) = 'step' and eventType = 59 order by start"""
    ).fetchall()
    connection.close()
    found = defaultdict(list)
    for process, index, duration in rows:
        found[process].append((index, duration))
    return dict(found)


def test_json_agrees_with_the_trace_and_the_database(folder: Path) -> None:
    done = bench(folder, "small", "--ranks", "2", "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(document) == {
        *("schema", "run", "exit_code", "description", "warmup_steps", "reports", "steps", "ranges"),
        *("collector_reason", "log_tail", "durations_ns", "step_mean_ns", "step_median_ns"),
        *("tokens_per_s", "figures", "trace", "losses"),
    }
    measured = [step for step in document["steps"] if step["measured"]]
    assert (document["schema"], document["run"]["scenario"], document["run"]["status"]) == (
        "stepduel/bench/2",
        "small",
        "completed",
    )
    assert (document["run"]["collector"], document["run"]["device"], document["run"]["ranks"]) == ("recorder", "cpu", 2)
    assert (document["run"]["reason"], document["run"]["revision"]) == (None, None)
    assert document["losses"] == [8.0 / (index + 1) for index in (1, 2, 3, 4)]
    assert [(step["sequence"], step["rank"]) for step in measured] == [(i, r) for i in (1, 2, 3, 4) for r in (0, 1)]

    by_rank = step_ranges(folder / document["trace"])
    assert [[index for index, _ in steps] for steps in by_rank.values()] == [[0, 1, 2, 3, 4]] * 2
    slowest = [max(steps[index][1] for steps in by_rank.values()) for index in (1, 2, 3, 4)]
    ranges = {item["path"]: item for item in document["ranges"]}
    assert ranges["step"]["median_ns"] == pytest.approx(statistics.median(slowest))
    assert list(ranges) == [
        "step",
        "step/batch",
        "step/train_mode_enter",
        "step/train_mode_enter/load",
        "step/train_mode_enter/gc.collect",
        "step/forward_backward",
        "step/optimizer_step",
        "step/train_mode_exit",
        "step/train_mode_exit/unload",
    ], "in the order they run"
    load = ranges["step/train_mode_enter/load"]
    assert (load["calls_per_step"], load["moved_bytes_per_step"]) == (2, 2000)
    assert load["median_ns"] >= 8e6
    assert ranges["step"]["moved_bytes_per_step"] is None
    assert ranges["step"]["share"] == 1
    rows = stored(folder, "select sequence, rank, path, total_ns from ranges join range_paths on id = path_id")
    taken = {(sequence, rank, path): total_ns for sequence, rank, path, total_ns in rows if sequence > 0}
    slow = [max((0, 1), key=lambda rank: taken[index, rank, "step"]) for index in (1, 2, 3, 4)]
    sums = {path: sum(taken.get((i, slow[i - 1], path), 0) for i in (1, 2, 3, 4)) for path in ranges}
    assert {path: item["share"] for path, item in ranges.items()} == {
        path: pytest.approx(total_ns / sums["step"]) for path, total_ns in sums.items()
    }, "of the slowest rank's time, which adds up"
    durations: dict[int, int] = defaultdict(int)
    for step in measured:
        durations[step["sequence"]] = max(durations[step["sequence"]], step["duration_ns"])
    assert document["durations_ns"] == list(durations.values())
    assert document["tokens_per_s"] == pytest.approx(4 * 2 * 50 / (sum(durations.values()) / 1e9))

    assert stored(folder, "select id, status, trace from runs") == [
        (document["run"]["id"], "completed", f"traces/{document['run']['id']}.sqlite")
    ]
    assert stored(folder, "select count(*), sum(measured) from steps") == [(10, 8)]
    unequal = (
        "select count(*) from (select sum(self_ns) s, max(total_ns) t from ranges group by sequence, rank) where s != t"
    )
    assert stored(folder, unequal) == [(0,)], "self times of a step add up to it, exactly"
    assert processes_of(folder) == []


def test_the_real_engine_runs_on_two_ranks_and_names_its_revision(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    offloads = ["--set", "engine.param_offload=true", "--set", "engine.optimizer_offload=true"]
    overrides = [*offloads, "--steps", "2", "--ranks", "2"]
    done = bench(root, "smoke", *overrides, "--reports", str(tmp_path / "reports"), "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    # Any commit: one may be made while this runs. None in a source archive.
    command = ["git", "cat-file", "-t", document["run"]["revision"] or "none"]
    git = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert document["run"]["revision"] is None or git.stdout == "commit\n"
    moved = {item["path"]: item["moved_bytes_per_step"] for item in document["ranges"]}
    for what, load, offload in (
        ("parameters", "load_fsdp_model_to_gpu", "offload_fsdp_model_to_cpu"),
        ("optimizer state", "load_fsdp_optimizer", "offload_fsdp_optimizer"),
    ):
        loaded = moved[f"step/train_mode_enter/{load}"]
        assert loaded == moved[f"step/train_mode_exit/{offload}"], f"{what} go back as they came"
        assert loaded > 0
    (engine,) = stored(tmp_path, "select engine from runs")[0]
    assert moved["step/train_mode_enter/load_fsdp_model_to_gpu"] == json.loads(engine)["parameter_bytes"]
    assert moved["step/train_mode_enter/load_fsdp_optimizer"] == json.loads(engine)["optimizer_state_bytes"]


def test_the_table_fits_80_columns_and_says_what_matters(folder: Path) -> None:
    nvidia = [
        {
            "domain": "x",
            "color": "blue",
            "module": "small_engine",
            "functions": ["Engine.batch", "Engine.optimizer_step"],
        }
    ]
    (folder / "functions.json").write_text(json.dumps(nvidia))
    done = bench(folder, "small", "--steps", "2", "--python-functions-trace", "functions.json")
    assert done.returncode == 0, done.stderr
    assert "├ optimizer_step" in done.stdout
    assert "│ └ small_engine.Eng" in done.stdout, "a long name is cut, the figures are not"
    table = [line for line in done.stdout.splitlines() if line.startswith(("range", "step ", "├", "│", "└", "  └"))]
    assert len(table) == 13
    assert all(len(line) <= 80 for line in table)
    assert "cpu: emulated device memory, the link is RAM; 1 rank" in done.stdout
    assert "2 steps after 1 of warm-up" in done.stdout
    median = next(line for line in table if line.startswith("step ")).split()[2]
    said = re.search(r"step      ([\d.]+) ms mean, ([\d.]+) ms median of", done.stdout)
    assert said is not None
    assert said[2] == median, "one median, told twice"
    assert "share: of the time of all steps, adds up" in done.stdout
    assert "2.00 kB" in done.stdout
    for word in ("tokens/s", "peak memory", "resident set", "reports/traces/", "reports/results.db", "next "):
        assert word in done.stdout
    assert "\x1b" not in done.stdout + done.stderr, "no colour in a pipe"


def test_a_rank_that_dies_is_a_failed_run_with_its_partial_trace(folder: Path) -> None:
    done = bench(folder, "small", "--ranks", "2", "--set", "engine.trouble=die", "--json")
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert document["run"]["status"] == "failed"
    assert "rank 1 was ended by SIGKILL" in document["run"]["reason"]
    assert [step["sequence"] for step in document["steps"] if step["measured"]] == [1, 1], "what it did before is there"
    assert stored(folder, "select status, reason from runs") == [("failed", document["run"]["reason"])]
    assert "about to make trouble" in (folder / "reports/logs" / document["run"]["id"] / "rank1.log").read_text()
    whole = [[index for index, _ in steps][:2] for steps in step_ranges(folder / document["trace"]).values()]
    assert [0, 1] in whole
    assert processes_of(folder) == []


def test_a_step_that_raises_is_readable_on_a_terminal(folder: Path) -> None:
    done = bench(folder, "small", "--set", "engine.trouble=raise")
    assert done.returncode == 4
    assert "FAILED  rank 0 raised in step 2: AssertionError: may not move alone \\x1b]0;owned\\x07" in done.stdout
    assert '  |     if self.trouble == "raise"' in done.stdout, "the last log lines"
    assert done.stdout.count("may not move alone") == 2, "as the reason, and as the line of code that raised it"
    assert "keeping what there is" in done.stderr
    assert "reading the trace" not in done.stderr
    assert "\x1b" not in done.stdout
    assert "Traceback" not in done.stderr


def test_bench_warns_of_a_period_before_it_measures(folder: Path) -> None:
    done = bench(folder, "small", "--set", "run.period=50")
    assert "show no period of 50: --steps 150 does" in done.stderr


def test_ctrl_c_ends_everything_and_is_stored(folder: Path) -> None:
    with start(folder, "small", "--set", "run.steps=100000", "--json") as process:
        assert process.stderr is not None
        while "measuring" not in process.stderr.readline():
            assert process.poll() is None
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    document = json.loads(out)
    assert (document["run"]["status"], document["run"]["reason"]) == ("failed", "interrupted")
    assert stored(folder, "select status, reason from runs") == [("failed", "interrupted")]
    assert stored(folder, "select min(sequence) from steps") == [(0,)]
    assert processes_of(folder) == []


def test_what_ignores_ctrl_c_keeps_to_that_and_still_ends_cleanly(folder: Path) -> None:
    """As under `nohup stepduel bench … &`."""
    deaf = ["sh", "-c", 'trap "" INT HUP; exec "$@"', "sh"]
    with start(folder, "small", "--set", "run.steps=100000", "--json", before=deaf) as process:
        assert process.stderr is not None
        while "measuring" not in process.stderr.readline():
            assert process.poll() is None
        for number in (signal.SIGINT, signal.SIGHUP):
            process.send_signal(number)
        (phase,) = (folder / "reports").rglob("rank0.phase")
        at = int(phase.read_text().split()[-1])
        while int(phase.read_text().split()[-1]) < at + 20:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        out, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert json.loads(out)["run"]["reason"] == "interrupted"
    assert stored(folder, "select status, reason from runs") == [("failed", "interrupted")]
    assert processes_of(folder) == []


def test_a_scenario_given_by_its_path_is_so_in_what_to_do_next(folder: Path) -> None:
    (folder / "scenarios" / "small.toml").rename(folder / "other name.toml")
    done = bench(folder, "other name.toml", "--steps", "1", "--collector", "none")
    assert done.returncode == 0, done.stderr
    assert "next      stepduel bench 'other name.toml' --collector recorder" in done.stdout


@pytest.mark.parametrize("later", [signal.SIGINT, signal.SIGTERM])
def test_an_impatient_user_gets_the_same(folder: Path, tmp_path: Path, later: signal.Signals) -> None:
    private = tmp_path / "t"
    private.mkdir()
    with start(folder, "small", "--set", "run.steps=100000", "--json", TMPDIR=str(private)) as process:
        assert process.stderr is not None
        while "measuring" not in process.stderr.readline():
            assert process.poll() is None
        assert list(private.glob("stepduel-*"))
        process.send_signal(signal.SIGINT)
        while process.poll() is None:  # until it has ended: in the clean-up, in the merge, on the way out
            time.sleep(0.05)
            process.send_signal(later)
        out, errors = process.communicate(timeout=30)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert json.loads(out)["run"]["reason"] == "interrupted"
    assert stored(folder, "select status, reason from runs") == [("failed", "interrupted")]
    assert list(private.glob("stepduel-*")) == []
    assert processes_of(folder) == []


def test_a_trace_that_cannot_be_written_is_a_failed_run(folder: Path) -> None:
    (folder / "reports").mkdir()
    (folder / "reports" / "traces").write_text("not a folder")
    done = bench(folder, "small", "--json")
    assert done.returncode == 4, done.stderr
    document = json.loads(done.stdout)
    assert (document["run"]["status"], document["trace"]) == ("failed", None)
    assert document["run"]["reason"].startswith("cannot write the trace reports/traces/")
    assert stored(folder, "select status, reason from runs") == [("failed", document["run"]["reason"])]
    assert list((folder / "reports/logs").glob("*/rank0.sqlite")), "what the ranks wrote is kept"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["smal"], "no scenario named 'smal'. Did you mean 'small'?"),
        (["small", "--ranks", "0"], "'--ranks'"),
        (["small", "--set", "engine.factory='gone.engine:build'"], "/src, and none is installed for"),
        (["small", "--set", "engine.at_stp=1"], "unknown key 'at_stp'. Did you mean 'at_step'?"),
        (["small", "--python-functions-trace", "small_engine.py"], "not in the form of nsys"),
        (["small", "--collector", "nsys"], "nsys"),
        (["small", "--reports", "small_engine.py"], "small_engine.py"),
        (["small", "--reports", "small_engine.py/x"], "small_engine.py"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    folder: Path, arguments: list[str], complaint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPDUEL_NSYS", str(folder / "no-nsys-here"))
    if "nsys" not in arguments:
        arguments = [*arguments, "--collector", "recorder"]
    before = sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    done = bench(folder, *arguments)
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stdout == ""
    said = [line for line in done.stderr.splitlines() if line.startswith("stepduel: ")]
    complaints = [line for line in said if not line.startswith("stepduel: warning: ")]  # of a busy machine
    assert len(complaints) == 1
    assert complaint in complaints[0]
    assert "Traceback" not in done.stderr
    assert sorted(path for path in folder.rglob("*") if "__pycache__" not in path.parts) == before
