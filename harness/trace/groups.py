"""Values folded by group: `group[i]` says to which of `count` groups `values[i]` belongs.

Every total by path, step, name or thread is made like this: number the groups from 0, then let numpy's unbuffered
`ufunc.at` take each value to its group. Integers stay integers, so that sums of ns are exact at any size; a weighted
`bincount` would go through float64, which is exact to 2**53 ns, 104 days, of summed time only.
"""

from __future__ import annotations

import numpy as np

from harness.trace.model import Int32Array, Int64Array


def folded(ufunc: np.ufunc, group: Int32Array | Int64Array, values: Int64Array, count: int, initial: int) -> Int64Array:
    """(count,): `initial` and all values of each group under `ufunc`, in the unit of `values`."""
    result = np.full(count, initial, dtype=np.int64)
    ufunc.at(result, group, values)
    return result


def summed(group: Int32Array | Int64Array, values: Int64Array, count: int) -> Int64Array:
    """(count,): the sum of each group's values; 0 for an empty one."""
    return folded(np.add, group, values, count, 0)
