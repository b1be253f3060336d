"""The Nsight Systems exports that tests read: one of every schema year, and the real ones where they are.

The first lie in `tests/data/nsys_exports` (`nsys_years` makes them), so that every clone tests the reader on all of
them. The real ones are no part of the project: they lie beside a checkout in `../shared/nsys-exports`, or nowhere.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from nsys_years import YEARS, Year

REAL_FOLDER: Final = Path(__file__).resolve().parents[2] / "shared" / "nsys-exports"
REAL: Final = sorted(REAL_FOLDER.glob("*.sqlite"))
EVERY: Final = [*(year.path for year in YEARS), *REAL]

every_export = pytest.mark.parametrize("export", EVERY, ids=lambda path: path.stem)
"""Runs a test on each export, as `export`."""
every_year = pytest.mark.parametrize("year", YEARS, ids=lambda year: year.name)
"""Runs a test on each made export, as `year`: what it holds is known."""
TRAINING: Final = tuple(year for year in YEARS if year.ranges and year.gpu)
every_training = pytest.mark.parametrize("year", TRAINING, ids=lambda year: year.name)
"""Likewise, those with both ranges and GPU work."""


STEPPED: Final = [*(year.path for year in TRAINING), *(path for path in REAL if path.stem == "pytorch_steps_2025.1")]
every_stepped = pytest.mark.parametrize("export", STEPPED, ids=lambda path: path.stem)
"""Runs a test on each export, made or real, in which steps are found and all launches of their GPU work."""


PAIRS: Final = [
    pair
    for pair in (
        tuple(year.path for year in YEARS if year.name in ("2025.6", "2026.2")),
        tuple(REAL_FOLDER / f"torchrun_2rank_{side}_2026.2.sqlite" for side in ("base", "head")),
    )
    if all(path.is_file() for path in pair)
]
every_pair = pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[0].stem)
"""Runs a test on base and head of one job."""


def made(name: str) -> Year:
    """The year of that name."""
    (found,) = (year for year in YEARS if year.name == name)
    return found


def real(name: str) -> Path:
    """A real export, whose own figures a test is about; skips the test where it is absent."""
    path = REAL_FOLDER / f"{name}.sqlite"
    if not path.is_file():
        pytest.skip(f"{path.name} is not in ../shared/nsys-exports")
    return path
