"""Whether both sides computed the same thing: the loss of every rank at every step, and the parameters at the end.

Both sides get the same seed and batches, so these must agree; a side that is faster because it computes something else
is no faster side. Not-a-number is a value: it agrees with itself alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.store import DuelStepRecord, PairRecord
from harness.units import percent

OTHER_CODE_PATH_TOLERANCE: Final[Mapping[str | None, float]] = {
    "bfloat16": 2**-7,
    "float16": 2**-10,
    "float32": 1e-5,
    "float64": 1e-12,
    None: 1e-5,
}
"""Least relative tolerance, by the type of the parameters, where the sides run different versions of torch: kernels may
add in another order. Of the short types it is one unit in the last place, which a rounding the other way is worth."""
AT_THE_END: Final = ("checksum of the parameters", "gradient norm")


@dataclass(frozen=True, kw_only=True)
class FirstDifference:
    """The first figure in which the sides differ by more than the tolerance. None is a figure that a side lacks."""

    pair: int
    step: int
    """Counted from the first warm-up step, 0; of what is read at the end, the last one."""
    rank: int
    what: str
    """`loss`, or one of `AT_THE_END`."""
    base: float | None
    head: float | None
    relative: float | None
    """How far they are apart, as a share of the larger one; None where one of them is no number."""

    @property
    def detail(self) -> str:
        """One line for people."""
        where = f"at step {self.step} of launch pair {self.pair}, rank {self.rank}"
        if self.what != "loss":
            where = f"after {where.removeprefix('at ')}, though the losses agree"
        text = f"{self.what} differs {where}: base {_shown(self.base)}, head {_shown(self.head)}"
        if self.relative is None:
            return text
        accepted = accepting(self.relative)
        return f"{text}, {percent(self.relative)} apart; compare.loss_tolerance={accepted:g} would accept it"


@dataclass(frozen=True, kw_only=True)
class SameWork:
    """How far the losses of both sides agree. `within_tolerance` holds for every figure compared."""

    within_tolerance: bool
    steps_compared: int
    ends_compared: int
    """Launch pairs whose parameters were compared after the last step."""
    not_a_number: int
    """Steps at which a rank's loss is not a number, on both sides: training has diverged."""
    max_abs_diff: float | None
    """Largest |head - base| of two finite losses; None where no two were compared."""
    tolerance: float
    first_difference: FirstDifference | None


def tolerance(stated: float, base_versions: object, head_versions: object, precision: str | None = None) -> float:
    """Return the relative tolerance: the scenario's, and some at least where the sides run other versions."""
    if base_versions == head_versions:
        return stated
    return max(stated, OTHER_CODE_PATH_TOLERANCE.get(precision, OTHER_CODE_PATH_TOLERANCE[None]))


def same_work(steps: Iterable[DuelStepRecord], allowed: float, pairs: Sequence[PairRecord] = ()) -> SameWork:
    """Compare the losses of both sides, and what `pairs` tell of the ends of their launches.

    `allowed` is relative to the larger figure; 0 asks for equal numbers. A step where neither side has a loss is not
    compared.
    """
    losses: dict[tuple[int, int, int], dict[str, float | None]] = {}
    for step in steps:
        losses.setdefault((step.pair, step.sequence, step.rank), {})[step.side] = step.loss
    compared, diverged = set(), set()
    largest, first = None, None
    for (pair, sequence, rank), sides in sorted(losses.items()):
        if len(sides) < 2 or sides["base"] is sides["head"] is None:
            continue
        compared.add((pair, sequence))
        base, head = sides["base"], sides["head"]
        if base is not None and head is not None:
            if math.isfinite(base) and math.isfinite(head):
                largest = max(largest or 0.0, abs(head - base))
            if math.isnan(base) and math.isnan(head):
                diverged.add((pair, sequence))
        if first is None and not agree(base, head, allowed):
            first = _difference(pair, sequence, rank, "loss", base, head, _scale(base, head))
    ends, parted = _ends(pairs, allowed, {pair: sequence for pair, sequence, _ in sorted(losses)})
    return SameWork(
        within_tolerance=first is None and parted is None,
        steps_compared=len(compared),
        ends_compared=ends,
        not_a_number=len(diverged),
        max_abs_diff=largest,
        tolerance=allowed,
        first_difference=first or parted,
    )


def agree(base: float | None, head: float | None, allowed: float, scale: float | None = None) -> bool:
    """Whether two figures are the same, or within `allowed` of `scale`, by default of the larger one."""
    if base is None or head is None:
        return base is head
    if not (math.isfinite(base) and math.isfinite(head)):
        return base == head or (math.isnan(base) and math.isnan(head))
    return abs(head - base) <= allowed * (_scale(base, head) if scale is None else scale)


def accepting(relative: float) -> float:
    """Return the tolerance, of two digits, that accepts such a relative difference."""
    unit = 10.0 ** (math.floor(math.log10(relative)) - 1)
    return float(f"{math.ceil(relative / unit * (1 + 1e-9)) * unit:.2g}")


def _ends(
    pairs: Sequence[PairRecord], allowed: float, last_steps: Mapping[int, int]
) -> tuple[int, FirstDifference | None]:
    """Return how many launch pairs tell of their ends, and the first difference there."""
    told = 0
    for pair in pairs:
        base, head = (_state(launch) for launch in (pair.base_launch, pair.head_launch))
        told += bool(base and head)
        for rank, (base_rank, head_rank) in enumerate(zip(base, head, strict=False)):
            (base_sum, base_scale, base_norm), (head_sum, head_scale, head_norm) = base_rank, head_rank
            figures = zip(AT_THE_END, (base_sum, base_norm), (head_sum, head_norm), strict=True)
            scales = max(base_scale, head_scale), _scale(base_norm, head_norm)
            for (what, own, other), scale in zip(figures, scales, strict=True):
                if not agree(own, other, allowed, scale):
                    return told, _difference(pair.pair, last_steps[pair.pair], rank, what, own, other, scale)
    return told, None


def _state(launch: Mapping[str, Any]) -> list[list[float]]:
    """By rank: checksum, scale, gradient norm. Not-a-number is kept as text, for JSON has none."""
    return [[float(figure) for figure in rank] for rank in launch.get("state") or ()]


def _difference(
    pair: int, step: int, rank: int, what: str, base: float | None, head: float | None, scale: float
) -> FirstDifference:
    known = base is not None and head is not None and math.isfinite(base) and math.isfinite(head)
    relative = abs(head - base) / scale if known and scale else None  # type: ignore[operator]  # both are known
    return FirstDifference(pair=pair, step=step, rank=rank, what=what, base=base, head=head, relative=relative)


def _scale(base: float | None, head: float | None) -> float:
    return max(abs(base or 0.0), abs(head or 0.0))


def _shown(figure: float | None) -> str:
    return "none" if figure is None else repr(figure)
