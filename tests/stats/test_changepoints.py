"""Where a series changed its level, where there is more than one change."""

from __future__ import annotations

import math
import random

import pytest

from harness.stats.changepoints import change_points


def series(*levels: tuple[int, float], seed: int = 3) -> list[float]:
    noise = random.Random(seed)
    return [level * (1 + noise.gauss(0, 0.003)) for count, level in levels for _ in range(count)]


def test_every_change_is_told_in_order_with_its_own_ratio() -> None:
    found = change_points(series((20, 100.0), (20, 110.0), (20, 99.0)))
    assert [change.index for change in found] == [20, 40]
    assert [change.ratio for change in found] == [pytest.approx(ratio, rel=0.01) for ratio in (1.1, 0.9)]
    rising = change_points(series((15, 100.0), (15, 106.0), (15, 112.0)))
    assert [change.index for change in rising] == [15, 30]


def test_two_points_on_the_way_are_no_level_and_hide_no_change() -> None:
    (change,) = change_points(series((20, 100.0), (2, 110.0), (20, 120.0)))
    assert change.index in (20, 22)
    assert change.ratio == pytest.approx(1.2, rel=0.02)


def test_three_points_a_level_are_enough_and_two_are_not() -> None:
    assert [change.index for change in change_points(series((3, 100.0), (3, 120.0)))] == [3]
    assert change_points(series((2, 100.0), (3, 120.0))) == []


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="positive numbers"):
        change_points([*series((10, 100.0)), value])
