"""Corrections for many tests: Holm over scenarios (they decide), Benjamini-Hochberg over ranges (they explain).

A p-value that could not be computed (NaN) counts as 1: it is never evidence, and still a test that was made.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from harness.stats.paired import FloatArray


def holm(p_values: ArrayLike) -> FloatArray:
    """Return Holm's adjusted p-values, in the order given: reject where ≤ α to keep the family-wise error at α."""
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    # The smallest is held against all m tests, the next against m − 1; an adjusted value never falls below an earlier.
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return _restored(stepped, order)


def benjamini_hochberg(p_values: ArrayLike) -> FloatArray:
    """Return Benjamini-Hochberg q-values, in the order given: mark where ≤ q to keep the false discovery rate at q."""
    p = _checked(p_values)
    order = np.argsort(p, kind="stable")
    ranked = p[order] * len(p) / np.arange(1, len(p) + 1)
    stepped = np.minimum.accumulate(ranked[::-1])[::-1]
    return _restored(stepped, order)


def _checked(p_values: ArrayLike) -> FloatArray:
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or ((p < 0) | (p > 1)).any():
        raise ValueError("p-values: expected one dimension and values from 0 to 1")
    return np.where(np.isnan(p), 1.0, p)


def _restored(stepped: FloatArray, order: np.ndarray[tuple[int, ...], np.dtype[np.intp]]) -> FloatArray:
    adjusted = np.empty_like(stepped)
    adjusted[order] = np.minimum(stepped, 1.0)
    return adjusted
