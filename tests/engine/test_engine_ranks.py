"""Offloading changes nothing that is computed: bit for bit, in every combination, on one and on two ranks."""

from __future__ import annotations

import json
import os
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from child_process import PIPE, child

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name("parity_ranks.py")
MODELS = ("lora", "full", "bf16")
OFFLOADS = ("param", "optimizer", "param_optimizer", "cpu_offload_policy", "always")
RUNS = [*((model, offload) for model in ("lora", "full") for offload in OFFLOADS), ("bf16", "param_optimizer")]
STEPS = 2

pytestmark = pytest.mark.slow  # three processes that train fifteen engines

Results = dict[str, dict[str, Any]]


def run_ranks(ranks: int, folder: Path) -> list[Results]:
    """Run the script on every rank; return what each wrote."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(ranks)}
    outs = [folder / f"rank{rank}.json" for rank in range(ranks)]
    with ExitStack() as stack:
        processes = [
            stack.enter_context(
                child(
                    [sys.executable, str(SCRIPT), str(rank), str(ranks), str(folder / "store"), str(out)],
                    env=environment,
                    stderr=PIPE,
                )
            )
            for rank, out in enumerate(outs)
        ]
        for process in processes:
            _, errors = process.communicate(timeout=240)
            assert process.returncode == 0, errors[-4000:]
    return [json.loads(out.read_text(encoding="utf-8")) for out in outs]


@pytest.fixture(scope="module")
def results_by_ranks(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Results]]:
    return {ranks: run_ranks(ranks, tmp_path_factory.mktemp(f"ranks{ranks}")) for ranks in (1, 2)}


@pytest.fixture(params=[1, 2], ids=["1-rank", "2-ranks"])
def results(request: pytest.FixtureRequest, results_by_ranks: dict[int, list[Results]]) -> list[Results]:
    return results_by_ranks[request.param]


@pytest.mark.parametrize(("model", "offload"), RUNS)
def test_training_is_bitwise_that_without_offload(results: list[Results], model: str, offload: str) -> None:
    for rank in results:
        plain, offloaded = rank[f"{model}/none"], rank[f"{model}/{offload}"]
        for key in ("losses", "parameters", "moments"):
            assert offloaded[key] == plain[key], key


@pytest.mark.parametrize("model", MODELS)
def test_training_changed_the_parameters(results: list[Results], model: str) -> None:
    """Else equal digests would say nothing."""
    losses = results[0][f"{model}/none"]["losses"]
    assert len(set(losses)) == 2 * STEPS
    assert losses[1] < losses[0], "the batch just trained on evaluates better"


@pytest.mark.parametrize("model", MODELS)
def test_bytes_moved_are_those_of_the_shards(results: list[Results], model: str) -> None:
    """Parameters: one offload when built, then in and out of each mode. Moments: from the first step's end on."""
    for rank in results:
        run = rank[f"{model}/param_optimizer"]
        state_bytes = 2 * run["trainable_bytes"]
        assert run["moved"] == {
            "load_fsdp_model_to_gpu": 2 * STEPS * run["parameter_bytes"],
            "offload_fsdp_model_to_cpu": (2 * STEPS + 1) * run["parameter_bytes"],
            "load_fsdp_optimizer": (STEPS - 1) * state_bytes,
            "offload_fsdp_optimizer": STEPS * state_bytes,
        }


@pytest.mark.parametrize("offload", ["none", "always", "cpu_offload_policy"])
@pytest.mark.parametrize("model", ["lora", "full"])
def test_nothing_moves_when_nothing_is_offloaded(results: list[Results], model: str, offload: str) -> None:
    for rank in results:
        assert not any(rank[f"{model}/{offload}"]["moved"].values())


def test_ranks_agree_on_the_loss_and_hold_different_shards(results: list[Results]) -> None:
    first, last = results[0]["lora/none"], results[-1]["lora/none"]
    assert first["losses"] == last["losses"]
    if len(results) == 2:
        assert first["parameters"] != last["parameters"]
        assert first["parameter_bytes"] > last["parameter_bytes"], "rank 3 of the adapters is cut 2 + 1"


def test_two_ranks_train_the_average_of_their_batches(results_by_ranks: dict[int, list[Results]]) -> None:
    """One process on both ranks' batches, as micro-batches, is the same training up to the order of sums."""
    one = results_by_ranks[1][0]["lora/both_batches"]["losses"]
    two = results_by_ranks[2][0]["lora/none"]["losses"][::2]  # every other loss is an evaluation
    assert one == pytest.approx(two, rel=1e-5)
