"""Runs the shell steps of our composite action as GitHub's runner does, as far as they can tell the difference.

Values of inputs and of earlier steps are put into the environment that a step declares, files for outputs and the job's
summary are handed over by name, the shell is the runner's, and a step that fails skips those without `always()`.
Steps of other actions (`uses`) are only noted, with the inputs they would get.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SHELL = ("bash", "--noprofile", "--norc", "-eo", "pipefail")
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass(kw_only=True)
class Job:
    """What became of the action's steps."""

    ran: list[str] = field(default_factory=list)
    status: int = 0
    """Exit status of the first step that failed; 0 if none did."""
    log: str = ""
    outputs: dict[str, str] = field(default_factory=dict)
    """Of the action itself."""
    others: dict[str, dict[str, str]] = field(default_factory=dict)
    """Other actions that would have run, by name of their step, with their inputs."""


def run_action(project: Path, folder: Path, inputs: Mapping[str, str], variables: Mapping[str, str]) -> Job:
    """Run every step in `project`, with the runner's files in `folder` and `variables` in each environment."""
    action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
    unknown = set(inputs) - set(action["inputs"])
    assert not unknown, unknown
    given = {name: inputs.get(name, about.get("default", "")) for name, about in action["inputs"].items()}
    known = {f"inputs.{name}": str(value) for name, value in given.items()}
    known |= {"runner.os": "Linux", "runner.arch": "X64", "github.run_id": "1", "github.run_attempt": "1"}
    job = Job()
    for number, step in enumerate(action["runs"]["steps"]):
        if not _wanted(step.get("if", ""), known, failed=job.status != 0):
            continue
        job.ran.append(step["name"])
        if "uses" in step:
            job.others[step["name"]] = {key: filled(str(value), known) for key, value in step["with"].items()}
            continue
        output = folder / f"output{number}"
        output.touch()
        own = {key: filled(value, known) for key, value in step.get("env", {}).items()}
        runners = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(ROOT),
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        }
        script = folder / f"step{number}.sh"
        script.write_text(step["run"], encoding="utf-8")
        done = subprocess.run(
            [*SHELL, str(script)],
            cwd=project,
            env={**os.environ, **variables, **runners, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        job.log += done.stdout
        job.status = job.status or done.returncode
        pairs = (line.partition("=") for line in output.read_text(encoding="utf-8").splitlines())
        known |= {f"steps.{step.get('id')}.outputs.{name}": value for name, _, value in pairs}
    job.outputs = {name: filled(about["value"], known) for name, about in action["outputs"].items()}
    return job


def filled(text: str, known: Mapping[str, str]) -> str:
    """Put in the values of all expressions; what no step has said yet is empty, as on the runner."""
    return _EXPRESSION.sub(lambda found: known.get(found[1], ""), text)


def _wanted(condition: str, known: Mapping[str, str], *, failed: bool) -> bool:
    """Whether a step runs. Understands what our action uses: `always()` and comparisons with a text, joined by &&."""
    terms = [term.strip() for term in condition.split("&&") if term.strip()]
    if failed and "always()" not in terms:
        return False
    for term in terms:
        if term == "always()":
            continue
        found = re.fullmatch(r"([\w.-]+) (==|!=) '([^']*)'", term)
        assert found is not None, f"condition {term!r}: teach it to this runner"
        if (known.get(found[1], "") == found[3]) != (found[2] == "=="):
            return False
    return True
