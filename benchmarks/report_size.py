"""How large a report gets and how long rendering takes: 10 launch pairs of 100 steps on 8 ranks by default.

Stores a generated duel (16,000 steps and 200,000 ranges), reads it back, and renders it. Each figure is CPU time of
this process; the first rendering pays for importing matplotlib. The limits are 2 MB and 3 s.

    python benchmarks/report_size.py --pairs 10 --steps 100 --ranks 8
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

# The generator is that of the tests.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "report"))

from stored_duels import DUEL_ID, DuelSpec, store_duel

from harness.comparison import compare_stored
from harness.comparison.rows import duel_rows
from harness.store import Duels, Store

MOST_BYTES: Final = 2_000_000
MOST_S: Final = 3.0
Result = TypeVar("Result")


def timed(label: str, work: Callable[[], Result]) -> tuple[Result, float]:
    """Do the work and print and return its CPU seconds."""
    began = time.process_time()
    result = work()
    seconds = time.process_time() - began
    print(f"{label:<28}{seconds:6.2f} s")
    return result, seconds


def main() -> int:
    """Print the figures; 1 when a limit is exceeded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("pairs", 10), ("steps", 100), ("ranks", 8)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    made = DuelSpec(pairs=options.pairs, steps=options.steps, ranks=options.ranks)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "results.db") as store:
        duels = Duels(store)
        timed("storing the duel", lambda: store_duel(duels, made))
        comparison, _ = timed("computing the comparison", lambda: compare_stored(duels, DUEL_ID))
        evidence, _ = timed("reading steps and trees", lambda: duel_rows(duels, comparison, Path(folder)))

        def render() -> str:
            from harness.report import render_comparison

            return render_comparison(comparison, evidence)

        page, first_s = timed("rendering, first", render)
        again, _ = timed("rendering, again", render)
    size = len(page.encode())
    print(f"{'size':<28}{size / 1e6:6.2f} MB, {'equal' if page == again else 'DIFFERENT'} bytes both times")
    return int(size > MOST_BYTES or first_s > MOST_S or page != again)


if __name__ == "__main__":
    sys.exit(main())
