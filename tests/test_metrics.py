"""The table of metrics: how figures are combined, which side is worse, and where they are kept."""

from __future__ import annotations

import math
import sqlite3
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from harness.comparison.metric_changes import metric_change, metric_changes
from harness.metrics import DEFAULT_LIMITS, METRICS, Limit, Metric
from harness.store import Store

PEAK = METRICS["peak_memory_bytes"]
RATE = Metric(
    name="rate",
    title="Rate",
    unit="J",
    better="higher",
    text=str,
    over_ranks="sum",
    over_steps="mean",
    on_cuda="",
    on_cpu="",
    limit=Limit(policy_key="max_loss", gate_share=0.1, share=0.1, least=1.0),
)


@dataclass(frozen=True, kw_only=True)
class Told:
    measured: bool = True
    figures: dict[str, float] = field(default_factory=dict)


@pytest.mark.parametrize(
    ("base", "head", "exceeded"),
    [
        (10**9, 10**9, False),
        (10**9, 1_020_000_000, False),
        (10**9, 1_020_000_001, True),
        (10**9, 5 * 10**8, False),
        (0, 1 << 20, False),
        (0, (1 << 20) + 1, True),
    ],
)
def test_memory_is_held_against_a_plain_threshold(base: int, head: int, exceeded: bool) -> None:
    assert metric_change(METRICS["peak_memory_bytes"], base, head, 0.02).exceeded is exceeded


def test_unknown_memory_is_not_small_memory() -> None:
    with pytest.raises(ValueError, match="none below 0"):
        metric_change(METRICS["peak_memory_bytes"], 10, -1, 0.02)


def test_a_figure_that_should_be_high_is_bounded_below() -> None:
    assert (RATE.bound(100.0, 0.1), RATE.bound(2.0, 0.1)) == (90.0, 1.0)
    assert metric_change(PEAK, 10**9, 10**9, None).bound is None, "without a share there is no limit"
    assert RATE.exceeds(89.9, 90.0)
    assert not RATE.exceeds(90.0, 90.0)


def test_figures_are_combined_as_the_table_says() -> None:
    assert PEAK.of_ranks([1.0, 3.0, 2.0]) == 3
    assert isinstance(PEAK.of_ranks([1.0]), int), "bytes are whole"
    assert RATE.of_ranks([0.5, 1.0]) == 1.5
    for metric in (PEAK, RATE):
        assert metric.of_ranks([math.nan, 1.0]) is None
        assert metric.of_ranks([1.0, math.nan]) is None
    steps = [Told(measured=at > 0, figures={"rate": 4.0 - at, PEAK.name: 4 - at}) for at in range(3)]
    assert (RATE.of_steps([*steps, Told()]), PEAK.of_steps([*steps, Told()])) == (2.5, 4)
    assert RATE.of_steps([Told()]) is None


def test_what_one_side_does_not_tell_is_not_compared() -> None:
    told = [Told(figures=dict.fromkeys(METRICS, 5))]
    assert [found.name for found in metric_changes(told, told, DEFAULT_LIMITS)] == list(METRICS)
    assert metric_changes(told, [Told()], DEFAULT_LIMITS) == ()


def test_a_database_from_before_a_metric_gets_its_column(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "results.db"
    Store(path).close()
    monkeypatch.setattr("harness.store.database.METRICS", {**METRICS, "rate": RATE})
    Store(path).close()
    monkeypatch.undo()
    Store(path).close()  # an older version leaves the column alone
    with sqlite3.connect(path) as connection:
        for table in ("steps", "duel_steps"):
            kinds = {name: kind for _, name, kind, *_ in connection.execute(f"pragma table_info({table})")}
            assert (kinds["rate"].lower(), kinds["rss_bytes"].lower()) == ("real", "integer")
    connection.close()


def test_every_metric_can_be_told_apart() -> None:
    keys = [metric.limit.policy_key for metric in METRICS.values() if metric.limit is not None]
    assert len(keys) == len(set(keys))
    assert all(name == metric.name for name, metric in METRICS.items())
    assert replace(PEAK, unit="J").whole is False
