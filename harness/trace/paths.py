"""Forests given by each row's parent: depth, levels, and the distinct paths of their names.

Nothing here knows of time. A row is a range or whatever has at most one parent; parents may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from harness.names import PATH_SEPARATOR
from harness.trace.model import Int32Array, Int64Array

ROOT: Final = -1
"""The parent of what has none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PathTable:
    """The distinct paths of a trace, parents before children."""

    parent: tuple[int, ...]
    """Path of the parent; ROOT for an outermost one."""
    name: tuple[str, ...]
    text: tuple[str, ...]
    """Names joined with `/` from the outermost range."""

    def __len__(self) -> int:
        return len(self.text)

    @property
    def depth(self) -> list[int]:
        """Number of paths above each."""
        depth: list[int] = []
        for parent in self.parent:
            depth.append(0 if parent == ROOT else depth[parent] + 1)
        return depth

    def tree_order(self, key: Int64Array) -> list[int]:
        """The paths depth first, siblings by `key`, smallest first."""
        children: dict[int, list[int]] = {}
        for path, parent in enumerate(self.parent):
            children.setdefault(parent, []).append(path)
        for siblings in children.values():
            siblings.sort(key=lambda path: -int(key[path]))
        order: list[int] = []
        stack = children.get(ROOT, [])
        while stack:
            path = stack.pop()
            order.append(path)
            stack.extend(children.get(path, []))
        return order


def depths(parent: Int64Array) -> Int32Array:
    """Number of ancestors of each row."""
    depth = np.zeros(len(parent), dtype=np.int32)
    above = parent.copy()
    while True:  # once a level: every row goes one up
        deeper = above != ROOT
        if not bool(deeper.any()):
            return depth
        depth[deeper] += 1
        above[deeper] = parent[above[deeper]]


def levels(depth: Int32Array) -> Iterator[Int64Array]:
    """Rows of depth 0, then those of depth 1, and so on: parents come before their children."""
    by_depth = np.argsort(depth, kind="stable")
    bounds = np.cumsum(np.bincount(depth)) if len(depth) else np.empty(0, dtype=np.int64)
    first = 0
    for last in bounds.tolist():
        yield by_depth[first:last]
        first = last


def path_table(parent: Int64Array, name_rows: Int32Array, names: Sequence[str]) -> tuple[Int32Array, PathTable]:
    """The distinct (path of the parent, name) pairs of a forest, and each row's path.

    Level by level from the outermost, so that a row's parent has its path already.
    """
    path_id = np.full(len(name_rows), ROOT, dtype=np.int32)
    parents: list[int] = []
    leaf: list[str] = []
    text: list[str] = []
    for rows in levels(depths(parent)):
        above = parent[rows]
        parent_path = np.where(above == ROOT, ROOT, path_id[above]).astype(np.int64)
        # (paths of this level,), (rows,)
        keys, inverse = np.unique(parent_path * len(names) + name_rows[rows], return_inverse=True)
        path_id[rows] = inverse + len(parents)
        for key in keys.tolist():
            outer, name = divmod(key, len(names))
            parents.append(outer)
            leaf.append(names[name])
            text.append(names[name] if outer == ROOT else f"{text[outer]}{PATH_SEPARATOR}{names[name]}")
    return path_id, PathTable(parent=tuple(parents), name=tuple(leaf), text=tuple(text))
