"""The GitHub action from its first step to its last: its scripts in a real repository, with the runner's files."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import subject_python
from action_runner import ROOT, run_action
from duel_bench import POLICY, SCENARIO, git

from harness.gate.markdown import MARKER


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's project as a pull request checks it out: a toy engine in two commits, a scenario, a policy."""
    folder = tmp_path / "project"
    (folder / "scenarios").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / ".gitignore").write_text("reports/\n")
    (folder / "scenarios" / "toy.toml").write_text(SCENARIO)
    (folder / "pyproject.toml").write_text(POLICY)
    for text in ("def build(): ...\n", "def build(): ...  # again\n"):
        (folder / "toy.py").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "engine: a toy")
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """The interpreter with Stepduel and an engine that is played; what pip is asked for is written down instead."""
    launches = subject_python.install(tmp_path)
    gate = (
        f"import sys; sys.executable = {str(launches)!r}; sys.path.insert(0, {str(ROOT)!r});"
        "from harness.cli.__main__ import main; main(sys.argv[1:])"
    )
    (tmp_path / "gate.py").write_text(gate)
    path = tmp_path / "python"
    path.write_text(
        "#!/bin/bash\n"
        f'if [[ $1 == -m && $2 == pip ]]; then printf "%s\\n" "${{@: -1}}" >> {tmp_path}/installed; exit 0; fi\n'
        f'if [[ $1 == -m && $2 == harness.cli ]]; then shift 2; exec {sys.executable} {tmp_path}/gate.py "$@"; fi\n'
        f'exec {sys.executable} "$@"\n'
    )
    path.chmod(0o755)
    return path


def variables(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "s").mkdir()
    return {"TMPDIR": str(tmp_path / "s"), "XDG_CACHE_HOME": str(tmp_path / "cache"), "COLUMNS": "80"}


@pytest.mark.slow
def test_a_pull_request_that_is_slower_fails_with_everything_written(
    project: Path, python: Path, tmp_path: Path
) -> None:
    inputs = {"python": str(python), "base": "HEAD^1", "arguments": "--seed 7 --head-set engine.step_ms=120"}
    job = run_action(project, tmp_path, inputs, variables(tmp_path))
    assert job.status == 1, job.log
    assert (tmp_path / "installed").read_text().splitlines() == [str(ROOT)]
    assert job.ran[-1] == "Answer", "the reports are kept before the job fails"
    comment = project / job.outputs.pop("comment")
    assert job.outputs == {"result": "regression", "exit-code": "1"}
    text = comment.read_text(encoding="utf-8")
    assert text.startswith(MARKER)
    assert "`forward_backward`" in text
    assert (tmp_path / "summary.md").read_text(encoding="utf-8") == text
    assert re.search(r"^::error title=Stepduel%3A regression", job.log, re.MULTILINE)
    for pattern in job.others["Keep the reports"]["path"].split():
        assert list(project.glob(pattern.rstrip("/"))), pattern
    restored, saved = (job.others[f"{verb} the results database"] for verb in ("Restore", "Save"))
    assert restored["key"] == saved["key"], "what one run saves, the next finds by the beginning of its key"
    assert saved["key"].startswith(restored["restore-keys"])
    assert (project / saved["path"]).is_file()
    assert git(project, "status", "--porcelain") == ""


def test_a_gate_that_cannot_start_is_an_error_of_its_own(project: Path, python: Path, tmp_path: Path) -> None:
    (project / "pyproject.toml").write_text(POLICY.replace("pairs", "pears"))
    old = project / "reports" / "gate"
    old.mkdir(parents=True)
    (old / "gate.json").write_text('{"result": "pass"}')
    job = run_action(project, tmp_path, {"python": str(python), "cache": "false"}, variables(tmp_path))
    assert job.status == 2, job.log
    assert (job.outputs["result"], job.outputs["exit-code"]) == ("error", "2"), "not what an earlier gate said"
    assert "has no key 'pears'. Did you mean 'pairs'?" in job.log
    assert "Restore the results database" not in job.others
    assert "Save the results database" not in job.others


def test_an_installation_that_fails_ends_the_job_there(project: Path, tmp_path: Path) -> None:
    job = run_action(project, tmp_path, {"python": "/bin/false"}, variables(tmp_path))
    assert job.status == 1
    assert "Gate" not in job.ran
    assert "Answer" not in job.ran
    assert {"Save the results database", "Keep the reports"} <= set(job.ran)


def test_a_shallow_clone_is_warned_of(project: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--depth", "1", project.as_uri(), "shallow")
    job = run_action(tmp_path / "shallow", tmp_path, {"python": "/bin/false"}, variables(tmp_path))
    assert job.log.startswith("::warning title=Stepduel::This clone is shallow")
