"""What users copy: the action and the recipes parse, name options that exist, and their scripts are sound shell."""

from __future__ import annotations

import re
import subprocess
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.cli.gate import gate
from harness.gate import read_policy
from harness.gate.decision import EXIT_CODES, Result
from harness.gate.markdown import MARKER
from harness.gate.policy import _LIMITS, _POLICY

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "ci.md").read_text()
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())


def section(title: str) -> str:
    found = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", DOCUMENT, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def block(title: str) -> str:
    """The indented block of a section of the document."""
    lines = [line for line in section(title).splitlines() if line.startswith("    ") or not line.strip()]
    return textwrap.dedent("\n".join(lines))


def test_the_action_is_a_composite_one_whose_references_exist() -> None:
    assert ACTION["runs"]["using"] == "composite"
    text = (ROOT / "action.yml").read_text()
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    ids = {step["id"] for step in ACTION["runs"]["steps"] if "id" in step}
    assert set(re.findall(r"steps\.([\w-]+)\.", text)) == ids
    for step in ACTION["runs"]["steps"]:
        assert ("run" in step) == ("shell" in step), step["name"]
        assert "${{" not in step.get("run", ""), "values reach scripts as environment, where they cannot be code"


def scripts() -> dict[str, str]:
    found = {f"action: {step['name']}": step["run"] for step in ACTION["runs"]["steps"] if "run" in step}
    for title in ("GitHub", "Nightly"):
        jobs = yaml.safe_load(block(title))["jobs"]
        for job in jobs.values():
            found |= {f"{title}: {step['run'][:30]}": step["run"] for step in job["steps"] if "run" in step}
    found["GitLab"] = "\n".join(yaml.safe_load(block("GitLab"))["gate"]["script"])
    found["gate-self"] = (ROOT / ".ci" / "gate-self").read_text()
    found["run"] = (ROOT / ".ci" / "run").read_text()
    return found


@pytest.mark.parametrize("script", scripts().values(), ids=scripts())
def test_scripts_are_sound_shell_and_name_options_that_exist(script: str) -> None:
    done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    known = {option for parameter in gate.params for option in parameter.opts}
    for command in re.findall(r"\bgate (--[^\n]*)", script):
        assert set(re.findall(r"(?<!\S)--[\w-]+", command)) <= known


def test_the_action_tells_the_gates_answer(tmp_path: Path) -> None:
    """Run the action's own script with a stand-in for Python, and see what it hands on."""
    step = next(step for step in ACTION["runs"]["steps"] if step.get("id") == "gate")
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/bash\nif [[ $1 == -m ]]; then printf "%s\\n" "$@" > words; mkdir -p reports/gate;'
        ' echo "{\\"result\\": \\"regression\\"}" > reports/gate/gate.json; exit 1; fi\nexec python3 "$@"\n'
    )
    python.chmod(0o755)
    environment = {
        "PATH": "/usr/bin:/bin",
        "INPUT_PYTHON": str(python),
        "INPUT_BASE": "origin/a b;false",
        "INPUT_BUDGET": "",
        "INPUT_REPORTS": "reports",
        "INPUT_ARGUMENTS": "--head-set engine.x=1",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    done = subprocess.run(shell, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    words = ["-m", "harness.cli", "gate", "--reports", "reports", "--base", "origin/a b;false"]
    assert (tmp_path / "words").read_text().splitlines() == [*words, "--head-set", "engine.x=1"]
    assert (tmp_path / "output").read_text().splitlines() == [
        "result=regression",
        "exit-code=1",
        "comment=reports/gate/gate.md",
    ]


def test_the_documented_policy_is_one_and_names_every_key(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(block("Policy"))
    assert read_policy(path).limits["smoke"].min_abs_ms == 2
    rows = "".join(line.split("|")[1] for line in section("Policy").splitlines() if line.startswith("| `"))
    assert set(re.findall(r"`(\w+)`", rows)) == {*_POLICY, *_LIMITS}


def test_the_documented_exit_codes_are_the_codes() -> None:
    rows = re.findall(r"^\| (\d+) \| ((?:`\w+`(?:, )?)+) \|", section("Exit codes"), re.MULTILINE)
    told = {Result(name): int(code) for code, names in rows for name in re.findall(r"`(\w+)`", names)}
    assert told == EXIT_CODES


def test_the_comment_recipe_looks_for_the_gates_marker() -> None:
    assert MARKER in section("GitHub")


def test_this_projects_own_policy_is_valid() -> None:
    policy = read_policy(ROOT / "pyproject.toml")
    assert "smoke" in policy.scenarios
    assert "gate-self" in (ROOT / "Makefile").read_text()
    assert tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["serve"]
