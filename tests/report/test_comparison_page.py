"""The report of a duel: every section and figure is there, bytes repeat, and it stays small."""

from __future__ import annotations

import math
import re
import statistics
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from markup import COMPARISON_SECTIONS, check_page
from stored_duels import DUEL_ID, SAME, DuelSpec, comparison_of, store_duel

from harness.comparison import Comparison, compare_stored
from harness.comparison.rows import DuelRows, duel_rows
from harness.report import render_comparison
from harness.store import Duels, Store
from harness.subject.commits import Commit, CommitRange

COMMITS = CommitRange(commits=(Commit(revision="ab" * 20, subject="Clone the state"),), count=3, behind=1)


@cache
def made(duel: str) -> tuple[Comparison, DuelRows]:
    """Duels of each verdict, made once."""
    kinds = {
        "slower": DuelSpec(),
        "faster": DuelSpec(changes={"train_mode_enter/gc.collect": None}),
        "same": SAME,
        "undecided": replace(SAME, pairs=3),
        "invalid": DuelSpec(part_at=9),
        "untraced": DuelSpec(traced=False),
        "one_rank": DuelSpec(ranks=1, pairs=4, steps=8),
    }
    with TemporaryDirectory() as folder:
        return comparison_of(Path(folder), kinds[duel])


@pytest.mark.parametrize("duel", ["slower", "faster", "same", "undecided", "invalid", "untraced", "one_rank"])
def test_every_verdict_has_every_section(duel: str) -> None:
    comparison, evidence = made(duel)
    root = check_page(render_comparison(comparison, evidence, COMMITS))
    sections = [element.attributes["id"] for element in root.all("section")]
    assert sections == COMPARISON_SECTIONS
    assert [link.attributes["href"] for link in root.all("nav")[0].all("a")] == [f"#{one}" for one in sections[1:]]
    pill = next(e for e in root.walk() if e.attributes.get("class") == "pill")
    assert pill.text == comparison.verdict.state.value
    if duel in ("slower", "faster", "same", "undecided", "invalid"):
        assert comparison.verdict.state.value == duel
    assert root.all("title")[0].text.startswith(comparison.verdict.state.value.capitalize())


def test_the_first_screen_says_what_a_reader_of_ten_seconds_needs() -> None:
    comparison, evidence = made("slower")
    lead = " ".join(check_page(render_comparison(comparison, evidence)).by_id("verdict").text.split())
    ratio = comparison.verdict.ratio
    assert ratio is not None
    assert comparison.verdict.ci is not None
    assert f"Head is {(ratio - 1) * 100:.1f} % slower than base in total." in lead
    assert f"[+{(comparison.verdict.ci[0] - 1) * 100:.1f}" in lead
    assert "in the typical step" in lead
    assert "99.6 % interval" in lead  # this look’s share of α = 0.01, on both sides
    assert "losses identical over 198 steps" in lead  # 6 pairs of 3 + 30 steps
    assert "load_fsdp_model_to_gpu" in lead
    assert "working tree" in lead
    assert "forecast before measuring: ≥ 2.1 %" in lead


def test_the_parts_in_the_table_are_those_of_the_comparison_and_add_up() -> None:
    comparison, evidence = made("slower")
    section = check_page(render_comparison(comparison, evidence)).by_id("attribution")
    rows = [[cell.text for cell in row.children if not isinstance(cell, str)] for row in section.all("tr")]
    body, foot = rows[1:-1], rows[-1]
    assert [row[0].split()[0] for row in body] == [part.path for part in comparison.ranges]
    deltas = [float(row[3].replace("−", "-")) for row in body]
    assert sum(deltas) == pytest.approx(float(foot[3].replace("−", "-")), abs=0.0006 * len(deltas))
    assert sum(deltas) == pytest.approx(sum(part.delta_ns for part in comparison.ranges) / 1e6, abs=0.01)
    grey = [row.attributes["class"] == "quiet" for row in section.all("tbody")[0].all("tr")]
    assert grey == [not part.significant for part in comparison.ranges]
    assert any(grey)
    assert not all(grey)


def test_each_launch_pair_and_each_look_is_shown() -> None:
    comparison, evidence = made("slower")
    root = check_page(render_comparison(comparison, evidence))
    ratios = [row.all("td")[2].text for row in root.by_id("pairs").all("tbody")[0].all("tr")]
    expected = [(pair.ratio or math.nan) - 1 for pair in comparison.pairs]
    assert [float(text.rstrip("\N{NO-BREAK SPACE}%").replace("−", "-")) for text in ratios] == pytest.approx(
        [100 * value for value in expected], abs=0.051
    )
    method = root.by_id("method")
    looks = method.all("tbody")[0].all("tr")
    expected_rows = [(look, name) for look in comparison.verdict.looks for name in look.estimates]
    assert [int(row.all("th")[0].text) for row in looks] == [look.pairs for look, _ in expected_rows]
    for (look, endpoint), row in zip(expected_rows, looks, strict=True):
        assert f"{look.estimates[endpoint].low:+.5f}" in row.text
        assert (look.outcome.value in row.text) == (endpoint is look.endpoint)
    for pair in comparison.pairs:
        assert f"{math.log(pair.ratio or math.nan):+.5f}" in method.text
    assert "looks at 4, 6, 8, 10 launch pairs" in method.text


def test_trees_are_of_the_median_step_and_siblings_do_not_overlap() -> None:
    comparison, evidence = made("slower")
    trees = [
        element
        for element in check_page(render_comparison(comparison, evidence)).by_id("trees").walk()
        if element.attributes.get("class") == "icicle"
    ]
    for tree, side in zip(trees, ("base", "head"), strict=True):
        slowest: dict[tuple[int, int], int] = {}
        for step in evidence.steps:
            if step.side == side and step.measured:
                key = (step.pair, step.sequence)
                slowest[key] = max(step.duration_ns, slowest.get(key, 0))
        boxes = tree.all("button")
        label = boxes[0].attributes["aria-label"]
        shown = float(re.findall(r"step: ([\d.,]+) ms", label)[0].replace(",", ""))
        assert shown == pytest.approx(statistics.median_low(slowest.values()) / 1e6, rel=1e-3)
        ends: dict[str, float] = {}
        for box in boxes:
            left, width = float(box.attributes["data-left"]), float(box.attributes["data-width"])
            depth = box.attributes["data-depth"]
            assert left >= ends.get(depth, 0.0) - 1e-3
            ends[depth] = left + width
            assert left + width <= 100.001
    longest = [max(float(b.attributes["data-width"]) for b in tree.all("button")) for tree in trees]
    assert max(longest) == pytest.approx(100)
    assert longest[0] < longest[1]  # on one axis, the slower side is the longer one


def test_every_step_of_every_rank_is_drawn() -> None:
    comparison, evidence = made("slower")
    panels = check_page(render_comparison(comparison, evidence)).by_id("steps").all("svg")
    assert len(panels) == len(comparison.pairs)
    for panel in panels:
        points = [len(re.findall(r"[ML] ", path.attributes["d"])) for path in panel.all("path")]
        # Two sides of two ranks, and the slowest rank of each side: 33 steps with warm-up each.
        assert points.count(33) == 6


def test_findings_commits_and_limits_are_told_where_they_are_known() -> None:
    comparison, evidence = made("slower")
    root = check_page(render_comparison(comparison, evidence, COMMITS))
    assert "Head adds 3 commits. Base has 1 commit that head lacks." in root.by_id("commits").text
    assert "Clone the state" in root.by_id("commits").text
    assert "and 2 older ones" in root.by_id("commits").text
    assert "No trace of either side was kept" in root.by_id("findings").text
    assert "engine.param_offload=true" in root.by_id("environment").text
    command = root.by_id("reproduce").all("code")[0].text
    assert command.startswith("stepduel compare fsdp2_lora_param_offload 9f1c3d5e7a9b . --head-set ")
    assert "--seed 7" in command


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    one = render_comparison(*comparison_of(tmp_path / "a", DuelSpec(pairs=4, steps=8)), COMMITS)
    two = render_comparison(*comparison_of(tmp_path / "b", DuelSpec(pairs=4, steps=8)), COMMITS)
    assert one == two
    assert str(tmp_path) not in one


def test_a_duel_without_any_pair_still_makes_a_page(tmp_path: Path) -> None:
    with Store(tmp_path / "results.db") as store:
        duels = Duels(store)
        store_duel(duels, DuelSpec(pairs=0))
        comparison = compare_stored(duels, DUEL_ID)
        page = render_comparison(comparison, duel_rows(duels, comparison, tmp_path))
    root = check_page(page)
    assert "No launch pair was completed." in root.by_id("pairs").text
    assert "There is no step to split." in root.by_id("attribution").text
    assert "No step was measured." in root.by_id("steps").text
    for said in ("A launch pair starts both sides", "Each dot", "Grey rows", "step in turn, so that", "one time axis"):
        assert said not in root.text, "no word about what is not drawn"
    assert "The difference of the mean step in parts" not in root.text
    assert "Load while measuring" not in root.text


def test_an_invalid_duel_draws_no_caption_for_what_is_not_there(tmp_path: Path) -> None:
    root = check_page(render_comparison(*comparison_of(tmp_path, DuelSpec(pairs=1, steps=12, part_at=9))))
    assert "Each dot is a launch pair." in root.text
    assert "the diamond" not in root.text
    assert "the interval that the verdict rests on" not in root.text


def test_the_first_screen_names_the_commits_and_the_load(tmp_path: Path) -> None:
    made = DuelSpec(pairs=4, steps=8)
    base = {**made.base, "commit_subject": "engine: walk once"}
    head = {**made.head, "commit_subject": "<b>engine</b>: walk twice"}
    root = check_page(render_comparison(*comparison_of(tmp_path / "two", replace(made, base=base, head=head))))
    lead = root.by_id("verdict").text
    assert "engine: walk once" in lead
    assert "<b>engine</b>: walk twice" in lead, "a message is text"
    assert re.search(r"Load while measuring\s+\d\.\d( to \d\.\d)?\s+of 16 cores", lead), lead
    head = {**head, "revision": base["revision"]}
    root = check_page(render_comparison(*comparison_of(tmp_path / "one", replace(made, base=base, head=head))))
    assert "walk once" not in root.by_id("verdict").text, "sides that differ in settings have no commits to tell"


@pytest.mark.slow
def test_ten_pairs_of_a_hundred_steps_on_eight_ranks_stay_below_two_megabytes(tmp_path: Path) -> None:
    page = render_comparison(*comparison_of(tmp_path, DuelSpec(pairs=10, steps=100, ranks=8)))
    assert len(page.encode()) < 2_000_000
    check_page(page)
