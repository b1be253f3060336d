"""One range path over many steps: what a typical step looks like, path by path, in tree order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from harness.trace.model import FloatArray
from harness.trace.paths import PathTable


@dataclass(frozen=True, kw_only=True)
class PathSummary:
    """One path over the kept steps. Figures of a step are sums over its calls; a step without the path counts as zero.

    Whose steps they are is said where the summaries are made: those of all ranks, or each step's slowest rank.
    """

    path: str
    name: str
    depth: int
    calls_per_step: float
    """Mean."""
    median_ns: float
    p90_ns: float
    self_median_ns: float
    share: float | None = None
    """Of the time of these steps; None where the steps are those of several ranks, which run at once."""
    moved_bytes_per_step: float | None = None
    """None where no call of it said what it moved."""
    gpu_median_ns: float | None = None
    """None where GPU work was not looked at."""


def path_summaries(
    paths: PathTable,
    order: Sequence[int],
    calls: FloatArray,
    total_ns: FloatArray,
    self_ns: FloatArray,
    *,
    gpu_ns: FloatArray | None = None,
    moved_bytes: FloatArray | None = None,
    whole_ns: float = 0.0,
) -> list[PathSummary]:
    """Summarise figures of shape (paths, steps), one path for each element of `order` that any step called.

    `moved_bytes` is NaN where a step said nothing. `whole_ns` is the time of all steps, where shares mean something.
    """
    depth = paths.depth
    return [
        PathSummary(
            path=paths.text[at],
            name=paths.name[at],
            depth=depth[at],
            calls_per_step=float(calls[at].mean()),
            median_ns=float(np.median(total_ns[at])),
            p90_ns=float(np.percentile(total_ns[at], 90)),
            self_median_ns=float(np.median(self_ns[at])),
            share=float(total_ns[at].sum()) / whole_ns if whole_ns else None,
            moved_bytes_per_step=None if moved_bytes is None else _mean_of_known(moved_bytes[at]),
            gpu_median_ns=None if gpu_ns is None else float(np.median(gpu_ns[at])),
        )
        for at in order
        if calls[at].any()
    ]


def _mean_of_known(per_step: FloatArray) -> float | None:
    """The mean over all steps, NaN counting as nothing; None where there is nothing else."""
    return None if np.isnan(per_step).all() else float(np.nan_to_num(per_step).mean())
