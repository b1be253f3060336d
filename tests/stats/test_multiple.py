"""Holm and Benjamini-Hochberg against their definitions and scipy.stats."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from harness.stats.multiple import benjamini_hochberg, holm

p_lists = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@given(p_lists)
def test_benjamini_hochberg_agrees_with_scipy(p: list[float]) -> None:
    assert benjamini_hochberg(p) == pytest.approx(stats.false_discovery_control(p, method="bh"))


@given(p_lists, st.sampled_from([0.01, 0.05, 0.1]))
def test_benjamini_hochberg_marks_what_its_definition_marks(p: list[float], level: float) -> None:
    """Mark the k smallest, k the largest rank whose p ≤ level·k/m."""
    ranked = sorted(p)
    fits = [k for k in range(1, len(p) + 1) if ranked[k - 1] * len(p) / k <= level]
    cut = ranked[max(fits) - 1] if fits else -1.0
    assert [q <= level for q in benjamini_hochberg(p)] == [value <= cut for value in p]


@given(p_lists, st.sampled_from([0.01, 0.05, 0.1]))
def test_holm_rejects_step_by_step(p: list[float], level: float) -> None:
    """Reject in order of size while p·(tests left) ≤ level; stop at the first that is not."""
    rejected: set[int] = set()
    for step, index in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        if p[index] * (len(p) - step) > level:
            break
        rejected.add(index)
    assert {i for i, adjusted in enumerate(holm(p)) if adjusted <= level} == rejected


@given(p_lists)
def test_holm_is_between_the_plain_and_the_bonferroni_values(p: list[float]) -> None:
    for plain, adjusted in zip(p, holm(p), strict=True):
        assert plain <= adjusted <= min(1.0, plain * len(p)) + 1e-15


@pytest.mark.parametrize("correct", [holm, benjamini_hochberg])
def test_a_value_that_could_not_be_computed_counts_as_a_test_and_is_no_evidence(correct: object) -> None:
    assert callable(correct)
    assert list(correct([0.01, math.nan])) == pytest.approx([0.02, 1.0])
    assert list(correct([])) == []


@pytest.mark.parametrize("broken", [[-0.1], [1.1], [[0.1]]])
def test_what_is_no_probability_is_refused(broken: list[float]) -> None:
    with pytest.raises(ValueError, match="p-values"):
        holm(broken)
