"""Scrub takes out people and places, and leaves every figure; checked on the bytes of the file it writes."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from nsys_exports import every_export, every_year
from nsys_years import PRIVATE as MADE_UP
from nsys_years import Year
from trace_files import training

from harness.cli.__main__ import run
from harness.errors import TraceError, UsageError
from harness.trace.scrub import scrub

# One of each place where a real export gives somebody away. 16777216 * 77 is the global id of the measured process.
PRIVATE = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO StringIds VALUES (1, 'cudaLaunchKernel_v7000'), (2, 'gemm_kernel'), (3, 'SECRET_OUTPUT epoch 3 done'),
  (4, '/home/adalovelace/proj/stdout.log'), (5, 'pt_autograd_0'), (6, 'SECRET_NEIGHBOUR'),
  (7, '/home/adalovelace/lib/libtorch_cuda.so'), (8, 'torch::autograd::Engine'), (9, 'SECRET_UNREFERENCED'),
  (10, '/blocks.2/conv1/Conv');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER, correlationId INTEGER, globalPid INTEGER,
  shortName INTEGER, demangledName INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (150, 180, 1, 1291845632, 2, 2);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER, eventClass INTEGER, globalTid INTEGER,
  correlationId INTEGER, nameId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (110, 120, 0, 1291845709, 1, 1);
CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER, textId INTEGER,
  binaryData TEXT);
INSERT INTO NVTX_EVENTS VALUES (100, 200, 59, 'read /mnt/SECRET_DISK/a.bin', 1291845709, NULL, NULL),
  (210, 300, 59, 'read /mnt/SECRET_DISK/b.bin', 1291845709, NULL, NULL),
  (310, 320, 59, 'adalovelace', 1291845709, NULL, NULL), (330, 340, 59, 'adalovelaces', 1291845709, NULL, NULL),
  (350, 360, 59, NULL, 1291845709, 10, 'host SECRET_HOST');
CREATE TABLE ThreadNames (nameId INTEGER, priority INTEGER, globalTid INTEGER);
INSERT INTO ThreadNames VALUES (5, 0, 1291845709), (6, 0, 33554433);
CREATE TABLE ProcessStreams (globalPid INTEGER, filenameId INTEGER, contentId INTEGER);
INSERT INTO ProcessStreams VALUES (1291845632, 4, 3);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
INSERT INTO PROCESSES VALUES (1291845632, 77, '/usr/bin/python3.12'), (33554432, 2, 'SECRET_DAEMON');
CREATE TABLE OSRT_CALLCHAINS (id INTEGER, symbol INTEGER, module INTEGER);
INSERT INTO OSRT_CALLCHAINS VALUES (1, 8, 7);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PRODUCT_VERSION', '2025.1.3'), ('EXPORT_HOST', 'SECRET_HOST.example.org'),
  ('EXPORT_USER', 'adalovelace'), ('EXPORT_PARAM_INPUT_PATH_ABS', '/home/adalovelace/x.nsys-rep');
CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT);
INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'WANDB_API_KEY="SECRET_KEY"'),
  ('PROCESS_0:ARGUMENT_1', '--token=SECRET_TOKEN'), ('CAPTURE_EVENT_TYPE', 'Cuda');
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (1, 'SECRET_DEVICE', 'Hostname', 619, 'SECRET_HOST'),
  (1, '', 'CpuCores', 1, '64');
CREATE TABLE TABLE_OF_TOMORROW (what TEXT, bytes BLOB, n INTEGER);
INSERT INTO TABLE_OF_TOMORROW VALUES ('SECRET_FUTURE', x'534543524554', 42);
"""


def make_export(path: Path, script: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.close()
    return path


@pytest.fixture
def private(tmp_path: Path) -> Path:
    return make_export(tmp_path / "private.sqlite", PRIVATE)


def rows(path: Path, query: str) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_no_private_text_is_left_in_the_bytes_of_the_file(private: Path, tmp_path: Path) -> None:
    before = hashlib.sha256(private.read_bytes()).hexdigest()
    assert b"SECRET" in private.read_bytes()
    target = tmp_path / "shared.sqlite"
    summary = scrub(private, target)
    data = target.read_bytes()
    assert b"SECRET" not in data
    assert b"/home" not in data
    assert b"example.org" not in data
    assert data.count(b"adalovelace") == 1  # `adalovelaces` is another word, and a range name
    assert summary.texts_removed > 0
    assert summary.names_redacted == 4
    assert hashlib.sha256(private.read_bytes()).hexdigest() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["private.sqlite", "shared.sqlite"]


def test_performance_names_and_all_numbers_are_kept(private: Path, tmp_path: Path) -> None:
    target = tmp_path / "shared.sqlite"
    scrub(private, target)
    kept = dict(rows(target, "SELECT id, value FROM StringIds"))
    assert kept[1] == "cudaLaunchKernel_v7000"
    assert kept[2] == "gemm_kernel"
    assert kept[5] == "pt_autograd_0"
    assert kept[6] == "scrubbed"  # a thread of a process that was not measured
    assert kept[7] == "libtorch_cuda.so"
    assert kept[8] == "torch::autograd::Engine"
    assert kept[10] == "/blocks.2/conv1/Conv"  # a layer, not a file
    numbers = 'SELECT start, "end", eventType, globalTid, textId FROM NVTX_EVENTS ORDER BY start'
    assert rows(target, numbers) == rows(private, numbers)
    assert rows(target, "SELECT n FROM TABLE_OF_TOMORROW") == [(42,)]
    assert rows(target, "SELECT name, value FROM META_DATA_EXPORT WHERE name LIKE '%VERSION'") == [
        ("EXPORT_PRODUCT_VERSION", "2025.1.3")
    ]
    assert rows(target, "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'CpuCores'") == [("64",)]
    assert rows(target, "SELECT name FROM PROCESSES WHERE pid = 77") == [("python3.12",)]


def test_two_ranges_named_after_two_files_stay_two(private: Path, tmp_path: Path) -> None:
    target = tmp_path / "shared.sqlite"
    scrub(private, target)
    names = [row[0] for row in rows(target, "SELECT text FROM NVTX_EVENTS WHERE text LIKE 'read%' ORDER BY start")]
    assert len(set(names)) == 2
    assert all(str(name).startswith("read scrubbed-path-") for name in names)


def test_refuses_to_overwrite_and_to_scrub_onto_itself(private: Path, tmp_path: Path) -> None:
    target = tmp_path / "there.sqlite"
    target.write_text("precious")
    with pytest.raises(UsageError, match="exists already"):
        scrub(private, target)
    assert target.read_text() == "precious"
    with pytest.raises(UsageError, match="itself"):
        scrub(private, private, force=True)
    scrub(private, target, force=True)
    assert target.read_bytes().startswith(b"SQLite format 3")


@pytest.mark.parametrize("content", [b"", b"not a database at all", b"SQLite format 3\x00" + b"\xff" * 400])
def test_what_is_no_export_is_refused_and_leaves_nothing(content: bytes, tmp_path: Path) -> None:
    source = tmp_path / "in.sqlite"
    source.write_bytes(content)
    with pytest.raises(TraceError, match=r"in\.sqlite"):
        scrub(source, tmp_path / "out.sqlite")
    assert [path.name for path in tmp_path.iterdir()] == ["in.sqlite"]


@every_year
def test_each_year_gives_somebody_away(year: Year) -> None:
    """Otherwise the next test would find nothing where there was nothing."""
    data = year.path.read_bytes()
    assert all(word.encode() in data for word in (MADE_UP if year.name > "2023.3" else MADE_UP[1:3]))


@every_export
def test_exports_lose_their_user_host_and_paths(export: Path, tmp_path: Path) -> None:
    target = tmp_path / export.name
    scrub(export, target)
    data = target.read_bytes()
    for word in (b"ocankur", b"jiajuns", b"ForFun", b"login03", b"/global/", b"/tmp/nvidia", b"LESSCLOSE", b"WSL_"):
        assert word not in data
    assert not any(word.encode() in data for word in MADE_UP)
    tables = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    assert rows(target, tables) == rows(export, tables)
    for (table,) in rows(export, tables):
        count = f'SELECT count(*) FROM "{table}"'
        assert rows(target, count) == rows(export, count)


def test_analyze_says_the_same_of_a_scrubbed_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, scrubbed = training(tmp_path / "t.sqlite", ranks=2), tmp_path / "scrubbed.sqlite"
    documents = []
    assert run(["scrub", str(trace), str(scrubbed)]) == 0
    assert "renamed 0 names" in capsys.readouterr().out
    for path in (trace, scrubbed):
        assert run(["analyze", str(path), "--json"]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]
    assert run(["scrub", str(trace), str(scrubbed)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_machines_of_one_job_stay_apart_without_their_names(tmp_path: Path) -> None:
    hosts: list[tuple[Any, ...]] = []
    for host in ("node1.example.org", "node2.example.org", "node1.example.org"):
        script = PRIVATE.replace("'Hostname', 619, 'SECRET_HOST'", f"'Hostname', 619, '{host}'")
        source = make_export(tmp_path / f"{len(hosts)}.sqlite", script)
        target = tmp_path / f"{len(hosts)}-scrubbed.sqlite"
        scrub(source, target)
        assert host.encode() not in target.read_bytes()
        hosts += rows(target, "SELECT value FROM TARGET_INFO_SYSTEM_ENV WHERE name = 'Hostname'")
    assert hosts[0] == hosts[2] != hosts[1]


def test_a_target_that_cannot_be_written_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = training(tmp_path / "t.sqlite")
    assert run(["scrub", str(trace), str(trace / "x.sqlite")]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert run(["scrub", str(tmp_path / "absent.sqlite"), str(trace), "--force"]) == 2
    assert "absent.sqlite does not exist" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["t.sqlite"]


def test_a_full_disk_is_said_of_the_copy_and_not_of_the_trace(tmp_path: Path) -> None:
    trace = training(tmp_path / "t.sqlite")
    # A limit on the size of files stands in for the full disk: SQLite's write fails in the same place.
    code = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192));"
        "from harness.cli.__main__ import run; sys.exit(run(sys.argv[1:]))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code, "scrub", str(trace), str(tmp_path / "copy.sqlite")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (out.returncode, out.stdout, out.stderr.count("\n")) == (2, "", 1)
    assert "copy.sqlite cannot be written" in out.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.sqlite"]
