"""A trace as flat tables, one row an event: for pandas, DuckDB, spreadsheets.

Times are ns on the trace's axis. Names are those recorded; `path` joins comparable names from the outermost range.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from harness.trace import schema
from harness.trace.model import NO_NAME, NO_RANK, Int64Array, Trace
from harness.trace.nesting import RangeTree

KIND_NAMES: Final = ("kernel", "memcpy", "memset", "graph")
"""By value of `GpuOperations.kind`."""
_CSV_ROWS: Final = 65_536


def _ranges(trace: Trace, tree: RangeTree) -> pa.Table:
    ranges = trace.ranges
    return pa.table(
        {
            **_thread(trace, ranges.global_tid),
            "start_ns": ranges.start_ns,
            "end_ns": ranges.end_ns,
            "duration_ns": ranges.end_ns - ranges.start_ns,
            "self_ns": tree.nesting.self_ns,
            "depth": tree.nesting.depth,
            "name": _text(trace.strings, ranges.name_id),
            "path": _text(tree.paths.text, tree.path_id),
            "domain": _text(trace.strings, ranges.domain_id),
            "payload": pa.array(ranges.payload, mask=np.isnan(ranges.payload)),
            "push_pop": ranges.push_pop,
            "closed": ranges.closed,
        }
    )


def _marks(trace: Trace, tree: RangeTree) -> pa.Table:  # noqa: ARG001 - every table is built alike
    marks = trace.marks
    return pa.table(
        {
            **_thread(trace, marks.global_tid),
            "time_ns": marks.time_ns,
            "name": _text(trace.strings, marks.name_id),
            "payload": pa.array(marks.payload, mask=np.isnan(marks.payload)),
        }
    )


def _operations(trace: Trace, tree: RangeTree) -> pa.Table:  # noqa: ARG001 - every table is built alike
    operations = trace.operations
    return pa.table(
        {
            **_process(trace, operations.global_pid),
            "device": operations.device_id,
            "stream": operations.stream_id,
            "kind": _text(KIND_NAMES, operations.kind),
            "name": _text(trace.strings, operations.name_id),
            "start_ns": operations.start_ns,
            "end_ns": operations.end_ns,
            "duration_ns": operations.end_ns - operations.start_ns,
            "bytes": operations.bytes,
            "copy_kind": _coded(schema.COPY_KINDS, operations.copy_kind),
            "source_memory": _coded(schema.MEMORY_KINDS, operations.src_kind),
            "target_memory": _coded(schema.MEMORY_KINDS, operations.dst_kind),
            "correlation_id": operations.correlation_id,
        }
    )


def _api(trace: Trace, tree: RangeTree) -> pa.Table:  # noqa: ARG001 - every table is built alike
    api = trace.api
    return pa.table(
        {
            **_thread(trace, api.global_tid),
            "name": _text(trace.strings, api.name_id),
            "start_ns": api.start_ns,
            "end_ns": api.end_ns,
            "duration_ns": api.end_ns - api.start_ns,
            "correlation_id": api.correlation_id,
        }
    )


def _syncs(trace: Trace, tree: RangeTree) -> pa.Table:  # noqa: ARG001 - every table is built alike
    syncs = trace.syncs
    return pa.table(
        {
            **_process(trace, syncs.global_pid),
            "kind": _coded(schema.SYNC_TYPES, syncs.sync_type),
            "start_ns": syncs.start_ns,
            "end_ns": syncs.end_ns,
            "duration_ns": syncs.end_ns - syncs.start_ns,
            "correlation_id": syncs.correlation_id,
        }
    )


TABLES: Final[dict[str, Callable[[Trace, RangeTree], pa.Table]]] = {
    "ranges": _ranges,
    "marks": _marks,
    "operations": _operations,
    "api": _api,
    "syncs": _syncs,
}


def write_table(trace: Trace, tree: RangeTree, name: str, path: Path, to: Literal["csv", "parquet"]) -> None:
    """Write one table of `TABLES`. CSV goes out piece by piece, since its texts are not shared as in memory."""
    table = TABLES[name](trace, tree)
    if to == "parquet":
        pyarrow.parquet.write_table(table, path, compression="zstd")
        return
    plain = pa.schema([(field.name, _plain(field.type)) for field in table.schema])
    with pyarrow.csv.CSVWriter(path, plain) as writer:
        for batch in table.to_batches(max_chunksize=_CSV_ROWS):
            writer.write_table(pa.Table.from_batches([batch]).cast(plain))


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _process(trace: Trace, global_ids: Int64Array) -> dict[str, Any]:
    ranks = trace.rank_of(global_ids)
    return {"rank": pa.array(ranks, mask=ranks == NO_RANK), "pid": global_ids >> 24 & 0xFFFFFF}


def _thread(trace: Trace, global_tids: Int64Array) -> dict[str, Any]:
    return {**_process(trace, global_tids), "tid": global_tids & 0xFFFFFF}


def _text(texts: Sequence[str], index: np.ndarray[Any, np.dtype[np.signedinteger[Any]]]) -> pa.DictionaryArray:
    """Texts by index, null where it is -1; each text is held once."""
    indices = pa.array(index.astype(np.int32), mask=index == NO_NAME)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, type=pa.string()))


def _coded(names: Mapping[int, str], codes: np.ndarray[Any, np.dtype[np.signedinteger[Any]]]) -> pa.DictionaryArray:
    """Names of the codes of an enumeration; null for a code that it does not know."""
    known = list(names)
    position = np.full(256, NO_NAME, dtype=np.int32)
    position[known] = np.arange(len(known))
    return _text(list(names.values()), position[codes.astype(np.int64) & 0xFF])
