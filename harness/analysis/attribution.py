"""Where the difference lies: the step-time difference of a duel split over the range tree, in parts that add up.

A part is the self time of one range path: time inside it and in none of its children, so the parts of one step are its
duration, whole and without overlap. A path that only one side has is a part like any other, with 0 on the other side.
The rank whose tree counts is the slowest of each step and side, because that rank is the step time.

Medians do not add up, means do; but the mean of a launch follows its hiccups, which the verdict's median ignores. So
the mean is taken over the *middle half* of the step pairs of each launch pair, ordered by ln(head/base): the same step
pairs for every part, hence additive, and those around the median that the verdict rests on. Launch pairs then weigh
alike. What the outer half adds is reported as a whole (`all_steps_delta_ns`), so that a cost of every tenth step shows.

Figures are rounded to whole nanoseconds such that they still add up exactly. The interval of a part is a t interval
over launch pairs; its q-value (Benjamini-Hochberg over all parts) explains and never decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from harness.names import PATH_SEPARATOR
from harness.stats.multiple import benjamini_hochberg
from harness.stats.paired import FloatArray, mean_interval

COLUMNS = ("pair", "rank", "step", "path", "self_ns")
FALSE_DISCOVERY_RATE = 0.10
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True, eq=False)
class Attribution:
    """The step-time difference in parts. Per step, in nanoseconds; `base_ns` and so on are the sums of the parts.

    `parts` has one row a range path, largest |delta| first: `path`, `base_ns`, `head_ns`, `delta_ns` (int64),
    `ci_low_ns`, `ci_high_ns`, `p` (NaN where a single launch pair gives no interval), `q`, `significant`, and `sides`
    (`both`, `base` or `head`: where the path occurs).
    """

    parts: pd.DataFrame
    base_ns: int
    head_ns: int
    delta_ns: int
    all_steps_delta_ns: float
    """Mean difference over all step pairs, the outer half included."""
    pairs: int
    step_pairs: int
    """Step pairs that were averaged, over all launch pairs."""

    def share(self, path: str) -> float:
        """Fraction of the step difference that lies in `path` and everything below it; NaN if there is none."""
        paths = self.parts["path"]
        inside = (paths == path) | paths.str.startswith(path + PATH_SEPARATOR)
        return float(self.parts.loc[inside, "delta_ns"].sum() / self.delta_ns) if self.delta_ns else float("nan")


def attribute(base: pd.DataFrame, head: pd.DataFrame) -> Attribution:
    """Split the step difference of a duel over its range paths.

    Each frame has one row a range path, step, rank and launch pair: `pair`, `rank`, `step` (integers that mean the same
    on both sides), `path` (names joined by `/`), `self_ns` (integer, summed over calls). A range that a step did not
    enter has no row. Step pairs that only one side has are left out; `ValueError` if none is left.
    """
    sides = {"base": _slowest(base), "head": _slowest(head)}
    totals = pd.concat({side: rows.groupby(["pair", "step"])["self_ns"].sum() for side, rows in sides.items()}, axis=1)
    totals = totals.dropna()
    if totals.empty or (totals <= 0).any(axis=None):
        raise ValueError(f"{len(totals)} step pairs that both sides measured: expected some, all longer than 0 ns")
    middle = _middle_half(totals)
    sums = {side: _sums(rows, middle) for side, rows in sides.items()}
    paths = sums["base"].columns.union(sums["head"].columns)
    steps = middle.to_frame(index=False).groupby("pair").size()
    # (pairs, paths): mean self time a step of each launch pair; a path that a side lacks took no time there.
    means = {
        side: table.reindex(index=steps.index, columns=paths, fill_value=0).div(steps, axis=0).to_numpy(dtype=float)
        for side, table in sums.items()
    }
    parts = _parts(paths, means)
    all_steps = (totals["head"] - totals["base"]).groupby("pair").mean().mean()
    return Attribution(
        parts=parts.assign(sides=[_sides(path, sums) for path in parts["path"]]),
        base_ns=int(parts["base_ns"].sum()),
        head_ns=int(parts["head_ns"].sum()),
        delta_ns=int(parts["delta_ns"].sum()),
        all_steps_delta_ns=float(all_steps),
        pairs=len(steps),
        step_pairs=len(middle),
    )


def _slowest(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the slowest rank of each launch pair and step; of equal ranks the first."""
    missing = set(COLUMNS) - set(frame.columns)
    if missing:
        raise ValueError(f"attribution needs the columns {', '.join(COLUMNS)}: {', '.join(sorted(missing))} missing")
    by_rank = frame.groupby(["pair", "step", "rank"])["self_ns"].sum().sort_index()
    slowest = pd.DataFrame(by_rank.groupby(["pair", "step"]).idxmax().tolist(), columns=["pair", "step", "rank"])
    return frame.merge(slowest, on=["pair", "step", "rank"])


def _middle_half(totals: pd.DataFrame) -> pd.MultiIndex:
    """(pair, step) of the step pairs around the median log ratio of each launch pair: n minus n // 4 at either end."""
    ratio = totals["head"] / totals["base"]  # its logarithm has the same order
    # Ties keep the order of steps, so that the same data always give the same figures.
    rank = ratio.groupby("pair").rank(method="first") - 1
    count = ratio.groupby("pair").transform("size")
    inside = (rank >= count // 4) & (rank < count - count // 4)
    return pd.MultiIndex.from_frame(totals.index.to_frame()[inside.to_numpy()])


def _sums(rows: pd.DataFrame, steps: pd.MultiIndex) -> pd.DataFrame:
    """Self time summed over the chosen steps: one row a launch pair, one column a path."""
    chosen = rows[pd.MultiIndex.from_frame(rows[["pair", "step"]]).isin(steps)]
    return chosen.groupby(["pair", "path"])["self_ns"].sum().unstack(fill_value=0)


def _parts(paths: pd.Index, means: dict[str, FloatArray]) -> pd.DataFrame:
    low, high, p = mean_interval(means["head"] - means["base"], CONFIDENCE)
    q = benjamini_hochberg(p)
    base_ns, head_ns = _whole(means["base"].mean(axis=0)), _whole(means["head"].mean(axis=0))
    parts = pd.DataFrame(
        {
            "path": paths,
            "base_ns": base_ns,
            "head_ns": head_ns,
            "delta_ns": head_ns - base_ns,
            "ci_low_ns": low,
            "ci_high_ns": high,
            "p": p,
            "q": q,
            "significant": q <= FALSE_DISCOVERY_RATE,
        }
    )
    order = np.lexsort((parts["path"].to_numpy(dtype=str), -parts["delta_ns"].abs().to_numpy()))
    return parts.iloc[order].reset_index(drop=True)


def _whole(values: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Round to whole numbers whose sum is the rounded sum: differences of the rounded running sum."""
    return np.diff(np.rint(np.cumsum(values)), prepend=0).astype(np.int64)


def _sides(path: str, sums: dict[str, pd.DataFrame]) -> str:
    present = [side for side, table in sums.items() if path in table.columns]
    return present[0] if len(present) == 1 else "both"
