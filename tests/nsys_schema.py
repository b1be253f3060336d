"""The tables of Nsight Systems' SQLite exports as each version wrote them, from 2021 to 2026.

Names, types and order of the columns are those of real exports. A version is its year and month as numbers; `@2023.4`
means "from that version on". Where no export of the very version was at hand, the change stands at the first version
that was seen to have it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

Version = tuple[int, int]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column, and the versions that have it: from `since` up to and without `until`."""

    name: str
    kind: str
    since: Version
    until: Version

    @property
    def required(self) -> bool:
        return "NOT NULL" in self.kind


_EVER: Final = (0, 0)
_NEVER: Final = (9999, 0)
_LINE: Final = re.compile(r"(\w+) (INTEGER|REAL|TEXT)(!?)(?: @([\d.]+))?(?: until ([\d.]+))?")

_TIMES = "start INTEGER!, end INTEGER!"
_GPU = f"""{_TIMES}, deviceId INTEGER!, contextId INTEGER!, greenContextId INTEGER @2023.4, streamId INTEGER!,
    correlationId INTEGER, globalPid INTEGER"""

# `!` is NOT NULL. What comes before the first column is about the table itself.
_TABLES: Final = {
    "StringIds": "id INTEGER!, value TEXT!",
    "ThreadNames": "nameId INTEGER!, priority INTEGER, globalTid INTEGER",
    "ProcessStreams": "globalPid INTEGER!, filenameId INTEGER!, contentId INTEGER!",
    "TARGET_INFO_SYSTEM_ENV": "globalVid INTEGER, devStateName TEXT!, name TEXT!, nameEnum INTEGER!, value TEXT!",
    "TARGET_INFO_SESSION_START_TIME": """@2022.2
        utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER @2025.6""",
    "PROCESSES": "@2022.2 globalPid INTEGER, pid INTEGER, name TEXT",
    "EXPORT_META_DATA": "@2022.2 until 2023.3 name TEXT!, value TEXT",
    "META_DATA_EXPORT": "@2023.3 name TEXT!, value TEXT",
    "META_DATA_CAPTURE": "@2023.3 name TEXT!, value TEXT",
    "ENUM_NSYS_EVENT_TYPE": "@2022.4 id INTEGER!, name TEXT, label TEXT",
    "DIAGNOSTIC_EVENT": """@2024.5
        timestamp INTEGER!, timestampType INTEGER!, source INTEGER!, severity INTEGER!, text TEXT!,
        globalPid INTEGER""",
    "NVTX_EVENTS": """start INTEGER!, end INTEGER, eventType INTEGER!, rangeId INTEGER, category INTEGER,
        color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER,
        uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER,
        floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT @2024.6""",
    "CUPTI_ACTIVITY_KIND_RUNTIME": f"""{_TIMES}, eventClass INTEGER!, globalTid INTEGER, correlationId INTEGER,
        nameId INTEGER!, returnValue INTEGER!, callchainId INTEGER""",
    "CUPTI_ACTIVITY_KIND_KERNEL": f"""{_GPU}, demangledName INTEGER!, shortName INTEGER!, mangledName INTEGER,
        launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER!, gridX INTEGER!, gridY INTEGER!,
        gridZ INTEGER!, blockX INTEGER!, blockY INTEGER!, blockZ INTEGER!, staticSharedMemory INTEGER!,
        dynamicSharedMemory INTEGER!, localMemoryPerThread INTEGER!, localMemoryTotal INTEGER!, gridId INTEGER!,
        sharedMemoryExecuted INTEGER, graphNodeId INTEGER @2022.2, sharedMemoryLimitConfig INTEGER @2022.2,
        qmdBulkReleaseDone INTEGER @2025.5, qmdPreexitDone INTEGER @2025.5, qmdLastCtaDone INTEGER @2025.5,
        graphId INTEGER @2025.5, clusterX INTEGER @2025.5, clusterY INTEGER @2025.5, clusterZ INTEGER @2025.5,
        clusterSchedulingPolicy INTEGER @2025.5, maxPotentialClusterSize INTEGER @2025.5,
        maxActiveClusters INTEGER @2025.5, sharedMemoryRequestedPercentage INTEGER @2026.2,
        tensorSizeMinusOneElements TEXT! @2026.2""",
    "CUPTI_ACTIVITY_KIND_MEMCPY": f"""{_GPU}, bytes INTEGER!, copyKind INTEGER!, deprecatedSrcId INTEGER,
        srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER,
        dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER @2022.2, virtualAddress INTEGER @2022.2,
        copyCount INTEGER @2025.1""",
    "CUPTI_ACTIVITY_KIND_MEMSET": f"""{_GPU}, value INTEGER!, bytes INTEGER!, graphNodeId INTEGER @2022.2,
        memKind INTEGER""",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": f"""{_GPU}, deprecatedSyncType INTEGER @2025.1, syncType INTEGER!,
        eventId INTEGER!, eventSyncId INTEGER @2025.1""",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": f"@2023.4 {_GPU}, graphId INTEGER!, graphExecId INTEGER!",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": f"""@2025.5 {_TIMES}, eventClass INTEGER!, globalTid INTEGER,
        correlationId INTEGER, nameId INTEGER, overheadType INTEGER!""",
    "CUDA_GRAPH_EVENTS": f"""@2022.2 {_TIMES}, eventClass INTEGER!, globalTid INTEGER, nameId INTEGER!,
        graphNodeId INTEGER! until 2024.6, originalGraphNodeId INTEGER until 2024.6, graphId INTEGER @2024.6,
        originalGraphId INTEGER @2024.6, graphExecId INTEGER @2024.6""",
}  # fmt: skip


def version(text: str | None, default: Version = _EVER) -> Version:
    """`2023.4` as numbers that compare."""
    if text is None:
        return default
    year, _, month = text.partition(".")
    return int(year), int(month)


def _columns(text: str) -> tuple[Column, ...]:
    return tuple(
        Column(
            name=name,
            kind=kind + (" NOT NULL" if required else ""),
            since=version(since or None),
            until=version(until or None, _NEVER),
        )
        for name, kind, required, since, until in _LINE.findall(text)
    )


def tables_of(wanted: Version) -> dict[str, tuple[Column, ...]]:
    """The tables that an export of that version can have, with its columns of them."""
    found = {}
    for table, text in _TABLES.items():
        head = re.match(r"(?:@([\d.]+))?\s*(?:until ([\d.]+))?", text)
        assert head is not None
        if version(head[1]) <= wanted < version(head[2], _NEVER):
            found[table] = tuple(one for one in _columns(text) if one.since <= wanted < one.until)
    return found


def create_statement(table: str, columns: tuple[Column, ...]) -> str:
    """SQL that makes `table`; the ids of strings and enumerations are primary keys, as in the real ones."""
    lines = [f'"{one.name}" {one.kind}{" PRIMARY KEY" if one.name == "id" else ""}' for one in columns]
    return f"CREATE TABLE {table} ({', '.join(lines)})"
