"""Where the difference lies: the step-time difference of a duel split over the range tree, in parts that add up.

A part is the self time of one range path: time inside it and in none of its children, so the parts of one step are its
duration, whole and without overlap. A path that only one side has is a part like any other, with 0 on the other side.
The rank whose tree counts is the slowest of each step and side, because that rank is the step time.

The parts add up to the figure that the verdict judges: the mean step, with hiccups capped (`stats.estimands`). A step
of which the cap counts a share counts with that share of each of its ranges. Launch pairs weigh alike. The difference
of the plain mean steps, hiccups included, stands beside it (`uncapped_delta_ns`).

Figures are rounded to whole nanoseconds such that they still add up exactly. The interval of a part is a t interval
over launch pairs. Where there are many parts they lend each other variance, as shares of their size: three launch pairs
hardly know their own. Its q-value (Benjamini-Hochberg over all parts) explains and never decides.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from harness.analysis.range_part import JudgedPart, Sides
from harness.names import PATH_SEPARATOR
from harness.stats.multiple import benjamini_hochberg
from harness.stats.paired import FloatArray
from harness.stats.variance_prior import moderated_interval
from harness.trace.model import Int64Array

FALSE_DISCOVERY_RATE = 0.10
CONFIDENCE = 0.95

StepPair = tuple[int, int]
"""Launch pair and step, which mean the same on both sides."""
Tree = Mapping[str, int]
"""Self time by range path, of one step of one rank."""


class SelfTime(Protocol):
    """All calls of one range path in one step of one rank. A range that a step did not enter has no row."""

    @property
    def pair(self) -> int: ...
    @property
    def sequence(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def path(self) -> str: ...
    @property
    def self_ns(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Attribution:
    """The step-time difference in parts, largest first: capped mean ns a step; `base_ns` and so on are their sums."""

    parts: tuple[JudgedPart, ...]
    base_ns: int
    head_ns: int
    delta_ns: int
    uncapped_delta_ns: float
    """Mean difference over all step pairs, uncapped."""
    pairs: int
    step_pairs: int

    def share(self, path: str) -> float:
        """Fraction of the step difference that lies in `path` and everything below it; NaN if there is none."""
        below = path + PATH_SEPARATOR
        inside_ns = sum(part.delta_ns for part in self.parts if part.path == path or part.path.startswith(below))
        return inside_ns / self.delta_ns if self.delta_ns else float("nan")


def attribute(
    base: Iterable[SelfTime], head: Iterable[SelfTime], counted: Mapping[str, Mapping[StepPair, float]] | None = None
) -> Attribution:
    """Split the step difference of a duel over its range paths.

    `counted` has, by side, the share of each step that counts; 1 where it has none. Step pairs that only one side has
    are left out; `ValueError` if none is left.
    """
    trees = {"base": _slowest(base), "head": _slowest(head)}
    common = sorted(trees["base"].keys() & trees["head"].keys())
    # (step pairs, sides): ns
    totals = np.array([[sum(trees[side][key].values()) for side in trees] for key in common])
    if not len(totals) or (totals <= 0).any():
        raise ValueError(f"{len(totals)} step pairs that both sides measured: expected some, all longer than 0 ns")
    pair_of = np.array([pair for pair, _ in common])
    pairs = np.unique(pair_of).tolist()
    found = {side: {path for key in common for path in own[key]} for side, own in trees.items()}
    paths = sorted(found["base"] | found["head"])
    keys = [[key for key in common if key[0] == pair] for pair in pairs]
    shares = {side: (counted or {}).get(side, {}) for side in trees}
    parts = _parts(paths, found, *(_means(own, keys, paths, shares[side]) for side, own in trees.items()))
    differences = totals[:, 1] - totals[:, 0]
    return Attribution(
        parts=tuple(sorted(parts, key=lambda part: (-abs(part.delta_ns), part.path))),
        base_ns=sum(int(part.base_ns) for part in parts),
        head_ns=sum(int(part.head_ns) for part in parts),
        delta_ns=sum(int(part.delta_ns) for part in parts),
        uncapped_delta_ns=float(np.mean([differences[pair_of == pair].mean() for pair in pairs])),
        pairs=len(pairs),
        step_pairs=len(common),
    )


def dearest_path(base: Iterable[SelfTime], head: Iterable[SelfTime], steps: Collection[int]) -> str | None:
    """Return the path whose self time differs most between sides at `steps`, beyond what it differs at the others."""
    trees = {1: _slowest(head), -1: _slowest(base)}
    common = trees[1].keys() & trees[-1].keys()
    on = sum(step in steps for _, step in common)
    if not 0 < on < len(common):
        return None
    weight = {True: 1 / on, False: -1 / (len(common) - on)}
    extra: dict[str, float] = defaultdict(float)
    for sign, own in trees.items():
        for key in common:
            for path, self_ns in own[key].items():
                extra[path] += sign * weight[key[1] in steps] * self_ns
    return max(extra, key=lambda path: (abs(extra[path]), path))


def _slowest(rows: Iterable[SelfTime]) -> dict[StepPair, Tree]:
    """Return the tree of each step's slowest rank; of equal ranks the first."""
    ranks: dict[StepPair, dict[int, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        ranks[row.pair, row.sequence][row.rank][row.path] = row.self_ns
    return {key: own[min(own, key=lambda rank: (-sum(own[rank].values()), rank))] for key, own in ranks.items()}


def _means(
    trees: Mapping[StepPair, Tree], keys: list[list[StepPair]], paths: list[str], shares: Mapping[StepPair, float]
) -> FloatArray:
    """Return the mean self time a step of each launch pair, (pairs, paths) in ns; 0 for a path that a step lacks."""
    rows = []
    for own in keys:
        sums: dict[str, float] = defaultdict(float)
        for key in own:
            share = shares.get(key, 1.0)
            for path, self_ns in trees[key].items():
                sums[path] += share * self_ns
        rows.append([sums[path] / len(own) for path in paths])
    return np.array(rows, dtype=np.float64)


def _parts(paths: list[str], found: Mapping[str, set[str]], base: FloatArray, head: FloatArray) -> list[JudgedPart]:
    low, high, p = moderated_interval(head - base, (head + base).mean(axis=0) / 2, CONFIDENCE)
    q = benjamini_hochberg(p)
    base_ns, head_ns = _whole(base.mean(axis=0)), _whole(head.mean(axis=0))
    return [
        JudgedPart(
            path=path,
            sides=_sides(path, found),
            base_ns=int(base_ns[at]),
            head_ns=int(head_ns[at]),
            ci_ns=None if np.isnan(low[at]) else (float(low[at]), float(high[at])),
            q=None if np.isnan(p[at]) else float(q[at]),
            significant=bool(q[at] <= FALSE_DISCOVERY_RATE),
        )
        for at, path in enumerate(paths)
    ]


def _whole(values: FloatArray) -> Int64Array:
    """Round to whole numbers whose sum is the rounded sum: differences of the rounded running sum."""
    return np.diff(np.rint(np.cumsum(values)), prepend=0).astype(np.int64)


def _sides(path: str, found: Mapping[str, set[str]]) -> Sides:
    if path in found["base"] and path in found["head"]:
        return "both"
    return "base" if path in found["base"] else "head"
