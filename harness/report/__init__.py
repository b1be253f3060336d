"""What people and programs read of a result: HTML pages, Markdown, JUnit, annotations. Draws, never computes.

`render_…` return a whole HTML page as a string and `write_report` puts it on the disk. Equal input gives equal bytes.
"""

from __future__ import annotations

from harness.report.comparison_page import render_comparison
from harness.report.writing import write_report

__all__ = ["render_comparison", "write_report"]
