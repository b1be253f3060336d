"""A stand-in for NVIDIA's `nsys`: takes the same arguments, runs the program, and leaves what nsys leaves.

It is strict where nsys is: an option or a value that the user guide does not list is refused, as is an option given as
two words. Ranges come from the recorder, which `inject/sitecustomize.py` starts in every Python process below it; they
are cut to the capture range as nsys cuts them: from the first `RANGE@DOMAIN` that any process opens to the moment that
same range is closed. A name that is no registered string starts no capture unless NSYS_NVTX_PROFILER_REGISTER_ONLY=0.
Its report is a zip of the recorder's files, which only its own `export` can turn into SQLite, as with the real one.

NSYS_DOUBLE names a way to fail; each is one that users have reported:

    crash_at_start   dies before it starts the program
    crash_at_end     the program ends well, nsys dies of a signal and leaves nothing
    hang_at_exit     never ends after the program did, and ignores SIGTERM
    qdstrm_only      leaves only the raw `.qdstrm`: the importer failed
    no_report        ends well and leaves nothing
    empty_report     a report of 0 bytes
    empty_export     the export has none of the program's ranges
    export_fails, export_hangs   `nsys export` fails, or never ends
    old_version, garbage_version, silent_version, hang_version   what `--version` does

What cannot be checked with it: that NVIDIA's nsys really does what its user guide says.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

MODE = os.environ.get("NSYS_DOUBLE", "")
VERSION = {"old_version": "2021.3.2.4-027534f", "garbage_version": "of the future"}.get(
    MODE, "2025.1.3.140-251335620677v0"
)
INJECT = Path(__file__).resolve().parent / "inject"
PROFILE_CHOICES = {
    "--sample": {"process-tree", "system-wide", "none"},
    "--cpuctxsw": {"process-tree", "system-wide", "none"},
    "--capture-range": {"none", "cudaProfilerApi", "hotkey", "nvtx"},
    "--capture-range-end": {"none", "stop", "stop-shutdown", "repeat", "repeat-shutdown"},
    "--cuda-graph-trace": {"graph", "node"},
    "--wait": {"primary", "all"},
    "--kill": {"none", "sigkill", "sigterm"},
    "--force-overwrite": {"true", "false"},
    "--nvtx-capture": None,
    "--env-var": None,
    "--output": None,
    "--trace": None,
}
TRACES = {"cuda", "nvtx", "osrt", "cudnn", "cublas", "cublas-verbose", "cusolver", "mpi", "ucx", "openacc", "none"}


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        return print_version()
    if arguments[:1] == ["profile"]:
        return profile(arguments[1:])
    if arguments[:1] == ["export"]:
        return export(arguments[1:])
    return refuse(f"unrecognised command {arguments[:1]}")


def print_version() -> int:
    if MODE == "hang_version":
        hang()
    if MODE != "silent_version":
        print(f"NVIDIA Nsight Systems version {VERSION}")
    return 0


def refuse(message: str) -> int:
    print(f"{message}\n\nusage: nsys [--version] [--help] <command> [<args>] [application] [<application args>]")
    return 1


def options_and_rest(arguments: list[str], known: dict[str, set[str] | None]) -> tuple[dict[str, str], list[str]]:
    """`--name=value` options up to the first argument that is none; exits as nsys does for what it does not know."""
    options: dict[str, str] = {}
    for index, argument in enumerate(arguments):
        if not argument.startswith("-"):
            return options, arguments[index:]
        name, equals, value = argument.partition("=")
        if name not in known or not equals or not value:
            sys.exit(refuse(f"unrecognised option '{argument}'"))
        allowed = known[name]
        if allowed is not None and value not in allowed:
            sys.exit(refuse(f"the argument ('{value}') for option '{name}' is invalid"))
        options[name] = value
    return options, []


def profile(arguments: list[str]) -> int:
    options, application = options_and_rest(arguments, PROFILE_CHOICES)
    if not application:
        return refuse("no application to profile")
    if unknown := set(options.get("--trace", "cuda,opengl,nvtx,osrt").split(",")) - TRACES - {"opengl"}:
        return refuse(f"the argument ('{unknown.pop()}') for option '--trace' is invalid")
    if MODE == "crash_at_start":
        print("FATAL ERROR: /build/agents/QuadD/Common: RuntimeException", file=sys.stderr, flush=True)
        os.abort()
    with tempfile.TemporaryDirectory(prefix="nsys-double-") as folder:
        records = Path(folder)
        code = run_application(application, options, records)
        return write_report(options, records, code)


def run_application(application: list[str], options: dict[str, str], records: Path) -> int:
    env = dict(os.environ)
    for pair in filter(None, options.get("--env-var", "").split(",")):
        name, _, value = pair.partition("=")
        env[name] = value
    env["NSYS_PROFILING_SESSION_ID"] = str(os.getpid())
    env["NSYS_DOUBLE_RECORDS"] = str(records)
    env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(INJECT), env.get("PYTHONPATH", "")]))
    print("Collecting data...", flush=True)
    child = subprocess.Popen(application, env=env)
    signal.signal(signal.SIGTERM, lambda *_: child.terminate())
    return child.wait()


def write_report(options: dict[str, str], records: Path, code: int) -> int:
    output = Path(options["--output"].replace("%%", "%"))
    report = output.with_name(output.name + ".nsys-rep")
    raw = Path(tempfile.gettempdir()) / f"nsys-report-{os.getpid():x}.qdstrm"
    if MODE == "hang_at_exit":
        print(f"Generating '{raw}'", flush=True)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        hang()
    if MODE == "crash_at_end":
        print("The target application terminated. Sending SIGSEGV to the agent.", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    window = capture_window(options, records)
    if MODE == "no_report" or window is None:
        print("Processing events...\nNo reports were generated.", flush=True)
        return code
    print(f"Capture range started in the application.\nGenerating '{raw}'", flush=True)
    if MODE == "qdstrm_only":
        raw = output.with_suffix(".qdstrm")
        raw.write_bytes(b"raw")
        print(f"Importer error status: Importation failed.\nGenerated:\n    {raw}", flush=True)
        return code
    if report.exists() and options.get("--force-overwrite") != "true":
        return refuse(f"File {report} already exists. Use --force-overwrite")
    if MODE == "empty_report":
        report.touch()
    else:
        with zipfile.ZipFile(report, "w") as archive:
            archive.writestr("window.json", json.dumps(window))
            for path in sorted(records.glob("*.sqlite")):
                archive.write(path, path.name)
    print(f"Generated:\n    {report}", flush=True)
    return code


def hang() -> None:
    while True:
        time.sleep(60)


def absolute_ns(connection: sqlite3.Connection) -> int:
    """CLOCK_MONOTONIC at the file's time 0, so that files of one machine line up."""
    (zero,) = connection.execute("SELECT systemClockNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
    return int(zero)


def capture_window(options: dict[str, str], records: Path) -> tuple[int, int] | None:
    """Start and end of the capture on CLOCK_MONOTONIC; None where nothing started it, as nsys then writes no report."""
    if options.get("--capture-range", "none") != "nvtx":
        return (0, 2**62)
    name, _, domain = options["--nvtx-capture"].partition("@")
    if "NSYS_NVTX_PROFILER_REGISTER_ONLY=0" not in options.get("--env-var", "").split(","):
        return None
    opened = []
    for path in records.glob("*.sqlite"):
        with sqlite3.connect(path) as connection:
            zero = absolute_ns(connection)
            rows = connection.execute(
                "SELECT r.start, r.end FROM NVTX_EVENTS r JOIN NVTX_EVENTS d ON d.eventType = 75"
                " AND d.domainId = r.domainId WHERE r.text = ? AND d.text = ? AND r.eventType IN (59, 60)",
                (name, domain),
            )
            opened += [(start + zero, 2**62 if end is None else end + zero) for start, end in rows]
    if not opened:
        return None
    first = min(opened)
    return first if options.get("--capture-range-end") == "stop" else (first[0], 2**62)


def export(arguments: list[str]) -> int:
    known: dict[str, set[str] | None] = {
        "--type": {"sqlite", "hdf", "text", "jsonlines", "info"},
        "--force-overwrite": {"true", "false"},
        "--lazy": {"true", "false"},
        "--output": None,
    }
    options, rest = options_and_rest(arguments, known)
    if len(rest) != 1:
        return refuse("export takes one report")
    target = Path(options["--output"])
    if MODE == "export_hangs":
        hang()
    if MODE == "export_fails" or not zipfile.is_zipfile(rest[0]):
        target.write_bytes(b"SQLite format 3\0 half")
        print(f"Processing events: \nERROR: {rest[0]}: file could not be opened or is not a valid report.")
        return 1
    target.unlink(missing_ok=True)
    with zipfile.ZipFile(rest[0]) as archive, tempfile.TemporaryDirectory() as folder:
        archive.extractall(folder)
        write_export(Path(folder), target)
    print(f"Processing events: \r[100%] {target.name}")
    return 0


def write_export(folder: Path, target: Path) -> None:
    """One SQLite file from the recorder's files: their rows inside the window, on one clock, domain ids kept apart.

    As in nsys' exports no CUPTI table is there without a row, the session starts with the capture, and rows are in no
    order.
    """
    start, end = json.loads((folder / "window.json").read_text())
    with sqlite3.connect(target) as out:
        out.execute("CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)")
        out.execute("CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)")
        out.execute("CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT)")
        out.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT)")
        version = VERSION.split("-")[0]
        meta = [("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"), ("EXPORT_PRODUCT_VERSION", version)]
        out.executemany("INSERT INTO META_DATA_EXPORT VALUES (?, ?)", [*meta, ("EXPORT_SCHEMA_VERSION", "3.17.2")])
        for number, path in enumerate(sorted(folder.glob("*.sqlite"))):
            copy_process(path, out, (start, end), domain_offset=number * 1000, first=number == 0)


def copy_process(
    path: Path, out: sqlite3.Connection, window: tuple[int, int], *, domain_offset: int, first: bool
) -> None:
    with sqlite3.connect(path) as source:
        zero = absolute_ns(source)
        if first:
            (utc,) = source.execute("SELECT utcEpochNs FROM TARGET_INFO_SESSION_START_TIME").fetchone()
            out.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '')", (utc + window[0] - zero,))
            (ddl,) = source.execute("SELECT sql FROM sqlite_master WHERE name = 'NVTX_EVENTS'").fetchone()
            out.execute(ddl)
        out.executemany("INSERT INTO PROCESSES VALUES (?, ?, ?)", source.execute("SELECT * FROM PROCESSES"))
        if MODE == "empty_export":
            return
        cursor = source.execute("SELECT * FROM NVTX_EVENTS ORDER BY random()")
        columns = [column[0] for column in cursor.description]
        for values in cursor:
            row = dict(zip(columns, values, strict=True))
            if row["domainId"]:
                row["domainId"] += domain_offset
            if row["eventType"] != 75:
                begin = row["start"] + zero
                if not window[0] <= begin <= window[1]:
                    continue
                row["start"] = begin - window[0]
                if row["end"] is not None:
                    closed = row["end"] + zero
                    row["end"] = closed - window[0] if closed <= window[1] else None
            marks = ", ".join("?" * len(columns))
            out.execute(f"INSERT INTO NVTX_EVENTS VALUES ({marks})", list(row.values()))


if __name__ == "__main__":
    sys.exit(main())
