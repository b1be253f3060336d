"""Names that the worker shares with the rest: with the analysis, and with what makes a side ready. Each spelt once."""

from __future__ import annotations

from typing import Final

NVTX_DOMAIN: Final = "stepduel"
"""NVTX domain of every range and mark that the worker and its probes make."""

STEP: Final = "step"
BATCH: Final = "batch"
TRAIN_MODE_ENTER: Final = "train_mode_enter"
TRAIN_MODE_EXIT: Final = "train_mode_exit"
EVAL_MODE_ENTER: Final = "eval_mode_enter"
EVAL_MODE_EXIT: Final = "eval_mode_exit"
FORWARD_BACKWARD: Final = "forward_backward"
FORWARD: Final = "forward"
OPTIMIZER_STEP: Final = "optimizer_step"
TRAIN_BATCH: Final = "train_batch"

GC_COLLECT: Final = "gc.collect"
"""Range of an explicit `gc.collect()` (a probe)."""
GC_AUTO: Final = "gc.auto"
"""Range of a collection the interpreter started by itself (from `gc.callbacks`)."""

RECORDER_FLUSH: Final = "recorder.flush"
"""Range of the recorder's own write, when its buffer fills up in the middle of a step; payload = rows written."""

CAPTURE: Final = "capture"
"""Start/end range around the measured steps: what `nsys --capture-range=nvtx` listens for."""

# Marks. NVTX fixes a range's payload when the range begins, before what it moved is known. So a probe emits, inside
# its range, a mark with one of these names and the figure as payload; the analysis adds it to the tightest range
# around it on the same thread. It works alike under nsys and under our own recorder.
RANK_MARK: Final = "rank"
"""Emitted at the start of every step; payload = the torch.distributed rank of this process."""
MOVED_BYTES: Final = "moved_bytes"
COLLECTED_OBJECTS: Final = "collected_objects"
PAYLOAD_MARKS: Final = (MOVED_BYTES, COLLECTED_OBJECTS)
"""What a probe may emit of what its callable returns."""
GROWN_BYTES: Final = "grown_bytes"
"""Emitted at the end of the worker's own ranges in a step; payload = what was allocated in it and kept."""

PATH_SEPARATOR: Final = "/"

BUILT_SITE: Final = ".stepduel-site"
"""Folder of a side's tree with what a build of it has installed (`subject.building`)."""
