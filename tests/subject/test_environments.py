"""Environments: made once, shared by processes, never half there, and a user's own taken as it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from child_process import PIPE, child
from wheels import build_stand_ins, build_wheel, only_index

from harness.errors import UsageError
from harness.subject import SubjectCache, cache_folder, clean
from harness.subject import environments as module
from harness.subject.environments import complete, environment_key, provide_environment
from harness.subject.interpreter import ask, given_interpreter

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "FREE_BYTES", 1 << 20)
    folder = only_index(monkeypatch, tmp_path / "index")
    build_stand_ins(folder)
    return folder


@pytest.fixture
def cache(index: Path) -> Iterator[SubjectCache]:
    with SubjectCache() as opened:
        yield opened


def kept() -> list[str]:
    return sorted(path.name for path in (cache_folder() / "environments").iterdir())


def test_an_environment_is_made_once_and_then_needs_no_index(index: Path, cache: SubjectCache) -> None:
    build_wheel(index, "library", "1.5", {"library.py": "X = 1\n"})
    first = provide_environment(cache, ["library>1", "torch==2.13.0"])
    for wheel in index.iterdir():
        wheel.unlink()
    again = provide_environment(cache, ["torch == 2.13.0", "library > 1"])
    assert again == first
    assert first.versions == {"library": "1.5", "torch": "2.13.0", "nvtx": "0.2.17"}
    answer = subprocess.run(
        [first.python, "-c", "import library, sys; print(library.X, sys.prefix)"], capture_output=True
    )
    assert answer.stdout.decode().split() == ["1", str(first.python.parents[1])]
    assert first.id == ask(first.python).id
    assert kept() == [environment_key(complete(["library>1", "torch==2.13.0"]))]


def test_what_ranks_need_is_added_unless_it_is_named() -> None:
    from importlib.metadata import version

    assert complete(["numpy <2"]) == ["numpy<2", f"nvtx=={version('nvtx')}", "torch"]
    assert complete(["nvtx>=0.2", "Torch==2.6", "torch==2.6"]) == ["Torch==2.6", "nvtx>=0.2", "torch==2.6"]


def test_a_failure_is_told_in_one_line_and_leaves_nothing(index: Path, cache: SubjectCache) -> None:
    with pytest.raises(UsageError, match=r"no environment with nowhere, .*nowhere.*log: .*--python") as told:
        provide_environment(cache, ["nowhere", "nvtx"])
    assert "\n" not in str(told.value)
    assert kept() == []
    (index / "broken-1.0-py3-none-any.whl").write_bytes(b"PK no zip file")
    with pytest.raises(UsageError, match=r"broken-1.0"):
        provide_environment(cache, ["broken", "nvtx"])
    assert kept() == []


def test_a_full_disk_is_told_before_anything_is_installed(
    index: Path, cache: SubjectCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FREE_BYTES", 1 << 60)
    with pytest.raises(UsageError, match=r"GB free, and an environment needs up to"):
        provide_environment(cache, ["torch"])
    assert kept() == []


MAKE = """
import sys
from harness.subject import SubjectCache, environments
environments.FREE_BYTES = 1 << 20
with SubjectCache(announce=lambda text: print(text, file=sys.stderr, flush=True)) as cache:
    print(environments.provide_environment(cache, sys.argv[1:]).python, flush=True)
"""


def maker(*requirements: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return child([sys.executable, "-c", MAKE, *requirements], stdout=PIPE, stderr=PIPE, cwd=ROOT)


def test_processes_that_want_one_at_once_make_one(index: Path) -> None:
    with ExitStack() as stack:
        makers = [stack.enter_context(maker("torch")) for _ in range(2)]
        outcomes = [process.communicate(timeout=60) for process in makers]
    assert [process.returncode for process in makers] == [0, 0]
    assert len({out for out, _ in outcomes}) == 1
    said = sorted(line.split()[0] for _, err in outcomes for line in err.splitlines())
    assert said == ["installing", "waiting"]
    assert len(kept()) == 1


SLOW_BACKEND = """
import os, pathlib, time
def get_requires_for_build_wheel(settings=None): return []
def build_wheel(folder, settings=None, metadata=None):
    pathlib.Path(os.environ["STEPDUEL_TEST_STARTED"]).write_text(str(os.getpid()))
    time.sleep(60)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_maker_that_is_ended_leaves_nothing_that_counts(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: signal.Signals
) -> None:
    project = tmp_path / "slow"
    project.mkdir()
    backend = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (project / "pyproject.toml").write_text(f'{backend}[project]\nname = "slow"\nversion = "1"\n')
    (project / "backend.py").write_text(SLOW_BACKEND)
    started = tmp_path / "started"
    monkeypatch.setenv("STEPDUEL_TEST_STARTED", str(started))
    with maker("torch", f"slow @ file://{project}") as process:
        while not started.exists() or not started.read_text():
            assert process.poll() is None
            time.sleep(0.05)
        backend_pid = int(started.read_text())
        process.send_signal(how)
        process.communicate(timeout=30)
        if how is signal.SIGINT:  # whatever it had started is gone, and so is the folder
            assert (
                not Path(f"/proc/{backend_pid}/cmdline").exists()
                or not Path(f"/proc/{backend_pid}/cmdline").read_bytes()
            )
            assert kept() == []
            return
        assert [name.startswith(".building-") for name in kept()] == [True]
        assert (
            clean()["environments"].in_use == 1
        )  # pip outlives a killed maker, and its folder is not taken away from it
        os.killpg(os.getpgid(backend_pid), signal.SIGKILL)
        deadline = time.monotonic() + 10
        while clean()["environments"].removed == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert kept() == []


def test_an_environment_in_use_is_not_cleaned(index: Path) -> None:
    with SubjectCache() as cache:
        provide_environment(cache, ["torch"])
        assert clean()["environments"].in_use == 1
    done = clean()["environments"]
    assert (done.removed, done.in_use) == (1, 0)
    assert done.freed_bytes > 0
    assert kept() == []


@pytest.mark.parametrize("content", ["", "{", "{}", "[]", None])
def test_a_damaged_environment_says_how_to_make_it_again(index: Path, cache: SubjectCache, content: str | None) -> None:
    python = provide_environment(cache, ["torch"]).python
    manifest = python.parents[1] / "stepduel-environment.json"
    manifest.parent.chmod(0o755)
    manifest.unlink()
    if content is not None:
        manifest.write_text(content)
    with pytest.raises(UsageError, match=r"damaged \(.*\): run stepduel clean"):
        provide_environment(cache, ["torch"])


def test_what_a_file_browser_left_in_the_cache_is_cleaned_as_well(index: Path) -> None:
    for kind in ("trees", "environments"):
        (cache_folder() / kind).mkdir(parents=True)
        (cache_folder() / kind / ".DS_Store").touch()
        (cache_folder() / kind / "link").symlink_to("nowhere")
    assert all(done.in_use == 0 for done in clean().values())
    assert list((cache_folder() / "trees").iterdir()) == []


def test_a_given_python_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"--python nowhere: no such interpreter"):
        given_interpreter("nowhere")
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\necho broken >&2; exit 1\n")
    script.chmod(0o755)
    with pytest.raises(UsageError, match=r"is no Python interpreter that works: broken"):
        given_interpreter(str(script))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "bare")], check=True)
    with pytest.raises(UsageError, match=r"has no torch and no nvtx, which every rank imports"):
        given_interpreter(str(tmp_path / "bare/bin/python"))
    for answer in ("1", "{}", '{"markers": 3}'):
        script.write_text(f"#!/bin/sh\necho '{answer}'\n")
        with pytest.raises(UsageError, match=r"is no Python interpreter that works"):
            given_interpreter(str(script))
    old = {"versions": {}, "markers": {"python_full_version": "3.9.1"}, "modules": []}
    script.write_text(f"#!/bin/sh\necho '{json.dumps(old)}'\n")
    with pytest.raises(UsageError, match=r"is Python 3.9.1; expected 3.11 or newer"):
        given_interpreter(str(script))
    monkeypatch.chdir(Path(sys.executable).parent)
    here = given_interpreter(f"./{Path(sys.executable).name}")
    assert here.python.samefile(sys.executable)
