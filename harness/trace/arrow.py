"""From Arrow record batches to numpy columns, without pandas and without a copy too many."""

from __future__ import annotations

from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from harness.trace.model import Int64Array

_Number = TypeVar("_Number", np.int64, np.int32, np.float64)
_MOST_ROWS_AHEAD: Final = 20_000_000
_TABLE_IDS: Final = 8_000_000


class Rows:
    """Columns that grow batch by batch. One batch is in memory at a time, and its memory serves for the next one."""

    def __init__(self, dtypes: list[type[np.int64] | type[np.float64]], most_rows: int) -> None:
        # Only a hint: row ids may have gaps of any size. Memory that is never written to costs nothing.
        capacity = min(most_rows, _MOST_ROWS_AHEAD)
        self._columns: list[npt.NDArray[np.generic]] = [np.empty(capacity, dtype=dtype) for dtype in dtypes]
        self._count = 0

    def add(self, batch: list[npt.NDArray[np.generic]]) -> None:
        after = self._count + len(batch[0])
        for index, (column, values) in enumerate(zip(self._columns, batch, strict=True)):
            if after > len(column):
                grown = np.empty(2 * after, dtype=column.dtype)
                grown[: self._count] = column[: self._count]
                self._columns[index] = column = grown
            column[self._count : after] = values
        self._count = after

    def column(self, index: int, dtype: type[_Number]) -> npt.NDArray[_Number]:
        return self._columns[index][: self._count].view(dtype)


def values(column: pa.Array, dtype: type[_Number]) -> npt.NDArray[_Number]:
    """A column without NULLs as an array, not copied. pyarrow's own conversion would import pandas."""
    values = np.frombuffer(column.buffers()[1], dtype=dtype)
    return values[column.offset : column.offset + len(column)]


def distinct(ids: Int64Array) -> tuple[Int64Array, Int64Array]:
    """The distinct ids, and where each of `ids` is among them. nsys counts ids up, so a table mostly spares a sort."""
    low, high = int(ids.min()), int(ids.max())
    if high - low > _TABLE_IDS:
        distinct, slots = np.unique(ids, return_inverse=True)
        return distinct, slots
    seen = np.zeros(high - low + 1, dtype=np.bool_)  # (ids between,): whether `low + i` occurs
    seen[ids - low] = True
    return np.flatnonzero(seen) + low, (np.cumsum(seen) - 1)[ids - low]
