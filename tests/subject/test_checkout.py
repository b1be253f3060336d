"""The files of a side, on real repositories: copied, shared or left out, and nothing left of an earlier launch."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from repositories import FACTORY, commit, git, isolate, make_repository, snapshot, write

from harness.errors import UsageError
from harness.scenario import SubjectSettings
from harness.subject import Engine, LiveFolder, Subject, SubjectCache, missing_hint, resolve_subject
from harness.subject.checkout import LARGEST_COPIED_BYTES, MOST_FILES, ignored_files
from harness.subject.requires import requirement_files


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[SubjectCache]:
    isolate(monkeypatch, tmp_path)
    with SubjectCache() as opened:
        yield opened


@pytest.fixture
def repository(cache: SubjectCache, tmp_path: Path) -> Path:
    """With one ignored file of each kind."""
    folder = make_repository(tmp_path / "user")
    commit(folder, "ignore", **{".gitignore": "data/\nruns/\n*.so\n.venv/\n.env\n__pycache__/\n_version.py\n"})
    write(folder / ".env", "KEY=1\n")
    write(folder / "data/small.json", "{}")
    with (folder / "data/large.bin").open("wb") as file:
        file.truncate(LARGEST_COPIED_BYTES + 1)
    write(folder / "toy_engine/_ext.cpython-311-x86_64-linux-gnu.so", "machine code")
    write(folder / "toy_engine/_version.py", "V = 1\n")
    write(folder / "toy_engine/__pycache__/core.cpython-311.pyc", "")
    write(folder / ".venv/pyvenv.cfg", "")
    write(folder / ".venv/lib/x.txt", "")
    write(folder / "runs/results.db", "")
    return folder


def resolved(cache: SubjectCache, repository: Path, name: str, **settings: object) -> Subject:
    engine = Engine(factory=FACTORY, settings=SubjectSettings(**settings))  # type: ignore[arg-type]
    return resolve_subject(name, engine, repository, cache)


def live(subject: Subject, tmp_path: Path, name: str = "side") -> LiveFolder:
    return LiveFolder(subject=subject, folder=tmp_path / name)


def home_of(subject: Subject) -> Path:
    assert subject.home is not None
    return subject.home.root


def test_ignored_files_are_shared_copied_or_code(repository: Path) -> None:
    found = ignored_files(repository)
    assert found.copied == (".env", "data/small.json")
    assert found.linked == ("data/large.bin",)
    assert found.code == ("toy_engine/_ext.cpython-311-x86_64-linux-gnu.so", "toy_engine/_version.py")
    assert found.shared == (".env", "data")


def test_a_large_ignored_folder_is_linked_as_a_whole(repository: Path) -> None:
    for number in range(MOST_FILES + 1):
        write(repository / f"data/many/{number}.txt", "")
    assert ignored_files(repository).linked == ("data",)


def test_named_paths_are_linked_and_must_exist(repository: Path) -> None:
    found = ignored_files(repository, ("data/",))
    assert (found.linked, found.shared) == (("data",), ("data", ".env"))
    for wrong in ("nowhere", "../user", "/etc"):
        with pytest.raises(UsageError, match=r"subject\.shared: .*: expected a path that exists in"):
            ignored_files(repository, (wrong,))


@pytest.mark.parametrize("name", ["HEAD", "."])
def test_each_launch_has_a_new_folder(repository: Path, cache: SubjectCache, tmp_path: Path, name: str) -> None:
    before = snapshot(repository)
    place = live(resolved(cache, repository, name), tmp_path)
    root = home_of(place.fresh())
    assert (root / "data/small.json").read_text() == "{}"
    assert not (root / "data/small.json").is_symlink()
    assert (root / "data/large.bin").is_symlink()
    assert (root / "toy_engine/_version.py").exists() == (name == ".")
    assert not (root / "runs").exists(), "results of stepduel are no data"
    assert not (root / ".venv").exists()
    write(root / "toy_engine/core.py", "SPEED = 9\n")
    write(root / "data/small.json", "written")
    write(root / "checkpoint.pt", "")
    write(root / "toy_engine/__pycache__/core.cpython-399.pyc", "compiled")
    again = home_of(place.fresh())
    assert (again / "toy_engine/core.py").read_text() == "SPEED = 2\n"
    assert (again / "data/small.json").read_text() == "{}"
    assert not (again / "checkpoint.pt").exists()
    assert (again / "toy_engine/__pycache__/core.cpython-399.pyc").read_text() == "compiled", "kept, as the tree is"
    assert snapshot(repository) == before


def test_git_in_a_side_tells_its_commit(repository: Path, cache: SubjectCache, tmp_path: Path) -> None:
    git(repository, "tag", "v1", "HEAD~1")
    before = snapshot(repository / ".git")
    root = home_of(live(resolved(cache, repository, "HEAD~1"), tmp_path).fresh())
    assert git(root, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD~1")
    assert git(root, "describe", "--tags") == "v1"
    assert git(root, "status", "--porcelain", "--untracked-files=no") == ""
    commit(root, "the engine commits something")
    after = snapshot(repository / ".git")
    assert {name: about[2] for name, about in after.items()} == {name: about[2] for name, about in before.items()}


def test_a_file_that_both_share_and_one_changes_is_told(repository: Path, cache: SubjectCache, tmp_path: Path) -> None:
    place = live(resolved(cache, repository, "HEAD"), tmp_path)
    place.fresh()
    assert place.written_to() == []
    with (repository / "data/large.bin").open("r+b") as file:
        file.write(b"changed")
    os.utime(repository / "data/large.bin", ns=(0, 0))
    assert place.written_to() == ["data/large.bin"]


def test_an_ignored_file_that_goes_away_meanwhile_is_no_error(
    repository: Path, cache: SubjectCache, tmp_path: Path
) -> None:
    subject = resolved(cache, repository, "HEAD")
    (repository / "data/small.json").unlink()
    assert not (home_of(live(subject, tmp_path).fresh()) / "data/small.json").exists()


def test_links_and_odd_names_are_copied_as_they_are(repository: Path, cache: SubjectCache, tmp_path: Path) -> None:
    (repository / "link").symlink_to("toy_engine")
    write(repository / "with space\nand line.txt", "odd")
    write(repository / "-dash", "")
    root = home_of(live(resolved(cache, repository, "."), tmp_path).fresh())
    assert (root / "link").readlink() == Path("toy_engine")
    assert (root / "with space\nand line.txt").read_text() == "odd"
    assert (root / "-dash").exists()


def test_a_deleted_file_is_deleted_in_the_copy(repository: Path, cache: SubjectCache, tmp_path: Path) -> None:
    (repository / "README").unlink()
    assert not (home_of(live(resolved(cache, repository, "."), tmp_path).fresh()) / "README").exists()


def test_what_is_shared_and_lacking_is_noted(repository: Path, cache: SubjectCache) -> None:
    notes = resolved(cache, repository, "HEAD").notes
    assert notes[0] == "shares what git ignores with the working tree: .env, data"
    assert notes[1].startswith("lacks what git ignores in the working tree: toy_engine/_ext")


@pytest.mark.parametrize(
    ("message", "file"),
    [
        ("ModuleNotFoundError: No module named 'toy_engine._version'", "toy_engine/_version.py"),
        ("ImportError: cannot import name '_ext' from 'toy_engine' (/x/toy_engine/__init__.py)", "toy_engine/_ext"),
        ("cannot import name '_version' from partially initialized module 'toy_engine'", "toy_engine/_version.py"),
    ],
)
def test_a_failed_import_names_the_file_that_the_side_lacks(
    repository: Path, cache: SubjectCache, message: str, file: str
) -> None:
    hint = missing_hint(message, resolved(cache, repository, "HEAD").checkout)
    assert hint is not None
    assert hint.startswith(file)
    assert "[subject] build" in hint
    assert missing_hint(message, resolved(cache, repository, ".").checkout) is None, "the working tree has it"
    assert missing_hint("No module named 'numpy'", resolved(cache, repository, "HEAD").checkout) is None


def test_a_build_runs_once_a_tree_in_its_copy(repository: Path, cache: SubjectCache, tmp_path: Path) -> None:
    count = tmp_path / "count"
    command = f"echo built >> {count}; cp README toy_engine/_built.txt; python -c 'import sys; print(sys.executable)'"
    for name in ("HEAD", "HEAD", "HEAD~1", "."):
        subject = resolved(cache, repository, name, build=command)
        root = home_of(live(subject, tmp_path, name).fresh())
        assert (root / "toy_engine/_built.txt").read_text() == "hello\n"
    assert count.read_text().count("built") == 3, "HEAD twice, HEAD~1, the working tree"
    assert not (repository / "toy_engine/_built.txt").exists()


def test_a_build_that_fails_tells_its_last_words(repository: Path, cache: SubjectCache) -> None:
    with pytest.raises(UsageError, match=r"subject\.build: 'echo oh no; exit 3' ended with 3: oh no \(log: ") as error:
        resolved(cache, repository, "HEAD", build="echo oh no; exit 3")
    log = str(error.value).rpartition("(log: ")[2].rstrip(")")
    assert Path(log).read_text() == "oh no\n"
    with pytest.raises(UsageError, match="oh no"):
        resolved(cache, repository, ".", build="echo oh no; exit 3")


@pytest.mark.parametrize(
    ("name", "base", "head", "asks"),
    [
        ("requirements.txt", "torch==2.9\n", "torch==2.13\n", True),
        ("uv.lock", "1", "2", True),
        ("pyproject.toml", '[project]\ndependencies = ["a"]\n', '[project]\ndependencies = ["b"]\n', True),
        ("pyproject.toml", '[project]\nversion = "1"\n', '[project]\nversion = "2"\n', False),
        ("pyproject.toml", "[project\n", "[project]\n", True),
        ("engine.py", "1", "2", False),
    ],
)
def test_what_is_required_differs(tmp_path: Path, name: str, base: str, head: str, asks: bool) -> None:
    write(tmp_path / "base" / name, base)
    write(tmp_path / "head" / name, head)
    assert requirement_files(tmp_path / "base", tmp_path / "head", [name]) == ((name,) if asks else ())
