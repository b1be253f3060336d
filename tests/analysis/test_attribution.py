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

from harness.analysis.attribution import attribute, dearest_path

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


Shares = dict[tuple[int, int], float]


def oracle(base: Steps, head: Steps, base_shares: Shares, head_shares: Shares) -> tuple[dict[str, float], float, float]:
    """Mean difference by path and of the whole step, as far as steps count, and of the plain whole step."""
    b, h = slowest(base), slowest(head)
    deltas: list[dict[str, float]] = []
    wholes: list[float] = []
    everything: list[float] = []
    for pair in sorted({key[0] for key in b}):
        keys = sorted(key for key in b if key[0] == pair)
        counted = {
            path: [h[k].get(path, 0) * head_shares.get(k, 1) - b[k].get(path, 0) * base_shares.get(k, 1) for k in keys]
            for path in PATHS
        }
        deltas.append({path: statistics.fmean(values) for path, values in counted.items()})
        wholes.append(sum(deltas[-1].values()))
        everything.append(statistics.fmean(sum(h[key].values()) - sum(b[key].values()) for key in keys))
    means = {path: statistics.fmean(delta[path] for delta in deltas) for path in PATHS}
    return means, statistics.fmean(wholes), statistics.fmean(everything)


@settings(max_examples=50, deadline=None)
@given(duels(), st.randoms(use_true_random=False))
def test_the_parts_add_up_to_the_whole(duel: tuple[Steps, Steps], chance: random.Random) -> None:
    shares: dict[str, Shares] = {
        side: {key: chance.random() for key in slowest(steps) if chance.random() < 0.3}
        for side, steps in zip(("base", "head"), duel, strict=True)
    }
    result = attribute(rows(duel[0]), rows(duel[1]), shares)
    parts, (means, whole, everything) = result.parts, oracle(*duel, shares["base"], shares["head"])
    # Exactly, in whole nanoseconds, whatever rounding did to a part.
    assert all(type(part.base_ns) is type(part.head_ns) is int for part in parts)
    assert sum(part.delta_ns for part in parts) == result.delta_ns == result.head_ns - result.base_ns
    assert result.delta_ns == pytest.approx(whole, abs=1.001)
    assert result.uncapped_delta_ns == pytest.approx(everything, abs=0.01)
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
        per_pair.append(oracle(*alone, {}, {})[0])
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
    share = 120_000_000 / sum(head[2, 4, 0].values())
    shaken = attribute(rows(base), rows(head), {"head": {(2, 4): share}})
    assert shaken.delta_ns == pytest.approx(calm.delta_ns, rel=0.01)
    assert shaken.uncapped_delta_ns - calm.uncapped_delta_ns == pytest.approx(3e9 / 45)


def test_the_dearest_path_is_that_of_the_steps_that_are_asked_for() -> None:
    base, head = quiet_duel(20_000_000)
    for side in (base, head):
        for (_, step, _), ranges in side.items():
            ranges["step"] += 50_000_000 * (step % 3 == 1)  # both sides pay: no difference
    for (_, step, _), ranges in head.items():
        ranges["step/optimizer_step"] += 30_000_000 * (step % 3 == 1)
    assert dearest_path(rows(base), rows(head), range(1, 9, 3)) == "step/optimizer_step"
    assert dearest_path(rows(head), rows(base), range(1, 9, 3)) == "step/optimizer_step", "what is saved, too"
    assert dearest_path(rows(base), rows(head), []) is None
    assert dearest_path(rows(base), rows(head), range(9)) is None, "no other steps to hold them against"


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


def many_ranges(chance: np.random.Generator, pairs: int, moved: int) -> tuple[list[Row], list[Row]]:
    """200 ranges of unlike size and scatter, of which the first `moved` take 4 % longer in head."""
    size_ns = np.exp(chance.normal(math.log(1e6), 1.5, 200))
    scatter = 0.01 * np.sqrt(6 / chance.chisquare(6, 200))
    factor = np.where(np.arange(200) < moved, 1.04, 1.0)
    sides: tuple[list[Row], list[Row]] = ([], [])
    for pair in range(pairs):
        for side, times in zip(sides, (1.0, factor), strict=True):
            own = size_ns * times * np.exp(chance.normal(0, scatter))
            side.extend(Row(pair, 0, 0, f"step/{at:03d}", int(ns)) for at, ns in enumerate(own))
    return sides


@pytest.mark.parametrize(("pairs", "power"), [(3, 0.4), (5, 0.75)])
def test_of_many_ranges_at_most_a_tenth_of_those_marked_did_not_move(pairs: int, power: float) -> None:
    """Simulated: 10 of 200 moved. The share of false discoveries is a mean over duels, as its rate is defined."""
    chance = np.random.default_rng(5)
    false, found, found_alone = [], [], []
    for _ in range(60):
        base, head = many_ranges(chance, pairs, moved=10)
        parts = attribute(base, head).parts
        marked = {int(part.path[-3:]) for part in parts if part.significant}
        false.append(len([at for at in marked if at >= 10]) / max(len(marked), 1))
        found.append(len([at for at in marked if at < 10]) / 10)
        d = np.array([[row.self_ns for row in side] for side in (base, head)]).reshape(2, pairs, 200)
        alone = stats.false_discovery_control(stats.ttest_1samp(d[1] - d[0], 0.0, axis=0).pvalue)
        found_alone.append(np.mean(alone[:10] <= 0.1))
    assert np.mean(false) <= 0.1
    assert np.mean(found) >= power
    assert np.mean(found) > np.mean(found_alone) + 0.2, "lent variance is what finds them"
