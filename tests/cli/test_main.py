"""The command line answers at once, imports only what it runs, and says every expected error in one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from harness.cli import __main__ as main_module
from harness.cli.__main__ import COMMANDS, cli, run
from harness.errors import LaunchError, TraceError, UsageError

HEAVY = ("torch", "pandas", "matplotlib", "numpy", "scipy", "pyarrow", "sqlite_utils", "jinja2", "rich")


def stepduel(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "harness.cli", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["no-such-command"]])
def test_answers_without_importing_anything_heavy(arguments: list[str]) -> None:
    code = (
        "import sys; from harness.cli.__main__ import run; run(sys.argv[1:]);"
        f"print('LOADED', sorted(set({HEAVY!r}[:8]) & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines()[-1] == "LOADED []"


def test_help_lists_every_command_with_its_line() -> None:
    out = stepduel("--help", COLUMNS="80")
    assert out.returncode == 0
    for name, (_, line) in COMMANDS.items():
        assert f"  {name} " in out.stdout
        assert line.split()[0] in out.stdout
    assert all(len(line) <= 80 for line in out.stdout.splitlines())


@pytest.mark.parametrize("name", list(COMMANDS))
def test_each_command_is_there_and_explains_itself(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.help, f"{name} has no help"
    for parameter in command.params:
        assert not isinstance(parameter, click.Option) or parameter.help, f"{name} {parameter.name} has no help"


def test_version() -> None:
    assert stepduel("--version").stdout == "stepduel, version 0.2.0\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["scenario"], "no command 'scenario'. Did you mean 'scenarios'?"),
        (["scenarios", "smok"], "no scenario named 'smok'. Did you mean 'smoke'?"),
        (["scenarios", "--jsn"], "No such option"),
        (["scenarios", "--set", "run.ranks=2"], "--set needs the scenario"),
        (["scenarios", "smoke", "--set", "run.ranks=0"], "run.ranks = 0: expected an integer of at least 1"),
    ],
)
def test_usage_errors_are_one_line_and_exit_code_2(arguments: list[str], complaint: str) -> None:
    out = stepduel(*arguments)
    assert out.returncode == 2
    assert out.stdout == ""
    assert out.stderr.startswith("stepduel: ")
    assert complaint in out.stderr
    assert out.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "shown"),
    [
        (UsageError("two\nlines \x1b]0;title\x07"), 2, "stepduel: two lines \\x1b]0;title\\x07\n"),
        (TraceError("t"), 2, "stepduel: t\n"),
        (LaunchError("l"), 4, "stepduel: l\n"),
        (KeyboardInterrupt(), 130, "stepduel: interrupted\n"),
        (PermissionError(13, "Permission denied", "a/b"), 2, "stepduel: a/b: Permission denied\n"),
        (click.UsageError("u"), 2, "stepduel: u\n"),
    ],
)
def test_each_error_has_its_exit_code(
    error: BaseException, code: int, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise error

    monkeypatch.setattr(main_module.cli, "main", fail)
    assert run([]) == code
    assert capsys.readouterr().err.splitlines()[-1] + "\n" == shown


def test_an_unexpected_error_keeps_its_traceback_and_is_no_regression(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise ZeroDivisionError("surprise")

    monkeypatch.setattr(main_module.cli, "main", fail)
    assert run([]) == 70
    assert "Traceback" in (shown := capsys.readouterr().err)
    assert "in fail" in shown
    assert shown.endswith("ZeroDivisionError: surprise\n")
    assert "70 a defect" in stepduel("--help").stdout


@pytest.mark.parametrize("arguments", [["scenarios"], ["scenarios", "--json"], ["scenarios", "smoke"], ["--help"]])
def test_a_full_disk_behind_stdout_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        out = subprocess.run(
            [sys.executable, "-m", "harness.cli", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    complaint = "stepduel: cannot write to standard output: No space left on device\n"
    assert (out.returncode, out.stderr) == (2, complaint)


@pytest.mark.parametrize("option", ["--json", "--set=engine.note=1"])
def test_a_closed_stdout_is_quiet(option: str) -> None:
    command = f'exec "{sys.executable}" -m harness.cli scenarios smoke {option} >&-'
    out = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert (out.returncode, out.stderr) == (0, "")


def test_without_a_command_the_help_is_shown_as_such() -> None:
    bare, asked = stepduel(COLUMNS="80"), stepduel("--help", COLUMNS="80")
    assert (bare.returncode, bare.stdout) == (2, "")
    assert bare.stderr == asked.stdout


def test_a_reader_that_goes_away_is_no_error_and_no_regression() -> None:
    read, write = os.pipe()
    os.close(read)
    for arguments in (["scenarios"], ["scenarios", "--json"], ["scenarios", "smoke"]):
        out = subprocess.run(
            [sys.executable, "-m", "harness.cli", *arguments],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        assert (out.returncode, out.stderr) == (141, "")
    os.close(write)


def test_scenarios_lists_one_line_each() -> None:
    lines = stepduel("scenarios", COLUMNS="40").stdout.splitlines()
    assert [line.split()[0] for line in lines] == sorted(line.split()[0] for line in lines)
    assert "smoke" in {line.split()[0] for line in lines}
    assert len(lines) >= 14
    assert all(len(line) <= 80 for line in lines)


def test_a_scenario_as_shown_is_that_scenario(tmp_path: Path) -> None:
    overrides = ["--set", "engine.context_switch=always", "--set", """engine.note='a "b" \\ é' """]
    shown = stepduel("scenarios", "smoke", *overrides)
    (tmp_path / "copy.toml").write_text(shown.stdout, encoding="utf-8")
    first = json.loads(stepduel("scenarios", "smoke", "--json", *overrides).stdout)
    second = json.loads(stepduel("scenarios", str(tmp_path / "copy.toml"), "--json").stdout)
    assert first.pop("name") == "smoke"
    assert second.pop("name") == "copy"
    assert first == second
    assert first["schema"] == "stepduel/scenario/1"


def test_hostile_text_in_a_scenario_does_not_reach_the_terminal(tmp_path: Path) -> None:
    description = '"a\\u001b]0;owned\\u0007 \\u202e [red]b[/red]"'
    text = f'description = {description}\n[engine]\nfactory = "a.b:c"\nkey = "\\u001b[2J"\n'
    (tmp_path / "hostile.toml").write_text(text, encoding="utf-8")
    out = stepduel("scenarios", str(tmp_path / "hostile.toml"))
    assert out.returncode == 0
    assert "\x1b" not in out.stdout
    assert "[red]b[/red]" in out.stdout, "never taken for markup"
