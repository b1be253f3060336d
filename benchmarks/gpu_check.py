"""What gpu_check.sh runs: every offload combination of `fsdp2_lora_*` on CUDA, and what has to hold for its trace.

- Losses: moving tensors about changes no number. The combinations must agree with `no_offload`: to 1e-5 relative, as
  GPU kernels may add up in another order, and to 1e-2 for FSDP2's CPUOffloadPolicy, whose optimizer runs on the CPU.
- Bytes: what a load or an offload says it moved equals the bytes of the parameters or of the optimizer's state, and
  equals the bytes of the copies that CUPTI saw inside its range.
- GPU time: busy time of a step lies within the step; a range's projected time within that of its parent; the
  process-wide rule covers nearly all GPU time, and never less than the same-thread rule.

Everything comes from `stepduel bench --json` and `stepduel analyze --json`, as a user's own script would take it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REPORTS = ROOT / "reports"
TIME_LIMIT_S = 450.0
STEPS = 5
BASE = "fsdp2_lora_no_offload"
LOSS_TOLERANCE = {
    BASE: 0.0,
    "fsdp2_lora_param_offload": 1e-5,
    "fsdp2_lora_optimizer_offload": 1e-5,
    "fsdp2_lora_param_optimizer_offload": 1e-5,
    "fsdp2_lora_cpu_offload_policy": 1e-2,
}
MOVES = {  # range: (bytes of copies in its direction, key of the engine's description)
    "step/train_mode_enter/load_fsdp_model_to_gpu": ("h2d_bytes", "parameter_bytes"),
    "step/train_mode_enter/load_fsdp_optimizer": ("h2d_bytes", "optimizer_state_bytes"),
    "step/train_mode_exit/offload_fsdp_model_to_cpu": ("d2h_bytes", "parameter_bytes"),
    "step/train_mode_exit/offload_fsdp_optimizer": ("d2h_bytes", "optimizer_state_bytes"),
}
EXPECTED_MOVES = {
    BASE: [],
    "fsdp2_lora_param_offload": [path for path in MOVES if "model" in path],
    "fsdp2_lora_optimizer_offload": [path for path in MOVES if "optimizer" in path],
    "fsdp2_lora_param_optimizer_offload": list(MOVES),
    "fsdp2_lora_cpu_offload_policy": [],
}
BYTES_TOLERANCE = 1e-3
"""Buffers and a scalar here and there are no parameters."""
MINIMUM_COVERAGE = 0.95

Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing that had to hold, and what was seen."""

    scenario: str
    name: str
    ok: bool
    seen: str


def check_losses(scenario: str, bench: Document, base: Document) -> Check:
    """Largest relative difference of two losses of the same step."""
    pairs = zip(bench["losses"], base["losses"], strict=False)
    differences = [abs(a - b) / max(abs(b), 1e-12) for a, b in pairs]
    same_length = 0 < len(bench["losses"]) == len(base["losses"])
    ok = same_length and all(difference <= LOSS_TOLERANCE[scenario] for difference in differences)  # no NaN passes
    seen = f"{len(differences)} steps, largest relative difference {max(differences, default=0.0):.1e}"
    return Check(scenario=scenario, name="losses match no_offload", ok=ok, seen=seen)


def check_moves(scenario: str, bench: Document, analysis: Document) -> list[Check]:
    """Bytes that each probe counted, bytes that CUPTI saw in its range, and bytes that the engine says it has."""
    counted = {row["path"]: row.get("moved_bytes_per_step") or 0.0 for row in bench["ranges"]}
    seen_rows = {path: row for row in analysis["ranges"] for path in MOVES if _is_path(row["path"], path)}
    description = bench["run"]["engine"]
    checks = []
    for path, (direction, size_key) in MOVES.items():
        name = path.rpartition("/")[2]
        moved = counted.get(path, 0.0)
        if path not in EXPECTED_MOVES[scenario]:
            checks.append(
                Check(scenario=scenario, name=f"{name} moves nothing", ok=moved == 0, seen=f"{moved:,.0f} bytes")
            )
            continue
        row = seen_rows.get(path)
        copied = row[direction] / row["calls"] if row and row["calls"] else 0.0
        ok = moved > 0 and _close(copied, moved)
        seen = f"counted {moved:,.0f}, copied {copied:,.0f} bytes a call"
        ok = ok and _close(moved, float(description[size_key]))
        seen += f", {size_key} {description[size_key]:,}"
        checks.append(Check(scenario=scenario, name=f"{name} moves {size_key}", ok=ok, seen=seen))
    return checks


def check_gpu_time(scenario: str, analysis: Document) -> list[Check]:
    """Busy time within steps, projected time within parents, and coverage."""
    steps = analysis["steps"]
    shares = [step["gpu_busy_ns"] / step["duration_ns"] for step in steps]
    seen = f"{len(steps)} steps, busy {min(shares):.0%} to {max(shares):.0%}" if shares else "no steps"
    checks = [
        Check(
            scenario=scenario,
            name="GPU busy time lies within the step",
            ok=bool(shares) and min(shares) > 0 and max(shares) <= 1.01,
            seen=seen,
        )
    ]
    gpu_ns = {row["path"]: row["gpu_ns"] for row in analysis["ranges"]}
    outside = [path for path, ns in gpu_ns.items() if ns > gpu_ns.get(path.rpartition("/")[0], ns) * 1.001]
    checks.append(
        Check(
            scenario=scenario,
            name="projected GPU time lies within the parent's",
            ok=bool(gpu_ns) and max(gpu_ns.values()) > 0 and not outside,
            seen=f"{len(gpu_ns)} ranges" + (f", not {outside[0]}" if outside else ""),
        )
    )
    thread, process = analysis["coverage"]["thread"], analysis["coverage"]["process"]
    checks.append(
        Check(
            scenario=scenario,
            name=f"process coverage ≥ {MINIMUM_COVERAGE:.0%} and ≥ thread coverage",
            ok=process >= MINIMUM_COVERAGE and process >= thread - 1e-9,
            seen=f"process {process:.1%}, thread {thread:.1%}",
        )
    )
    return checks


def check_all(results: Mapping[str, tuple[Document, Document]]) -> list[Check]:
    """Every check, by scenario. `results` holds the documents of `bench` and of `analyze` of its trace."""
    base = results[BASE][0]
    checks = []
    for scenario, (bench, analysis) in results.items():
        cuda = "cuda" in str(bench["run"]["device"]).lower()
        checks.append(Check(scenario=scenario, name="ran on CUDA", ok=cuda, seen=str(bench["run"]["device"])))
        checks.append(check_losses(scenario, bench, base))
        checks.extend(check_moves(scenario, bench, analysis))
        checks.extend(check_gpu_time(scenario, analysis))
    return checks


def table(results: Mapping[str, tuple[Document, Document]]) -> str:
    """One line a scenario: where the step went and what was copied. Plain text for a log."""
    head = (
        "scenario",
        "step ms",
        "enter ms",
        "exit ms",
        "GPU busy",
        "H2D MB/step",
        "D2H MB/step",
        "GB/s H2D",
        "coverage",
    )
    rows = [head]
    for scenario, (bench, analysis) in results.items():
        median = {row["path"]: row["median_ns"] / 1e6 for row in bench["ranges"]}
        steps = max(len(analysis["steps"]), 1)
        busy = sum(step["gpu_busy_ns"] for step in analysis["steps"])
        whole = sum(step["duration_ns"] for step in analysis["steps"]) or 1
        copies = {copy["kind"]: copy for copy in analysis["copies"]}
        h2d, d2h = (_copy(copies, kind) for kind in ("Host-to-Device", "Device-to-Host"))
        rows.append(
            (
                scenario.removeprefix("fsdp2_lora_"),
                f"{median.get('step', 0.0):.1f}",
                f"{median.get('step/train_mode_enter', 0.0):.2f}",
                f"{median.get('step/train_mode_exit', 0.0):.2f}",
                f"{busy / whole:.0%}",
                f"{h2d['bytes'] / steps / 1e6:.2f}",
                f"{d2h['bytes'] / steps / 1e6:.2f}",
                f"{h2d['bytes'] / h2d['total_ns']:.1f}" if h2d["total_ns"] else "-",
                f"{analysis['coverage']['process']:.1%}",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    )


def _copy(copies: Mapping[str, Document], kind: str) -> Document:
    return copies.get(kind, {"bytes": 0, "total_ns": 0})


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= BYTES_TOLERANCE * max(abs(a), abs(b))


def _is_path(path: str, wanted: str) -> bool:
    """`wanted` begins with `step`; a trace may hold a range around it."""
    return path == wanted or path.endswith("/" + wanted)


def stepduel(arguments: Sequence[str], deadline: float) -> tuple[int, dict[str, Any]]:
    """Run a stepduel command with `--json`; return its exit code and document, {} when it printed none."""
    command = [sys.executable, "-m", "harness.cli", *arguments, "--json"]
    left_s = max(deadline - time.monotonic(), 1.0)
    run = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=left_s, check=False)
    try:
        document = json.loads(run.stdout)
    except ValueError:
        document = {}
    return run.returncode, document


def has_cuda() -> bool:
    """Whether torch sees a CUDA device; asked in a process of its own, whose context is gone afterwards."""
    code = "import sys, torch; sys.exit(0 if torch.cuda.is_available() else 1)"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=1, help="processes, each on a GPU of its own")
    parser.add_argument("--collector", choices=["auto", "nsys", "kineto"], default="auto")
    options = parser.parse_args(arguments)
    if not has_cuda():
        print("gpu_check: torch sees no CUDA device here; run this on a machine that has one", file=sys.stderr)
        return 2
    deadline = time.monotonic() + TIME_LIMIT_S
    results: dict[str, tuple[Document, Document]] = {}
    for scenario in LOSS_TOLERANCE:
        started = time.monotonic()
        how = ["--steps", str(STEPS), "--ranks", str(options.ranks), "--collector", options.collector]
        how += ["--reports", str(REPORTS)]
        try:
            code, bench = stepduel(["bench", scenario, *how], deadline)
            run = bench.get("run", {})
            if code or run.get("status") != "completed":
                print(f"{scenario}: bench ended with {code}: {run.get('reason')}", file=sys.stderr)
                return 4
            code, analysis = stepduel(["analyze", bench["trace"]], deadline)
        except subprocess.TimeoutExpired:
            print(f"{scenario}: over the {TIME_LIMIT_S:.0f} s of the whole check", file=sys.stderr)
            return 4
        if code:
            print(f"{scenario}: analyze ended with {code}", file=sys.stderr)
            return 4
        results[scenario] = (bench, analysis)
        print(f"{scenario}: {run['collector']}, {time.monotonic() - started:.0f} s", file=sys.stderr)
    checks = check_all(results)
    print(table(results))
    print()
    for check in checks:
        verdict, scenario = "ok  " if check.ok else "FAIL", check.scenario.removeprefix("fsdp2_lora_")
        print(f"{verdict}  {scenario}: {check.name}: {check.seen}")
    failed = sum(not check.ok for check in checks)
    print(f"\n{len(checks) - failed} of {len(checks)} checks hold")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
