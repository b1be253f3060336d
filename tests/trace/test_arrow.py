"""Columns that grow, and distinct ids by either way, against numpy's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.trace import arrow
from harness.trace.arrow import Rows, distinct


@given(st.integers(0, 5), st.lists(st.integers(1, 5), max_size=6))
def test_columns_hold_every_batch_however_few_rows_were_foreseen(foreseen: int, sizes: list[int]) -> None:
    rows = Rows([np.int64, np.float64], foreseen)
    numbers = np.arange(sum(sizes), dtype=np.int64)
    for batch in np.split(numbers, np.cumsum(sizes)[:-1]) if sizes else []:
        rows.add([batch, batch / 2])
    assert rows.column(0, np.int64).tolist() == numbers.tolist()
    assert rows.column(1, np.float64).tolist() == (numbers / 2).tolist()


@pytest.mark.parametrize("most", [arrow._TABLE_IDS, 3])
@given(st.lists(st.integers(-20, 20), min_size=1))
def test_ids_are_found_by_table_and_by_sort(most: int, given_ids: list[int]) -> None:
    ids = np.array(given_ids, dtype=np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "_TABLE_IDS", most)
        found, slots = distinct(ids)
    assert found.tolist() == sorted(set(given_ids))
    assert found[slots].tolist() == given_ids
