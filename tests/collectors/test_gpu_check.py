"""The judgement of benchmarks/gpu_check.py on made-up documents: it must pass a sound run and name what is wrong.

What it runs needs CUDA and is not run here.
"""

from __future__ import annotations

import copy
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARAMETER_BYTES, STATE_BYTES, STEPS = 1_000_000, 64_000, 5
Results = dict[str, tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture(scope="module")
def gpu_check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "benchmarks" / "gpu_check.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["gpu_check"] = module
    spec.loader.exec_module(module)
    return module


def documents(gpu_check: ModuleType, scenario: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What bench and analyze say about a sound run of `scenario`."""
    size = {"parameter_bytes": PARAMETER_BYTES, "optimizer_state_bytes": STATE_BYTES}
    moves = {path: size[gpu_check.MOVES[path][1]] for path in gpu_check.EXPECTED_MOVES[scenario]}
    bench_rows = [{"path": "step", "median_ns": 20e6, "moved_bytes_per_step": None}]
    bench_rows += [
        {"path": path, "median_ns": 1e6, "moved_bytes_per_step": moves.get(path)} for path in gpu_check.MOVES
    ]
    rows = [
        {"path": "step", "calls": STEPS, "gpu_ns": 9_000_000, "h2d_bytes": 0, "d2h_bytes": 0},
        {"path": "step/train_mode_enter", "calls": STEPS, "gpu_ns": 2_000_000, "h2d_bytes": 0, "d2h_bytes": 0},
    ]
    for path, moved in moves.items():
        row = {"path": path, "calls": STEPS, "gpu_ns": 1_000_000, "h2d_bytes": 0, "d2h_bytes": 0}
        rows.append(row | {gpu_check.MOVES[path][0]: moved * STEPS})
    step = {"rank": 0, "duration_ns": 20_000_000, "gpu_busy_ns": 1_800_000}
    copies = [{"kind": "Host-to-Device", "bytes": sum(moves.values()) * STEPS or 1, "total_ns": 1_000}]
    analysis = {
        "steps": [step | {"index": index} for index in range(STEPS)],
        "ranges": rows,
        "copies": copies,
        "coverage": {"thread": 0.5, "process": 0.99},
    }
    run = {"device": "cuda", "engine": size}
    bench = {"run": run, "losses": [6.2, 6.1, 6.0, 5.9, 5.8], "ranges": bench_rows}
    return bench, analysis


@pytest.fixture
def results(gpu_check: ModuleType) -> Results:
    return {scenario: copy.deepcopy(documents(gpu_check, scenario)) for scenario in gpu_check.LOSS_TOLERANCE}


def failures(gpu_check: ModuleType, results: Results) -> list[str]:
    return [f"{check.scenario}: {check.name}" for check in gpu_check.check_all(results) if not check.ok]


def test_a_sound_run_passes_and_its_table_has_a_line_a_scenario(gpu_check: ModuleType, results: Results) -> None:
    assert failures(gpu_check, results) == []
    lines = gpu_check.table(results).splitlines()
    assert len(lines) == 1 + len(results)
    line = next(line for line in lines if line.startswith("param_offload"))
    assert line.split() == ["param_offload", "20.0", "0.00", "0.00", "9%", "2.00", "0.00", "10000.0", "99.0%"]


PARAM = "fsdp2_lora_param_offload"
LOAD = "step/train_mode_enter/load_fsdp_model_to_gpu"
Break = Callable[[Results], None]


def row_of(rows: list[dict[str, Any]], path: str) -> dict[str, Any]:
    return next(row for row in rows if row["path"] == path)


def _other_loss(results: Results) -> None:
    results[PARAM][0]["losses"][3] *= 1.001


def _nan_loss(results: Results) -> None:
    results[PARAM][0]["losses"][3] = float("nan")


def _missing_step(results: Results) -> None:
    results[PARAM][0]["losses"].pop()


def _half_copied(results: Results) -> None:
    row_of(results[PARAM][1]["ranges"], LOAD)["h2d_bytes"] //= 2


def _half_moved(results: Results) -> None:
    row_of(results[PARAM][0]["ranges"], LOAD)["moved_bytes_per_step"] //= 2
    row_of(results[PARAM][1]["ranges"], LOAD)["h2d_bytes"] //= 2


def _needless_move(results: Results) -> None:
    row_of(results["fsdp2_lora_no_offload"][0]["ranges"], LOAD)["moved_bytes_per_step"] = 8.0


def _busier_than_the_step(results: Results) -> None:
    results[PARAM][1]["steps"][2]["gpu_busy_ns"] = 21_000_000


def _child_above_parent(results: Results) -> None:
    row_of(results[PARAM][1]["ranges"], LOAD)["gpu_ns"] = 3_000_000


def _lost_work(results: Results) -> None:
    results[PARAM][1]["coverage"] = {"thread": 0.5, "process": 0.6}


def _rules_swapped(results: Results) -> None:
    results[PARAM][1]["coverage"] = {"thread": 0.99, "process": 0.97}


def _on_a_cpu(results: Results) -> None:
    results[PARAM][0]["run"]["device"] = "cpu (emulated)"


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (_other_loss, f"{PARAM}: losses match no_offload"),
        (_nan_loss, f"{PARAM}: losses match no_offload"),
        (_missing_step, f"{PARAM}: losses match no_offload"),
        (_half_copied, f"{PARAM}: load_fsdp_model_to_gpu moves parameter_bytes"),
        (_half_moved, f"{PARAM}: load_fsdp_model_to_gpu moves parameter_bytes"),
        (_needless_move, "fsdp2_lora_no_offload: load_fsdp_model_to_gpu moves nothing"),
        (_busier_than_the_step, f"{PARAM}: GPU busy time lies within the step"),
        (_child_above_parent, f"{PARAM}: projected GPU time lies within the parent's"),
        (_lost_work, f"{PARAM}: process coverage ≥ 95% and ≥ thread coverage"),
        (_rules_swapped, f"{PARAM}: process coverage ≥ 95% and ≥ thread coverage"),
        (_on_a_cpu, f"{PARAM}: ran on CUDA"),
    ],
)
def test_each_fault_is_named_and_nothing_else(
    gpu_check: ModuleType, results: Results, damage: Break, named: str
) -> None:
    damage(results)
    assert failures(gpu_check, results) == [named]


def test_the_script_says_that_there_is_no_cuda_and_ends_with_2() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA: the script would run for minutes")
    script = ROOT / "benchmarks" / "gpu_check.sh"
    env = {"PATH": "/usr/bin:/bin", "PYTHON": sys.executable}
    run = subprocess.run([str(script)], env=env, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert "no CUDA device" in run.stderr
