"""What a scrubbed export may keep: the lists that `harness.trace.scrub` goes by. What is on none of them is removed."""

from __future__ import annotations

import re
from typing import Final

SCRUBBED: Final = "scrubbed"

# Columns that hold a StringIds id whose text is a performance name, in whichever table they appear.
NAME_ID_COLUMNS: Final = {
    "nameId", "textId", "jsonTextId", "demangledName", "shortName", "mangledName", "symbol", "endNameId", "name",
}  # fmt: skip
# Columns that hold an id of a path of which the last part says enough (libtorch_cuda.so).
MODULE_ID_COLUMNS: Final = {"module"}
# Tables whose name columns speak of the machine rather than of the program's performance.
FOREIGN_TABLES: Final = ("ProcessStreams", "ANALYSIS_FILE", "OSRT_FILE_ACCESS", "TARGET_INFO_SYSTEM_ENV")

# Text columns that are kept: a pattern over TABLE.column.
KEPT_TEXT: Final = re.compile(
    r"StringIds\.value"
    r"|NVTX_EVENTS\.(text|jsonText|binaryData)"
    r"|NVTX_PAYLOAD_\w+\.(name|description)"
    r"|(CUPTI|CUDA|OSRT|MPI|CUBLAS|CUDNN|NCCL)_\w+\.(name|tensorSizeMinusOneElements)"
    r"|TARGET_INFO_GPU\.(name|chipName|busLocation)"
    r"|TARGET_INFO_SYSTEM_ENV\.name|(META_DATA_CAPTURE|META_DATA_EXPORT|EXPORT_META_DATA)\.name"
    r"|TARGET_INFO_SESSION_START_TIME\.utcTime"
    r"|(ENUM_\w+|UnwindMethodType)\.\w+"
)
# Settings and system facts whose value says nothing about a person or a place.
KEPT_VALUES: Final = re.compile(
    r"STEPDUEL_(COLLECTOR|RANK)|EXPORT_(PRODUCT_\w+|SCHEMA_\w+|PLATFORM|ARCH|TIME_UTC|LAZY|PARAM_(LAZY|APPEND|OVERWRITE|TIME_\w+))"
    r"|CAPTURE_EVENT_TYPE|(START|STOP)_TRIGGER|RATE_HZ|RUN_DURATION_\w+"
    r"|(PROCESS_\d+:)?(COLLECT_\w+|CUDA_\w+(:\w+)?)"
    r"|LINUX_PERF_OPTIONS:\w+|OS_RUNTIME_OPTIONS:\w+"
    r"|Cpu(Cores|SpeedMhz|Architecture|Description)|NvDriverVersion|CudaDriverVersion|OsDescription|Has\w+|Supports\w+"
)
META_TABLES: Final = ("META_DATA_CAPTURE", "META_DATA_EXPORT", "EXPORT_META_DATA", "TARGET_INFO_SYSTEM_ENV")
# Settings whose value is an identity to look for in the names that are kept.
IDENTITY_NAMES: Final = re.compile(
    r"EXPORT_(HOST|USER)|DEVICE_DISPLAY_NAME|Hostname|(PROCESS_\d+:)?(USER_NAME|WORKING_DIR)", re.IGNORECASE
)
IDENTITY_VARIABLES: Final = re.compile(r'(?:HOME|USER|LOGNAME|HOSTNAME|PWD|SUDO_USER|NAME)="?([^"]+)"?')
# Names too common to be anybody's, which would only damage range names.
NOBODY: Final = {"", "root", "user", "users", "home", "localhost", "local", "none", "true", "false", "cuda", SCRUBBED}
# A file path inside a name. Layers of a model are named like paths too (`/blocks.2/conv1/Conv`), and are kept: a path
# is one that starts at a folder found at the root of file systems, or ends as a source, library or data file does.
ROOTS: Final = (
    rb"app|apps|content|data|datasets|dev|etc|export|fsx|global|gpfs|home|kaggle|lib|lustre|media|mnt|nfs|opt|private|proc"
    rb"|projects?|root|run|scratch|shared|srv|storage|sys|tmp|Users|usr|var|vol|work|workspace"
)
PATH: Final = (
    rb"\w+://[^\s\"'<>]+"  # a web address
    rb"|(?<![\w/.])(?:~|[A-Za-z]:)[/\\][\w.@+~/\\-]*"
    rb"|(?<![\w/.:>])/(?:" + ROOTS + rb")/[\w.@+~/-]+"
    rb"|(?<![\w/.:>])/(?:[\w.@+~-]+/)+[\w.@+~-]+\.(?:py|so|cu|cuh|c|cc|cpp|h|hpp|json|ya?ml|toml|pt|pth|bin|safetensors|txt|log|sh)\b"
)
INTERPRETER: Final = re.compile(r"(?:.*/)?(python[\d.]*|pt_main_thread|torchrun|nsys)")
# nsys lists the threads of every process on the machine; only those that were measured are anybody's business.
WATCHED_THREADS: Final = {"ThreadNames": "AND (globalTid & -16777216) IN ({watched})"}
