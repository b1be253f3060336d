"""docs/python.md, done as it says: its examples run, in their order, on a trace and results made here."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pandas as pd
import pytest
from results import add_run
from stored_duels import DUEL_ID, DuelSpec, comparison_of
from trace_files import MS, write

import harness
from harness.errors import TraceError, UsageError

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`trace.sqlite` and `reports/results.db`, as the page's first example names them."""
    monkeypatch.chdir(tmp_path)
    reports = tmp_path / "reports"
    reports.mkdir()
    comparison_of(reports, DuelSpec(pairs=4))
    add_run(reports / "results.db", "older", 100, minute=1)
    add_run(reports / "results.db", "newer", 120, minute=2, ranges=("step", "step/forward_backward"))
    steps = [(at, at + 100 * MS, "step", 0, 0) for at in range(0, 800 * MS, 200 * MS)]
    inside = [(start + 10 * MS, start + 60 * MS, "forward_backward", 0, 0) for start, *_ in steps]
    write(tmp_path / "trace.sqlite", [*steps, *inside])
    return tmp_path


def blocks() -> list[str]:
    found = re.findall(r"\n\n((?:    .*\n|\n(?=    ))+)", PAGE)
    return ["".join(line.removeprefix("    ") for line in block.splitlines(keepends=True)) for block in found]


def test_the_examples_run_and_say_what_is_so(folder: Path) -> None:
    scope: dict[str, object] = {}
    said = []
    for block in blocks():
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, "docs/python.md", "exec"), scope)
        said.append(out.getvalue())
    imported, own, scatter, inside, verdict, ratios = said
    assert imported == ""
    assert own.split() == ["path", "step", "50.0", "step/forward_backward", "50.0"]
    assert scatter.splitlines() == ["{0: 0.0, 1: 0.0}", "step 1 of rank 0"]
    assert inside == "{'step': 10, 'step/forward_backward': 10}\n"
    assert verdict.startswith("slower 1.0")
    assert "step/train_mode_enter/load_fsdp_model_to_gpu" in verdict
    assert len(ratios.split(",")) == 4


def test_the_page_lists_every_frame_with_its_columns(folder: Path) -> None:
    loaded = {
        "load_trace()": harness.load_trace("trace.sqlite"),
        "load_run()": harness.load_run(),
        "load_duel()": harness.load_duel(),
    }
    expected = {
        f"{call}.{name}": [f"`{column}` {dtype}" for column, dtype in frame.dtypes.items()]
        for call, found in loaded.items()
        for name, frame in vars(found).items()
        if isinstance(frame, pd.DataFrame)
    }
    listed = dict(re.findall(r"^\| `(load_\w+\(\)\.\w+)` \| (.*) \|$", PAGE, flags=re.M))
    assert {name: columns.split(", ") for name, columns in listed.items()} == expected


def test_the_figures_are_those_of_the_commands(folder: Path) -> None:
    trace = harness.load_trace("trace.sqlite", warmup_steps=1)
    assert list(trace.steps["duration_ns"]) == [100 * MS] * 3
    assert list(trace.dropped_steps["reason"]) == ["warm-up"]
    by_step = trace.ranges.groupby("sequence")["self_ns"].sum()
    assert by_step.to_dict() == {1: 100 * MS, 2: 100 * MS, 3: 100 * MS}, "self times are the step, dropped ones aside"
    assert trace.totals.set_index("path").loc["step", "calls"] == 4, "the whole capture"
    assert trace.kernels.empty
    duel = harness.load_duel(duel_id=DUEL_ID)
    assert duel.duel.id == DUEL_ID
    assert duel.attribution["delta_ns"].sum() == duel.attribution["head_ns"].sum() - duel.attribution["base_ns"].sum()
    judged = duel.attribution.dropna()
    assert len(judged) >= len(duel.attribution) - 1, "all but one that never varies"
    assert (judged["ci_low_ns"] < judged["ci_high_ns"]).all()
    assert len(duel.pairs) == duel.verdict.pairs == 4


def test_what_is_not_there_is_an_error(folder: Path) -> None:
    assert harness.load_run().run.id == "newer"
    assert harness.load_run(run_id="older").run.id == "older"
    with pytest.raises(UsageError, match="no run 'none'"):
        harness.load_run(run_id="none")
    with pytest.raises(UsageError, match="no results yet"):
        harness.load_duel("nowhere")
    with pytest.raises(TraceError):
        harness.load_trace("reports/results.db")
    assert not Path("nowhere").exists()
    with pytest.raises(AttributeError, match="no attribute 'load_all'"):
        harness.load_all  # type: ignore[attr-defined]  # noqa: B018 - what is asked for
