"""Which collector is taken, over every combination of what a machine has."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.collectors.base import Abilities, Availability, Collector
from harness.collectors.choice import choose
from harness.collectors.kineto import Kineto
from harness.collectors.nsys import Nsys
from harness.collectors.registry import collectors as real_collectors
from harness.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Stub:
    """A collector that can be used or not."""

    name: str
    abilities: Abilities
    ok: bool = True
    finish_timeout_s: float = 0.0

    def available(self) -> Availability:
        return Availability(ok=self.ok, reason=f"{self.name} {'found' if self.ok else 'missing'}")

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path) -> tuple[list[str], dict[str, str]]:
        raise AssertionError("a choice starts nothing")

    def collect(self, launch_dir: Path, ranks: int, destination: Path) -> Path:
        raise AssertionError("a choice collects nothing")


def stubs(*, nsys: bool, kineto: bool) -> dict[str, Collector]:
    """The real collectors' names, order and abilities, usable as told."""
    usable = {"nsys": nsys, "kineto": kineto}
    return {
        name: Stub(name=name, abilities=collector.abilities, ok=usable.get(name, True))
        for name, collector in real_collectors().items()
    }


@pytest.mark.parametrize(("nsys", "kineto", "cuda"), list(itertools.product([False, True], repeat=3)))
def test_auto_takes_what_sees_most(nsys: bool, kineto: bool, cuda: bool) -> None:
    expected = "nsys" if nsys else "kineto" if kineto and cuda else "recorder"
    choice = choose("auto", stubs(nsys=nsys, kineto=kineto), {}, cuda=cuda)
    assert choice.collector.name == expected
    assert choice.reason


def test_a_named_collector_is_never_replaced() -> None:
    collectors = stubs(nsys=False, kineto=True)
    for name in ("kineto", "recorder", "none"):
        assert choose(name, collectors, {}, cuda=False).collector is collectors[name]
    with pytest.raises(UsageError, match="collector nsys cannot be used here: nsys missing"):
        choose("nsys", collectors, {}, cuda=True)


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no collector 'kinteo'; .* Did you mean 'kineto'"):
        choose("kinteo", stubs(nsys=True, kineto=True), {}, cuda=True)


def test_an_nsys_that_the_user_named_is_not_passed_over() -> None:
    env = {"STEPDUEL_NSYS": "/opt/nsys/bin/nsys"}
    with pytest.raises(UsageError, match="STEPDUEL_NSYS is set, but nsys missing"):
        choose("auto", stubs(nsys=False, kineto=True), env, cuda=True)
    assert choose("recorder", stubs(nsys=False, kineto=True), env, cuda=True).collector.name == "recorder"


def test_inside_another_profiler_auto_records_ranges_alone(tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path), "NSYS_PROFILING_SESSION_ID": "5"}
    (tmp_path / "nvidia0").touch()
    collectors = stubs(nsys=True, kineto=True) | {
        "nsys": Nsys(env=env),
        "kineto": Kineto(env=env, device_folder=tmp_path),
    }
    choice = choose("auto", collectors, env, cuda=True)
    assert choice.collector.name == "recorder"
    assert "only one profiler" in choice.reason
