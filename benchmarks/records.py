"""What long benchmarks share: a file of JSON lines that they go on from, and a core kept busy on purpose."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CONDITIONS = ("idle", "one core busy")


class Records:
    """A file with one JSON object a line. Each is on disk when `add` returns; a torn last line is left out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, Any]] = []
        if path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    self.rows.append(json.loads(line))
                except ValueError:
                    continue  # interrupted while it was written

    def add(self, **row: Any) -> None:
        """Append one object."""
        self.rows.append(row)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def where(self, **equal: Any) -> list[dict[str, Any]]:
        """Return the objects whose values equal what is given."""
        return [row for row in self.rows if all(row.get(key) == value for key, value in equal.items())]


@contextmanager
def condition(name: str) -> Iterator[None]:
    """Make the machine as `name` says for the block: `idle` leaves it alone, `one core busy` spins on one core."""
    if name == "idle":
        yield
        return
    spinner = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        spinner.kill()
        spinner.wait()
