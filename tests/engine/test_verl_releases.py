"""The adapter under the harness on real releases of verl: the same work on all of them, and what each one changed.

Every release runs in the environment of the scenario, which the first launch makes. `make test-verl` runs this file.
"""

from __future__ import annotations

import functools
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.verl, pytest.mark.timeout(1800)]

RELEASES = ("0.7.0", "0.7.1", "0.8.0", "0.9.0", "0.9.1")
NOTHING_OFFLOADED = ("--set", "engine.param_offload=false", "--set", "engine.optimizer_offload=false")
OPTIMIZER_OFFLOADED = ("--set", "engine.param_offload=false")
_ADAPTERS = ("--set", "engine.lora_rank=4")
_MICRO_BATCHES = ("--set", "engine.batch_size=4", "--set", "engine.micro_batches=2")
TWO_RANKS = ("--ranks", "2", *_ADAPTERS, *_MICRO_BATCHES)
ENTER = "step/train_mode_enter/context_switch"
MOVE = f"{ENTER}/FSDPEngine.to"

Bench = Callable[..., tuple[int, Any]]


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reports")


@pytest.fixture(scope="module")
def bench(reports: Path) -> Bench:
    """Run `stepduel bench verl_smoke` on a release, once for the same options. Returns exit code and document."""

    @functools.cache
    def bench(release: str, *options: str) -> tuple[int, Any]:
        command = ["bench", "verl_smoke", f"release:verl=={release}", *options, "--reports", str(reports), "--json"]
        if release.startswith("0.9"):
            command.append("--allow-mismatch")  # they ask for a newer numpy and transformers, and run without
        out = subprocess.run(
            [sys.executable, "-m", "harness.cli", *command],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert out.stdout, out.stderr
        return out.returncode, json.loads(out.stdout)

    return bench


def paths(document: Any) -> set[str]:
    return {row["path"] for row in document["ranges"]}


def description(reports: Path, document: Any) -> Any:
    with closing(sqlite3.connect(reports / "results.db")) as database:
        (text,) = database.execute("SELECT engine FROM runs WHERE id = ?", [document["run"]["id"]]).fetchone()
    return json.loads(text)


@pytest.mark.parametrize("release", RELEASES)
def test_a_release_runs_in_its_ranges_and_says_what_was_replaced(bench: Bench, reports: Path, release: str) -> None:
    code, document = bench(release)
    assert code == 0, document["run"]["reason"]
    assert {
        f"{MOVE}/load_fsdp_model_to_gpu",
        f"{MOVE}/load_fsdp_optimizer",
        "step/train_batch/forward_backward_batch",
        "step/train_batch/optimizer_step/fsdp2_clip_grad_norm_",
        "step/train_mode_exit/context_switch/FSDPEngine.to/offload_fsdp_model_to_cpu",
        "step/train_mode_exit/context_switch/FSDPEngine.to/offload_fsdp_optimizer",
    } <= paths(document)
    assert (f"{MOVE}/gc.collect" in paths(document)) == (release != "0.9.1"), "0.9.1 no longer collects"
    told = description(reports, document)
    assert told["verl"] == release
    assert ("CPU platform set" in told["patches"]) == release.startswith("0.9")
    assert len(told["patches"]) == (5 if release.startswith("0.9") else 4)


def test_all_releases_compute_the_same(bench: Bench) -> None:
    losses = {release: bench(release)[1]["losses"] for release in RELEASES}
    assert len(set(losses["0.7.0"])) == len(losses["0.7.0"]) == 4, "no two batches alike"
    assert all(found == losses["0.7.0"] for found in losses.values()), losses


def test_entering_without_offload_does_less_with_every_release_up_to_0_8(bench: Bench) -> None:
    entered = {release: paths(bench(release, *NOTHING_OFFLOADED)[1]) for release in ("0.7.0", "0.7.1", "0.8.0")}
    assert f"{MOVE}/load_fsdp_model_to_gpu" in entered["0.7.0"]
    assert f"{MOVE}/load_fsdp_optimizer" in entered["0.7.0"]
    assert f"{MOVE}/gc.collect" in entered["0.7.0"] & entered["0.7.1"]
    assert not [path for path in entered["0.7.1"] if path.startswith(f"{MOVE}/load")]
    assert not [path for path in entered["0.8.0"] if path.startswith(MOVE)]
    assert ENTER in entered["0.8.0"]


def test_the_optimizer_alone_cannot_be_offloaded_before_0_8(bench: Bench) -> None:
    code, document = bench("0.7.1", *OPTIMIZER_OFFLOADED)
    assert (code, document["run"]["status"]) == (4, "failed")
    assert "AssertionError: Model must be moved to device along with optimizer and grad" in document["run"]["reason"]
    code, document = bench("0.8.0", *OPTIMIZER_OFFLOADED)
    assert code == 0, document["run"]["reason"]
    assert f"{MOVE}/load_fsdp_optimizer" in paths(document)
    assert f"{MOVE}/load_fsdp_model_to_gpu" not in paths(document)


@pytest.mark.parametrize("release", ["0.7.1", "0.9.1"])
def test_two_ranks_with_adapters_and_micro_batches(bench: Bench, reports: Path, release: str) -> None:
    code, document = bench(release, *TWO_RANKS)
    assert code == 0, document["run"]["reason"]
    assert document["run"]["ranks"] == 2
    told = description(reports, document)
    assert 0 < told["trainable_parameters"] < told["parameters"]
    assert document["losses"] == bench("0.7.1", *TWO_RANKS)[1]["losses"]


def test_an_evaluation_runs_forward_alone(bench: Bench) -> None:
    code, document = bench("0.8.0", "--set", "run.mode=eval")
    assert code == 0, document["run"]["reason"]
    assert "step/eval_mode_enter/context_switch/FSDPEngine.to/load_fsdp_model_to_gpu" in paths(document)
    assert not [path for path in paths(document) if "optimizer" in path]
