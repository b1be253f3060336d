"""Attribution: parts that add up, against an oracle in plain Python."""

from __future__ import annotations

import math
import random
import statistics
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.analysis.attribution import attribute

Steps = dict[tuple[int, int, int], dict[str, int]]
"""(pair, step, rank) → self time by path."""

PATHS = ["step", "step/train_mode_enter", "step/train_mode_enter/gc.collect", "step/optimizer_step"]


class Row(NamedTuple):
    pair: int
    sequence: int
    rank: int
    path: str
    self_ns: int


def rows(steps: Steps) -> list[Row]:
    return [Row(*key, path, self_ns) for key, ranges in steps.items() for path, self_ns in ranges.items()]


@st.composite
def duels(draw: st.DrawFn) -> tuple[Steps, Steps]:
    pairs, steps, ranks = (draw(st.integers(1, most)) for most in (3, 6, 2))
    ranges = st.dictionaries(st.sampled_from(PATHS), st.integers(1, 10**10), min_size=1)
    keys = [(pair, step, rank) for pair in range(pairs) for step in range(steps) for rank in range(ranks)]
    return {key: draw(ranges) for key in keys}, {key: draw(ranges) for key in keys}


def slowest(steps: Steps) -> dict[tuple[int, int], dict[str, int]]:
    found: dict[tuple[int, int], dict[str, int]] = {}
    for (pair, step, _), ranges in sorted(steps.items()):
        if (pair, step) not in found or sum(ranges.values()) > sum(found[pair, step].values()):
            found[pair, step] = ranges
    return found


def oracle(base: Steps, head: Steps) -> tuple[dict[str, float], float, float]:
    """Mean difference by path, and of the whole step, in the middle half and over all step pairs."""
    b, h = slowest(base), slowest(head)
    deltas: list[dict[str, float]] = []
    wholes: list[float] = []
    everything: list[float] = []
    for pair in sorted({key[0] for key in b}):
        keys = sorted(key for key in b if key[0] == pair)
        keys.sort(key=lambda key: math.log(sum(h[key].values()) / sum(b[key].values())))
        cut = len(keys) // 4
        kept = keys[cut : len(keys) - cut]
        deltas.append({p: statistics.fmean(h[key].get(p, 0) - b[key].get(p, 0) for key in kept) for p in PATHS})
        wholes.append(statistics.fmean(sum(h[key].values()) - sum(b[key].values()) for key in kept))
        everything.append(statistics.fmean(sum(h[key].values()) - sum(b[key].values()) for key in keys))
    means = {path: statistics.fmean(delta[path] for delta in deltas) for path in PATHS}
    return means, statistics.fmean(wholes), statistics.fmean(everything)


@settings(max_examples=50, deadline=None)
@given(duels())
def test_the_parts_add_up_to_the_whole(duel: tuple[Steps, Steps]) -> None:
    result = attribute(rows(duel[0]), rows(duel[1]))
    parts, (means, whole, everything) = result.parts, oracle(*duel)
    # Exactly, in whole nanoseconds, whatever rounding did to a part.
    assert all(type(part.base_ns) is type(part.head_ns) is int for part in parts)
    assert sum(part.delta_ns for part in parts) == result.delta_ns == result.head_ns - result.base_ns
    assert result.delta_ns == pytest.approx(whole, abs=1.001)
    assert result.all_steps_delta_ns == pytest.approx(everything, abs=0.01)
    for part in parts:
        assert part.delta_ns == pytest.approx(means[part.path], abs=2.001)
    costs = [abs(part.delta_ns) for part in parts]
    assert costs == sorted(costs, reverse=True)


def quiet_duel(extra_ns: int, pairs: int = 5, steps: int = 9) -> tuple[Steps, Steps]:
    """Head spends `extra_ns` more in gc.collect, in a range base lacks; the rest scatters by about a permille."""
    rng = np.random.default_rng(7)
    base: Steps = {}
    head: Steps = {}
    for side, sign in ((base, 0), (head, 1)):
        for pair in range(pairs):
            for step in range(steps):
                noise = rng.normal(0, 1e5, 3).astype(int)
                ranges = {"step": 10_000_000, "step/train_mode_enter": 50_000_000, "step/optimizer_step": 40_000_000}
                ranges = {path: value + int(n) for (path, value), n in zip(ranges.items(), noise, strict=True)}
                if sign:
                    ranges["step/train_mode_enter/gc.collect"] = extra_ns + int(rng.normal(0, 1e5))
                side[pair, step, 0] = ranges
    return base, head


def test_a_range_on_one_side_only_is_a_part_and_takes_the_blame() -> None:
    base, head = quiet_duel(20_000_000)
    result = attribute(rows(base), rows(head))
    first = result.parts[0]
    assert (first.path, first.sides, first.base_ns) == ("step/train_mode_enter/gc.collect", "head", 0)
    assert first.delta_ns == pytest.approx(20e6, rel=0.01)
    assert first.significant
    assert first.ci_ns is not None
    assert first.ci_ns[0] < first.delta_ns < first.ci_ns[1]
    assert [part.significant for part in result.parts] == [True, False, False, False]
    assert result.share("step/train_mode_enter") > 0.95
    assert result.share("step") == 1.0
    assert result.share("step/train_mode") == 0.0  # a name that only begins alike is not an ancestor
    gone = attribute(rows(head), rows(base))
    assert (gone.parts[0].sides, gone.delta_ns) == ("base", -result.delta_ns)


def test_intervals_and_marks_agree_with_scipy() -> None:
    base, head = quiet_duel(300_000)
    result = attribute(rows(base), rows(head))
    shuffled = rows(head)
    random.Random(1).shuffle(shuffled)
    assert attribute(rows(base), shuffled) == result, "the order of rows means nothing"
    per_pair = []
    for pair in range(5):
        alone = {k: v for k, v in base.items() if k[0] == pair}, {k: v for k, v in head.items() if k[0] == pair}
        per_pair.append(oracle(*alone)[0])
    tests = {path: stats.ttest_1samp([deltas[path] for deltas in per_pair], 0.0) for path in PATHS}
    q = dict(zip(tests, stats.false_discovery_control([test.pvalue for test in tests.values()]), strict=True))
    assert {part.path for part in result.parts} == set(PATHS)
    for part in result.parts:
        assert part.ci_ns == pytest.approx(tuple(tests[part.path].confidence_interval(0.95)))
        assert part.q == pytest.approx(q[part.path])
        assert part.significant == (q[part.path] <= 0.1)


def test_a_hiccup_moves_no_part_but_is_told() -> None:
    base, head = quiet_duel(20_000_000)
    calm = attribute(rows(base), rows(head))
    head[2, 4, 0]["step/optimizer_step"] += 3_000_000_000
    shaken = attribute(rows(base), rows(head))
    assert shaken.delta_ns == pytest.approx(calm.delta_ns, rel=0.01)
    assert shaken.all_steps_delta_ns - calm.all_steps_delta_ns == pytest.approx(3e9 / 45)


def test_one_launch_pair_gives_figures_but_no_evidence() -> None:
    base, head = quiet_duel(20_000_000, pairs=1)
    result = attribute(rows(base), rows(head))
    assert result.delta_ns == pytest.approx(20e6, rel=0.02)
    assert {(part.ci_ns, part.q, part.significant) for part in result.parts} == {(None, None, False)}


def test_a_step_that_one_side_lacks_is_left_out() -> None:
    base, head = quiet_duel(20_000_000, steps=3)
    full = attribute(
        rows({k: v for k, v in base.items() if k[1] < 2}), rows({k: v for k, v in head.items() if k[1] < 2})
    )
    cut = attribute(rows(base), rows({k: v for k, v in head.items() if k[1] < 2}))
    assert full.parts == cut.parts


@pytest.mark.parametrize("head", [{(1, 0, 0): {"step": 5}}, {(0, 0, 0): {"step": 0}}])
def test_nothing_to_compare_is_an_error(head: Steps) -> None:
    with pytest.raises(ValueError, match="step pairs"):
        attribute(rows({(0, 0, 0): {"step": 5}}), rows(head))
