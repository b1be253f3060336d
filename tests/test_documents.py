"""Every field of a result reaches its JSON document, under its own name and with its value."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass, replace
from enum import Enum
from pathlib import Path, PurePath
from typing import Any

import numpy as np
import pytest
from judged import comparison, gate_job
from results import add_duel, add_run, revision
from scene import MS, Scene
from stored_duels import DuelSpec, comparison_of

from harness.analysis.analyze import TraceAnalysis, analyze
from harness.analysis.difference import diff_traces
from harness.analysis.document import analyze_document, diff_document
from harness.analysis.path_summary import PathSummary
from harness.bench import BenchResult
from harness.comparison import Comparison
from harness.comparison.document import document as compare_document
from harness.comparison.growth import Growing
from harness.documents import json_text, plain
from harness.gate.decision import GateResult, judge
from harness.gate.document import document as gate_document
from harness.gate.jobs import JobOutcome
from harness.gate.policy import Limits, Policy
from harness.history.document import document as history_document
from harness.history.series import ScenarioHistory, scenario_history
from harness.stats.interleaving import Effect, Interleaving
from harness.stats.periods import Period
from harness.stats.variance_prior import VariancePrior
from harness.store import Store
from harness.store.timeline import History
from harness.verdict import SlowerRange, Slowing

LEFT_OUT = {
    ("TraceAnalysis", "trace"): "events: `stepduel export` writes them, and the document describes the trace",
    ("TraceAnalysis", "steps"): "arrays: the document has a row for each step",
    ("TraceAnalysis", "step_gpu"): "arrays: in the rows of the steps",
    ("TraceInfo", "sources"): "paths that the caller gave",
    ("GateJob", "plan"): "what is asked for: the comparison's duel says what was done",
}
"""Fields that are in no document, with the reason. The next one has to be argued for here."""
SETTINGS = {"min_abs_ms"}
"""What a user set, in the unit it was set in."""


def scene() -> Scene:
    """Four steps on two ranks, whose copies from pageable memory are a finding with evidence of ranges and calls."""
    made = Scene()
    for step in range(4):
        for rank in (0, 1):
            at = step * 200 * MS
            made.range("step", at, at + 100 * MS, rank=rank)
            made.range("load", at + 10 * MS, at + 60 * MS, rank=rank)
            call = made.call("cudaMemcpyAsync", at + 11 * MS, at + 12 * MS, rank=rank)
            made.copy(at + 12 * MS, at + 40 * MS, 300_000_000, call=call, rank=rank)
            made.kernel("gemm", at + 65 * MS, at + 70 * MS, launched=at + 62 * MS, rank=rank)
    return made


@pytest.fixture(scope="module")
def analysis() -> TraceAnalysis:
    return analyze(scene().trace(), step_name="step", warmup_steps=1)


@pytest.fixture(scope="module")
def duel(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return comparison_of(tmp_path_factory.mktemp("duel"), DuelSpec(pairs=4, part_at=5))[0]


def gate() -> GateResult:
    outcomes = [JobOutcome(job=gate_job(), comparison=comparison([0.2, 0.21, 0.19, 0.2], memory=(10**9, 2 * 10**9)))]
    policy = Policy(source="stepduel.toml", scenarios=("a",), limits={"a": Limits()})
    return judge(outcomes, policy)


def history(folder: Path) -> ScenarioHistory:
    database = folder / "results.db"
    for minute in range(12):
        add_run(database, f"r{minute:02d}", 100 if minute < 6 else 120, minute=minute)
    add_run(database, "dead", 100, minute=20, steps=0, status="failed", reason="killed")
    add_duel(database, "d1", 100, 90, minute=30)
    with Store(database) as store:
        measured = History(store).measured("smoke")
    order = {revision(minute): minute for minute in range(12)}
    return scenario_history("smoke", measured, order=order, baseline=revision(0))


def bench(folder: Path) -> BenchResult:
    database = folder / "results.db"
    add_run(database, "r", 100)
    with Store(database) as store:
        run, steps = store.run("r"), tuple(store.steps("r"))
    row = PathSummary(
        path="step", name="step", depth=0, calls_per_step=1, median_ns=1e8, p90_ns=1e8, self_median_ns=1e8
    )
    return BenchResult(
        run=run,
        exit_code=0,
        description="d",
        warmup_steps=1,
        reports=folder,
        steps=steps,
        ranges=(row,),
        collector_reason="asked for",
        log_tail=("last line",),
    )


def lost(result: object, document: Any, where: str, seen: set[type]) -> Iterator[str]:
    """Name every field below `result` that `document` lacks or has another value for; note the dataclasses met."""
    if is_dataclass(result) and not isinstance(result, type):
        seen.add(type(result))
        for field in fields(result):
            at = f"{where}.{field.name}"
            if (type(result).__name__, field.name) in LEFT_OUT:
                continue
            if field.name not in document:
                yield at
            else:
                yield from lost(getattr(result, field.name), document[field.name], at, seen)
    elif isinstance(result, Mapping):
        for key, value in result.items():
            yield from lost(value, document[str(key)], f"{where}.{key}", seen)
    elif isinstance(result, list | tuple):
        if len(result) != len(document):
            yield where
        for index, (one, other) in enumerate(zip(result, document, strict=False)):
            yield from lost(one, other, f"{where}[{index}]", seen)
    else:
        expected = result.value if isinstance(result, Enum) else str(result) if isinstance(result, PurePath) else result
        if document != expected:
            yield f"{where}: {document!r} for {result!r}"


def reachable(kind: Any, found: set[type]) -> set[type]:
    """Every dataclass that a field below `kind` may hold, those that are left out aside."""
    if isinstance(kind, type) and is_dataclass(kind) and kind not in found:
        found.add(kind)
        hints = typing.get_type_hints(kind)
        for field in fields(kind):
            if (kind.__name__, field.name) not in LEFT_OUT:
                reachable(hints[field.name], found)
    for argument in typing.get_args(kind):
        reachable(argument, found)
    return found


def keys_of(document: Any) -> Iterator[str]:
    if isinstance(document, Mapping):
        for key, value in document.items():
            yield key
            yield from keys_of(value)
    elif isinstance(document, list):
        for item in document:
            yield from keys_of(item)


def check(result: object, document: dict[str, Any], *, never_here: tuple[str, ...] = ()) -> None:
    """`never_here` are classes that this example has none of; another example has."""
    seen: set[type] = set()
    assert list(lost(result, document, type(result).__name__, seen)) == []
    unseen = {kind.__name__ for kind in reachable(type(result), set()) - seen}
    assert unseen == set(never_here), "the example must have one of every kind, or nothing is shown of its fields"
    assert json_text(document), "it is JSON"
    assert [key for key in keys_of(document) if key.endswith("_ms") and key not in SETTINGS] == [], "times are in ns"


def test_an_analysis(analysis: TraceAnalysis) -> None:
    document = analyze_document(analysis)
    check(analysis, document)
    assert [(step["rank"], step["index"]) for step in document["steps"]] == [(r, i) for r in (0, 1) for i in (1, 2, 3)]
    assert [step["reason"] for step in document["dropped_steps"]] == ["warm-up", "warm-up"]
    assert document["trace"]["collector"] == analysis.trace.info.collector
    assert document["slowest_rank"]["rank"] in (0, 1)


def test_a_difference() -> None:
    trace = scene().trace()
    found = diff_traces(trace, trace, step_name="step")
    document = diff_document(found)
    check(found, document)
    assert [part["delta_ns"] for part in document["ranges"]] == [0] * len(found.ranges)


def test_a_comparison(duel: Comparison) -> None:
    document = compare_document(duel)
    check(
        duel,
        document,
        never_here=("VariancePrior", "Look", "Estimate", "Period", "SlowerRange", "Slowing", "Growing", "Interleaving"),
    )
    lent = replace(duel, prior=VariancePrior(dof=3.0, variance=1e-6, duels=4))
    check(
        lent,
        compare_document(lent),
        never_here=("Look", "Estimate", "Period", "SlowerRange", "Slowing", "Growing", "Interleaving"),
    )
    told = Interleaving(pairs=4, bias=Effect(ratio=2.0, ci=(1.9, 2.1)), base=1.0, head=2.0, slack=0.01, beyond=True)
    assert compare_document(replace(duel, interleaving=told))["interleaving"] == plain(asdict(told))
    period = Period(every=8, first=3, extra_ns=4e7, path="step/forward_backward")
    periodic = replace(duel, verdict=replace(duel.verdict, period=period))
    assert compare_document(periodic)["verdict"]["period"] == asdict(period)
    slower = SlowerRange(path="step/load", delta_ns=1e6, ci_ns=(9e5, 1.1e6))
    costly = replace(duel, verdict=replace(duel.verdict, slower_range=slower))
    assert compare_document(costly)["verdict"]["slower_range"] == {**asdict(slower), "ci_ns": [9e5, 1.1e6]}
    slowing = Slowing(ns_per_step=1e4, ci_ns=(9e3, 1.1e4))
    creeping = compare_document(replace(duel, verdict=replace(duel.verdict, slowing=slowing)))
    assert creeping["verdict"]["slowing"] == {**asdict(slowing), "ci_ns": [9e3, 1.1e4], "at_far_step_ns": 1e8}
    place = Growing(path="step/optimizer_step", delta=3e5, low=2.9e5, high=3.1e5)
    leaking = replace(duel, launch_figures=tuple(replace(figure, where=place) for figure in duel.launch_figures))
    assert {str(figure["where"]) for figure in compare_document(leaking)["launch_figures"]} == {str(asdict(place))}
    assert document["uncapped_delta_ns"] == duel.uncapped_delta_ns
    assert document["verdict"]["line"] == duel.verdict.line
    assert [part["delta_ns"] for part in document["ranges"]] == [part.delta_ns for part in duel.ranges]


def test_a_gate() -> None:
    found = gate()
    document = gate_document(found)
    unseen = (
        "VariancePrior",
        "FirstDifference",
        "Pair",
        "Period",
        "SlowerRange",
        "Slowing",
        "Growing",
        "Interleaving",
        "Effect",
    )
    check(found, document, never_here=unseen)
    assert (document["result"], document["exit_code"]) == ("regression", 1)


def test_a_history(tmp_path: Path) -> None:
    found = history(tmp_path)
    document = history_document(found)
    check(found, document)
    runs = next(series for series in document["series"] if series["key"]["kind"] == "run")
    assert [level["mean_ns"] for level in runs["levels"]] == [100 * MS, 120 * MS]
    assert runs["creep"] == pytest.approx(1.2)


def test_a_bench(tmp_path: Path) -> None:
    found = bench(tmp_path)
    document = found.document()
    check(found, document)
    assert document["durations_ns"] == [100 * MS] * 3


def test_plain_takes_what_numpy_gives_and_refuses_arrays() -> None:
    values = [np.int64(3), np.float64(0.5), np.float32("nan"), np.bool_(True), float("inf"), Path("a/b")]
    assert plain(values) == [3, 0.5, None, True, None, "a/b"]
    assert [type(value) for value in plain(values)[:2]] == [int, float]
    with pytest.raises(TypeError, match="no place for a ndarray"):
        plain({"x": np.zeros(2)})
