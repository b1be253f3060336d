"""Traces in the formats of other tools: Chrome JSON for the Perfetto UI, CSV and Parquet for notebooks.

A file or folder appears under its name when it is complete, or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, get_args

from harness.errors import UsageError, closest
from harness.trace.export.perfetto import write_chrome_json
from harness.trace.export.replacing import replacing
from harness.trace.export.tables import TABLES, write_table
from harness.trace.model import Trace
from harness.trace.nesting import range_tree

__all__ = ["FORMATS", "TABLES", "Format", "export_trace"]

Format = Literal["perfetto", "csv", "parquet"]
FORMATS: Final[tuple[Format, ...]] = get_args(Format)


def export_trace(trace: Trace, target: Path, to: Format, *, table: str | None = None, force: bool = False) -> Path:
    """Write `trace` to `target` and return it.

    `perfetto` writes one file, compressed when its name ends in `.gz`. `csv` and `parquet` write one table (`ranges`
    unless `table` names another) when the name ends in `.csv` or `.parquet`, and a folder with all tables otherwise.
    Raises UsageError where `target` exists and `force` is not given, or cannot be written.
    """
    if table is not None and table not in TABLES:
        raise UsageError(f"no table {table!r}: there are {', '.join(TABLES)}.{closest(table, TABLES)}")
    if table is not None and to == "perfetto":
        raise UsageError("--table is for csv and parquet; perfetto writes the whole trace")
    tree = range_tree(trace)
    single = to == "perfetto" or target.suffix == f".{to}" or table is not None
    with replacing(target, force=force, folder=not single) as work:
        if to == "perfetto":
            write_chrome_json(trace, tree, work, compress=target.suffix == ".gz")
        elif single:
            write_table(trace, tree, table or "ranges", work, to)
        else:
            for name in TABLES:
                write_table(trace, tree, name, work / f"{name}.{to}", to)
    return target
