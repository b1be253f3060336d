"""The row that everything about ranges is made of: all calls of one range path, and how long they took.

A trace's step table, the stored ranges of runs and duels, and the trees that reports draw are all this row, each with
what it has besides. It stands below them, since none of them may import another.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RangeFigures:
    """All calls of one range path within something: a step, a typical step, a capture.

    `self_ns` is the time in the path itself and in none of its children.
    """

    path: str
    calls: float
    total_ns: float
    self_ns: float


@dataclass(frozen=True, kw_only=True)
class MeasuredRange(RangeFigures):
    """All calls of one range path within one step of one rank. `sequence` is the step's number in its launch."""

    sequence: int
    rank: int
    calls: int
    total_ns: int
    self_ns: int


@dataclass(frozen=True, kw_only=True)
class RangeRecord(MeasuredRange):
    """The same with the sums of its marks' payloads; None where no call said anything."""

    moved_bytes: int | None
    collected_objects: int | None
    grown_bytes: int | None = None
    """How much more the rank had allocated at its end; None where that was not read (`worker.growth`)."""


@dataclass(frozen=True, kw_only=True)
class TreeRange(RangeFigures):
    """A range path with its place in the tree. In a sequence of them a parent comes before its children."""

    name: str
    """The last part of the path, which may hold the path's separator itself."""
    depth: int
