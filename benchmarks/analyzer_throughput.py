"""How long `stepduel analyze` takes on a large trace, beside two yardsticks on the same file.

Makes a trace of two ranks whose correlation ids collide (0.3 million ranges, 1.2 million kernels and as many launches
by default), then runs, each in a process of its own:

- the floor: reading the columns that the analysis needs out of the file, and nothing else;
- `stepduel analyze TRACE --json`, end to end;
- with `--peer`, nsys-ai's `nvtx_kernel_map` (a peer that maps kernels to ranges and does no more), first on a fresh
  copy of the file and then again, since it leaves indexes or a cache behind;
- the floor and `stepduel analyze` on a trace of twice the size.

CPU seconds (user and system, all threads) are what counts; wall time is shown, and depends on who else is on the
machine. Of several repetitions the least is taken. The peer is not a dependency; make it an environment of its own:

    python -m venv peer
    peer/bin/pip install nsys-ai==0.3.0 duckdb==1.5.5
    peer/bin/pip install duckdb-extensions==1.5.5 duckdb-extension-sqlite-scanner==1.5.5
    peer/bin/python -c "import duckdb_extensions as d; d.import_extension('sqlite_scanner')"
    python benchmarks/analyzer_throughput.py --peer peer/bin/nsys-ai

Without the last two packages its DuckDB has no way into SQLite files offline, and it falls back to plain SQLite.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from harness.trace import schema
from harness.trace.writer import TraceWriter

RANKS: Final = 2
RANGES_PER_STEP: Final = 1_500
KERNELS_PER_STEP: Final = 6_000
KERNEL_NAMES: Final = 200
LAUNCH_EVERY_NS: Final = 2_000

FLOOR: Final = """
import sys
import adbc_driver_manager, adbc_driver_sqlite, pyarrow
database = adbc_driver_sqlite.connect(f"file:{sys.argv[1]}?mode=ro")
connection = adbc_driver_manager.AdbcConnection(database)
for columns, table in (
    ("start, end, correlationId, globalPid, demangledName", "CUPTI_ACTIVITY_KIND_KERNEL"),
    ("start, end, globalTid, correlationId, nameId", "CUPTI_ACTIVITY_KIND_RUNTIME WHERE eventClass != 67"),
    ("start, end, eventType, domainId, globalTid, endGlobalTid, textId, int64Value, text", "NVTX_EVENTS"),
):
    with adbc_driver_manager.AdbcStatement(connection) as query:
        query.set_options(**{"adbc.sqlite.query.batch_rows": "65536"})
        query.set_sql_query(f"SELECT {columns} FROM {table}")
        stream, _ = query.execute_query()
        pyarrow.RecordBatchReader.from_stream(stream).read_all()
"""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What one process took."""

    cpu_s: float
    wall_s: float
    peak_bytes: int


def write_trace(path: Path, steps: int) -> None:
    """Write `steps` steps of each rank: a tree of ranges on the main thread, the backward half on a second one."""
    random = np.random.default_rng(0)
    with TraceWriter(
        path,
        collector="nsys",
        process_id=5_000_000,
        process_name="python",
        session_start_utc_ns=10**18,
        system_clock_ns=0,
    ) as writer:
        names = writer.string_ids(f"void at::native::kernel_{i}<float, {i}>(int)" for i in range(KERNEL_NAMES))
        launch = writer.string_id("cudaLaunchKernel_v7000")
        for rank in range(RANKS):
            start_ns = 1_000
            for step in range(steps):
                kernel_names = random.choice(names, KERNELS_PER_STEP).tolist()
                start_ns = _write_step(writer, rank, step, start_ns, kernel_names, launch)


def _write_step(writer: TraceWriter, rank: int, step: int, start_ns: int, names: list[int], launch: int) -> int:
    pid = 5_000_000 + 7 * rank
    main, autograd = schema.global_tid(pid, pid), schema.global_tid(pid, pid + 3)
    duration_ns = LAUNCH_EVERY_NS * KERNELS_PER_STEP + 1_000
    end_ns, middle_ns = start_ns + duration_ns, start_ns + duration_ns // 2
    push_pop = schema.NVTX_PUSH_POP
    rows: list[tuple[object, ...]] = [
        (start_ns, end_ns, push_pop, f"training_step_{step}", main, None, 0, None),
        (start_ns + 1, middle_ns, push_pop, "forward", main, None, 0, None),
        (middle_ns + 1, end_ns - 1, push_pop, "backward", main, None, 0, None),
    ]
    leaves = RANGES_PER_STEP - len(rows)
    pitch_ns = (duration_ns - 100) // leaves
    for leaf in range(leaves):
        begin_ns = start_ns + 50 + leaf * pitch_ns
        forward = leaf < leaves // 2
        ended_ns = begin_ns + pitch_ns - 10
        # A quarter of the names are unique, as emit_nvtx makes them.
        name = f"layer_{leaf % 48}" if leaf % 4 else f"aten::op_{leaf % 40}, op_id = {step * leaves + leaf}"
        last_ns = min(ended_ns, middle_ns - 1) if forward else ended_ns
        rows.append((begin_ns, last_ns, push_pop, name, main if forward else autograd, None, 0, None))
    writer.add_ranges(rows)
    calls: list[tuple[object, ...]] = []
    kernels: list[tuple[object, ...]] = []
    for number, name_id in enumerate(names):
        called_ns = start_ns + 100 + number * LAUNCH_EVERY_NS
        correlation = 1 + step * KERNELS_PER_STEP + number  # the same ids in both ranks
        tid = main if called_ns < middle_ns else autograd
        calls.append((called_ns, called_ns + 1_500, schema.CLASS_RUNTIME_API, tid, correlation, launch))
        ran_ns = called_ns + 5_000
        where = (rank, 1, 7, correlation, schema.global_pid(pid))
        kernels.append((ran_ns, ran_ns + 1_800, *where, name_id, name_id, 32, 1, 1, 1, 128, 1, 1))
    writer.add_api_calls(calls)
    writer.add_kernels(kernels)
    return end_ns + 5_000


def measure(command: Sequence[str | Path], repeat: int, folder: Path) -> Cost:
    """The least of `repeat` runs of `command`."""
    costs = []
    for _ in range(repeat):
        began = time.perf_counter()
        child = subprocess.Popen([*map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder)
        assert child.stderr is not None
        complaint = child.stderr.read().decode(errors="replace")
        child.stderr.close()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            sys.exit(f"{command[0]} ended with {child.returncode}: {complaint}")
        costs.append(
            Cost(
                cpu_s=usage.ru_utime + usage.ru_stime,
                wall_s=time.perf_counter() - began,
                peak_bytes=usage.ru_maxrss * 1024,
            )
        )
    return Cost(
        cpu_s=min(cost.cpu_s for cost in costs),
        wall_s=min(cost.wall_s for cost in costs),
        peak_bytes=max(cost.peak_bytes for cost in costs),
    )


def show(name: str, cost: Cost, base: Cost | None = None) -> None:
    ratio = f"{cost.cpu_s / base.cpu_s:8.2f}" if base is not None else " " * 8
    print(f"{name:<44}{cost.cpu_s:9.2f}{cost.wall_s:9.2f}{ratio}{cost.peak_bytes / 1e6:10.0f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time `stepduel analyze` on a large trace.")
    parser.add_argument("--steps", type=int, default=100, help="per rank; 3,000 ranges and 12,000 kernels each")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each measurement; the least counts")
    parser.add_argument("--peer", type=Path, help="the nsys-ai executable of an environment of its own")
    parser.add_argument("--no-double", action="store_true", help="leave out the trace of twice the size")
    options = parser.parse_args()
    stepduel = [sys.executable, "-m", "harness.cli", "analyze", "--json"]
    with tempfile.TemporaryDirectory(prefix="analyzer-throughput-") as name:
        folder = Path(name)
        os.environ["PYTHONPATH"] = str(Path(__file__).resolve().parent.parent)
        # Compiled modules are kept, as those of an installed package are.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        trace = folder / "trace.sqlite"
        write_trace(trace, options.steps)
        ranges, kernels = (RANKS * options.steps * one for one in (RANGES_PER_STEP, KERNELS_PER_STEP))
        print(f"{ranges:,} ranges, {kernels:,} kernels and launches, {trace.stat().st_size / 1e6:.0f} MB on disk\n")
        print(f"{'':<44}{'CPU s':>9}{'wall s':>9}{'x floor':>8}{'peak MB':>10}")
        floor = measure([sys.executable, "-c", FLOOR, trace], options.repeat, folder)
        show("floor: read the needed columns", floor)
        analyzed = measure([*stepduel, trace], options.repeat, folder)
        show("stepduel analyze", analyzed, floor)
        if options.peer is not None:
            copy = folder / "peer.sqlite"
            shutil.copyfile(trace, copy)
            peer = [options.peer.absolute(), "skill", "run", "nvtx_kernel_map", copy, "--format", "json"]
            first = measure(peer, 1, folder)
            show("nsys-ai nvtx_kernel_map, first look", first, floor)
            show("nsys-ai nvtx_kernel_map, again", measure(peer, 1, folder), floor)
            print(f"\nCPU of nsys-ai's first look over that of stepduel analyze: {first.cpu_s / analyzed.cpu_s:.1f}")
        if not options.no_double:
            twice = folder / "twice.sqlite"
            write_trace(twice, 2 * options.steps)
            doubled_floor = measure([sys.executable, "-c", FLOOR, twice], options.repeat, folder)
            show("floor, twice the trace", doubled_floor)
            doubled = measure([*stepduel, twice], options.repeat, folder)
            show("stepduel analyze, twice the trace", doubled, doubled_floor)
            ratios = (cost.cpu_s / one.cpu_s for cost, one in ((doubled_floor, floor), (doubled, analyzed)))
            print("\nCPU of twice the trace over that of one: floor {:.2f}, analyze {:.2f}".format(*ratios))


if __name__ == "__main__":
    main()
