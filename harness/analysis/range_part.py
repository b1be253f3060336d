"""One part of a step-time difference: the self time of a range path on either side. The parts add up to the whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

Sides = Literal["both", "base", "head"]
"""Where a path occurs."""


@dataclass(frozen=True, kw_only=True)
class RangePart:
    """Self time of one path, mean per step; 0 on a side that lacks it."""

    ALSO_IN_DOCUMENT: ClassVar = ("delta_ns",)

    path: str
    sides: Sides = "both"
    base_ns: float
    head_ns: float

    @property
    def delta_ns(self) -> float:
        """Head less base."""
        return self.head_ns - self.base_ns


@dataclass(frozen=True, kw_only=True)
class JudgedPart(RangePart):
    """The same, measured over launch pairs and held against their scatter. It explains, and never decides."""

    ci_ns: tuple[float, float] | None
    """95 % interval of `delta_ns`; None from one launch pair."""
    q: float | None
    significant: bool
    """Marked by Benjamini-Hochberg."""
