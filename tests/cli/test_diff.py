"""`stepduel diff`: parts that add up to the difference of the step, from either side, and no verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nsys_exports import every_pair, made
from trace_files import MS, training, write

from harness.analysis.difference import diff_traces
from harness.cli.__main__ import run
from harness.trace.reader import read_trace


def diff(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    assert run(["diff", "--json", *map(str, arguments)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_parts_and_ranges_on_one_side_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = training(tmp_path / "base.sqlite", forward_ms=40, extra="checkpoint")
    head = training(tmp_path / "head.sqlite", forward_ms=48, ranks=2)
    found = diff(capsys, base, head)
    assert found["schema"] == "stepduel/diff/2"
    assert (found["base"]["step_ns"], found["head"]["step_ns"], found["delta_ns"]) == (85 * MS, 88 * MS, 3 * MS)
    assert found["base"]["dropped_steps"] == 1
    assert found["head"]["steps"] == 8
    parts = {
        part["path"]: (part["sides"], part["base_ns"], part["head_ns"], part["delta_ns"]) for part in found["ranges"]
    }
    assert parts == {
        "train_step_*/forward": ("both", 40 * MS, 48 * MS, 8 * MS),
        "train_step_*/checkpoint": ("base", 5 * MS, 0, -5 * MS),
        "train_step_*": ("both", 10 * MS, 10 * MS, 0),
        "train_step_*/backward": ("both", 30 * MS, 30 * MS, 0),
    }
    assert [part["path"] for part in found["ranges"]][:2] == ["train_step_*/forward", "train_step_*/checkpoint"]
    assert found["verdict"] is None
    assert "cannot carry a verdict" in found["note"]


def test_warm_up_is_left_out_and_the_rule_is_that_of_gpu_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, head = training(tmp_path / "base.sqlite"), training(tmp_path / "head.sqlite", forward_ms=48)
    found = diff(capsys, base, head, "--warmup-steps", 3)
    assert [(side["steps"], side["dropped_steps"]) for side in (found["base"], found["head"])] == [(2, 3), (2, 3)]
    assert (found["base"]["step_ns"], found["head"]["step_ns"], found["delta_ns"]) == (80 * MS, 88 * MS, 8 * MS)
    # The kernel of `backward` is launched from another thread.
    for rule, gpu_ms in (("process", 20), ("thread", 0)):
        parts = {part["path"]: part for part in diff(capsys, base, head, "--rule", rule)["ranges"]}
        assert parts["train_step_*/backward"]["base_gpu_ns"] == gpu_ms * MS
        assert parts["train_step_*/forward"]["head_gpu_ns"] == 20 * MS


def test_steps_of_different_names_are_compared_as_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = training(tmp_path / "base.sqlite", step="train_step_{}")
    head = training(tmp_path / "head.sqlite", step="ProfilerStep#{}", forward_ms=50)
    found = diff(capsys, base, head)
    assert found["ranges"][0]["path"] == "step/forward"
    assert found["delta_ns"] == 10 * MS
    assert any("ProfilerStep#*" in warning for warning in found["warnings"])


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9)), max_size=5), min_size=2, max_size=2))
def test_parts_always_add_up(tmp_path: Path, sides: list[list[tuple[str, int]]]) -> None:
    traces = []
    for number, children in enumerate(sides):
        ranges: list[tuple[Any, ...]] = []
        for step in range(3):
            at = begin = step * 1_000
            for name, length in children:
                ranges.append((at, at + length, name, 0, 0))
                at += length + 3
            ranges.append((begin, at + 7 + step, f"step {step}", 0, 0))
        path = tmp_path / f"{number}.sqlite"
        path.unlink(missing_ok=True)
        traces.append(read_trace(write(path, ranges)))
    found = diff_traces(*traces)
    for side in ("base_ns", "head_ns"):
        whole = getattr(found, side.removesuffix("_ns")).step_ns
        assert sum(getattr(part, side) for part in found.ranges) == pytest.approx(whole, rel=1e-12)
    assert sum(part.delta_ns for part in found.ranges) == pytest.approx(found.delta_ns, abs=1e-9)


@pytest.mark.parametrize("width", [80, 200])
def test_text_shows_the_sum_and_says_that_it_is_no_verdict(
    width: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    base = training(tmp_path / "base.sqlite", forward="\x1b[2Jforward" + "y" * 200)
    head = training(tmp_path / "head.sqlite", forward_ms=45)
    assert run(["diff", str(base), str(head)]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert max(map(len, out.splitlines())) <= width
    assert "cannot carry a verdict" in " ".join(out.split())
    last_row = next(line for line in out.splitlines() if "= train_step_*" in line)
    assert last_row.split()[-4:] == ["80.00", "85.00", "+5.000", "sum"]


def test_a_trace_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["diff", str(training(tmp_path / "a.sqlite")), str(tmp_path / "b.sqlite")]) == 2
    assert "b.sqlite does not exist" in capsys.readouterr().err


def test_whole_captures_without_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = write(tmp_path / "a.sqlite", [(0, 6 * MS, "load", 0, 0), (8 * MS, 10 * MS, "save", 0, 0)])
    head = write(tmp_path / "b.sqlite", [(0, 9 * MS, "load", 0, 0)])
    found = diff(capsys, base, head)
    parts = {part["path"]: (part["base_ns"], part["head_ns"]) for part in found["ranges"]}
    assert parts == {"load": (6 * MS, 9 * MS), "save": (2 * MS, 0), "(outside any range)": (2 * MS, 0)}
    assert found["delta_ns"] == -1 * MS


def test_versions_of_nsys_can_be_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """The forward pass of one is slower, and its `prefetch` with it, which is detached and has no time of its own."""
    base, head = made("2021.3"), made("2026.2")
    found = diff(capsys, base.path, head.path)
    assert found["delta_ns"] == pytest.approx(head.slow_us * 1e3)
    slower = {part["path"]: part["delta_ns"] for part in found["ranges"] if abs(part["delta_ns"]) > 1e-3}
    assert slower["train step */forward"] == pytest.approx(head.slow_us * 1e3)
    # What the forward pass takes longer, the step's own code does not, but for the replay that 2021 cannot trace.
    assert sum(slower.values()) == pytest.approx(head.slow_us * 1e3)


@every_pair
def test_traces_with_unique_names_add_up(pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    found = diff(capsys, *pair)
    assert not any("op_id" in part["path"] for part in found["ranges"])
    assert sum(part["delta_ns"] for part in found["ranges"]) == pytest.approx(found["delta_ns"], abs=1)
    # In the real ones the capture cuts ranges off, on either side.
    sides = {"both"} if pair[0] == made("2025.6").path else {"both", "base", "head"}
    assert {part["sides"] for part in found["ranges"]} == sides
