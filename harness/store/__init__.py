"""The results database: the only part that touches it. `database` holds runs, `duels` what two subjects did in turn."""

from __future__ import annotations

from harness.measured import RangeRecord
from harness.store.baselines import BaselineRecord, Baselines
from harness.store.database import (
    BUSY_TIMEOUT_S,
    RESULTS,
    RunRecord,
    Status,
    StepRecord,
    Store,
    check_writable,
    migrations,
    new_run_id,
    open_results,
)
from harness.store.duels import (
    SIDES,
    DuelKind,
    DuelRangeRecord,
    DuelRecord,
    Duels,
    DuelStepRecord,
    PairRecord,
    SideName,
)

__all__ = [
    "BUSY_TIMEOUT_S",
    "RESULTS",
    "SIDES",
    "BaselineRecord",
    "Baselines",
    "DuelKind",
    "DuelRangeRecord",
    "DuelRecord",
    "DuelStepRecord",
    "Duels",
    "PairRecord",
    "RangeRecord",
    "RunRecord",
    "SideName",
    "Status",
    "StepRecord",
    "Store",
    "check_writable",
    "migrations",
    "new_run_id",
    "open_results",
]
