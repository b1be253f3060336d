"""Engine keys against the factory: names, types and the engine's own rules, before anything is built."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from harness.errors import UsageError
from harness.worker.options import bind_options, load_factory


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    name: Literal["adamw", "sgd"] = "adamw"
    betas: tuple[float, ...] = (0.9, 0.999)


@dataclass(frozen=True, kw_only=True)
class Config:
    width: int
    rate: float = 1e-3
    device: Literal["auto", "cpu"] = "auto"
    offload: bool = False
    path: str | None = None
    shape: Sequence[int] = (1,)
    optimizer: Optimizer = Optimizer()

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width is {self.width}; allowed: at least 1")


def configured(config: Config) -> Config:
    return config


def by_keywords(width: int, *, rate: float = 1.0) -> dict[str, Any]:
    return {"width": width, "rate": rate}


def anything(**keys: Any) -> dict[str, Any]:
    return keys


def test_a_dataclass_gets_only_the_keys_that_are_set() -> None:
    built = bind_options(configured, {"width": 8, "rate": 1, "path": None, "shape": [2, 3]})()
    assert built == Config(width=8, rate=1.0, shape=[2, 3])
    assert type(built.rate) is float


def test_a_table_becomes_the_nested_dataclass() -> None:
    built = bind_options(configured, {"width": 1, "optimizer": {"name": "sgd", "betas": [0.5, 1]}})()
    assert built.optimizer == Optimizer(name="sgd", betas=(0.5, 1.0))


def test_keyword_parameters_get_only_the_keys_that_are_set() -> None:
    assert bind_options(by_keywords, {"width": 3})() == {"width": 3, "rate": 1.0}
    assert bind_options(anything, {"a": 1, "b": [2]})() == {"a": 1, "b": [2]}


@pytest.mark.parametrize(
    ("factory", "engine", "said"),
    [
        (
            configured,
            {"width": 1, "ofload": True},
            "unknown key 'ofload'. Did you mean 'offload'? Allowed: device, offload,",
        ),
        (configured, {"width": "8"}, "engine.width is '8' (str); expected int"),
        (configured, {"width": True}, "engine.width is True (bool); expected int"),
        (configured, {"width": 1, "rate": True}, "engine.rate is True (bool); expected float"),
        (
            configured,
            {"width": 1, "device": "gpu"},
            "engine.device is 'gpu'. Did you mean 'cpu'? Allowed: 'auto', 'cpu'",
        ),
        (configured, {"width": 1, "path": 3}, "engine.path is 3 (int); expected str"),
        (configured, {"width": 1, "shape": [1, "2"]}, "engine.shape[1] is '2' (str); expected int"),
        (configured, {"width": 1, "optimizer": {"nam": "sgd"}}, "engine.optimizer: unknown key 'nam'"),
        (configured, {"width": 0}, "engine: width is 0; allowed: at least 1"),
        (configured, {}, "Config needs width"),
        (by_keywords, {"widht": 1}, "unknown key 'widht'. Did you mean 'width'? Allowed: rate, width"),
        (by_keywords, {"rate": 0.5}, "the factory needs width"),
        (by_keywords, {"width": 1.5}, "engine.width is 1.5 (float); expected int"),
    ],
)
def test_a_key_that_does_not_fit_is_refused(factory: Any, engine: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind_options(factory, engine)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_factories_that_do_not_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "toy_factories.py").write_text("def build_engine(): ...\nnumber = 3\n")
    (tmp_path / "toy_broken.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert load_factory("toy_factories:build_engine") is sys.modules["toy_factories"].build_engine
    for path, said in [
        ("toy_factories", "expected module:callable"),
        ("toy_nowhere:build", "importing toy_nowhere failed: ModuleNotFoundError"),
        ("toy_broken:build", "importing toy_broken failed: RuntimeError: no licence"),
        ("toy_factories:build_enginee", "has no 'build_enginee'. Did you mean 'build_engine'?"),
        ("toy_factories:number", "is a int, not a callable"),
    ]:
        with pytest.raises(UsageError) as caught:
            load_factory(path)
        assert said in str(caught.value)
