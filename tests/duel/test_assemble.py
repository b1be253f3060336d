"""From what was asked for to a plan: read once, refused in time, the same for a command and for the gate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from stored_duels import ENVIRONMENT

from harness.duel import DuelSettings, WantedSides, compare_plan
from harness.duel.assemble import explaining_collector
from harness.errors import UsageError
from harness.scenario import read_scenario
from harness.scenario.layers import Layer, read_layer
from harness.stats.rule import Rule
from harness.subject import SubjectCache

SCENARIO = """
description = "Two keys, one of which a side may change"
[engine]
factory = "toy:build"
step_ms = 10
layers = 2
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SubjectCache]:
    """A cache of its own, in a folder with a scenario and an engine."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.py").write_text("def build(): ...\n")
    (tmp_path / "toy.toml").write_text(SCENARIO)
    with SubjectCache() as opened:
        yield opened


def wanted(*head_overrides: str) -> WantedSides:
    return WantedSides(base=None, head=None, head_overrides=head_overrides, repo=Path())


def settings(seed: int | None = 3) -> DuelSettings:
    return DuelSettings(rule=Rule(), seed=seed, reports=Path("reports"))


def test_a_scenario_is_read_once_and_resolved_for_each_side(
    cache: SubjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def counted(path: Path) -> Layer:
        read.append(path)
        return read_layer(path)

    monkeypatch.setattr("harness.scenario.files.read_layer", counted)
    source = read_scenario("toy.toml").overridden(["engine.layers=4", "run.ranks=2"])
    plan = compare_plan(source, wanted("engine.step_ms=20"), settings(), cache)
    assert [path.name for path in read] == ["toy.toml"]
    assert dict(plan.scenario.engine) == dict(plan.base.scenario.engine) == {"step_ms": 10, "layers": 4}
    assert dict(plan.head.scenario.engine) == {"step_ms": 20, "layers": 4}
    assert {plan.scenario.run.ranks, plan.base.scenario.run.ranks, plan.head.scenario.run.ranks} == {2}
    assert (plan.kind, plan.seed, plan.base.collector, plan.head.collector) == ("compare", 3, "recorder", "recorder")
    assert not Path("reports").exists(), "a plan writes nothing"


def test_only_the_engine_may_differ(cache: SubjectCache) -> None:
    with pytest.raises(UsageError, match=r"--head-set run\.seed=3: only engine\.KEY=VALUE may differ"):
        compare_plan(read_scenario("toy.toml"), wanted("run.seed=3"), settings(), cache)


def test_launch_pairs_go_together_where_code_scenario_and_machine_agree(cache: SubjectCache) -> None:
    plan = compare_plan(read_scenario("toy.toml"), wanted("engine.layers=3"), settings(), cache)
    key = plan.key(ENVIRONMENT)
    assert re.fullmatch("[0-9a-f]{16}", key)
    alike = replace(plan, seed=4, steps=30, budget_s=60.0, reports=Path("elsewhere"), rule=Rule(looks=(4,)))
    assert alike.key(ENVIRONMENT) == key
    others = [
        replace(plan, kind="aa"),
        replace(plan, interleave="blocks"),
        replace(plan, pinned=False),
        replace(plan, head=plan.base),
        replace(plan, base=replace(plan.base, collector="none")),
        compare_plan(read_scenario("toy.toml"), wanted("engine.layers=5"), settings(), cache),
    ]
    keys = {key, plan.key(replace(ENVIRONMENT, kernel="another")), *(other.key(ENVIRONMENT) for other in others)}
    assert len(keys) == len(others) + 2


def test_each_plan_draws_its_own_seed_unless_one_is_given(cache: SubjectCache) -> None:
    source = read_scenario("toy.toml")
    seeds = {compare_plan(source, wanted("engine.layers=3"), settings(None), cache).seed for _ in range(3)}
    assert len(seeds) == 3


@pytest.mark.parametrize(
    ("asked", "timing", "taken"),
    [
        ("none", "recorder", None),
        ("kineto", "recorder", "kineto"),
        ("kineto", "kineto", None),
        ("auto", "recorder", None),
    ],
)
def test_what_explains_gpu_time_without_a_gpu(
    asked: str, timing: str, taken: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert explaining_collector(asked, timing) == taken


def test_auto_explains_with_what_sees_the_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.duel.assemble.cuda_device_present", lambda _: True)
    monkeypatch.setattr("harness.collectors.cupti.cuda_device_present", lambda *_: True)
    monkeypatch.setenv("PATH", "")
    assert explaining_collector("auto", "recorder") == "kineto"
    assert explaining_collector("auto", "kineto") is None
    monkeypatch.setenv("NV_NSIGHT_INJECTION_TRANSPORT_TYPE", "1")  # inside another profiler only ranges can be had
    assert explaining_collector("auto", "recorder") is None
