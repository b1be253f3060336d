"""Removes what lies beside stored results."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path


def remove_files(reports: Path, names: Iterable[str]) -> int:
    """Remove files and folders below `reports` and return how many bytes they held.

    Names come from the database, which may have been merged from anywhere: what lies outside is left alone.
    """
    freed = 0
    inside = reports.resolve()
    for name in names:
        path = (reports / name).resolve()
        if inside not in path.parents or not path.exists():
            continue
        if path.is_dir():
            freed += sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
            shutil.rmtree(path)
        else:
            freed += path.stat().st_size
            path.unlink()
    return freed
