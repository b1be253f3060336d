"""A comparison as the JSON document `stepduel/compare/1`. Times in ms, `ratio` is head/base of step time."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from harness.comparison.result import Comparison, Pair, RangePart, Side

SCHEMA = "stepduel/compare/1"


def document(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as plain JSON-ready values."""
    duel, verdict, work = comparison.duel, comparison.verdict, comparison.same_work
    return {
        "schema": SCHEMA,
        "id": duel.id,
        "kind": duel.kind,
        "scenario": duel.scenario,
        "scenario_hash": duel.scenario_hash,
        "started_at": duel.started_at,
        "status": duel.status,
        "base": _side(comparison.base),
        "head": _side(comparison.head),
        "verdict": {
            "state": verdict.state,
            "reason": verdict.reason,
            "ratio": verdict.ratio,
            "ci": None if verdict.ci is None else list(verdict.ci),
            "p": verdict.p,
            "pairs": verdict.pairs,
            "steps_per_pair": verdict.steps_per_pair,
            "detectable_effect": verdict.detectable_effect,
            "detail": verdict.detail,
            "next_step": verdict.next_step,
            "line": verdict.line,
            "looks": [{**asdict(look), "outcome": look.outcome.value} for look in verdict.looks],
        },
        "rule": asdict(comparison.rule),
        "prior": None if comparison.prior is None else asdict(comparison.prior),
        "detectable_effect_before": duel.detectable_effect,
        "step": {"base_ms": _ms(comparison.base.step_ns), "head_ms": _ms(comparison.head.step_ns)},
        "ranges": [_range(part) for part in comparison.ranges],
        "same_work": {
            "within_tolerance": work.within_tolerance,
            "steps_compared": work.steps_compared,
            "max_abs_diff": work.max_abs_diff,
            "tolerance": work.tolerance,
            "first_difference": None if work.first_difference is None else asdict(work.first_difference),
        },
        "metrics": {change.name: {"unit": change.metric.unit, **asdict(change)} for change in comparison.metrics},
        "pairs": [_pair(pair) for pair in comparison.pairs],
        "method": {
            "collector": duel.collector,
            "interleave": duel.interleave,
            "cores": comparison.cores,
            "ranks": duel.ranks,
            "warmup_steps": duel.warmup_steps,
            "seed": duel.seed,
            "device": duel.device,
            "harness_version": duel.harness_version,
            "logs": duel.logs,
        },
        "environment": dict(comparison.environment),
    }


def _side(side: Side) -> dict[str, Any]:
    return {
        "subject": side.subject,
        "revision": side.revision,
        "dirty": side.dirty,
        "overrides": list(side.overrides),
        "versions": dict(side.versions),
    }


def _range(part: RangePart) -> dict[str, Any]:
    return {
        "path": part.path,
        "base_ms": _ms(part.base_ns),
        "head_ms": _ms(part.head_ns),
        "delta_ms": _ms(part.delta_ns),
        "ci_ms": None if part.ci_ns is None else [_ms(bound) for bound in part.ci_ns],
        "q": part.q,
        "significant": part.significant,
    }


def _pair(pair: Pair) -> dict[str, Any]:
    return {
        "number": pair.number,
        "started_at": pair.started_at,
        "starter": pair.starter,
        "start_s": pair.start_ns / 1e9,
        "ratio": pair.ratio,
        "base_ms": _ms(pair.base_ns),
        "head_ms": _ms(pair.head_ns),
        "steps": pair.steps,
        "base_first": pair.base_first,
        "conditions": dict(pair.conditions),
        "base_launch": dict(pair.base_launch),
        "head_launch": dict(pair.head_launch),
        "base_steps_ms": [_ms(ns) for ns in pair.base_steps_ns],
        "head_steps_ms": [_ms(ns) for ns in pair.head_steps_ns],
    }


def _ms(ns: float | None) -> float | None:
    return None if ns is None else ns / 1e6
