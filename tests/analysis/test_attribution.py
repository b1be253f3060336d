"""Attribution: parts that add up, against an oracle in plain Python."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from harness.analysis.attribution import attribute

Steps = dict[tuple[int, int, int], dict[str, int]]
"""(pair, step, rank) → self time by path."""

PATHS = ["step", "step/train_mode_enter", "step/train_mode_enter/gc.collect", "step/optimizer_step"]


def frame(steps: Steps) -> pd.DataFrame:
    rows = [(*key, path, self_ns) for key, ranges in steps.items() for path, self_ns in ranges.items()]
    return pd.DataFrame(rows, columns=["pair", "step", "rank", "path", "self_ns"])


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
    result = attribute(frame(duel[0]), frame(duel[1]))
    parts, (means, whole, everything) = result.parts, oracle(*duel)
    # Exactly, in whole nanoseconds, whatever rounding did to a part.
    assert parts["delta_ns"].dtype == np.int64
    assert int(parts["delta_ns"].sum()) == result.delta_ns == result.head_ns - result.base_ns
    assert (parts["head_ns"] - parts["base_ns"] == parts["delta_ns"]).all()
    assert result.delta_ns == pytest.approx(whole, abs=1.001)
    assert result.all_steps_delta_ns == pytest.approx(everything, abs=0.01)
    for row in parts.itertuples():
        assert row.delta_ns == pytest.approx(means[str(row.path)], abs=2.001)
    costs = parts["delta_ns"].abs().tolist()
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
    result = attribute(frame(base), frame(head))
    first = result.parts.iloc[0]
    assert (first["path"], first["sides"], first["base_ns"]) == ("step/train_mode_enter/gc.collect", "head", 0)
    assert first["delta_ns"] == pytest.approx(20e6, rel=0.01)
    assert first["significant"]
    assert first["ci_low_ns"] < first["delta_ns"] < first["ci_high_ns"]
    assert list(result.parts["significant"]) == [True, False, False, False]
    assert result.share("step/train_mode_enter") > 0.95
    assert result.share("step") == 1.0
    assert result.share("step/train_mode") == 0.0  # a name that only begins alike is not an ancestor
    gone = attribute(frame(head), frame(base))
    assert (gone.parts.iloc[0]["sides"], gone.delta_ns) == ("base", -result.delta_ns)


def test_intervals_and_marks_agree_with_scipy() -> None:
    base, head = quiet_duel(300_000)
    result = attribute(frame(base), frame(head))
    swapped = attribute(frame(base), frame(head).sample(frac=1, random_state=1))
    pd.testing.assert_frame_equal(result.parts, swapped.parts)  # the order of rows means nothing
    row = result.parts.set_index("path").loc["step/optimizer_step"]
    per_pair = []
    for pair in range(5):
        alone = {k: v for k, v in base.items() if k[0] == pair}, {k: v for k, v in head.items() if k[0] == pair}
        per_pair.append(oracle(*alone)[0]["step/optimizer_step"])
    expected = stats.ttest_1samp(per_pair, 0.0)
    assert row["p"] == pytest.approx(expected.pvalue)
    assert (row["ci_low_ns"], row["ci_high_ns"]) == pytest.approx(tuple(expected.confidence_interval(0.95)))
    assert result.parts["q"].to_numpy() == pytest.approx(stats.false_discovery_control(result.parts["p"].to_numpy()))


def test_a_hiccup_moves_no_part_but_is_told() -> None:
    base, head = quiet_duel(20_000_000)
    calm = attribute(frame(base), frame(head))
    head[2, 4, 0]["step/optimizer_step"] += 3_000_000_000
    shaken = attribute(frame(base), frame(head))
    assert shaken.delta_ns == pytest.approx(calm.delta_ns, rel=0.01)
    assert shaken.all_steps_delta_ns - calm.all_steps_delta_ns == pytest.approx(3e9 / 45)


def test_one_launch_pair_gives_figures_but_no_evidence() -> None:
    base, head = quiet_duel(20_000_000, pairs=1)
    result = attribute(frame(base), frame(head))
    assert result.delta_ns == pytest.approx(20e6, rel=0.02)
    assert result.parts["p"].isna().all()
    assert not result.parts["significant"].any()


def test_a_step_that_one_side_lacks_is_left_out() -> None:
    base, head = quiet_duel(20_000_000, steps=3)
    full = attribute(
        frame({k: v for k, v in base.items() if k[1] < 2}), frame({k: v for k, v in head.items() if k[1] < 2})
    )
    cut = attribute(frame(base), frame({k: v for k, v in head.items() if k[1] < 2}))
    pd.testing.assert_frame_equal(full.parts, cut.parts)


@pytest.mark.parametrize("head", [{(1, 0, 0): {"step": 5}}, {(0, 0, 0): {"step": 0}}])
def test_nothing_to_compare_is_an_error(head: Steps) -> None:
    with pytest.raises(ValueError, match="step pairs"):
        attribute(frame({(0, 0, 0): {"step": 5}}), frame(head))


def test_a_missing_column_is_named() -> None:
    with pytest.raises(ValueError, match="self_ns missing"):
        attribute(frame({}).drop(columns="self_ns"), frame({}))
