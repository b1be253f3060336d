"""A policy is read strictly: what is off is one line with the file, the key, what is allowed and the nearest name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.gate import Limits, Policy, find_policy, read_policy

WHOLE = """
[tool.other]
gate = 1
[tool.stepduel.gate]
scenarios = ["a", "b"]
base = "origin/main"
max_slowdown = "3%"
min_abs = "2.5ms"
max_memory_growth = 0.01
pairs = 6
steps = 20
budget = "10m"
alpha = 0.05
undecided = "pass"
machines = ["0123456789abcdef"]
allow_machine_mismatch = true
[tool.stepduel.gate.scenario.b]
max_slowdown = 0.1
max_creep = "15 %"
"""


def write(folder: Path, text: str, name: str = "pyproject.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_every_key_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, WHOLE)
    common: dict[str, Any] = {"min_abs_ms": 2.5, "metrics": {**Limits().metrics, "peak_memory_bytes": 0.01}}
    assert read_policy(path) == Policy(
        source=str(path),
        scenarios=("a", "b"),
        limits={
            "a": Limits(max_slowdown=0.03, **common),
            "b": Limits(max_slowdown=0.1, max_creep=0.15, **common),
        },
        base="origin/main",
        pairs=6,
        steps=20,
        budget_s=600.0,
        alpha=0.05,
        undecided="pass",
        machines=("0123456789abcdef",),
        allow_machine_mismatch=True,
    )


def test_what_is_not_said_fails_closed(tmp_path: Path) -> None:
    policy = read_policy(write(tmp_path, '[gate]\nscenarios = ["a"]', "stepduel.toml"))
    assert policy.undecided == "fail"
    assert not policy.allow_machine_mismatch
    assert policy.limits == {"a": Limits()}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("max_slowdwn = 0.1", "no key 'max_slowdwn'. Did you mean 'max_slowdown'? Allowed: scenarios, base,"),
        ("max_slowdown = 0", "max_slowdown = 0: expected a share above 0"),
        ("max_slowdown = true", "max_slowdown = True: expected a share"),
        ('max_slowdown = "ten"', "max_slowdown = 'ten': expected a share"),
        ("max_slowdown = nan", "expected a share"),
        ("max_slowdown = inf", "expected a share"),
        ('max_memory_growth = "-1%"', "expected a share"),
        ("min_abs = -1", "min_abs = -1: expected milliseconds"),
        ('min_abs = "1s"', "min_abs = '1s': expected milliseconds"),
        ("pairs = 1", "pairs = 1: expected an integer of at least 2"),
        ("pairs = 4.0", "pairs = 4.0: expected an integer"),
        ('budget = "soon"', "budget = 'soon': expected a time"),
        ("budget = 0", "budget = 0: expected a time"),
        ("alpha = 0.5", "alpha = 0.5: expected a number above 0 and below 0.5"),
        ('undecided = "pas"', "undecided = 'pas': expected 'fail' or 'pass'. Did you mean 'pass'?"),
        ("base = 3", "base = 3: expected a git revision"),
        ("machines = []", "machines = []: expected a list"),
        ("allow_machine_mismatch = 1", "allow_machine_mismatch = 1: expected true or false"),
        ("scenario = 3", "no key 'scenario'"),
        ("scenario.b.max_slowdown = 0.1", "limits for 'b', which is not in scenarios"),
        ("scenario.a = 3", "scenario.a = 3: expected a table"),
        ("scenario.a.max_slow = 1", "[scenario.a] has no key 'max_slow'. Did you mean 'max_slowdown'?"),
        ('scenario.a.max_creep = "x"', "scenario.a.max_creep = 'x': expected a share"),
    ],
)
def test_a_wrong_key_or_value_is_one_line(tmp_path: Path, line: str, complaint: str) -> None:
    path = write(tmp_path, f'[tool.stepduel.gate]\nscenarios = ["a"]\n{line}\n')
    with pytest.raises(UsageError) as caught:
        read_policy(path)
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[tool.stepduel.gate]", "scenarios is missing"),
        ("[tool.stepduel.gate]\nscenarios = []", "scenarios = []: expected a list of names"),
        ('[tool.stepduel.gate]\nscenarios = ["a", "a"]', "expected each name once"),
        ("[tool.stepduel]\ngate = 3", "gate = 3: expected a table"),
        ("[tool.stepduel.gate", "not valid TOML"),
        ("[gate]\nscenarios = ['a']", "no [tool.stepduel.gate] table"),
    ],
)
def test_a_policy_without_scenarios_is_none(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_policy(write(tmp_path, text))
    assert complaint in str(caught.value)


def test_it_is_found_from_a_subfolder_but_not_beyond_the_repository(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    inner = repo / "src" / "deep"
    inner.mkdir(parents=True)
    write(tmp_path, '[gate]\nscenarios = ["outside"]', "stepduel.toml")
    (repo / ".git").mkdir()
    write(repo, "[tool.other]")
    with pytest.raises(UsageError, match="no gate policy"):
        find_policy(inner)
    own = write(repo, '[tool.stepduel.gate]\nscenarios = ["a"]', "stepduel.toml")
    assert find_policy(inner) == own
    write(repo, '[gate]\nscenarios=["a"]\n[tool.stepduel.gate]\nscenarios = ["a"]', "stepduel.toml")
    with pytest.raises(UsageError, match="both"):
        find_policy(inner)
