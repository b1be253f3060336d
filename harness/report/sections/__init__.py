"""One part of a page a file: `section(…)` takes what it shows and returns a `Section`. Draws, never computes.

To add a section: write the file, its template in it, and add its line to the pages of `harness.report` that show it.
"""
