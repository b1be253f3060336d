"""What a report is given besides the comparison: median steps as trees, commits, and shortened names."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored_duels import DUEL_ID, DuelSpec, comparison_of, store_duel

from harness.analysis.step_finder import WARM_UP
from harness.comparison import compare_stored
from harness.comparison.rows import duel_rows, median_step, tree_of
from harness.names import NVTX_DOMAIN, STEP
from harness.store import DuelRangeRecord, Duels, DuelStepRecord, Store
from harness.subject.commits import commits_between
from harness.trace import schema
from harness.trace.writer import TraceWriter
from harness.visible import shortened, visible


def step(sequence: int, rank: int, duration_ns: int, *, measured: bool = True, side: str = "head") -> DuelStepRecord:
    return DuelStepRecord(
        pair=1,
        side="base" if side == "base" else "head",
        sequence=sequence,
        rank=rank,
        slot=0,
        measured=measured,
        began_ns=0,
        duration_ns=duration_ns,
        loss=None,
        tokens=None,
        figures={},
    )


@given(st.lists(st.lists(st.integers(1, 1000), min_size=2, max_size=2), min_size=1, max_size=9))
def test_the_median_step_is_that_of_the_slowest_ranks(times: list[list[int]]) -> None:
    rows = [step(at, rank, ns) for at, ranks in enumerate(times) for rank, ns in enumerate(ranks)]
    rows += [step(99, 0, 5000, measured=False), step(98, 0, 4000, side="base")]
    random.Random(len(times)).shuffle(rows)
    found = median_step(rows, "head")
    assert found is not None
    longest = sorted(max(ranks) for ranks in times)
    assert found.duration_ns == longest[(len(longest) - 1) // 2]
    assert found.duration_ns == max(times[found.sequence])


def test_of_ranks_that_take_equally_long_the_first_is_shown() -> None:
    found = median_step([step(0, 0, 5), step(0, 1, 5)], "head")
    assert found is not None
    assert found.rank == 0


def test_without_a_measured_step_there_is_no_median() -> None:
    assert median_step([step(0, 0, 5, measured=False)], "head") is None


def ranges(*paths: str) -> list[DuelRangeRecord]:
    return [
        DuelRangeRecord(pair=1, side="head", sequence=1, rank=0, path=path, calls=1, total_ns=7, self_ns=3)
        for path in paths
    ]


def test_siblings_come_in_the_order_they_ran_in() -> None:
    paths = ("step", "step/a", "step/b", "step/train_mode_exit", "step/train_mode_enter", "step/optimizer_step")
    tree = tree_of(ranges(*paths), step(1, 0, 7))
    assert [item.name for item in tree.ranges] == [
        "step",
        "train_mode_enter",
        "optimizer_step",
        "train_mode_exit",
        "a",
        "b",
    ]
    told = tree_of(ranges(*paths), step(1, 0, 7), ["step", "step/b", "step/train_mode_exit", "step/a"])
    assert [item.name for item in told.ranges][1:4] == ["b", "train_mode_exit", "a"]


def test_a_name_with_the_separator_in_it_hangs_below_its_longest_known_parent() -> None:
    tree = tree_of(ranges("step", "step/a", "step/a/b/c", "step/x/y", "other/deep"), step(1, 0, 7))
    found = {item.path: (item.depth, item.name) for item in tree.ranges}
    assert found == {
        "step": (0, "step"),
        "step/a": (1, "a"),
        "step/a/b/c": (2, "b/c"),
        "step/x/y": (1, "x/y"),
        "other/deep": (0, "other/deep"),
    }


def test_ten_thousand_levels_are_no_recursion() -> None:
    paths = ["/".join(["s"] * depth) for depth in range(1, 1500)]
    assert [item.depth for item in tree_of(ranges(*paths), step(1, 0, 7)).ranges] == list(range(1499))


def test_steps_and_trees_come_from_the_database_alone(tmp_path: Path) -> None:
    comparison, evidence = comparison_of(tmp_path, DuelSpec(pairs=4, steps=5, ranks=2))
    assert len(evidence.steps) == 4 * 2 * 2 * (3 + 5)
    assert evidence.analyses == {}
    for side in ("base", "head"):
        tree = evidence.trees[side]
        outermost = [item for item in tree.ranges if item.depth == 0]
        assert [item.name for item in outermost] == ["step"]
        row = median_step(evidence.steps, side)
        assert row is not None
        assert (tree.pair, tree.sequence, tree.rank) == (row.pair, row.sequence, row.rank)
        assert outermost[0].total_ns == row.duration_ns == sum(item.self_ns for item in tree.ranges)
    assert comparison.verdict.looks


def test_an_untraced_duel_has_no_trees(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        duels = Duels(store)
        store_duel(duels, DuelSpec(pairs=2, steps=3, traced=False))
        assert duel_rows(duels, compare_stored(duels, DUEL_ID), tmp_path).trees == {}


def write_trace(path: Path, step_ns: int) -> None:
    """Three of the worker's steps, each of `step_ns`."""
    path.parent.mkdir(parents=True)
    tid = schema.global_tid(100, 100)
    with TraceWriter(
        path,
        collector="recorder",
        process_id=100,
        process_name="python",
        session_start_utc_ns=0,
        system_clock_ns=0,
        rank=0,
    ) as writer:
        domain = writer.domain_id(NVTX_DOMAIN)
        starts = range(0, 30_000, 10_000)
        writer.add_ranges(
            (start, start + step_ns, schema.NVTX_PUSH_POP, STEP, tid, None, domain, None) for start in starts
        )


def test_findings_come_from_the_pair_made_for_them_or_else_from_the_first_that_kept_its_trace(tmp_path: Path) -> None:
    """`warmup` 1: of the three steps in each trace, two count."""
    write_trace(tmp_path / "duels" / DUEL_ID / "pair02" / "head" / "trace.sqlite", 700)
    write_trace(tmp_path / "duels" / DUEL_ID / "pair03" / "head" / "trace.sqlite", 800)
    _, kept = comparison_of(tmp_path, DuelSpec(pairs=4, steps=5, warmup=1))
    assert kept.traces == {"head": f"duels/{DUEL_ID}/pair02/head/trace.sqlite"}
    assert [(path.path, path.median_ns) for path in kept.analyses["head"].per_step] == [(STEP, 700)]
    assert kept.analyses["head"].steps.dropped == (WARM_UP, None, None)

    write_trace(tmp_path / "duels" / DUEL_ID / "explain" / "head.sqlite", 900)
    with Store(tmp_path / "results.db") as store:
        duels = Duels(store)
        named = {"head_trace": f"duels/{DUEL_ID}/explain/head.sqlite", "base_trace": "duels/gone.sqlite"}
        duels.update(DUEL_ID, explanation=named)
        explained = duel_rows(duels, compare_stored(duels, DUEL_ID), tmp_path)
    assert explained.traces == {"head": named["head_trace"]}
    assert [path.median_ns for path in explained.analyses["head"].per_step] == [900]


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_commits_between_two_branches(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    subjects = ["first", "<script>alert(1)</script> & 'quotes'", "$x$ é"]
    for subject in subjects:
        git(tmp_path, "commit", "-q", "--allow-empty", "-m", subject)
    hashes = git(tmp_path, "log", "--format=%H").split()
    git(tmp_path, "checkout", "-q", "-b", "other", hashes[-1])
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "elsewhere")
    elsewhere = git(tmp_path, "rev-parse", "HEAD")
    found = commits_between(tmp_path, elsewhere, hashes[0])
    assert found is not None
    assert [(commit.revision, commit.subject) for commit in found.commits] == [
        (hashes[0], subjects[2]),
        (hashes[1], subjects[1]),
    ]
    assert (found.count, found.behind) == (2, 1)
    same = commits_between(tmp_path, hashes[0], hashes[0])
    assert same is not None
    assert (same.commits, same.count, same.behind) == ((), 0, 0)
    assert commits_between(tmp_path, "0" * 40, hashes[0]) is None
    assert commits_between(tmp_path, "--output=x", hashes[0]) is None
    assert commits_between(tmp_path / "nowhere", hashes[0], hashes[0]) is None


@given(st.text(max_size=60), st.integers(2, 30))
def test_a_shortened_name_fits_and_hides_nothing(text: str, width: int) -> None:
    shown = shortened(text, width)
    assert len(shown) <= width
    assert shown == visible(shown)
    if len(visible(text)) <= width:
        assert shown == visible(text)


@pytest.mark.parametrize(("text", "shown"), [("a\u202eb", "a\\u202eb"), ("\x1b[1m", "\\x1b[1m"), ("é日", "é日")])
def test_hidden_characters_become_escapes(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_both_ends_of_a_long_name_are_kept() -> None:
    shown = shortened("step/" + "x" * 100_000 + "/gc.collect", 40)
    assert len(shown) == 40
    assert shown.startswith("step/xx")
    assert shown.endswith("/gc.collect")


def test_only_the_ranges_of_the_slowest_ranks_are_read(tmp_path: Path) -> None:
    """Against a plain reading of all rows; two ranks that take equally long are told apart by their number."""
    comparison_of(tmp_path, replace(DuelSpec(), pairs=2, steps=5, ranks=3))
    with Store(tmp_path / "results.db") as store:
        store.db.execute("update duel_ranges set self_ns = 7, total_ns = 7 where sequence = 4")
        everything = list(store.db.query("select * from duel_ranges join range_paths on range_paths.id = path_id"))
        found = Duels(store).slowest_ranges(DUEL_ID)
    own: dict[tuple[object, ...], dict[int, int]] = {}
    for row in everything:
        ranks = own.setdefault((row["pair"], row["side"], row["sequence"]), {})
        ranks[row["rank"]] = ranks.get(row["rank"], 0) + row["self_ns"]
    slowest = {step: min(ranks, key=lambda rank: (-ranks[rank], rank)) for step, ranks in own.items()}
    assert {rank for (_, _, sequence), rank in slowest.items() if sequence == 4} == {0}
    assert len(set(slowest.values())) > 1
    expected = [
        (row["pair"], row["side"], row["sequence"], row["rank"], row["path"], row["self_ns"], row["total_ns"])
        for row in everything
        if slowest[row["pair"], row["side"], row["sequence"]] == row["rank"]
    ]
    assert [(r.pair, r.side, r.sequence, r.rank, r.path, r.self_ns, r.total_ns) for r in found] == sorted(expected)
