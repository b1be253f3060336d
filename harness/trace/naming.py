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
_EMIT_NVTX = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_NUMBER = re.compile(r"\d+")
_API_VERSION = re.compile(r"(?:_v\d+|_ptsz|_ptds)+$")


def range_name(name: str) -> str:
    """`name` without what makes one call of a range differ from the next; `?` for a name that is empty."""
    if " = " in name and (decoration := _EMIT_NVTX.search(name)):
        name = name[: decoration.start()]
    return name.strip() or "?"


def folded(name: str) -> str:
    """`name` with every number as `*`: `training_step_12` and `training_step_13` are one."""
    return _NUMBER.sub("*", name)


def api_name(name: str) -> str:
    """A CUDA call without its ABI version: `cudaLaunchKernel_v7000` is `cudaLaunchKernel`."""
    return _API_VERSION.sub("", name)


def call_name(name: str) -> str:
    """An API call as it is shown: CUDA's without their ABI version, those of other libraries as they are."""
    return api_name(name) if name.startswith("cu") else name


def used_names(strings: Sequence[str], name_ids: Int32Array) -> dict[int, str]:
    """The distinct names of a column of name indexes, by index, ascending; `NO_NAME` is left out."""
    used = np.flatnonzero(np.bincount(name_ids - NO_NAME)[1:])
    return {name_id: strings[name_id] for name_id in used.tolist()}


def range_names(strings: Sequence[str], name_ids: Int32Array) -> tuple[Int32Array, tuple[str, ...]]:
    """Map a column of name indexes to comparable names: (index into the names for each row, the names).

    Each distinct string is looked at once.
    """
    index: dict[str, int] = {}
    mapped = np.empty(len(strings) + 1, dtype=np.int32)  # the last one is for NO_NAME, which is -1
    if bool((name_ids == NO_NAME).any()):
        mapped[NO_NAME] = index.setdefault(range_name(""), len(index))
    for name_id, name in used_names(strings, name_ids).items():
        mapped[name_id] = index.setdefault(range_name(name), len(index))
    return mapped[name_ids], tuple(index)
