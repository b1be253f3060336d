"""What the reader hands to the assembly: one file's rows as columns, on that file's axis and in its order."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from harness.trace import schema
from harness.trace.model import FloatArray, Int64Array, distinct_ids

Columns = dict[str, Int64Array]
"""One array a field, all of one length."""

OPEN_END: Final = -(2**63)
"""Stands for the missing end of a range."""


class Interner:
    """Gives each distinct string one index."""

    def __init__(self) -> None:
        self.strings: list[str] = []
        self._index: dict[str, int] = {}

    def add(self, text: str) -> int:
        index = self._index.setdefault(text, len(self.strings))
        if index == len(self.strings):
            self.strings.append(text)
        return index


@dataclass(frozen=True, kw_only=True, eq=False)
class Export:
    """What one file holds, on its own time axis and in its own order; names are interned already."""

    source: str
    nvtx: Columns
    payload: FloatArray
    """Of the `nvtx` rows."""
    nvtx_last_ns: int
    """Largest time of all NVTX events, those that are not in `nvtx` included; OPEN_END where no range needs it."""
    kernels: Columns
    memcpys: Columns
    memsets: Columns
    graphs: Columns
    api: Columns
    syncs: Columns
    process_names: dict[int, str]
    ranks: dict[int, int]
    """global pid → rank, where the writer wrote it down."""
    meta: dict[str, str]
    missing_ranks: tuple[str, ...]
    """Ranks of the launch that are not in the trace."""
    host: str
    session_start_utc_ns: int | None
    system_clock_ns: int | None

    def tables(self) -> tuple[Columns, ...]:
        return self.nvtx, self.kernels, self.memcpys, self.memsets, self.graphs, self.api, self.syncs

    @cached_property
    def gpu_pids(self) -> set[int]:
        """Processes with GPU work."""
        tables = (self.kernels, self.memcpys, self.memsets, self.graphs)
        return {pid for table in tables for pid in distinct_ids(table["global_pid"])}

    @cached_property
    def pids(self) -> set[int]:
        """Processes with ranges, GPU work or API calls."""
        tids = {tid for table in (self.nvtx, self.api) for tid in distinct_ids(table["global_tid"])}
        return self.gpu_pids | {tid & schema.GLOBAL_PID_MASK for tid in tids}
