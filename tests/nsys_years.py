"""Writes an export of every schema year into `tests/data/nsys_exports`: `python tests/nsys_years.py`.

No byte of them comes from a real export: tables and columns are `nsys_schema`'s, what happens is `nsys_story`'s. They
are made the same each time, and a test compares those that lie there with newly made ones.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from nsys_schema import create_statement, tables_of, version
from nsys_story import CALLS, PIDS, Figures, Row, Story, figures

FOLDER: Final = Path(__file__).resolve().parent / "data" / "nsys_exports"
SESSION_START_NS: Final = 1_700_000_000_000_000_000
PRIVATE: Final = ("ada-made-up", "host-made-up", "/home/ada-made-up/train.py", "token-made-up")
"""Who and where, as an export gives it away: made up, for `scrub` to take out."""
_PROCESSES: Final = ((PIDS[0] - 1, "torchrun"), *((pid, "python") for pid in PIDS))
_DEFAULTS: Final = {"INTEGER": 0, "REAL": 0.0, "TEXT": "[]"}


@dataclass(frozen=True, kw_only=True)
class Year:
    """One version, and what its export holds."""

    name: str
    schema: str | None = None
    ranges: bool = True
    gpu: bool = True
    every_table: bool = False
    """Empty tables too: exports were not lazy by default."""
    shuffled: bool = False
    """From 2025.6 rows come in no order."""
    slow_us: int = 0
    """Added to the forward pass of each step."""

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.sqlite"

    @property
    def graphs(self) -> bool:
        return "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in tables_of(version(self.name))

    @property
    def figures(self) -> Figures:
        return figures(slow_us=self.slow_us, graphs=self.graphs)


YEARS: Final = (
    Year(name="2021.3"),
    Year(name="2022.2", schema="2.9.1", every_table=True),
    Year(name="2022.4", schema="3.0.0", gpu=False),
    Year(name="2023.1"),
    Year(name="2023.4", schema="3.6.0"),
    Year(name="2024.5", ranges=False),
    Year(name="2024.6", schema="3.16.1"),
    Year(name="2025.1", schema="3.17.2"),
    Year(name="2025.5", schema="3.24.0"),
    Year(name="2025.6", shuffled=True),
    Year(name="2026.2", schema="3.25.0", shuffled=True, slow_us=50),
)


def write(year: Year, path: Path) -> Path:
    """Make the export of `year` at `path`."""
    story = Story(slow_us=year.slow_us, graphs=year.graphs).told()
    rows = {table: some for table, some in story.rows.items() if year.gpu or not table.startswith("CUPTI")}
    if not year.ranges:
        del rows["NVTX_EVENTS"]
    rows |= _surroundings(year, story)
    rows["StringIds"] = [{"id": number, "value": text} for text, number in story.strings.items()]
    random = Random(year.name)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size = 1024")  # a page a table, of which there are many
        for table, columns in tables_of(version(year.name)).items():
            some = rows.get(table, [])
            if not some and not (year.every_table and table != "NVTX_EVENTS"):
                continue
            connection.execute(create_statement(table, columns))
            if year.shuffled:
                random.shuffle(some)
            default = {one.name: _DEFAULTS[one.kind.split()[0]] if one.required else None for one in columns}
            _insert(connection, table, [default | {name: row[name] for name in row if name in default} for row in some])
    return path


def content(path: Path) -> dict[str, list[Any]]:
    """All that an export says: its tables, as they were made, and their rows in order."""
    with contextlib.closing(sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)) as connection:
        connection.text_factory = bytes
        made = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        return {
            name.decode(): [sql, *connection.execute(f"SELECT * FROM {name.decode()} ORDER BY rowid")]
            for name, sql in made
        }


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    for row in rows:
        # A text given as bytes is written as the text that it is not.
        values = ", ".join("CAST(? AS TEXT)" if isinstance(value, bytes) else "?" for value in row.values())
        connection.execute(f"INSERT INTO {table} VALUES ({values})", tuple(row.values()))


def _surroundings(year: Year, story: Story) -> dict[str, list[Row]]:
    """The tables beside the events."""
    user, host, script, token = PRIVATE
    meta = [("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems"), ("EXPORT_PRODUCT_VERSION", f"{year.name}.1.0")]
    meta += [("EXPORT_SCHEMA_VERSION", year.schema)] if year.schema else []
    meta += [("EXPORT_HOST", host), ("EXPORT_USER", user), ("EXPORT_PARAM_INPUT_PATH_ABS", script)]
    capture = [("CAPTURE_EVENT_TYPE", "Cuda"), ("PROCESS_0:ENVIRONMENT_VARIABLE", f'API_KEY="{token}"')]
    pairs = {"EXPORT_META_DATA": meta, "META_DATA_EXPORT": meta, "META_DATA_CAPTURE": capture}
    session = {"utcEpochNs": SESSION_START_NS, "utcTime": "2023-11-14T22:13:20", "systemClockNs": 5_000_000}
    process = 1 << 48 | PIDS[0] << 24
    thread = process | PIDS[0]
    about = {"globalVid": 1 << 48, "devStateName": "Local (CLI)"}
    found: dict[str, list[Row]] = {
        **{table: [{"name": name, "value": value} for name, value in some] for table, some in pairs.items()},
        "TARGET_INFO_SYSTEM_ENV": [
            {**about, "name": "CpuCores", "nameEnum": 1, "value": "64"},
            {**about, "name": "Hostname", "nameEnum": 619, "value": host},
        ],
        "TARGET_INFO_SESSION_START_TIME": [session],
        "PROCESSES": [{"globalPid": 1 << 48 | pid << 24, "pid": pid, "name": name} for pid, name in _PROCESSES],
        "ThreadNames": [{"nameId": story.string("pt_autograd_0"), "priority": 0, "globalTid": thread + 50}],
        "ProcessStreams": [
            {"globalPid": process, "filenameId": story.string(script), "contentId": story.string(f"hello {user}")}
        ],
        "ENUM_NSYS_EVENT_TYPE": [{"id": 59, "name": "NvtxPushPopRange", "label": "NvtxPushPopRange"}],
        "DIAGNOSTIC_EVENT": [{"timestampType": 1, "source": 3, "severity": 1, "text": f"Started by {user}."}],
    }
    if year.gpu:
        first = story.rows[CALLS][0]
        name = story.string("cudaGraphInstantiate_v12000")
        shared = {"start": first["start"], "end": first["end"], "globalTid": thread, "nameId": name}
        found["CUPTI_ACTIVITY_KIND_OVERHEAD"] = [{**shared, "eventClass": 103, "correlationId": 3, "overheadType": 7}]
        if year.graphs:
            found["CUDA_GRAPH_EVENTS"] = [{**shared, "eventClass": 95, "graphId": 3, "graphNodeId": 1}]
    return found


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for one in YEARS:
        one.path.unlink(missing_ok=True)
        print(write(one, one.path))
