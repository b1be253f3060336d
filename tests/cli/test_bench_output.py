"""What `bench` prints, without a launch: figures are whole at any width, and what is wrong is told before it starts."""

from __future__ import annotations

import errno
import io
from pathlib import Path

import pytest
from rich.console import Console

import harness.doctor
from harness.analysis.path_summary import PathSummary
from harness.bench import _without_end
from harness.cli import __main__ as main_module
from harness.cli.bench import _range_table
from harness.cli.bench_checks import check_installed, warning_of_disturbance
from harness.cli.trace_tables import print_table
from harness.doctor import Remark
from harness.errors import UsageError

LONG = "step/train_mode_enter/load_the_whole_model_with_all_of_its_parameters_to_the_gpu"


def summary(path: str, ms: float) -> PathSummary:
    return PathSummary(
        path=path,
        name=path.rpartition("/")[2],
        depth=path.count("/"),
        calls_per_step=1234,
        median_ns=ms * 1e6,
        p90_ns=(ms + 11) * 1e6,
        share=0.8125,
        self_median_ns=ms / 8 * 1e6,
        moved_bytes_per_step=162_000,
    )


def lines_of(width: int) -> list[str]:
    target = io.StringIO()
    rows = (summary("step", 18888.5), summary("step/train_mode_enter", 160.25), summary(LONG, 99.875))
    Console(file=target, width=width, markup=False, highlight=False).print(_range_table(rows, width), crop=False)
    return target.getvalue().splitlines()


@pytest.mark.parametrize("width", [20, 40, 60, 80, 110, 200])
def test_names_give_way_and_figures_never_do(width: int) -> None:
    head, *rows = lines_of(width)
    assert head.split()[-6:] == ["calls", "median", "p90", "share", "self", "moved"] or width >= 110
    for row, times in zip(rows, (["18,888", "18,900"], ["160.2", "171.2"], ["99.88", "110.9"]), strict=True):
        cells = row.replace("162 kB", "162_kB").replace("81.2 %", "81.2_%").split()
        assert {"1,234", *times, "81.2_%", "162_kB"} <= set(cells), row
    if width >= 70:
        assert all(len(row) <= width for row in rows)
    assert ("…" in rows[2]) == (width < 200)


def test_every_other_table_keeps_its_figures_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from harness.cli.output import stdout_console

    monkeypatch.setenv("COLUMNS", "30")
    stdout_console.cache_clear()
    print_table("Title", ["name", "base ms", "head ms", "delta ms"], [["a" * 50, "1,234.5", "1,239.5", "+5.000"]])
    stdout_console.cache_clear()
    assert capsys.readouterr().out.splitlines()[-2].split()[1:] == ["1,234.5", "1,239.5", "+5.000"]


def test_a_missing_package_is_told_with_the_folders_that_were_searched(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        check_installed("no_such_engine.fsdp2:build", tmp_path)
    message = str(caught.value)
    assert f"no package 'no_such_engine' in {tmp_path}, {tmp_path / 'src'}, and none is installed" in message
    assert "--repo" in message
    check_installed("json:loads", tmp_path)


def test_a_busy_machine_is_one_line_and_a_quiet_one_none(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = Remark(topic="load", level="warning", seen="processors 50.0 % busy (\x1bcc 1 at 98.0 %)", advice="wait")
    quiet = Remark(topic="steal", level="fine", seen="0.0 % of the time is stolen by other guests")
    monkeypatch.setattr(harness.doctor, "steal", lambda _: quiet)
    for found in ([busy], []):
        monkeypatch.setattr(harness.doctor, "disturbances", lambda found=found: found)
        with warning_of_disturbance():
            pass
        said = capsys.readouterr()
        assert said.out == ""
        assert said.err.count("\n") == len(found)
    stolen = Remark(topic="steal", level="warning", seen="7.0 % of the time is stolen", advice="move")
    monkeypatch.setattr(harness.doctor, "steal", lambda _: stolen)
    with warning_of_disturbance():
        pass
    assert capsys.readouterr().err == "stepduel: warning: 7.0 % of the time is stolen: move\n"


def test_a_log_does_not_repeat_the_reason() -> None:
    reason = "rank 0 raised in step 2: AssertionError: may not move alone"
    tail = ["Traceback (most recent call last):", '  File "x.py", line 1', "AssertionError: may not  move alone", ""]
    assert _without_end(tail, reason) == tuple(tail[:2])
    assert _without_end(["killed"], "rank 1 was ended by SIGKILL") == ("killed",)


def test_an_error_of_the_system_leaves_stdout_alone(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Here stdout is a file, into which one byte is tried to be written."""

    def fail(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(main_module.cli, "main", fail)
    assert main_module.run([]) == 2
    print("after it", flush=True)
    said = capfd.readouterr()
    assert (said.out, said.err) == ("after it\n", "stepduel: No space left on device\n")
