"""The FSDP2 engine in one process: training, batches, modes and what offloading moves."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from engine_under_test import fsdp2
from engine_under_test.config import Fsdp2Config
from engine_under_test.device import HOST
from engine_under_test.fsdp2 import Fsdp2Engine, build_engine
from engine_under_test.offload import (
    load_fsdp_model_to_gpu,
    load_fsdp_optimizer,
    offload_fsdp_model_to_cpu,
    offload_fsdp_optimizer,
)

SMALL: dict[str, Any] = {
    "device": "cpu",
    "layers": 2,
    "experts": 4,
    "experts_per_token": 2,
    "hidden_size": 16,
    "moe_intermediate_size": 8,
    "vocab_size": 64,
    "sequence_length": 16,
}


@pytest.fixture(autouse=True, scope="module")
def lone_process() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    if dist.is_initialized():
        dist.destroy_process_group()


def small(**changes: Any) -> Fsdp2Engine:
    return build_engine(Fsdp2Config(**{**SMALL, **changes}))


def steps(engine: Fsdp2Engine, count: int, batch: Tensor | None = None) -> list[float]:
    losses = []
    for step in range(count):
        with engine.train_mode():
            losses.append(engine.train_batch(engine.batch(step) if batch is None else batch).item())
    return losses


def locals_of(engine: Fsdp2Engine) -> list[Tensor]:
    return [p.to_local() for p in engine.module.parameters() if isinstance(p, DTensor)]


def moments_of(engine: Fsdp2Engine) -> list[Tensor]:
    return [value for state in engine.optimizer.state.values() for key, value in state.items() if key != "step"]


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_the_loss_falls(lora_rank: int) -> None:
    engine = small(lora_rank=lora_rank, learning_rate=0.02)
    batch = engine.batch(0)
    losses = steps(engine, 12, batch)
    assert losses[-1] < losses[0] - 0.1


def test_lora_trains_adapters_only_and_starts_at_the_base_model() -> None:
    engine, base = small(lora_rank=4), small(lora_rank=0)
    with engine.eval_mode():
        loss = engine.infer_batch(engine.batch(0))
    assert loss.isfinite()
    before = {name: p.to_local().clone() for name, p in engine.module.named_parameters() if isinstance(p, DTensor)}
    assert not any(value.any() for name, value in before.items() if ".lora_B." in name)
    steps(engine, 2)
    after = {name: p.to_local() for name, p in engine.module.named_parameters() if isinstance(p, DTensor)}
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    adapters = {name for name in before if ".lora_A." in name or ".lora_B." in name}
    # An expert that no token chose keeps its B at zero, and A moves only by weight decay: all others must move.
    assert moved <= adapters
    assert len(moved) > len(adapters) / 2
    assert len(engine.optimizer.state) == len(adapters)
    assert len(base.trainable) == len(list(base.module.parameters()))


def test_training_repeats_bit_by_bit_and_the_seed_matters() -> None:
    assert steps(small(seed=3), 3) == steps(small(seed=3), 3)
    assert steps(small(seed=3), 1) != steps(small(seed=4), 1)


def test_batches_are_rebuilt_from_seed_step_and_rank() -> None:
    engine, other = small(), small(layers=1, param_offload=True)
    assert torch.equal(engine.batch(7), other.batch(7))
    assert torch.equal(engine.batch(7), engine.batch_of(7, rank=0))
    assert not torch.equal(engine.batch_of(7, rank=0), engine.batch_of(7, rank=1))
    assert not torch.equal(engine.batch(7), engine.batch(8))
    batch = engine.batch(0)
    assert batch.shape == (4, 16)
    assert engine.num_tokens(batch) == 64
    assert 0 <= int(batch.min()) <= int(batch.max()) < 64


def test_micro_batches_accumulate_to_the_same_gradient() -> None:
    whole, parts = small(lora_rank=0), small(lora_rank=0, micro_batches=4)
    for engine in (whole, parts):
        with engine.train_mode():
            engine.forward_backward(engine.batch(0))
            norm = engine.optimizer_step()
        assert norm > 0
    for one, other in zip(locals_of(whole), locals_of(parts), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_clipping_and_adamw_equal_torch_on_plain_tensors() -> None:
    engine = small(lora_rank=0, max_grad_norm=0.05, learning_rate=0.01)
    twins = [torch.nn.Parameter(local.clone()) for local in locals_of(engine)]
    reference = torch.optim.AdamW(twins, lr=0.01, foreach=False)
    for step in range(3):
        with engine.train_mode():
            engine.forward_backward(engine.batch(step))
            for twin, parameter in zip(twins, engine.trainable, strict=True):
                assert isinstance(parameter.grad, DTensor)
                twin.grad = parameter.grad.to_local().clone()
            norm = torch.nn.utils.clip_grad_norm_(twins, 0.05, foreach=False)
            reference.step()
            assert engine.optimizer_step().item() == pytest.approx(norm.item(), rel=1e-6)
    for twin, local in zip(twins, locals_of(engine), strict=True):
        torch.testing.assert_close(local, twin.detach(), rtol=1e-5, atol=1e-7)


def test_every_byte_moves_to_another_storage_and_only_once() -> None:
    engine = small()
    steps(engine, 1)
    module, optimizer, memory = engine.module, engine.optimizer, engine.memory
    model_bytes = sum(p.numel() * p.element_size() for p in module.parameters())
    state_bytes = 2 * sum(p.numel() * p.element_size() for p in engine.trainable)
    for move_model, move_optimizer in (
        (offload_fsdp_model_to_cpu, offload_fsdp_optimizer),
        (load_fsdp_model_to_gpu, load_fsdp_optimizer),
    ):
        before = locals_of(engine) + moments_of(engine)
        values = [tensor.clone() for tensor in before]
        assert (move_model(module, memory), move_optimizer(optimizer, memory)) == (model_bytes, state_bytes)
        after = locals_of(engine) + moments_of(engine)
        assert not {t.data_ptr() for t in before} & {t.data_ptr() for t in after}
        assert all(torch.equal(value, tensor) for value, tensor in zip(values, after, strict=True))
        assert (move_model(module, memory), move_optimizer(optimizer, memory)) == (0, 0)
        assert [t.data_ptr() for t in after] == [t.data_ptr() for t in locals_of(engine) + moments_of(engine)]
    assert all(state["step"].device.type == "cpu" for state in optimizer.state.values())
    assert engine.description["parameter_bytes"] == model_bytes
    assert engine.description["optimizer_state_bytes"] == state_bytes


def test_host_buffers_are_reused() -> None:
    engine = small()
    steps(engine, 1)
    pointers = []
    for _ in range(2):
        offload_fsdp_model_to_cpu(engine.module, engine.memory)
        offload_fsdp_optimizer(engine.optimizer, engine.memory)
        pointers.append([t.data_ptr() for t in locals_of(engine) + moments_of(engine)])
        load_fsdp_model_to_gpu(engine.module, engine.memory)
        load_fsdp_optimizer(engine.optimizer, engine.memory)
    assert pointers[0] == pointers[1]


def test_the_step_counter_stays_where_it_is() -> None:
    engine = small()
    steps(engine, 1)
    counters = {key: state["step"] for key, state in engine.optimizer.state.items()}
    offload_fsdp_optimizer(engine.optimizer, engine.memory)
    assert all(engine.optimizer.state[key]["step"] is counter for key, counter in counters.items())


def test_an_empty_optimizer_moves_nothing_and_loads_later() -> None:
    engine = small()
    assert offload_fsdp_optimizer(engine.optimizer, engine.memory) == 0
    steps(engine, 1)
    assert load_fsdp_optimizer(engine.optimizer, engine.memory) == 0, "state is born on the device"
    assert offload_fsdp_optimizer(engine.optimizer, engine.memory) > 0


def test_gradients_move_with_the_model_when_there_are_any() -> None:
    engine = small()
    with engine.train_mode():
        engine.forward_backward(engine.batch(0))
        expected = [p.grad.to_local().clone() for p in engine.trainable if isinstance(p.grad, DTensor)]
        moved = offload_fsdp_model_to_cpu(engine.module, engine.memory)
        parameter_bytes = sum(p.numel() * p.element_size() for p in engine.module.parameters())
        assert moved == parameter_bytes + sum(gradient.nbytes for gradient in expected)
        load_fsdp_model_to_gpu(engine.module, engine.memory)
        found = [p.grad.to_local() for p in engine.trainable if isinstance(p.grad, DTensor)]
        assert all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))
        engine.optimizer_step()
    assert all(p.grad is None for p in engine.trainable)


def test_a_move_that_failed_half_way_is_repeated_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small()
    expected = [tensor.clone() for tensor in locals_of(engine)]
    allocate, left = engine.memory.allocate, 10

    def runs_out(*arguments: Any) -> Tensor:
        nonlocal left
        left -= 1
        if left < 0:
            raise MemoryError("host is full")
        return allocate(*arguments)

    monkeypatch.setattr(engine.memory, "allocate", runs_out)
    with pytest.raises(MemoryError):
        offload_fsdp_model_to_cpu(engine.module, engine.memory)
    monkeypatch.undo()
    assert load_fsdp_model_to_gpu(engine.module, engine.memory) == engine.description["parameter_bytes"]
    assert all(torch.equal(a, b) for a, b in zip(expected, locals_of(engine), strict=True))


@pytest.mark.parametrize(("param", "optimizer"), [(False, False), (True, False), (False, True), (True, True)])
def test_outside_a_mode_exactly_what_is_offloaded_is_on_the_host(param: bool, optimizer: bool) -> None:
    engine = small(param_offload=param, optimizer_offload=optimizer)
    for _ in range(2):
        assert engine.memory.place(engine.module) == ("host" if param else "device")
        with engine.train_mode():
            engine.train_batch(engine.batch(0))
            assert engine.memory.place(engine.module) == engine.memory.place(engine.optimizer) == "device"
        assert engine.memory.place(engine.optimizer) == ("host" if optimizer else "device")
        with engine.eval_mode():
            engine.infer_batch(engine.batch(0))
            assert engine.memory.place(engine.module) == "device"
            assert engine.memory.place(engine.optimizer) == ("host" if optimizer else "device")


@pytest.mark.skipif(not hasattr(FSDPModule, "reset_iter_state"), reason="this torch cannot cut a forward short")
@pytest.mark.parametrize("steps_before", [0, 1])
def test_a_forward_that_fails_offloads_and_drops_gradients(steps_before: int) -> None:
    engine, untouched = (small(param_offload=True, optimizer_offload=True) for _ in range(2))
    assert steps(engine, steps_before) == steps(untouched, steps_before)
    for mode, run in ((engine.train_mode, engine.train_batch), (engine.eval_mode, engine.infer_batch)):
        with pytest.raises(IndexError, match="out of range") as caught, mode():
            run(torch.full((4, 16), 64))  # the vocabulary ends at 63
        assert not hasattr(caught.value, "__notes__")
        assert engine.memory.place(engine.module) == "host"
        assert engine.memory.place(engine.optimizer) == ("host" if steps_before else "device")
        assert all(p.grad is None for p in engine.trainable)
    assert steps(engine, 2) == steps(untouched, 2), "it trains on as if nothing had happened"


def test_the_training_flag_is_switched_only_when_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small()
    switched: list[bool] = []
    real = type(engine.module).train

    def train(self: Any, mode: bool = True) -> Any:
        switched.append(mode)
        return real(self, mode)

    monkeypatch.setattr(type(engine.module), "train", train)
    for context in (engine.train_mode, engine.train_mode, engine.eval_mode, engine.eval_mode, engine.train_mode):
        with context():
            assert engine.module.layers[0].training is (context == engine.train_mode)
    assert switched == [False, True]


def test_work_outside_its_mode_is_refused() -> None:
    engine = small(param_offload=True)
    with pytest.raises(RuntimeError, match=r"forward_backward needs train mode, the engine is in none"):
        engine.train_batch(engine.batch(0))
    with engine.eval_mode(), pytest.raises(RuntimeError, match=r"optimizer_step needs train mode.*in eval"):
        engine.optimizer_step()
    with engine.train_mode(), pytest.raises(RuntimeError, match="infer_batch needs eval mode"):
        engine.infer_batch(engine.batch(0))


def test_always_walks_and_collects_but_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small(context_switch="always")
    steps(engine, 1)
    moved: list[int] = []
    for name in ("load_fsdp_model_to_gpu", "load_fsdp_optimizer"):
        real = getattr(fsdp2, name)
        monkeypatch.setattr(fsdp2, name, lambda owner, memory, real=real: moved.append(real(owner, memory)))
    collected: list[int] = []
    real_collect = gc.collect
    monkeypatch.setattr(gc, "collect", lambda: collected.append(real_collect()))
    steps(engine, 1)
    assert moved == [0, 0]
    assert len(collected) == 1


def test_bf16_policy_trains_near_float32() -> None:
    plain, mixed = steps(small(), 3), steps(small(mixed_precision="bf16"), 3)
    assert mixed == pytest.approx(plain, rel=0.02)
    assert mixed != plain


def test_bfloat16_model_halves_the_bytes() -> None:
    half = small(model_dtype="bfloat16")
    assert half.description["parameter_bytes"] * 2 == small().description["parameter_bytes"]  # type: ignore[operator]  # values are objects
    assert all(torch.isfinite(torch.tensor(steps(half, 2))))


def test_slowdown_spins_for_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = small(slowdown_share=0.5)
    now_s = 0.0

    def clock() -> float:
        nonlocal now_s
        now_s += 1.0
        return now_s

    monkeypatch.setattr("engine_under_test.fsdp2.time.perf_counter", clock)
    with engine.train_mode():
        engine.forward_backward(engine.batch(0))
        assert now_s < 10, "a share of the time that forward and backward took, not of the time of day"
        began_s = now_s
        engine._slow_down(10.0)
    assert now_s - began_s == pytest.approx(1 + 5, abs=1), "one reading for the start, then until five seconds passed"


def test_description_counts_the_model() -> None:
    description = small(lora_rank=4).description
    per_layer = 4 + 2 + 2 + 1 + 4 * 3 + 2 * (4 + 4 * 3)  # attention, its norms, norms, router, experts, adapters
    assert description["parameters"] == 2 * per_layer + 3
    assert description["trainable_parameters"] == 2 * 2 * (4 + 4 * 3)
    assert description["device_memory"] == "emulated in RAM"
    assert description["device"] == "cpu"


def test_a_process_of_several_must_have_initialised_torch_distributed(monkeypatch: pytest.MonkeyPatch) -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match="call init_process_group first"):
        small()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_cuda_without_a_gpu_is_refused() -> None:
    with pytest.raises(RuntimeError, match="device is 'cuda' but torch finds no GPU"):
        small(device="cuda")


def test_either_part_moves_without_the_other() -> None:
    engine = small(optimizer_offload=True)
    steps(engine, 1)
    engine.to(engine.device_name, model=False, optimizer=True, grad=False)
    assert engine.memory.place(engine.optimizer) == "device"
    engine.to(HOST, model=True, optimizer=False, grad=True)
    assert engine.memory.place(engine.module) == "host"
