"""What `compare` and `aa` print: wrapped, in one style of numbers, and honest where there is next to no evidence."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from stored_duels import SAME, DuelSpec, comparison_of

from harness.analysis.range_part import JudgedPart
from harness.cli import output
from harness.cli.compare_table import print_comparison
from harness.cli.duel_progress import TerminalProgress
from harness.comparison import Comparison
from harness.duel import DetectableEffect
from harness.stats.rule import Rule

PAIRED_TWICE = replace(DuelSpec(), pairs=2, steps=6, ranks=1)


@pytest.fixture(autouse=True)
def _own_console(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("COLUMNS", "80")
    for console in (output.stdout_console, output.stderr_console):
        console.cache_clear()
    yield
    for console in (output.stdout_console, output.stderr_console):
        console.cache_clear()


def printed(comparison: Comparison, capsys: pytest.CaptureFixture[str]) -> str:
    print_comparison(comparison)
    return capsys.readouterr().out


def with_rule(folder: Path, made: DuelSpec, looks: tuple[int, ...]) -> Comparison:
    """The stored duel as another rule judges it."""
    from harness.comparison import compare_stored
    from harness.store import Duels, Store

    comparison, _ = comparison_of(folder, made)
    with Store(folder / "results.db") as store:
        duels = Duels(store)
        duels.update(comparison.duel.id, rule={**comparison.duel.rule, "looks": list(looks)})
        return compare_stored(duels, comparison.duel.id)


def test_two_pairs_see_nothing_useful_and_say_how_many_are_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison = with_rule(tmp_path, replace(PAIRED_TWICE, changes={}, base_only=(), seed=5), (2,))
    effect = comparison.verdict.detectable_effect
    assert effect is not None
    out = printed(comparison, capsys)
    assert re.search(r"UNDECIDED .* 2 pairs x 6 steps", out)
    if effect >= 1:
        assert "(detectable > 100 %)" in out
    assert "can detect no slowdown below 100 %: make 3 at least (--pairs)" in " ".join(out.split())
    assert "--pairs 3" not in out, "no number from a scatter that is not known"


@pytest.mark.parametrize("least", [1.0, 2.5, 597098.36])
def test_an_absurd_figure_is_told_in_words(least: float, capsys: pytest.CaptureFixture[str]) -> None:
    effect = DetectableEffect(first_look=least, last_look=least, pairs_needed=3, source="the warm-up")
    TerminalProgress().forecast(effect, 2, 2, 0.02, 8)
    said = capsys.readouterr().err
    assert "8 steps a launch: detectable > 100 % with 2 launch pairs (from the warm-up)\n" in said
    assert "to see the margin of 2.0 % would take about 3 pairs (--pairs 3)" in said
    assert said.count("> 100 %") == 1, "one look is told once"


def test_what_two_looks_can_see(capsys: pytest.CaptureFixture[str]) -> None:
    effect = DetectableEffect(first_look=0.031, last_look=0.012, pairs_needed=7, source="12 same-code duels")
    TerminalProgress().forecast(effect, 4, 10, 0.02, 8)
    said = capsys.readouterr().err
    assert said == (
        "8 steps a launch: detectable ≥ 3.1 % with 4 launch pairs, ≥ 1.2 % with 10 (from 12 same-code duels)\n"
    )


def test_nothing_to_resume_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    TerminalProgress().nothing_to_resume()
    assert "no unfinished duel" in capsys.readouterr().err
    TerminalProgress().resumed(1, "20260901-120000-000-abcdef")
    assert "1 launch pair stored" in capsys.readouterr().err


def test_the_running_interval_names_its_level_and_the_verdicts_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    comparison, _ = comparison_of(tmp_path, DuelSpec())
    TerminalProgress().paired(comparison)
    assert re.search(r"so far \+\d+\.\d % \[\+\d+\.\d, \+\d+\.\d\] at 95 %", capsys.readouterr().err)
    assert "interval of 99.6 %" in " ".join(printed(comparison, capsys).split())
    same = comparison_of(tmp_path / "same", SAME)[0]
    assert "interval of 90 %" in " ".join(printed(same, capsys).split())


@pytest.mark.parametrize("columns", ["80", "60"])
def test_everything_but_the_verdict_fits_the_terminal(
    columns: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    output.stdout_console.cache_clear()
    comparison, _ = comparison_of(tmp_path, replace(SAME, pairs=10, steps=4))
    out = printed(comparison, capsys)
    after_verdict, sentences = out.splitlines()[2:], out[out.index("same work:") :].splitlines()
    # The table's figures are never cut, so 60 columns are too few for it.
    assert [line for line in (after_verdict if columns == "80" else sentences) if len(line) > int(columns)] == []
    assert comparison.duel.id in out, "whole, so that it can be copied"


def test_one_of_anything_is_singular_and_shares_are_written_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")
    output.stdout_console.cache_clear()
    out = printed(comparison_of(tmp_path, replace(SAME, pairs=1, ranks=1))[0], capsys)
    assert "made: 1 launch pair x" in out
    assert re.search(r"\d%", out) is None, "a space before every percent sign"


def part(delta_ns: float, *, significant: bool = True) -> JudgedPart:
    return JudgedPart(
        path="step/x",
        base_ns=1e6,
        head_ns=1e6 + delta_ns,
        ci_ns=None,
        q=0.0,
        significant=significant,
    )


@pytest.mark.parametrize(
    ("deltas_ns", "matter"),
    [
        ([10e6, 14e3], [10e6]),  # certain, and beside the point
        ([10e6, -600e3], [10e6, -600e3]),  # over 5 % of the whole
        ([150e3, -140e3], [150e3, -140e3]),  # what cancels out is of interest if a tenth of the smallest effect
        ([90e3, 5e3], []),  # of a step of 100 ms, of which 1 % is asked about
    ],
)
def test_only_parts_that_matter_have_moved(deltas_ns: list[float], matter: list[float], tmp_path: Path) -> None:
    comparison, _ = comparison_of(tmp_path, PAIRED_TWICE)
    rule = Rule()
    base = replace(comparison.base, step_ns=100e6)
    parts = (*map(part, deltas_ns), part(50e6, significant=False))
    whole = sum(one.delta_ns for one in parts)
    assert not math.isclose(whole, 0)
    found = replace(comparison, rule=rule, base=base, ranges=parts[:-1])
    assert [one.delta_ns for one in found.moved] == matter
    assert all(one.significant for one in replace(comparison, rule=rule, base=base, ranges=parts).moved)


def test_a_side_that_placed_itself_leaves_no_common_cores_to_tell(tmp_path: Path) -> None:
    comparison, _ = comparison_of(tmp_path, replace(SAME, pairs=2, steps=4))

    def bound(base: object, head: object) -> str:
        pairs = tuple(
            replace(pair, base_launch={"cores": base}, head_launch={"cores": head}) for pair in comparison.pairs
        )
        return replace(comparison, pairs=pairs).placement

    assert bound([[2], [3]], [[2], [3]]) == "on core 2, 3"
    assert bound([[2], [3]], None) == "on any core"
    assert bound(None, None) == "on any core"
