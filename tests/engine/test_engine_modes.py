"""The rules of modes and of `to`, on an engine that only writes down what it is told."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from torch import Tensor

from engine_under_test.base import BaseEngine, BaseEngineCtx


class WritingEngine(BaseEngine[int]):
    def __init__(self, *, param: bool = False, optimizer: bool = False, always: bool = False) -> None:
        self.param, self.optimizer, self.always = param, optimizer, always
        self.calls: list[Any] = []
        self.offload_error: Exception | None = None

    @property
    def device_name(self) -> str:
        return "gpu"

    @property
    def is_param_offload_enabled(self) -> bool:
        return self.param

    @property
    def is_optimizer_offload_enabled(self) -> bool:
        return self.optimizer

    @property
    def always_switches(self) -> bool:
        return self.always

    def load(self, *, model: bool, optimizer: bool) -> None:
        self.calls.append(("load", model, optimizer))

    def offload(self, *, model: bool, optimizer: bool) -> None:
        self.calls.append(("offload", model, optimizer))
        if self.offload_error is not None:
            raise self.offload_error

    def set_training(self, training: bool) -> None:
        self.calls.append(("training", training))

    def forward_backward(self, batch: int) -> Tensor:
        self.calls.append("forward_backward")
        return torch.tensor(float(batch))

    def optimizer_step(self) -> Tensor:
        self.calls.append("optimizer_step")
        return torch.tensor(0.0)

    def optimizer_zero_grad(self) -> None:
        self.calls.append("zero_grad")

    def infer_batch(self, batch: int) -> Tensor:
        return torch.tensor(float(batch))


@pytest.fixture
def collections(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    made: list[str] = []
    monkeypatch.setattr(gc, "collect", lambda: made.append("collect"))
    return made


def mode_of(engine: WritingEngine) -> str | None:
    return engine.mode  # through a call, because mypy takes an attribute that was compared once for fixed


def lose() -> Any:
    raise KeyError("lost")


def calls_of(engine: WritingEngine, context: BaseEngineCtx) -> list[Any]:
    with context:
        engine.calls.append("inside")
    return engine.calls


@pytest.mark.parametrize(("param", "optimizer"), [(True, False), (False, True), (True, True)])
def test_train_mode_loads_and_offloads_exactly_what_is_offloaded(
    param: bool, optimizer: bool, collections: list[str]
) -> None:
    engine = WritingEngine(param=param, optimizer=optimizer)
    assert calls_of(engine, engine.train_mode()) == [
        ("load", param, optimizer),
        ("training", True),
        "inside",
        "zero_grad",
        ("offload", param, optimizer),
    ]
    assert collections == ["collect"], "one collection, after the load"


def test_nothing_offloaded_moves_and_collects_nothing(collections: list[str]) -> None:
    engine = WritingEngine()
    assert calls_of(engine, engine.train_mode()) == [("training", True), "inside", "zero_grad"]
    engine.calls.clear()
    assert calls_of(engine, engine.eval_mode()) == [("training", False), "inside"]
    assert collections == []


def test_always_loads_everything_but_offloads_only_what_is_enabled(collections: list[str]) -> None:
    engine = WritingEngine(always=True)
    assert calls_of(engine, engine.train_mode())[0] == ("load", True, True)
    assert not [call for call in engine.calls if call[0] == "offload"]
    engine.calls.clear()
    assert calls_of(engine, engine.eval_mode())[0] == ("load", True, False)
    assert collections == ["collect", "collect"]


def test_eval_mode_moves_the_model_only(collections: list[str]) -> None:
    engine = WritingEngine(param=True, optimizer=True)
    assert calls_of(engine, engine.eval_mode()) == [
        ("load", True, False),
        ("training", False),
        "inside",
        ("offload", True, False),
    ]
    engine = WritingEngine(optimizer=True)
    assert calls_of(engine, engine.eval_mode()) == [("training", False), "inside"]


def test_disable_auto_offload_moves_nothing(collections: list[str]) -> None:
    engine = WritingEngine(param=True, optimizer=True)
    context = engine.train_mode(disable_auto_offload=True)
    assert calls_of(engine, context) == [("training", True), "inside", "zero_grad"]
    engine.calls.clear()
    assert calls_of(engine, engine.eval_mode(disable_auto_offload=True)) == [("training", False), "inside"]
    assert collections == []


@pytest.mark.parametrize("optimizer", [True, False])
def test_gradients_do_not_move_without_the_model(optimizer: bool) -> None:
    engine = WritingEngine()
    with pytest.raises(ValueError, match=r"grad=True.*model=False"):
        engine.to("gpu", model=False, optimizer=optimizer, grad=True)
    assert engine.calls == []


def test_the_optimizer_moves_without_the_model() -> None:
    engine = WritingEngine()
    engine.to("cpu", model=False, optimizer=True, grad=False)
    assert engine.calls == [("offload", False, True)]


def test_an_unknown_device_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"'tpu'.*'gpu'.*'cpu'"):
        WritingEngine().to("tpu")


def test_modes_do_not_nest() -> None:
    engine = WritingEngine(param=True)
    with engine.train_mode():
        before = list(engine.calls)
        with pytest.raises(RuntimeError, match=r"eval_mode\(\) inside train_mode\(\).*do not nest"):
            engine.eval_mode().__enter__()
        assert engine.calls == before, "the refused mode must move nothing"
        assert mode_of(engine) == "train"
    assert mode_of(engine) is None
    with engine.eval_mode():
        assert mode_of(engine) == "eval"


def test_an_error_inside_a_mode_still_offloads_and_comes_through() -> None:
    engine = WritingEngine(param=True, optimizer=True)
    with pytest.raises(KeyError, match="lost"), engine.train_mode():
        lose()
    assert engine.calls[-2:] == ["zero_grad", ("offload", True, True)]
    assert engine.mode is None


def test_an_offload_that_fails_after_an_error_does_not_hide_it() -> None:
    engine = WritingEngine(param=True)
    engine.offload_error = MemoryError("host is full")
    with pytest.raises(KeyError, match="lost") as caught, engine.train_mode():
        lose()
    assert "MemoryError: host is full" in caught.value.__notes__[0]
    assert engine.mode is None


def test_an_offload_that_fails_alone_is_raised() -> None:
    engine = WritingEngine(param=True)
    engine.offload_error = MemoryError("host is full")
    with pytest.raises(MemoryError, match="host is full"), engine.train_mode():
        pass
    assert engine.mode is None


def test_train_batch_starts_from_zeroed_gradients() -> None:
    engine = WritingEngine()
    assert engine.train_batch(3).item() == 3.0
    assert engine.calls == ["zero_grad", "forward_backward", "optimizer_step"]
