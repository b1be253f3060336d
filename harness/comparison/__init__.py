"""What a stored duel says: `compare_stored` computes everything again from the database, `document` writes it as JSON.

The duel itself uses the same function to decide whether it needs another launch pair, so what it prints at the end and
what a report prints years later cannot differ.
"""

from __future__ import annotations

from harness.comparison.document import document
from harness.comparison.launch_figures import LaunchFigureChange
from harness.comparison.metric_changes import MetricChange
from harness.comparison.recompute import compare_stored, step_pairs_of
from harness.comparison.result import Comparison, Pair, Side
from harness.comparison.same_work import FirstDifference, SameWork, same_work

__all__ = [
    "Comparison",
    "FirstDifference",
    "LaunchFigureChange",
    "MetricChange",
    "Pair",
    "SameWork",
    "Side",
    "compare_stored",
    "document",
    "same_work",
    "step_pairs_of",
]
