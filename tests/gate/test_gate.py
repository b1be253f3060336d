"""The gate from the outside: real commits, launches played by a stand-in, every exit code, and what is written."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import subject_python
from child_process import PIPE, child
from duel_bench import POLICY, SCENARIO, git

from harness.cli.__main__ import run


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's project, checked out: a toy engine in two commits, a scenario, a policy."""
    folder = tmp_path / "project"
    (folder / "scenarios").mkdir(parents=True)
    git(folder, "init", "-q", "-b", "main")
    (folder / "README").write_text("before the engine\n")
    (folder / ".gitignore").write_text("reports/\n")
    commit(folder, "first")
    (folder / "toy.py").write_text("def build(): ...\n")
    (folder / "scenarios" / "toy.toml").write_text(SCENARIO)
    (folder / "pyproject.toml").write_text(POLICY)
    commit(folder, "engine: a toy")
    (folder / "toy.py").write_text("def build(): ...  # again\n")
    commit(folder, "engine: the same")
    sockets = tmp_path / "s"
    sockets.mkdir()
    monkeypatch.setenv("TMPDIR", str(sockets))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sys, "executable", str(subject_python.install(tmp_path)))
    monkeypatch.chdir(folder)
    return folder


def commit(folder: Path, subject: str) -> None:
    git(folder, "add", ".")
    git(folder, "commit", "-q", "-m", subject)


def gate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run a gate; return its exit code, the document on stdout and what stderr says."""
    status = run(["gate", "--json", "--seed", "7", *arguments])
    out, errors = capsys.readouterr()
    assert "Traceback" not in errors
    return status, json.loads(out) if out else {}, errors


def written(folder: Path) -> dict[str, str]:
    """What the gate wrote, by file name; the HTML page of the only duel is `html`."""
    files = {path.name: path.read_text() for path in (folder / "reports" / "gate").iterdir()}
    pages = [page for page in (folder / "reports").glob("*.html") if page.name != "index.html"]
    return {**files, "html": pages[0].read_text() if pages else ""}


@pytest.mark.slow
def test_the_same_code_passes_and_everything_is_written(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found, _ = gate(capsys)
    assert status == 0, found
    assert (found["schema"], found["result"], found["exit_code"]) == ("stepduel/gate/2", "pass", 0)
    assert [duel["result"] for duel in found["judgements"]] == ["pass"]
    compared = found["judgements"][0]["comparison"]
    assert compared["base"]["revision"] == git(project, "rev-parse", "HEAD~1"), "on main itself, the commit before"
    assert compared["head"]["subject"] == "."
    files = written(project)
    assert json.loads(files["gate.json"]) == found
    assert "pass" in files["gate.md"]
    assert ElementTree.fromstring(files["junit.xml"]).attrib["failures"] == "0"
    assert "Head takes as long as base" in files["html"]
    assert git(project, "status", "--porcelain") == ""


@pytest.mark.parametrize("untracked", [False, True])
def test_head_against_head_is_refused(project: Path, capsys: pytest.CaptureFixture[str], untracked: bool) -> None:
    if untracked:
        (project / "build.log").write_text("left by a build")
    assert run(["gate", "--base", "HEAD"]) == 2
    errors = capsys.readouterr().err
    assert "base HEAD and head . are the same code" in errors
    assert "would pass whatever it is: name another --base" in errors
    assert ("git add it" in errors) == untracked
    assert not (project / "reports" / "gate").exists()


def test_a_base_that_head_was_not_made_on_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    git(project, "checkout", "-q", "-b", "feature", "HEAD~1")
    (project / "toy.py").write_text("def build(): ...  # feature\n")
    commit(project, "feature")
    run(["gate", "--base", "main", "--budget", "1s", "--undecided", "pass"])
    assert "main is no ancestor of HEAD: what only it has counts as a difference too" in capsys.readouterr().err


@pytest.mark.slow
def test_an_injected_slowdown_fails_with_1_and_names_the_range(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = project.parent / "summary.md"
    summary.write_text("# before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    head = ("--head-set", "engine.step_ms=120")
    status, found, errors = gate(capsys, "--base", "HEAD~1", *head)
    assert (status, found["result"]) == (1, "regression")
    assert "step/forward_backward" in {part["path"] for part in found["judgements"][0]["grown"]}
    files = written(project)
    assert "\n| `forward_backward` | " in files["gate.md"]
    assert summary.read_text() == "# before\n" + files["gate.md"]
    assert ElementTree.fromstring(files["junit.xml"]).attrib["failures"] == "1"
    (command,) = [line for line in errors.splitlines() if line.startswith("::")]
    assert command.startswith("::error title=Stepduel%3A regression%3A toy::+20")
    assert "step/forward_backward +10" in command
    # The same again, for people: the document is not printed, the annotations are on stdout.
    assert run(["gate", "--resume", "--seed", "7", "--base", "HEAD~1", *head]) == 1
    out = capsys.readouterr().out
    assert "REGRESSION: 1 of 1 (toy)" in out
    assert "toy: step/forward_backward +10" in out
    assert "::error " in out


@pytest.mark.slow
def test_one_limit_on_memory_holds_wherever_it_is_told(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """20 % more than base, of 50 % that the policy allows; a comparison outside a gate allows 2 %."""
    (project / "pyproject.toml").write_text(POLICY + 'max_memory_growth = "50%"\n')
    status, found, _ = gate(capsys, "--head-set", "engine.memory=1200000000")
    assert (status, found["result"]) == (0, "pass")
    assert found["judgements"][0]["job"]["limits"]["max_memory_growth"] == 0.5
    metrics = found["judgements"][0]["comparison"]["metrics"]
    peak = next(metric for metric in metrics if metric["name"] == "peak_memory_bytes")
    assert (peak["head"], peak["share"], peak["bound"], peak["exceeded"]) == (1.2e9, 0.5, 1.5e9, False)
    assert run(["report", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == metrics
    assert run(["report"]) == 0
    told, page = capsys.readouterr().out + written(project)["gate.md"], written(project)["html"]
    assert "1.00 GB → 1.20 GB" in told
    assert "peak memory stays within its limit" in page
    for words in ("beyond", "exceeds"):
        assert words not in told
        assert f"{words} its limit" not in page


@pytest.mark.slow
def test_more_memory_fails_with_1(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, found, _ = gate(capsys, "--head-set", "engine.memory=1100000000")
    assert status == 1
    assert found["judgements"][0]["detail"] == "peak memory 1.00 GB to 1.10 GB, limit 1.05 GB (+5.0 %)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "limit", "worse"),
    [
        ("max_memory_growth_per_step", "300kB", "leak=400000"),
        ("max_first_step_growth", "50%", "compile_ms=100"),
        ("max_memory_growth", "5%", "memory=1100000000"),
    ],
)
def test_a_limit_that_every_launch_pair_exceeds_ends_the_duel(
    project: Path, capsys: pytest.CaptureFixture[str], key: str, limit: str, worse: str
) -> None:
    (project / "pyproject.toml").write_text(POLICY + f'{key} = "{limit}"\n')
    noisy = ("--head-set", "engine.step_ms=104.7", "--set", "engine.luck=0.03")
    status, found, _ = gate(capsys, *noisy, "--head-set", f"engine.{worse}")
    judgement = found["judgements"][0]
    assert (status, found["result"]) == (1, "regression")
    assert "limit" in judgement["detail"]
    assert key in judgement["job"]["limits"]
    assert len(judgement["comparison"]["pairs"]) == 3, "time alone takes all 4 to stay undecided"
    within = {"max_memory_growth_per_step": "500kB", "max_first_step_growth": "200%", "max_memory_growth": "50%"}[key]
    (project / "pyproject.toml").write_text(POLICY + f'{key} = "{within}"\n')
    status, found, _ = gate(capsys, *noisy, "--head-set", f"engine.{worse}")
    assert found["result"] == "undecided"
    assert len(found["judgements"][0]["comparison"]["pairs"]) == 4


@pytest.mark.slow
def test_undecided_fails_with_3_unless_the_policy_says_otherwise(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    noisy = ("--head-set", "engine.step_ms=104.7", "--set", "engine.luck=0.03", "--pairs", "2")
    status, found, _ = gate(capsys, *noisy)
    assert (status, found["result"]) == (3, "undecided")
    detail = found["judgements"][0]["detail"]
    enough = re.search(r"2 cannot hold a limit of 5\.0 %, (\d+) would \(--pairs \1\)", detail)
    assert enough is not None, detail
    assert int(enough[1]) > 10, "so much scatter takes many"
    status, found, _ = gate(capsys, *noisy, "--undecided", "pass", "--resume")
    assert (status, found["result"], found["judgements"][0]["result"]) == (0, "pass", "undecided")


@pytest.mark.slow
def test_a_budget_that_measured_nothing_never_passes(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = ("--budget", "1s", "--set", "engine.sleep_ms=100")
    status, found, _ = gate(capsys, *slow, "--undecided", "pass")
    assert (status, found["result"]) == (3, "invalid")
    assert found["judgements"][0]["detail"].startswith("no_steps")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--base", "HEAD~2"], "cannot_run"),
        (["--head-set", "engine.other_loss_from=3"], "different_work"),
        (["--head-set", "engine.refuse=1"], "cannot_run"),
    ],
)
def test_what_cannot_be_compared_is_invalid_and_never_passes(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], reason: str
) -> None:
    status, found, _ = gate(capsys, *arguments, "--undecided", "pass")
    assert (status, found["result"]) == (3, "invalid")
    assert found["judgements"][0]["detail"].startswith(f"{reason}: ")
    assert ElementTree.fromstring(written(project)["junit.xml"]).attrib["errors"] == "1"


@pytest.mark.slow
def test_a_launch_that_fails_ends_with_4_and_the_others_are_still_judged(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its warm-up is longer, so that only its launches come as far as the step that raises.
    (project / "scenarios" / "dies.toml").write_text(SCENARIO.replace("warmup_steps = 1", "warmup_steps = 30"))
    (project / "pyproject.toml").write_text(POLICY.replace('["toy"]', '["dies", "toy"]'))
    monkeypatch.setenv("STEPDUEL_TEST_FAULT", "head pair01 30 raise")
    status, found, _ = gate(capsys)
    results = {duel["job"]["scenario"]: duel["result"] for duel in found["judgements"]}
    assert (status, results) == (4, {"dies": "failed", "toy": "pass"})
    assert "launch pair 1, head" in found["judgements"][0]["detail"]
    assert ElementTree.fromstring(written(project)["junit.xml"]).attrib["errors"] == "1"


@pytest.mark.parametrize(
    ("arguments", "policy", "complaint"),
    [
        ([], "", "no gate policy"),
        ([], '[tool.stepduel.gate]\nscenarios = ["tory"]', "no scenario named 'tory'. Did you mean 'toy'?"),
        (["--scenario", "ty"], POLICY, "names no such scenario. Did you mean 'toy'?"),
        (["--base", "no-such-branch"], POLICY, "revision 'no-such-branch' names no commit"),
        (["--base", "--all"], POLICY, "expected a git revision"),
        (["--head-set", "run.steps=3"], POLICY, "only engine.KEY=VALUE may differ"),
        (["--budget", "soon"], POLICY, "expected a time"),
        (["--policy", "nothing.toml"], POLICY, "nothing.toml: cannot be read"),
        ([], f'{POLICY}machines = ["feedbeef"]', "expected one of feedbeef"),
        ([], f'{POLICY}max_creep = "9%"', "stepduel baseline set toy"),
        (["--reports", "toy.py"], POLICY, "toy.py"),
    ],
)
def test_a_request_that_does_not_fit_ends_with_2_before_anything_runs(
    project: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], policy: str, complaint: str
) -> None:
    (project / "pyproject.toml").write_text(policy)
    status, found, errors = gate(capsys, *arguments)
    assert (status, found) == (2, {})
    assert complaint in errors
    assert errors.count("stepduel: ") == 1
    assert not (project / "reports" / "duels").exists()


@pytest.mark.slow
def test_another_machine_may_judge_if_the_policy_allows_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text(f'{POLICY}machines = ["feedbeef"]\nallow_machine_mismatch = true\n')
    status, _, errors = gate(capsys, "--pairs", "2", "--undecided", "pass")
    assert status == 0
    assert "not one of feedbeef; allowed by the policy" in errors


@pytest.mark.slow
def test_creep_is_duelled_against_the_pinned_baseline(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "pyproject.toml").write_text(POLICY + 'max_creep = "10%"\n')
    assert run(["baseline", "set", "toy", "HEAD~1"]) == 0
    capsys.readouterr()
    status, found, _ = gate(capsys, "--base", ".", "--head-set", "engine.step_ms=104")
    assert status == 0, "under both limits"
    assert [(duel["job"]["against"], duel["job"]["max_slowdown"]) for duel in found["judgements"]] == [
        ("base", 0.05),
        ("baseline", 0.1),
    ]
    baseline = found["judgements"][1]["comparison"]["base"]["revision"]
    assert baseline == git(project, "rev-parse", "HEAD~1")


@pytest.mark.slow
def test_a_report_that_cannot_be_written_is_one_line_and_the_others_are_kept(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "reports" / "gate" / "gate.md").mkdir(parents=True)
    status, _, errors = gate(capsys, "--pairs", "2", "--undecided", "pass")
    assert status == 2
    assert "cannot write reports/gate/gate.md" in errors
    assert json.loads((project / "reports" / "gate" / "gate.json").read_text())["result"] == "pass"
    assert list((project / "reports").glob("*.html"))


@pytest.mark.slow
def test_ctrl_c_writes_the_reports_and_leaves_no_process(project: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    (project / "reports" / "gate").mkdir(parents=True)
    (project / "reports" / "gate" / "gate.json").write_text('{"result": "pass"}')
    inner = f"import sys; sys.executable = {sys.executable!r}; from harness.cli.__main__ import main; main()"
    real = (Path(sys.prefix) / "bin" / "python").as_posix()
    arguments = [real, "-c", inner, "gate", "--set", "engine.sleep_ms=20", "--steps", "1000"]
    with child(arguments, env=environment, stdout=PIPE, stderr=PIPE) as process:
        while not (pids := list((project / "reports").rglob("pid"))):
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(0.5)
        assert not (project / "reports" / "gate" / "gate.json").exists(), "nothing to be taken for this gate's answer"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert json.loads(written(project)["gate.json"])["result"] == "interrupted"
    for path in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.read_text()), 0)
