"""Changes of level: where they are, that noise is none, and that one change does not hide another."""

from __future__ import annotations

import math
import random

import pytest

from harness.stats.changepoints import MIN_POINTS, change_points, significant


def noisy(levels: list[tuple[int, float]], scatter: float, seed: int) -> list[float]:
    noise = random.Random(seed)
    return [level * math.exp(noise.gauss(0, scatter)) for count, level in levels for _ in range(count)]


def steps(*levels: tuple[int, float]) -> list[float]:
    return noisy(list(levels), 0.003, 3)


def share_found(levels: list[tuple[int, float]], scatter: float, places: list[int], series: int = 100) -> float:
    """How many of made-up series show exactly these changes, each within a point."""
    found = [[change.index for change in change_points(noisy(levels, scatter, seed))] for seed in range(series)]
    near = [len(one) == len(places) and all(abs(a - b) <= 1 for a, b in zip(one, places, strict=True)) for one in found]
    return sum(near) / series


@pytest.mark.parametrize("count", [6, 12, 30, 100])
def test_noise_about_one_level_is_no_change(count: int) -> None:
    assert share_found([(count, 100)], 0.005, []) == 1
    assert share_found([(count, 100)], 0.02, []) >= 0.97, "scatter as large as the smallest change"


@pytest.mark.parametrize(("before", "after"), [(10, 3), (3, 10), (12, 12)])
def test_a_change_of_little_more_than_two_per_cent_is_found(before: int, after: int) -> None:
    assert share_found([(before, 100), (after, 102.5)], 0.004, [before]) >= 0.9


@pytest.mark.parametrize("middle", [95, 105])
@pytest.mark.parametrize("count", [5, 12])
def test_a_level_that_goes_and_comes_back_is_two_changes(count: int, middle: float) -> None:
    assert share_found([(count, 100), (count, middle), (count, 100)], 0.005, [count, 2 * count]) >= 0.97


def test_two_changes_the_same_way_are_two() -> None:
    levels = [(12, 100.0), (12, 105.0), (12, 110.0)]
    assert share_found(levels, 0.01, [12, 24]) >= 0.95
    first, second = change_points(noisy(levels, 0.005, 1))
    assert first.ratio == pytest.approx(1.05, abs=0.005)
    assert second.ratio == pytest.approx(1.0476, abs=0.005)


def test_a_change_is_told_with_its_place_ratio_and_p() -> None:
    (change,) = change_points([99, 101, 100, 111, 109, 110])
    assert change.index == 3
    assert change.ratio == pytest.approx(1.1)
    # Student's t on the logarithms: distance ln 1.1, pooled standard deviation 0.0096, 4 degrees of freedom.
    assert change.p == pytest.approx(0.00026, abs=0.00002)


def test_every_change_is_told_in_order_with_its_own_ratio() -> None:
    found = change_points(steps((20, 100.0), (20, 110.0), (20, 99.0)))
    assert [change.index for change in found] == [20, 40]
    assert [change.ratio for change in found] == [pytest.approx(ratio, rel=0.01) for ratio in (1.1, 0.9)]
    rising = change_points(steps((15, 100.0), (15, 106.0), (15, 112.0)))
    assert [change.index for change in rising] == [15, 30]


def test_two_points_on_the_way_are_no_level_and_hide_no_change() -> None:
    (change,) = change_points(steps((20, 100.0), (2, 110.0), (20, 120.0)))
    assert change.index in (20, 22)
    assert change.ratio == pytest.approx(1.2, rel=0.02)


def test_three_points_a_level_are_enough_and_two_are_not() -> None:
    assert [change.index for change in change_points(steps((3, 100.0), (3, 120.0)))] == [3]
    assert change_points(steps((2, 100.0), (3, 120.0))) == []


def test_less_than_two_per_cent_or_than_three_points_is_no_level() -> None:
    assert change_points([100] * 6 + [101.9] * 6) == []
    assert [change.index for change in change_points([100] * 6 + [102.1] * 6)] == [6]
    assert [change.index for change in change_points([102.1] * 6 + [100] * 6)] == [6]
    assert change_points([100, 100, 110, 110, 110]) == []
    assert change_points([100] * 9 + [120] * (MIN_POINTS - 1)) == []
    assert change_points([100] * 6 + [150] + [100] * 6) == []


def test_a_small_change_is_dropped_with_its_levels_made_one() -> None:
    values = [100.0, 100.1, 99.9, 101.0, 101.1, 100.9, 105.0, 105.1, 104.9]
    (change,) = significant(values, [0, 3, 6, 9])
    assert change.index == 6
    assert change.ratio == pytest.approx(105 / 100.5)


def test_what_never_moves_has_no_change() -> None:
    assert change_points([100.0] * 40) == []
    assert change_points([0.1 + 0.2] * 40) == []


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_what_is_no_time_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="expected positive numbers"):
        change_points([100.0] * 8 + [value])
