"""Reports of launches, traces and differences, and the index: from the same sections, with the same promises."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, median

import pytest
from markup import check_page
from nsys_exports import EVERY, every_pair, every_stepped
from nsys_years import YEARS
from stored_duels import MS, DuelSpec, comparison_of

from harness.analysis.analyze import analyze
from harness.analysis.difference import diff_traces
from harness.analysis.path_summary import PathSummary
from harness.analysis.range_totals import innermost_copies
from harness.errors import UsageError
from harness.report import (
    render_analysis,
    render_bench,
    render_comparison,
    render_diff,
    write_index,
    write_report,
)
from harness.store import SIDES, RunRecord, StepRecord
from harness.trace.reader import read_trace

TRACE_SECTIONS = ["summary", "ranges", "trees", "steps", "gpu", "findings", "environment", "reproduce"]


@dataclass(frozen=True, kw_only=True)
class Result:
    """A launch as `stepduel bench` returns it."""

    run: RunRecord
    steps: tuple[StepRecord, ...]
    ranges: tuple[PathSummary, ...]
    description: str = "LoRA training"
    warmup_steps: int = 1
    tokens_per_s: float | None = 1234.5
    figures: Mapping[str, float | None] = field(default_factory=lambda: {"peak_memory_bytes": 300_000_000})
    log_tail: tuple[str, ...] = ()
    durations_ns: list[int] = field(default_factory=list)

    @property
    def losses(self) -> list[float | None]:
        return [step.loss for step in self.steps if step.measured and step.rank == 0]

    @property
    def step_mean_ns(self) -> float | None:
        return fmean(self.durations_ns) if self.durations_ns else None

    @property
    def step_median_ns(self) -> float | None:
        return median(self.durations_ns) if self.durations_ns else None


def launch(ranks: int = 2) -> Result:
    steps = [
        StepRecord(
            sequence=sequence,
            rank=rank,
            measured=sequence > 0,
            duration_ns=(100 + sequence + 10 * rank) * MS,
            loss=5.0 - sequence if rank == 0 else None,
            tokens=64,
            figures={"peak_memory_bytes": 1, "rss_bytes": 1},
        )
        for sequence in range(5)
        for rank in range(ranks)
    ]
    run = RunRecord(
        id="20260901-120000-000-abcdef",
        started_at="2026-09-01T12:00:00.000+00:00",
        scenario="smoke",
        scenario_hash="0123456789abcdef",
        scenario_document={"run": {"steps": 4}},
        subject="working tree",
        revision="ab" * 20,
        dirty=True,
        collector="recorder",
        device="cpu",
        ranks=ranks,
        status="completed",
        reason=None,
        harness_version="0.1.0",
        load_average=0.5,
        trace="traces/a b#?.sqlite",
        logs="logs/x",
        engine_versions={"torch": "2.13.0"},
        engine={"modules": 231},
    )
    summaries = tuple(
        PathSummary(
            path=path,
            name=name,
            depth=depth,
            calls_per_step=1,
            median_ns=ms * 1e6,
            p90_ns=ms * 1e6,
            share=ms / 112,
            self_median_ns=own * 1e6,
            moved_bytes_per_step=162_000 if own == 61 else None,
        )
        for depth, (path, name, ms, own) in enumerate(
            (("step", "step", 112, 11), ("step/a", "a", 101, 40), ("step/a/b/c", "b/c", 61, 61))
        )
    )
    times = [steps[at + ranks - 1].duration_ns for at in range(ranks, len(steps), ranks)]
    return Result(run=run, steps=tuple(steps), ranges=summaries, durations_ns=times)


def test_a_launch_says_where_its_step_goes() -> None:
    root = check_page(render_bench(launch(), folder="../reports"))
    assert [section.attributes["id"] for section in root.all("section")] == TRACE_SECTIONS
    lead = root.by_id("summary").text
    assert "A step takes 112.5 ms." in lead
    assert "111.0 to 114.0 ms over 4 steps after 1 of warm-up" in lead
    assert "1,234 tokens/s" in lead
    rows = root.by_id("ranges").all("tbody")[0].all("tr")
    assert [row.all("th")[0].text for row in rows] == ["step", "a", "b/c"]  # `step/a/b` is no range
    indents = [row.all("span")[0].attributes["style"] for row in rows]
    assert indents == ["padding-left:0rem", "padding-left:1rem", "padding-left:2rem"]
    links = [link.attributes["href"] for link in root.by_id("reproduce").all("a")]
    assert links == ["./../reports/traces/a%20b%23%3F.sqlite", "./../reports/logs/x/"]


def test_a_failed_launch_says_why() -> None:
    good = launch(ranks=1)
    failed = replace(
        good,
        run=replace(good.run, status="failed", reason="rank 0 raised <AssertionError>", trace=None),
        ranges=(),
        durations_ns=[],
        log_tail=("Traceback", "AssertionError: may not move alone"),
    )
    root = check_page(render_bench(failed))
    lead = root.by_id("summary").text
    for text in ("The launch failed.", "rank 0 raised <AssertionError>", "may not move alone"):
        assert text in lead
    assert "Nothing was traced." in root.by_id("ranges").text


LEADS = {
    **{year.name: "A step takes " if year.ranges else "" for year in YEARS},
    "pytorch_steps_2025.1": "A step takes ",
    "torchrun_2rank_head_2026.2": "No range repeats like a step; ",
    "no_gpu_activity_2023": "",
    "cuda_graphs_2024.6": "",
}


@pytest.mark.parametrize("export", [path for path in EVERY if path.stem in LEADS], ids=lambda path: path.stem)
def test_traces_of_nsight_systems(export: Path) -> None:
    found = analyze(read_trace(export))
    page = render_analysis(found)
    root = check_page(page)
    sections = [section.attributes["id"] for section in root.all("section")]
    has_gpu = len(found.trace.operations) > 0
    assert sections == [*TRACE_SECTIONS[:5], *(["step-gpu", "copies"] if has_gpu else []), *TRACE_SECTIONS[5:]]
    assert root.all("h1")[0].text.strip().startswith(LEADS[export.stem])
    assert page == render_analysis(found)
    gpu = root.by_id("gpu").text
    assert ("No GPU work was traced" in gpu) != has_gpu
    for kernel in found.kernels[:1]:
        assert f"{kernel.calls:,}" in gpu
    cards = root.by_id("findings").all("li")
    assert len(cards) == len(found.findings)


@every_stepped
def test_gpu_figures_of_each_step_and_range(export: Path) -> None:
    found = analyze(read_trace(export))
    root = check_page(render_analysis(found))
    heads = [cell.text for cell in root.by_id("step-gpu").all("thead")[0].all("th")]
    communication = ["Exposed ms", "Overlapped ms"] * found.step_gpu.has_communication
    assert heads == [
        *("Step", "ms", "GPU busy ms", "Busy", "Idle ms"), *communication, "Coverage", "Host, while idle, longest in"
    ]  # fmt: skip
    # Ranks of the made exports take equally long: the lowest is shown.
    kept = [row for row, reason in enumerate(found.steps.dropped) if reason is None and found.steps.rank[row] == 0]
    rows = root.by_id("step-gpu").all("tbody")[0].all("tr")
    many = len(found.trace.ranks) > 1
    assert [row.all("th")[0].text for row in rows] == [f"{found.steps.index[at]}{', rank 0' * many}" for at in kept]
    for row, at in zip(rows, kept, strict=True):
        cells = dict(zip(heads[1:], (cell.text.replace(",", "") for cell in row.all("td")), strict=True))
        assert float(cells["GPU busy ms"]) == pytest.approx(found.step_gpu.busy_ns[at] / 1e6, rel=1e-3)
        assert float(cells["Idle ms"]) == pytest.approx(found.step_gpu.idle_ns[at] / 1e6, rel=1e-3)
        assert cells["Host, while idle, longest in"] == found.step_gpu.idle_in[at]
        if communication:
            assert float(cells["Exposed ms"]) == found.step_gpu.communication_exposed_ns[at] / 1e6
    copies = [[cell.text for cell in row.all("td")] for row in root.by_id("copies").all("tbody")[0].all("tr")]
    told = innermost_copies(found.ranges)
    assert len(copies) == min(len(told), 40) > 0
    assert [row[1] for row in copies[:3]] == [copy.memory or "–" for _, copy in told[:3]]


@pytest.mark.parametrize(
    "export",
    [path for path in EVERY if path.stem in ("2024.5", "torchrun_2rank_head_2026.2")],
    ids=lambda path: path.stem,
)
def test_without_steps_each_rank_has_a_row_with_its_communication(export: Path) -> None:
    found = analyze(read_trace(export))
    root = check_page(render_analysis(found))
    heads = [cell.text for cell in root.by_id("step-gpu").all("thead")[0].all("th")]
    assert heads[0] == ("Step" if found.steps.name else "Capture")
    assert ("Exposed ms" in heads) == found.step_gpu.has_communication
    assert len(root.by_id("step-gpu").all("tbody")[0].all("tr")) == len(found.trace.ranks)


@every_pair
def test_both_sides_of_a_duel_are_set_beside_each_other(pair: tuple[Path, Path], tmp_path: Path) -> None:
    comparison, evidence = comparison_of(tmp_path, DuelSpec(pairs=4, steps=4, ranks=1))
    analyses = {side: analyze(read_trace(path)) for side, path in zip(SIDES, pair, strict=True)}
    root = check_page(render_comparison(comparison, replace(evidence, analyses=analyses)))
    rules = {side: {finding.rule for finding in found.findings} for side, found in analyses.items()}
    cards = {card.all("h3")[0].text.split()[0]: card.attributes["class"] for card in root.by_id("findings").all("li")}
    assert {rule for rule, state in cards.items() if state == "new"} == rules["head"] - rules["base"]
    assert {rule for rule, state in cards.items() if state == "gone"} == rules["base"] - rules["head"]
    assert {rule for rule, state in cards.items() if state == "both"} == rules["base"] & rules["head"]
    (shown,) = (
        [cell.text for cell in row.all("td")]
        for row in root.by_id("gpu").all("tbody")[0].all("tr")
        if row.all("th")[0].text == "GPU busy in it, ms"
    )
    busy = [one.slowest_rank.gpu_busy_ns / 1e6 for one in analyses.values() if one.slowest_rank]
    assert [float(cell.replace(",", "")) for cell in shown] == pytest.approx(busy, rel=1e-3)
    only_head = check_page(render_comparison(comparison, replace(evidence, analyses={"head": analyses["head"]})))
    assert "Only head has a trace" in only_head.by_id("findings").text


@every_pair
def test_a_difference_of_traces_gives_no_verdict(pair: tuple[Path, Path]) -> None:
    found = diff_traces(*map(read_trace, pair))
    root = check_page(render_diff(found))
    lead = root.by_id("summary").text
    assert "no verdict" in lead
    assert "cannot carry a verdict" in lead
    foot = [cell.text for cell in root.by_id("attribution").all("tfoot")[0].all("td")]
    assert float(foot[2].replace("−", "-")) == pytest.approx(found.delta_ns / 1e6, abs=0.001)
    assert "q" not in [header.text for header in root.by_id("attribution").all("th")]


def test_the_index_lists_reports_and_nothing_else(tmp_path: Path) -> None:
    assert "No report lies here yet" in write_index(tmp_path).read_text(encoding="utf-8")
    comparison, evidence = comparison_of(tmp_path, DuelSpec(pairs=4, steps=2, ranks=1, scenario="<b>odd"))
    write_report(tmp_path / "a b.html", render_comparison(comparison, evidence))
    write_report(tmp_path / "below" / "bench.html", render_bench(launch()))
    (tmp_path / "foreign.html").write_text("<title>not ours</title>", encoding="utf-8")
    (tmp_path / "broken.html").write_bytes(b"\xff\xfe<title>")
    index = write_index(tmp_path, [comparison.duel])
    root = check_page(index.read_text(encoding="utf-8"))
    rows = {
        link.attributes["href"]: [cell.text for cell in row.all("td")]
        for row in root.all("tbody")[0].all("tr")
        for link in row.all("a")
    }
    assert set(rows) == {"./a%20b.html", "./below/bench.html"}
    assert rows["./a%20b.html"][1:] == ["<b>odd", "2026-09-01 12:00", "completed"]
    assert root.all("h1")[0].text.strip() == "2 reports"
    assert write_index(tmp_path, [comparison.duel]).read_bytes() == index.read_bytes()


def test_an_index_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "index.html").mkdir()
    with pytest.raises(UsageError, match="Is a directory"):
        write_index(tmp_path)
