"""Environments of each side's own lock file: made by uv from a local index, shared where the locks are equal."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from repositories import commit, git, isolate, make_repository
from wheels import build_stand_ins, build_wheel, only_index

from harness.errors import UsageError
from harness.scenario import SubjectSettings
from harness.subject import Engine, Subject, SubjectCache, environments, resolve_subject
from harness.subject.installing import find_uv
from harness.subject.locks import provide_locked, read_requirements

PROJECT = """
[project]
name = "trainer"
version = "{version}"
requires-python = ">=3.11"
dependencies = ["torch", "library{pin}"]
"""


def uv_there() -> bool:
    try:
        return bool(find_uv())
    except UsageError:
        return False


pytestmark = pytest.mark.skipif(not uv_there(), reason="uv is not installed")


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    isolate(monkeypatch, tmp_path)
    monkeypatch.setattr(environments, "FREE_BYTES", 1 << 20)
    folder = only_index(monkeypatch, tmp_path / "index")
    config = tmp_path / "uv.toml"
    config.write_text(f'no-index = true\nfind-links = ["{folder}"]\n')
    monkeypatch.setenv("UV_CONFIG_FILE", str(config))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    build_stand_ins(folder)
    for version in ("1.0", "2.0"):
        build_wheel(folder, "library", version, {"library.py": f"VERSION = '{version}'\n"})
    return folder


@pytest.fixture
def cache(index: Path) -> Iterator[SubjectCache]:
    with SubjectCache() as opened:
        yield opened


@pytest.fixture
def repository(index: Path, tmp_path: Path) -> Path:
    """Tags of the version of the library that they lock; `2.0b` raises only the project's own version."""
    repo = make_repository(tmp_path / "user")
    for tag, pin, version in (("1.0", "==1.0", "1"), ("2.0", "==2.0", "1"), ("2.0b", "==2.0", "2")):
        (repo / "pyproject.toml").write_text(PROJECT.format(version=version, pin=pin))
        subprocess.run([find_uv(), "lock", "--quiet"], cwd=repo, check=True)
        commit(repo, f"library {tag}")
        git(repo, "tag", f"v{tag}")
    return repo


def resolved(cache: SubjectCache, repo: Path, name: str, environment: str = "lock") -> Subject:
    engine = Engine(factory="toy_engine.core:build", settings=SubjectSettings(environment=environment))
    return resolve_subject(name, engine, repo, cache)


def library_of(subject: Subject) -> str:
    asked = subprocess.run(
        [subject.python, "-c", "import library; print(library.VERSION)"], capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def test_each_side_has_what_its_own_lock_pins(repository: Path, cache: SubjectCache) -> None:
    sides = {name: resolved(cache, repository, f"v{name}") for name in ("1.0", "2.0", "2.0b")}
    assert {name: library_of(side) for name, side in sides.items()} == {"1.0": "1.0", "2.0": "2.0", "2.0b": "2.0"}
    assert sides["2.0"].python == sides["2.0b"].python != sides["1.0"].python
    interpreter = sides["1.0"].interpreter
    assert interpreter is not None
    assert set(interpreter.versions) == {"library", "torch", "nvtx"}, "the project itself is not installed"


def test_the_working_tree_has_its_uncommitted_lock(repository: Path, cache: SubjectCache) -> None:
    git(repository, "checkout", "--quiet", "v1.0", "--", "uv.lock", "pyproject.toml")
    assert library_of(resolved(cache, repository, ".")) == "1.0"
    assert library_of(resolved(cache, repository, "HEAD")) == "2.0"


def test_requirements_are_a_lock_too(repository: Path, cache: SubjectCache) -> None:
    git(repository, "rm", "--quiet", "uv.lock")
    commit(
        repository,
        "plain",
        **{
            "requirements.txt": "-r more/common.txt\n-e ./libs/blocks\n",
            "more/common.txt": "torch\nlibrary>=1  # any\n-c limits.txt\n",
            "more/limits.txt": "library<2\nnot-installed==1\n",
            "libs/blocks/src/blocks.py": "",
        },
    )
    side = resolved(cache, repository, "HEAD")
    assert library_of(side) == "1.0"
    assert side.checkout is not None
    assert side.checkout.members == ("libs/blocks/src",)
    read = read_requirements(repository / "requirements.txt")
    assert (read.lines, read.constraints) == (("torch", "library>=1"), ("library<2", "not-installed==1"))


def test_what_cannot_be_had_is_told_in_one_line(repository: Path, cache: SubjectCache) -> None:
    with pytest.raises(UsageError, match=r"HEAD~3 has no uv\.lock and no requirements\.txt \(looked in \.\)"):
        resolved(cache, repository, "HEAD~3")
    with pytest.raises(UsageError, match=r"HEAD has no gpu\.txt"):
        resolved(cache, repository, "HEAD", "gpu.txt")
    (repository / "absent.txt").write_text("torch\nnot-there==3\n")
    with pytest.raises(UsageError, match=r"no environment with absent\.txt of \.: .*not-there.* \(log: ") as error:
        resolved(cache, repository, ".", "absent.txt")
    assert "\n" not in str(error.value)
    assert not any((cache.folder / "environments").iterdir())


def test_an_environment_without_torch_is_no_environment(index: Path, cache: SubjectCache, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("library\n")
    with pytest.raises(UsageError, match="has no torch, which every rank imports"):
        provide_locked(cache, tmp_path, "lock", (), [tmp_path], "HEAD")
