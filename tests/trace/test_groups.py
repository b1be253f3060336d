"""Folding by group against a loop over the values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from harness.trace.groups import folded, summed

values_of_groups = st.lists(st.tuples(st.integers(0, 4), st.integers(-(2**55), 2**55)), max_size=40)


@given(values_of_groups)
def test_each_group_has_the_sum_and_the_extremes_of_its_values(rows: list[tuple[int, int]]) -> None:
    group = np.array([one for one, _ in rows], dtype=np.int64)
    values = np.array([value for _, value in rows], dtype=np.int64)
    of_group = [[value for one, value in rows if one == wanted] for wanted in range(5)]
    assert summed(group, values, 5).tolist() == [sum(some) for some in of_group]  # exact beyond 2**53
    assert folded(np.minimum, group, values, 5, 7).tolist() == [min([*some, 7]) for some in of_group]
    assert folded(np.maximum, group.astype(np.int32), values, 5, -7).tolist() == [max([*some, -7]) for some in of_group]
