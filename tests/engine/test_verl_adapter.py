"""The adapter to verl, without verl: what it asks of a release, replaces on a CPU, and says when something is missing.

`tests/engine/test_verl_releases.py` runs the real thing.
"""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch
from verl_trees import FILES, WITH_PLATFORM, write_tree

from engine_under_test.verl_config import (
    VerlConfig,
    batch_options,
    engine_options,
    model_options,
    optimizer_options,
    transformer_options,
)
from engine_under_test.verl_cpu import SHADOW
from engine_under_test.verl_release import NEEDED
from harness.errors import UsageError
from harness.scenario import load_scenario
from harness.worker.options import bind_options, load_factory

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = sorted((ROOT / "scenarios").glob("verl_*.toml"))
COMMON_PATCHES = [
    "torch.cpu.empty_cache added",
    "engine registered for the CPU",
    "device name unequal to 'cpu' in the mode switch",
    "gradient clipping with foreach=False",
]
Adapt = Callable[..., Any]


def _forget() -> None:
    for name in [name for name in sys.modules if name.split(".")[0] == "verl" or name == "engine_under_test.verl"]:
        del sys.modules[name]


@pytest.fixture
def adapt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Adapt]:
    """Import the adapter beside a verl made of `files`, on a machine with or without CUDA."""

    def adapt(files: dict[str, str], *, cuda: bool = False) -> Any:
        write_tree(tmp_path, files)
        monkeypatch.syspath_prepend(tmp_path)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: cuda)
        if cuda:
            vars(torch.cpu)["empty_cache"] = None  # the stand-in looks at it, as verl does at that of torch.cuda
        return importlib.import_module("engine_under_test.verl")

    assert not hasattr(torch.cpu, "empty_cache")
    _forget()
    yield adapt
    _forget()
    vars(torch.cpu).pop("empty_cache", None)


def test_an_environment_without_verl_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not (Path(entry) / "verl").is_dir()])
    _forget()
    with pytest.raises(UsageError) as refused:
        load_factory("engine_under_test.verl:build_engine")
    message = str(refused.value)
    assert "verl is not installed in the environment of" in message
    assert sys.executable in message
    assert "\n" not in message


def test_patches_follow_release_and_device(adapt: Adapt) -> None:
    adapter = adapt(FILES)
    assert (adapter.RELEASE, adapter.PATCHES) == ("0.8.0", COMMON_PATCHES)


def test_releases_with_platforms_get_one(adapt: Adapt) -> None:
    adapter = adapt(WITH_PLATFORM)
    assert [COMMON_PATCHES[0], "CPU platform set", *COMMON_PATCHES[1:]] == adapter.PATCHES
    platform = importlib.import_module("verl.plugin.platform").current
    assert platform.device_name == "cpu"
    assert platform.empty_cache() is None
    with platform.nvtx_range("x"):
        pass
    with pytest.raises(NotImplementedError, match="fold_space of a CPU platform"):
        platform.fold_space()


def test_on_cuda_nothing_is_replaced(adapt: Adapt) -> None:
    adapter = adapt(WITH_PLATFORM, cuda=True)
    assert adapter.PATCHES == []
    assert importlib.import_module("verl.plugin.platform").current is None
    fsdp = importlib.import_module("verl.workers.engine.fsdp.transformer_impl")
    assert fsdp.FSDPEngine(True, True).clip() == ([], 1.0, None)
    assert not hasattr(fsdp.FSDPEngine.to, "__wrapped__")
    assert importlib.import_module("verl.workers.engine.base").get_device_name() == "cpu"


@pytest.mark.parametrize("param", [False, True])
@pytest.mark.parametrize("optimizer", [False, True])
def test_a_cpu_switches_modes_as_a_gpu_does(adapt: Adapt, param: bool, optimizer: bool) -> None:
    """Returns early where nothing is offloaded, loads on entering, offloads on leaving."""
    adapt(FILES)
    base = importlib.import_module("verl.workers.engine.base")
    engine = base.EngineRegistry.new("language_model", "fsdp2", param, optimizer)
    with base.BaseEngineCtx(engine):
        entered = list(engine.moves)
    assert entered == ([("load", param, optimizer)] if param or optimizer else [])
    assert engine.moves[len(entered) :] == [("offload", param, optimizer)]
    assert engine.clip() == ([], 1.0, False)


def test_only_the_move_itself_sees_the_shadow(adapt: Adapt) -> None:
    adapt(FILES)
    fsdp = importlib.import_module("verl.workers.engine.fsdp.transformer_impl")
    engine = fsdp.FSDPEngine(True)
    engine.to(SHADOW)
    assert engine.autocast_device() == "cpu"
    engine.moves = None
    with pytest.raises(RuntimeError, match="nothing to move"):
        engine.to("cpu")
    assert engine.autocast_device() == "cpu", "restored after an exception, too"


def test_the_shadow_is_a_cpu_for_torch_and_not_for_a_comparison() -> None:
    assert torch.zeros(1).to(SHADOW).device == torch.device("cpu")
    assert torch.device(SHADOW).type == "cpu"
    assert SHADOW != "cpu"
    assert "cpu" != SHADOW  # noqa: SIM300  # the other way round is another method
    assert not SHADOW == "cpu"  # noqa: SIM201  # likewise
    assert SHADOW in {SHADOW: 1}
    assert "cpu" not in {SHADOW: 1}


@pytest.mark.parametrize("place", NEEDED)
def test_whatever_a_release_moved_is_named(adapt: Adapt, place: str) -> None:
    module, _, attributes = place.partition(":")
    file = f"{module.replace('.', '/')}.py"
    last = attributes.rpartition(".")[2]
    files = {**FILES, file: FILES[file].replace(last, f"{last}_elsewhere")}
    if last == "get_device_name":  # imported there from somewhere else
        files[file] = FILES[file].replace("import get_device_name", "import get_device_name as get_device_name_")
        files[file] = files[file].replace("get_device_name()", "get_device_name_()")
    if last in ("new", "register", "to"):
        files[file] = FILES[file].replace(f"def {last}(", f"def {last}_elsewhere(")
        files[file] = files[file].replace("@EngineRegistry.register", "# @")
        if last == "register":
            fsdp = "verl/workers/engine/fsdp/transformer_impl.py"
            files[fsdp] = FILES[fsdp].replace("@EngineRegistry.register", "# @")
    with pytest.raises(ImportError) as refused:
        adapt(files)
    assert str(refused.value) == (
        f"verl 0.8.0 has no {attributes} in {module}, where the adapter looked for it; "
        "the adapter fits verl 0.7.0 to 0.9.1"
    )


def test_a_module_that_moved_and_a_package_that_is_missing_are_told_apart(
    adapt: Adapt, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsdp = "verl/workers/engine/fsdp/transformer_impl.py"
    with pytest.raises(ImportError, match=r"verl 0\.8\.0 has no module verl\.workers\.engine\.fsdp"):
        adapt({name: text for name, text in FILES.items() if name != fsdp})
    _forget()
    write_tree(tmp_path, {fsdp: "import paft_that_is_absent\n"})
    importlib.invalidate_caches()
    with pytest.raises(ImportError, match=r"transformer_impl needs 'paft_that_is_absent', which the environment of"):
        importlib.import_module("engine_under_test.verl")


def test_a_batch_is_what_verl_reads(adapt: Adapt, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapt(FILES)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: 0)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 1)
    config = VerlConfig(seed=3, batch_size=4, sequence_length=5, micro_batches=2)

    class Engine:
        module = torch.nn.Linear(2, 3)

        def train_batch(self, data: Any, loss_function: Any) -> Any:
            return {"loss": [0.5, 0.25], "data": data, "loss_function": loss_function}

    engine = adapter.VerlEngine(config, Engine())
    batch, again, other = engine.batch(0), engine.batch(0), engine.batch(1)
    tokens = batch["input_ids"]
    assert tokens.is_nested
    assert [row.shape for row in tokens.unbind()] == [torch.Size([5])] * 4
    assert torch.equal(tokens.values(), again["input_ids"].values())
    assert not torch.equal(tokens.values(), other["input_ids"].values())
    assert [row.tolist() for row in batch["loss_mask"].unbind()] == [[0, 1, 1, 1, 1]] * 4
    assert [row.tolist() for row in batch["position_ids"].unbind()] == [[0, 1, 2, 3, 4]] * 4
    assert batch["micro_batch_size_per_gpu"] == 2
    assert engine.num_tokens(batch) == 20
    assert engine.train_batch(batch) == 0.75
    assert (engine.description["modules"], engine.description["elements"]) == (1, 9)
    assert engine.description["patches"] == adapter.PATCHES


def test_several_ranks_need_every_expert(adapt: Adapt, monkeypatch: pytest.MonkeyPatch) -> None:
    adapter = adapt(FILES)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    with pytest.raises(ValueError, match="experts_per_token is 2 on 2 ranks; several ranks need 0 or all experts"):
        adapter.build_engine(VerlConfig(experts=8, experts_per_token=2))
    assert all(VerlConfig(experts=8, experts_per_token=n).routes_to_all for n in (0, 8))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": 0}, "layers is 0; allowed: at least 1"),
        ({"vocab_size": 1}, "vocab_size is 1; allowed: at least 2"),
        ({"lora_rank": -1}, "lora_rank is -1; allowed: at least 0"),
        ({"lora_alpha": 0}, "lora_alpha is 0; allowed: above 0"),
        ({"experts": 4, "experts_per_token": 5}, r"experts_per_token is 5; allowed: at most experts \(4\)"),
        ({"heads": 4, "kv_heads": 3}, r"heads is 4; allowed: a multiple of kv_heads \(3\)"),
        ({"head_dim": 7}, "head_dim is 7; allowed: even"),
        ({"batch_size": 4, "micro_batches": 3}, r"micro_batches is 3; allowed: a divisor of batch_size \(4\)"),
    ],
)
def test_impossible_values_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VerlConfig(**values)


def test_every_annotation_can_be_resolved() -> None:
    assert set(get_type_hints(VerlConfig)) == {field.name for field in dataclasses.fields(VerlConfig)}


def test_the_configuration_reaches_verl() -> None:
    config = VerlConfig(
        layers=3,
        experts=8,
        lora_rank=4,
        lora_alpha=6,
        param_offload=True,
        batch_size=6,
        micro_batches=3,
        learning_rate=0.5,
        max_grad_norm=2.0,
        seed=9,
    )
    transformer = transformer_options(config)
    assert (transformer["num_hidden_layers"], transformer["num_experts"]) == (3, 8)
    assert transformer["num_experts_per_tok"] == 8, "0 experts a token are all"
    assert transformer_options(dataclasses.replace(config, experts_per_token=2))["num_experts_per_tok"] == 2
    model = model_options(config, "/checkpoint")
    assert (model["path"], model["lora_rank"], model["lora_alpha"]) == ("/checkpoint", 4, 6)
    engine = engine_options(config, (), cpu=True)
    assert (engine["strategy"], engine["param_offload"], engine["optimizer_offload"]) == ("fsdp2", True, False)
    assert (engine["seed"], engine["micro_batch_size_per_gpu"]) == (9, 2)
    assert batch_options(config)["micro_batch_size_per_gpu"] == 2
    assert optimizer_options(config) == {"lr": 0.5, "clip_grad": 2.0, "lr_scheduler_type": "constant"}


def test_deferred_reductions_are_switched_off_where_a_release_has_the_switch_and_on_a_cpu() -> None:
    switch = "use_no_sync_for_gradient_accumulation"
    assert engine_options(VerlConfig(), {switch}, cpu=True)[switch] is False
    assert switch not in engine_options(VerlConfig(), {switch}, cpu=False)
    assert switch not in engine_options(VerlConfig(), set(), cpu=True)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenarios_are_what_their_names_say(path: Path, adapt: Adapt) -> None:
    scenario = load_scenario(str(path))
    adapter = adapt(FILES)
    bind_options(adapter.build_engine, scenario.engine)  # every key is a field, every value fits it
    config = VerlConfig(**scenario.engine)  # type: ignore[arg-type]  # checked by the line above
    assert scenario.subject.package == "verl"
    assert scenario.run.warmup_steps >= 1, "optimizer state is made by the first step, and is not offloaded before"
    if path.stem == "verl_smoke":
        return
    assert (config.layers, config.experts) == (12, 64)
    assert (config.lora_rank > 0) == ("_lora_" in path.stem)
    assert config.param_offload == ("param_" in path.stem)
    assert config.optimizer_offload == ("optimizer_offload" in path.stem)


def test_scenarios_of_all_offloads_are_there() -> None:
    offloads = ("no_offload", "lora_no_offload", "param_offload", "optimizer_offload", "param_optimizer_offload")
    assert [path.stem for path in SCENARIOS] == sorted([*(f"verl_fsdp2_{name}" for name in offloads), "verl_smoke"])
