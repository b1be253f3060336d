"""What a stored duel says does not depend on what must not count: its warm-up."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from dataclasses import asdict
from pathlib import Path

import pytest
from stored_duels import DUEL_ID, DuelSpec, comparison_of

from harness.comparison import Comparison, compare_stored
from harness.stats.rule import Rule
from harness.store import Duels, Store
from harness.verdict import SlowerRange, State


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


def test_a_range_that_is_certainly_slower_is_said_while_the_whole_is_undecided(tmp_path: Path) -> None:
    comparison_of(tmp_path, DuelSpec(pairs=6))
    with Store(tmp_path / "results.db") as store:
        Duels(store).update(DUEL_ID, rule=asdict(Rule(looks=(3, 6), min_effect=0.1, margin=0.001)))
        found = compare_stored(Duels(store), DUEL_ID)
    verdict, first = found.verdict, next(part for part in found.ranges if part.delta_ns > 0)
    assert verdict.state is State.UNDECIDED
    assert verdict.slower_range == SlowerRange(path=first.path, delta_ns=first.delta_ns, ci_ns=first.ci_ns or (0, 0))
    said = r"typical step; train_mode_enter/load_fsdp_model_to_gpu is slower by [\d.]+ ms \[[\d.]+, [\d.]+\]  p "
    assert re.search(said, verdict.line), verdict.line


def test_a_decided_duel_names_no_range_in_its_line(tmp_path: Path) -> None:
    found, _ = comparison_of(tmp_path, DuelSpec(pairs=6))
    assert found.verdict.state is State.FASTER or found.verdict.state is State.SLOWER
    assert found.verdict.slower_range is None


def test_what_steps_alone_say_is_the_bias_of_interleaving(tmp_path: Path) -> None:
    made = DuelSpec(pairs=4, steps=12)
    before, _ = comparison_of(tmp_path, made)
    assert before.interleaving is None, "no side stepped alone"
    with sqlite3.connect(tmp_path / "results.db") as connection:
        for pair in range(1, 5):
            alone: dict[str, list[int]] = {"alone_base_ns": [], "alone_head_ns": []}
            if pair > 1:  # head is twice as slow alone
                means = [
                    connection.execute(
                        "select avg(slowest) from (select max(duration_ns) slowest from duel_steps"
                        " where side = ? and pair = ? and measured group by sequence)",
                        [side, pair],
                    ).fetchone()[0]
                    for side in ("base", "head")
                ]
                alone = {"alone_base_ns": [round(means[0])] * 9, "alone_head_ns": [round(2 * means[1])] * 9}
            turns = {"steps": 1, "discarded": 0, "parking_ns": 1e6, **alone}
            connection.execute("update duel_pairs set turns = ? where pair = ?", [json.dumps(turns), pair])
    connection.close()
    with Store(tmp_path / "results.db") as store:
        found = compare_stored(Duels(store), DUEL_ID)
    assert found.interleaving is not None
    assert found.interleaving.pairs == 3
    assert math.isclose(found.interleaving.base, 1, abs_tol=1e-6)
    assert math.isclose(found.interleaving.bias.ratio, 2, rel_tol=1e-6)
    assert found.interleaving.beyond
    assert found.next_turn_steps == 5
