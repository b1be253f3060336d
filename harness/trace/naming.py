"""Makes names comparable. The one place that knows how profilers decorate them.

`torch.autograd.profiler.emit_nvtx` makes every name unique (`aten::copy_, seq = 45, op_id = 991065`); loops number
their steps (`training_step_12`, `ProfilerStep#3`); CUDA API calls carry the version of their ABI
(`cudaLaunchKernel_v7000`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from harness.trace.model import NO_NAME, Int32Array

# torch/csrc/autograd/profiler: getNvtxStr appends these, in this order, each only where it is known.
_EMIT_NVTX = (", seq = ", ", op_id = ", ", sizes = ", ", input_op_ids = ")
_NUMBER = re.compile(r"\d+")
_API_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")


def range_name(name: str) -> str:
    """`name` without what makes one call of a range differ from the next; `?` for a name that is empty."""
    if " = " in name:
        for decoration in _EMIT_NVTX:
            name = name.partition(decoration)[0]
    return name.strip() or "?"


def folded(name: str) -> str:
    """`name` with every number as `*`: `training_step_12` and `training_step_13` are one."""
    return _NUMBER.sub("*", name)


def api_name(name: str) -> str:
    """A CUDA call without its ABI version: `cudaLaunchKernel_v7000` is `cudaLaunchKernel`."""
    return _API_VERSION.sub("", name)


def range_names(strings: Sequence[str], name_ids: Int32Array) -> tuple[Int32Array, tuple[str, ...]]:
    """Map a column of name indexes to comparable names: (index into the names for each row, the names).

    Each distinct string is looked at once.
    """
    used, rows = np.unique(name_ids, return_inverse=True)
    index: dict[str, int] = {}
    mapped = np.empty(len(used), dtype=np.int32)
    for position, name_id in enumerate(used.tolist()):
        name = range_name("" if name_id == NO_NAME else strings[name_id])
        mapped[position] = index.setdefault(name, len(index))
    return mapped[rows.reshape(-1)], tuple(index)
