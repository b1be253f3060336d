"""The tables of an Nsight Systems SQLite export that this project writes, and the numbers that are in them.

Column names, types and order are those of nsys 2026.2 (export schema 3.25.0), so that whatever reads nsys exports
reads ours. Standard library only: it is imported inside the measured processes.
"""

from __future__ import annotations

from typing import Final

SCHEMA_VERSION: Final = "3.25.0"

# Event types of NVTX_EVENTS.
NVTX_CATEGORY: Final = 33
NVTX_MARK: Final = 34
NVTX_THREAD_NAME: Final = 39
NVTX_PUSH_POP: Final = 59
NVTX_START_END: Final = 60
NVTX_TEXT_PUSH_POP: Final = 70
NVTX_TEXT_START_END: Final = 71
NVTX_DOMAIN_CREATE: Final = 75
RANGE_TYPES: Final = (NVTX_PUSH_POP, NVTX_START_END, NVTX_TEXT_PUSH_POP, NVTX_TEXT_START_END)
PUSH_POP_TYPES: Final = (NVTX_PUSH_POP, NVTX_TEXT_PUSH_POP)

# eventClass of CUPTI_ACTIVITY_KIND_RUNTIME.
CLASS_RUNTIME_API: Final = 0
CLASS_DRIVER_API: Final = 1
CLASS_BACKTRACE: Final = 67
"""Repeats the correlation ids of the calls it belongs to; must stay out of every join."""

COPY_KINDS: Final = {
    0: "Unknown",
    1: "Host-to-Device",
    2: "Device-to-Host",
    3: "Host-to-Array",
    4: "Array-to-Host",
    5: "Array-to-Array",
    6: "Array-to-Device",
    7: "Device-to-Array",
    8: "Device-to-Device",
    9: "Host-to-Host",
    10: "Peer-to-Peer",
    11: "Unified Host-to-Device",
    12: "Unified Device-to-Host",
    13: "Unified Device-to-Device",
}
H2D_KINDS: Final = (1, 3, 11)
D2H_KINDS: Final = (2, 4, 12)

MEMORY_KINDS: Final = {
    0: "Pageable",
    1: "Pinned",
    2: "Device",
    3: "Array",
    4: "Managed",
    5: "Device Static",
    6: "Managed Static",
    7: "Unknown",
}
PAGEABLE: Final = 0
PINNED: Final = 1

SYNC_TYPES: Final = {0: "Unknown", 1: "Event sync", 2: "Stream wait sync", 3: "Stream sync", 4: "Context sync"}

GLOBAL_PID_MASK: Final = ~0xFFFFFF
"""`global_tid & GLOBAL_PID_MASK` is the global pid, on Python integers and on int64 arrays alike."""


def global_pid(pid: int, *, hardware_id: int = 0, vm_id: int = 1) -> int:
    """Serialize a process id as nsys does: hardware id 8 bits, VM id 8, process id 24, 24 bits of zero."""
    return (hardware_id << 56 | vm_id << 48 | (pid & 0xFFFFFF) << 24) - (hardware_id >> 7 << 64)


def global_tid(pid: int, tid: int, *, hardware_id: int = 0, vm_id: int = 1) -> int:
    """Serialize a thread id: the global pid with the 24-bit thread id in its low bits."""
    return global_pid(pid, hardware_id=hardware_id, vm_id=vm_id) | (tid & 0xFFFFFF)


def pid_of(global_id: int) -> int:
    """The process id in a global pid or global tid."""
    return global_id >> 24 & 0xFFFFFF


# Names in the metadata tables. The first two are nsys' own; the others are ours, and nsys' tools ignore them.
META_PRODUCT_VERSION: Final = "EXPORT_PRODUCT_VERSION"
META_SCHEMA_VERSION: Final = "EXPORT_SCHEMA_VERSION"
META_COLLECTOR: Final = "STEPDUEL_COLLECTOR"
META_SEES_GPU: Final = "STEPDUEL_SEES_GPU"
"""`yes` or `no`: whether what wrote the file records GPU work, so that none in it says that there was none."""
META_RANK: Final = "STEPDUEL_RANK"
"""One row a process, `"<globalPid>:<rank>"`."""
META_MISSING_RANK: Final = "STEPDUEL_MISSING_RANK"
"""One row a rank that left no readable trace."""

_GPU_COLUMNS = """
    start                       INTEGER   NOT NULL,
    end                         INTEGER   NOT NULL,
    deviceId                    INTEGER   NOT NULL,
    contextId                   INTEGER   NOT NULL,
    greenContextId              INTEGER,
    streamId                    INTEGER   NOT NULL,
    correlationId               INTEGER,
    globalPid                   INTEGER,
"""

TABLES: Final = {
    "StringIds": "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    "PROCESSES": "globalPid INTEGER, pid INTEGER, name TEXT",
    "ThreadNames": "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    "TARGET_INFO_SESSION_START_TIME": "utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER",
    "META_DATA_EXPORT": "name TEXT NOT NULL, value TEXT",
    "META_DATA_CAPTURE": "name TEXT NOT NULL, value TEXT",
    "NVTX_EVENTS": """
    start                       INTEGER   NOT NULL,
    end                         INTEGER,
    eventType                   INTEGER   NOT NULL,
    rangeId                     INTEGER,
    category                    INTEGER,
    color                       INTEGER,
    text                        TEXT,
    globalTid                   INTEGER,
    endGlobalTid                INTEGER,
    textId                      INTEGER,
    domainId                    INTEGER,
    uint64Value                 INTEGER,
    int64Value                  INTEGER,
    doubleValue                 REAL,
    uint32Value                 INTEGER,
    int32Value                  INTEGER,
    floatValue                  REAL,
    jsonTextId                  INTEGER,
    jsonText                    TEXT,
    binaryData                  TEXT
""",
    "CUPTI_ACTIVITY_KIND_RUNTIME": """
    start                       INTEGER   NOT NULL,
    end                         INTEGER   NOT NULL,
    eventClass                  INTEGER   NOT NULL,
    globalTid                   INTEGER,
    correlationId               INTEGER,
    nameId                      INTEGER   NOT NULL,
    returnValue                 INTEGER   NOT NULL,
    callchainId                 INTEGER
""",
    "CUPTI_ACTIVITY_KIND_KERNEL": _GPU_COLUMNS
    + """
    demangledName               INTEGER   NOT NULL,
    shortName                   INTEGER   NOT NULL,
    mangledName                 INTEGER,
    launchType                  INTEGER,
    cacheConfig                 INTEGER,
    registersPerThread          INTEGER   NOT NULL,
    gridX                       INTEGER   NOT NULL,
    gridY                       INTEGER   NOT NULL,
    gridZ                       INTEGER   NOT NULL,
    blockX                      INTEGER   NOT NULL,
    blockY                      INTEGER   NOT NULL,
    blockZ                      INTEGER   NOT NULL,
    staticSharedMemory          INTEGER   NOT NULL,
    dynamicSharedMemory         INTEGER   NOT NULL,
    localMemoryPerThread        INTEGER   NOT NULL,
    localMemoryTotal            INTEGER   NOT NULL,
    gridId                      INTEGER   NOT NULL,
    sharedMemoryExecuted        INTEGER,
    graphNodeId                 INTEGER,
    sharedMemoryLimitConfig     INTEGER,
    qmdBulkReleaseDone          INTEGER,
    qmdPreexitDone              INTEGER,
    qmdLastCtaDone              INTEGER,
    graphId                     INTEGER,
    clusterX                    INTEGER,
    clusterY                    INTEGER,
    clusterZ                    INTEGER,
    clusterSchedulingPolicy     INTEGER,
    maxPotentialClusterSize     INTEGER,
    maxActiveClusters           INTEGER,
    sharedMemoryRequestedPercentage   INTEGER,
    tensorSizeMinusOneElements   TEXT      NOT NULL
""",
    "CUPTI_ACTIVITY_KIND_MEMCPY": _GPU_COLUMNS
    + """
    bytes                       INTEGER   NOT NULL,
    copyKind                    INTEGER   NOT NULL,
    deprecatedSrcId             INTEGER,
    srcKind                     INTEGER,
    dstKind                     INTEGER,
    srcDeviceId                 INTEGER,
    srcContextId                INTEGER,
    dstDeviceId                 INTEGER,
    dstContextId                INTEGER,
    migrationCause              INTEGER,
    graphNodeId                 INTEGER,
    virtualAddress              INTEGER,
    copyCount                   INTEGER
""",
    "CUPTI_ACTIVITY_KIND_MEMSET": _GPU_COLUMNS
    + """
    value                       INTEGER   NOT NULL,
    bytes                       INTEGER   NOT NULL,
    graphNodeId                 INTEGER,
    memKind                     INTEGER
""",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": _GPU_COLUMNS
    + """
    deprecatedSyncType          INTEGER,
    syncType                    INTEGER   NOT NULL,
    eventId                     INTEGER   NOT NULL,
    eventSyncId                 INTEGER
""",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _GPU_COLUMNS
    + """
    graphId                     INTEGER   NOT NULL,
    graphExecId                 INTEGER   NOT NULL
""",
}

ENUMS: Final = {
    "ENUM_NSYS_EVENT_TYPE": [
        (NVTX_CATEGORY, "NvtxCategory", "NvtxCategory"),
        (NVTX_MARK, "NvtxMark", "NvtxMark"),
        (NVTX_THREAD_NAME, "NvtxThread", "NvtxThread"),
        (NVTX_PUSH_POP, "NvtxPushPopRange", "NvtxPushPopRange"),
        (NVTX_START_END, "NvtxStartEndRange", "NvtxStartEndRange"),
        (NVTX_DOMAIN_CREATE, "NvtxDomainCreate", "NvtxDomainCreate"),
    ],
    "ENUM_NSYS_EVENT_CLASS": [
        (CLASS_RUNTIME_API, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
        (CLASS_DRIVER_API, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
    ],
    "ENUM_CUDA_MEMCPY_OPER": [
        (0, "CUDA_MEMCPY_KIND_UNKNOWN", COPY_KINDS[0]),
        (1, "CUDA_MEMCPY_KIND_HTOD", COPY_KINDS[1]),
        (2, "CUDA_MEMCPY_KIND_DTOH", COPY_KINDS[2]),
        (3, "CUDA_MEMCPY_KIND_HTOA", COPY_KINDS[3]),
        (4, "CUDA_MEMCPY_KIND_ATOH", COPY_KINDS[4]),
        (5, "CUDA_MEMCPY_KIND_ATOA", COPY_KINDS[5]),
        (6, "CUDA_MEMCPY_KIND_ATOD", COPY_KINDS[6]),
        (7, "CUDA_MEMCPY_KIND_DTOA", COPY_KINDS[7]),
        (8, "CUDA_MEMCPY_KIND_DTOD", COPY_KINDS[8]),
        (9, "CUDA_MEMCPY_KIND_HTOH", COPY_KINDS[9]),
        (10, "CUDA_MEMCPY_KIND_PTOP", COPY_KINDS[10]),
        (11, "CUDA_MEMCPY_KIND_UVM_HTOD", COPY_KINDS[11]),
        (12, "CUDA_MEMCPY_KIND_UVM_DTOH", COPY_KINDS[12]),
        (13, "CUDA_MEMCPY_KIND_UVM_DTOD", COPY_KINDS[13]),
    ],
    "ENUM_CUDA_MEM_KIND": [
        (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", MEMORY_KINDS[0]),
        (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", MEMORY_KINDS[1]),
        (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", MEMORY_KINDS[2]),
        (3, "CUDA_MEMOPR_MEMORY_KIND_ARRAY", MEMORY_KINDS[3]),
        (4, "CUDA_MEMOPR_MEMORY_KIND_MANAGED", MEMORY_KINDS[4]),
        (5, "CUDA_MEMOPR_MEMORY_KIND_DEVICE_STATIC", MEMORY_KINDS[5]),
        (6, "CUDA_MEMOPR_MEMORY_KIND_MANAGED_STATIC", MEMORY_KINDS[6]),
        (7, "CUDA_MEMOPR_MEMORY_KIND_UNKNOWN", MEMORY_KINDS[7]),
    ],
    "ENUM_CUPTI_SYNC_TYPE": [
        (0, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_UNKNOWN", SYNC_TYPES[0]),
        (1, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE", SYNC_TYPES[1]),
        (2, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT", SYNC_TYPES[2]),
        (3, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE", SYNC_TYPES[3]),
        (4, "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE", SYNC_TYPES[4]),
    ],
}

BASE_TABLES: Final = (
    "StringIds",
    "PROCESSES",
    "ThreadNames",
    "TARGET_INFO_SESSION_START_TIME",
    "META_DATA_EXPORT",
    "META_DATA_CAPTURE",
    "NVTX_EVENTS",
)
"""Written into every trace; the CUPTI tables appear with their first row, as nsys does it."""


def create_statements(tables: tuple[str, ...]) -> list[str]:
    """`CREATE TABLE IF NOT EXISTS` for each of `tables`, in order."""
    return [f"CREATE TABLE IF NOT EXISTS {name} ({TABLES[name]})" for name in tables]
