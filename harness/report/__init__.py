"""HTML pages of duels, launches, traces and differences, each one self-contained file. Draws, never computes.

`render_…` return a whole HTML page as a string and `write_report` puts it on the disk. Equal input gives equal bytes.
"""

from __future__ import annotations

from harness.report.bench_page import render_bench
from harness.report.comparison_page import render_comparison
from harness.report.index_page import write_index
from harness.report.trace_page import render_analysis, render_diff
from harness.report.writing import write_report

__all__ = [
    "render_analysis",
    "render_bench",
    "render_comparison",
    "render_diff",
    "write_index",
    "write_report",
]
