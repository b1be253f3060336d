"""What a stored duel says does not depend on what must not count: its warm-up."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from stored_duels import DUEL_ID, DuelSpec, comparison_of

from harness.comparison import Comparison, compare_stored
from harness.store import Duels, Store


def figures(comparison: Comparison) -> tuple[object, ...]:
    steps_ns = [(pair.ratio, pair.base_ns, pair.head_ns, pair.steps, pair.base_first) for pair in comparison.pairs]
    return comparison.verdict, comparison.ranges, comparison.base.step_ns, comparison.head.step_ns, steps_ns


@pytest.mark.parametrize("traced", [True, False])
def test_warm_up_steps_do_not_count(tmp_path: Path, traced: bool) -> None:
    before, _ = comparison_of(tmp_path, DuelSpec(pairs=4, steps=12, warmup=3, traced=traced))
    with sqlite3.connect(tmp_path / "results.db") as connection:
        done = connection.execute("update duel_steps set duration_ns = duration_ns * 9, slot = 0 where not measured")
        assert done.rowcount == 4 * 3 * 2 * 2
    connection.close()
    with Store(tmp_path / "results.db") as store:
        assert figures(compare_stored(Duels(store), DUEL_ID)) == figures(before)
    assert before.pairs[0].steps == 12
    assert before.ranges
