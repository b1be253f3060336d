"""Comparisons and jobs made up from launch pairs of known times, for tests of what the gate makes of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.analysis.range_part import JudgedPart
from harness.comparison import Comparison, LaunchFigureChange, SameWork, Side
from harness.comparison.metric_changes import metric_change
from harness.duel import DuelPlan, DuelSide
from harness.gate import GateJob
from harness.gate.limit import gate_rule
from harness.metrics import DEFAULT_LIMITS, METRICS
from harness.scenario import CompareSettings, RunSettings, Scenario
from harness.stats.paired import StepPairs
from harness.stats.rule import Rule
from harness.store import DuelRecord
from harness.subject import Subject
from harness.verdict import Objection, decide

STEP_NS = 100_000_000


def side(name: str, subject: str = "main") -> Side:
    return Side(
        name=name,
        subject=subject,
        revision="f" * 40,
        dirty=False,
        overrides=(),
        versions={},
        step_ns=float(STEP_NS),
    )


def comparison(
    differences: list[float],
    *,
    limit: float = 0.05,
    alpha: float = 0.05,
    looks: tuple[int, ...] = (4,),
    objection: Objection | None = None,
    memory: tuple[int, int] | None = None,
    growth: float = 0.05,
    path: str = "step/load",
    head: str = "main",
) -> Comparison:
    """A comparison of launch pairs that differ by these fractions of a step."""
    rule = replace(gate_rule(limit, pairs=10, alpha=alpha), looks=looks)
    base = np.full((10, 1), STEP_NS)
    pairs = [StepPairs(base_ns=base, head_ns=np.round(base * (1 + share))) for share in differences]
    verdict = decide(pairs, rule, objection=objection)
    grown_ns = (math.fsum(differences) / len(differences) if differences else 0.0) * STEP_NS
    part = JudgedPart(path=path, base_ns=1e6, head_ns=1e6 + grown_ns, ci_ns=None, q=0.01, significant=True)
    return Comparison(
        duel=duel_record(),
        environment={},
        base=side("base"),
        head=side("head", head),
        rule=rule,
        prior=None,
        verdict=verdict,
        ranges=(part,),
        uncapped_delta_ns=grown_ns,
        same_work=SameWork(
            within_tolerance=True,
            steps_compared=40,
            ends_compared=0,
            not_a_number=0,
            max_abs_diff=0,
            tolerance=0,
            first_difference=None,
        ),
        metrics=() if memory is None else (metric_change(METRICS["peak_memory_bytes"], *memory, growth),),
        launch_figures=(
            LaunchFigureChange(name="start_ns", base=2e9, head=2.1e9, delta=1e8, low=-1e8, high=3e8, bound=None),
        ),
        pairs=(),
    )


def duel_record() -> DuelRecord:
    return DuelRecord(
        id="20260101-000000-000-abcdef",
        kind="compare",
        started_at="2026-01-01T00:00:00+00:00",
        scenario="a",
        scenario_hash="h",
        scenario_document={},
        key="k",
        base={},
        head={},
        environment_id="e",
        collector="recorder",
        interleave="steps",
        ranks=1,
        warmup_steps=1,
        steps=10,
        seed=0,
        rule={},
        prior=None,
        status="completed",
        reason=None,
        objection=None,
        detectable_effect=None,
        device="cpu",
        explanation=None,
        harness_version="0",
        logs=None,
    )


def gate_job(name: str = "a", *, limit: float = 0.05) -> GateJob:
    scenario = Scenario(
        name=name,
        description="d",
        factory="m:f",
        run=RunSettings(),
        engine={},
        probes=(),
        compare=CompareSettings(),
        source=Path("a.toml"),
    )
    subject = Subject(name=".", engine_root=None, python=Path("python"), revision=None, dirty=None)
    one = DuelSide(name="base", subject=subject, scenario=scenario, collector="recorder")
    return GateJob(
        scenario=name,
        against="base",
        max_slowdown=limit,
        plan=DuelPlan(
            kind="compare",
            scenario=scenario,
            base=one,
            head=one,
            rule=Rule(),
            steps=None,
            interleave="steps",
            pinned=True,
            seed=0,
            budget_s=None,
            explain=None,
            reports=Path("reports"),
            limits=DEFAULT_LIMITS,
        ),
    )
