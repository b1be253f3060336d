"""kineto's events become rows: a constructed CUDA trace in kineto's exact form, and a real one of CPU events.

No CUDA here: what a GPU writes is constructed after kineto's own source (`metadataJson` of each activity).
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.collectors import kineto
from harness.collectors.kineto_events import ChromeTrace, ClockMap, ClockReading, short_name, write_events
from harness.errors import UsageError
from harness.trace import model, schema
from harness.trace.reader import read_trace
from harness.trace.writer import TraceWriter

BASE_NS = 1_790_857_026_000_000_000
PTHREAD = 0x7F3A_1234_5678
PID, TID = 4321, 4_300_017


def x_event(category: str, name: str, start_ns: int, duration_ns: int, tid: int, args: dict[str, object]) -> str:
    """One complete event as kineto's ChromeTraceLogger prints it: microseconds with three decimals."""

    def microseconds(ns: int) -> str:
        return f"{ns // 1000}.{ns % 1000:03d}"

    return (
        f'\n  {{\n    "ph": "X", "cat": "{category}", "name": "{name}", "pid": {PID}, "tid": {tid},\n'
        f'    "ts": {microseconds(start_ns)}, "dur": {microseconds(duration_ns)},\n    "args": {json.dumps(args)}\n  }}'
    )


def gpu_args(correlation: int, **more: object) -> dict[str, object]:
    return {"External id": 7, "device": 1, "context": 1, "stream": 7, "correlation": correlation, **more}


def document(events: list[str], base_ns: int = BASE_NS) -> str:
    head = f'{{\n    "schemaVersion": 1,\n    "deviceProperties": [],\n    "baseTimeNanoseconds": {base_ns},\n'
    return head + '    "traceEvents": [' + ",".join(events) + '\n  ],"traceName": "/x.json" }'


KERNEL = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<4>, float>"
    "(at::native::TensorListMetadata<4>, float)"
)
CALLER = (PTHREAD & 0xFFFFFFFF) - (1 << 32) * ((PTHREAD & 0xFFFFFFFF) >> 31)  # kineto prints it as a signed int32
EVENTS = [
    '\n  {\n    "ph": "M", "name": "process_name", "ts": 0.000, "pid": 1, "tid": 0, "args": {"name": "python"}\n  }',
    x_event("cuda_runtime", "cudaMemcpyAsync", 1_001, 5_000, CALLER, {"cbid": 41, "correlation": 11}),
    x_event("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 3_500, 2_001, 7, gpu_args(11, bytes=4096)),
    x_event("cuda_runtime", "cudaLaunchKernel", 8_000, 900, CALLER, {"cbid": 211, "correlation": 12}),
    x_event(
        "kernel",
        KERNEL,
        9_000,
        777,
        7,
        gpu_args(12, **{"registers per thread": 32, "grid": [80, 2, 1], "block": [128, 1, 1]}),
    ),
    x_event("cuda_driver", "cuLaunchKernelEx", 10_000, 100, 99, {"correlation": 13}),
    x_event("gpu_memset", "Memset (Device)", 10_500, 50, 7, gpu_args(13, bytes=512)),
    x_event(
        "cuda_sync", "Stream Sync", 11_000, 400, 7, gpu_args(14, cuda_sync_kind="Stream Sync", wait_on_cuda_event_id=3)
    ),
    x_event("user_annotation", 'a "quoted" name', 11_500, 1, TID, {}),
    x_event("cpu_op", "aten::add", 12_000, 1, TID, {}),
    x_event("gpu_memcpy", "Memcpy DtoH (Device -> Pageable)", 12_000, 40, 7, gpu_args(15, bytes=2048)),
]


@pytest.fixture
def trace(tmp_path: Path) -> model.Trace:
    reading = ClockReading(utc_ns=BASE_NS, monotonic_ns=5_000_000)
    clock = ClockMap(first=reading, last=reading)
    with TraceWriter(
        tmp_path / "rank0.sqlite",
        collector="kineto",
        process_id=PID,
        process_name="python",
        session_start_utc_ns=BASE_NS - 5_000_000,
        system_clock_ns=0,
        rank=0,
    ) as writer:
        written = write_events(ChromeTrace(document(EVENTS)), writer, clock=clock, threads={PTHREAD & 0xFFFFFFFF: TID})
    assert (written.api_calls, written.kernels, written.memcpys, written.memsets, written.syncs) == (3, 1, 2, 1, 1)
    assert written.damaged == 1, "the annotation with a quote is no JSON; it alone is lost"
    return read_trace(tmp_path / "rank0.sqlite")


def test_operations_keep_times_bytes_and_kinds(trace: model.Trace) -> None:
    operations = trace.operations
    assert operations.kind.tolist() == [model.MEMCPY, model.KERNEL, model.MEMSET, model.MEMCPY]
    assert operations.start_ns.tolist() == [5_003_500, 5_009_000, 5_010_500, 5_012_000]
    assert (operations.end_ns - operations.start_ns).tolist() == [2_001, 777, 50, 40]
    assert operations.bytes.tolist() == [4096, 0, 512, 2048]
    copies = operations.kind == model.MEMCPY
    assert [schema.COPY_KINDS[kind] for kind in operations.copy_kind[copies].tolist()] == [
        "Host-to-Device",
        "Device-to-Host",
    ]
    assert [schema.MEMORY_KINDS[kind] for kind in operations.src_kind[copies].tolist()] == ["Pinned", "Device"]
    assert [schema.MEMORY_KINDS[kind] for kind in operations.dst_kind[copies].tolist()] == ["Device", "Pageable"]
    assert operations.correlation_id.tolist() == [11, 12, 13, 15]
    assert trace.strings[operations.name_id[1]] == KERNEL
    assert set(operations.device_id.tolist()) == {1}


def test_calls_are_on_the_thread_that_made_them_and_join_by_process(trace: model.Trace) -> None:
    assert [trace.strings[i] for i in trace.api.name_id] == ["cudaMemcpyAsync", "cudaLaunchKernel", "cuLaunchKernelEx"]
    assert trace.api.start_ns.tolist() == [5_001_001, 5_008_000, 5_010_000]
    known = schema.global_tid(PID, TID)
    assert trace.api.global_tid.tolist()[:2] == [known, known], "the signed pthread id was translated"
    assert trace.api.global_tid.tolist()[2] == schema.global_tid(PID, 99), "an unknown thread keeps CUPTI's number"
    assert set(trace.operations.global_pid.tolist()) == {schema.global_pid(PID)}


def test_synchronisations(trace: model.Trace) -> None:
    assert trace.syncs.sync_type.tolist() == [3]
    assert (trace.syncs.end_ns - trace.syncs.start_ns).tolist() == [400]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (KERNEL, "multi_tensor_apply_kernel"),
        ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", None),
        ("void (anonymous namespace)::softmax<float>(float*, int)", "softmax"),
        ("void f<a::b<c> >::operator()<int>(d::e)", "operator"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ncclDevKernel_AllGather_RING_LL"),
        ("<<<>>>", None),
    ],
)
def test_short_name(kernel: str, expected: str | None) -> None:
    assert short_name(kernel) == (expected or kernel)


def test_a_damaged_event_costs_only_itself_and_a_cut_file_ends() -> None:
    text = document(EVENTS)
    assert len(list(ChromeTrace(text))) == len(EVENTS) - 1
    cut = ChromeTrace(text[: text.index("Memcpy DtoH")])
    assert len(list(cut)) == len(EVENTS) - 2
    assert cut.damaged == 2
    assert list(ChromeTrace("{}")) == []


@given(
    first=st.integers(0, 10**18),
    span=st.integers(1, 10**13),
    offsets=st.tuples(st.integers(-(10**15), 10**15), st.integers(-(10**6), 10**6)),
    fraction=st.fractions(0, 1),
)
def test_the_clock_map_goes_through_both_readings_and_stays_between_them(
    first: int, span: int, offsets: tuple[int, int], fraction: Fraction
) -> None:
    a = ClockReading(utc_ns=first, monotonic_ns=first + offsets[0])
    b = ClockReading(utc_ns=first + span, monotonic_ns=first + span + offsets[0] + offsets[1])
    clock = ClockMap(first=a, last=b)
    assert clock.monotonic_ns(a.utc_ns) == a.monotonic_ns
    assert clock.monotonic_ns(b.utc_ns) == b.monotonic_ns
    at = first + int(fraction * span)
    low, high = sorted((offsets[0], offsets[0] + offsets[1]))
    assert low <= clock.monotonic_ns(at) - at <= high


def test_real_events_of_torch_land_where_the_monotonic_clock_saw_them(tmp_path: Path) -> None:
    """kineto's own file, CPU events: each annotation lies between two readings of the recorder's clock."""
    torch = pytest.importorskip("torch")
    profiler_module = pytest.importorskip("torch.profiler.profiler")
    profiler = profiler_module._KinetoProfile(activities=[torch.profiler.ProfilerActivity.CPU])
    profiler.prepare_trace()
    first = ClockReading.take()
    profiler.start_trace()
    brackets = []
    for number in range(3):
        before = time.perf_counter_ns()
        with torch.profiler.record_function(f"probe{number}"):
            time.sleep(0.002)
        brackets.append((before, time.perf_counter_ns()))
        time.sleep(0.02)
    profiler.stop_trace()
    clock = ClockMap(first=first, last=ClockReading.take())
    path = tmp_path / "chrome.json"
    profiler.export_chrome_trace(str(path))
    trace = ChromeTrace(path.read_text())
    found = {event["name"]: event for event in trace if event.get("cat") == "user_annotation"}
    for number, (before, after) in enumerate(brackets):
        event = found[f"probe{number}"]
        start = clock.monotonic_ns(trace.base_time_ns + round(Decimal(event["ts"]) * 1000))
        end = start + round(Decimal(event["dur"]) * 1000)
        # 10 ms is far more than the clocks disagree by and far less than a wrong offset would show.
        assert before - 10_000_000 <= start < end <= after + 10_000_000


def test_without_cuda_a_rank_records_its_ranges(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from harness.collectors.kineto import start_rank\n"
        "rank = start_rank(pathlib.Path(sys.argv[1]), 3)\n"
        "import nvtx\n"
        "rank.begin_capture()\n"
        "with nvtx.annotate('step', domain='stepduel'): pass\n"
        "rank.end_capture(); rank.flush()\n"
        "print(rank.close()[0])\n"
    )
    path = tmp_path / "rank3.sqlite"
    env = {"PATH": "", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    run = subprocess.run([sys.executable, "-c", code, path], env=env, capture_output=True, text=True, check=True)
    assert run.stdout.strip() == str(path)
    trace = read_trace(path)
    assert (trace.info.collector, trace.ranks) == ("kineto", (3,))
    assert [trace.strings[i] for i in trace.ranges.name_id] == ["step"]
    assert len(trace.operations) == 0
    assert sorted(tmp_path.iterdir()) == [path], "no profiler file is left"


def test_the_rank_side_needs_only_the_standard_library_nvtx_and_torch() -> None:
    code = "import sys, harness.collectors.kineto; print(*{m.split('.')[0] for m in sys.modules})"
    root = Path(__file__).resolve().parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    heavy = {"torch", "pandas", "pyarrow", "click", "rich", "psutil", "sqlite_utils"}
    assert not heavy & set(run.stdout.split())


def test_thread_ids_knows_this_thread() -> None:
    assert kineto.thread_ids()[threading.get_ident() & 0xFFFFFFFF] == threading.get_native_id()


def test_refuses_to_run_inside_another_profiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = {"NSYS_PROFILING_SESSION_ID": "1"}
    collector = kineto.Kineto(env=env, device_folder=tmp_path)
    assert not collector.available().ok
    assert "Nsight Systems" in collector.available().reason
    with pytest.raises(UsageError, match="NSYS_PROFILING_SESSION_ID"):
        collector.wrap(["true"], {}, tmp_path)
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    with pytest.raises(UsageError, match="only one profiler"):
        kineto.start_rank(tmp_path / "rank0.sqlite", 0)
    assert list(tmp_path.iterdir()) == []


def test_sees_a_device_by_its_file(tmp_path: Path) -> None:
    def reason(**env: str) -> str:
        return kineto.Kineto(env=env, device_folder=tmp_path).available().reason

    (tmp_path / "nvidiactl").touch()
    assert reason().startswith("no CUDA device")
    (tmp_path / "nvidia0").touch()
    assert reason() == "CUDA device found"
    assert reason(CUDA_VISIBLE_DEVICES="").startswith("no CUDA device")
