"""Releases as subjects: fetched once, told apart by their files, refused where the environment contradicts them."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from wheels import build_wheel, only_index

from harness.errors import UsageError
from harness.scenario import Scenario, SubjectSettings, load_scenario
from harness.subject import Engine, Subject, SubjectCache, cache_folder, clean, prepare_engine, resolve_subject
from harness.subject.interpreter import Interpreter, own_interpreter
from harness.subject.releases import contradictions, installed, is_release, provide_release

ENGINE = {"toyengine/core.py": "SPEED = 1\n", "toyengine/__init__.py": ""}


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return only_index(monkeypatch, tmp_path / "index")


@pytest.fixture
def cache(index: Path) -> Iterator[SubjectCache]:
    with SubjectCache() as opened:
        yield opened


@pytest.fixture(scope="module")
def own() -> Interpreter:
    return own_interpreter()


def scenario_of(folder: Path, text: str = "") -> Scenario:
    path = folder / "toy.toml"
    path.write_text(f'description = "toy"\n[engine]\nfactory = "toyengine.core:build"\n{text}')
    return load_scenario(str(path))


def resolved(name: str, cache: SubjectCache, folder: Path, *, allow_mismatch: bool = False) -> Subject:
    engine = prepare_engine(scenario_of(folder), (name,), cache, allow_mismatch=allow_mismatch)
    return resolve_subject(name, engine, folder, cache)


def test_a_release_is_fetched_once_and_then_needs_no_index(index: Path, cache: SubjectCache, tmp_path: Path) -> None:
    wheel = build_wheel(index, "toyengine", "1.0", ENGINE, requires=["packaging>=20"])
    first = resolved("release:ToyEngine==1.0.0", cache, tmp_path)
    wheel.unlink()
    again = resolved("release:toyengine==1.0", cache, tmp_path)
    assert first.engine_root == again.engine_root
    assert again.engine_root is not None
    assert (again.engine_root / "toyengine/core.py").read_text() == "SPEED = 1\n"
    assert not os.access(again.engine_root / "toyengine/core.py", os.W_OK) or os.geteuid() == 0
    assert (again.revision, again.dirty, again.measured_root, again.adapter) == (None, None, None, None)
    assert again.provenance()["release"] == {
        "distribution": "toyengine",
        "version": "1.0",
        "file": "toyengine-1.0-py3-none-any.whl",
        "sha256": again.provenance()["release"]["sha256"],
    }
    assert again.versions().keys() == {"toyengine", "packaging"}


def test_releases_are_told_apart_by_their_files_alone(index: Path, cache: SubjectCache, tmp_path: Path) -> None:
    wheel = build_wheel(index, "toyengine", "1.0", ENGINE)
    one = resolved("release:toyengine==1.0", cache, tmp_path)
    assert resolved(f"wheel:{wheel}", cache, tmp_path).identity() == one.identity()
    build_wheel(index, "toyengine", "1.0", {**ENGINE, "toyengine/core.py": "SPEED = 2\n"})
    rebuilt = resolved(f"wheel:{wheel}", cache, tmp_path)
    assert rebuilt.identity() != one.identity()
    assert rebuilt.engine_root is not None
    assert (rebuilt.engine_root / "toyengine/core.py").read_text() == "SPEED = 2\n"


@pytest.mark.parametrize(
    "name",
    [
        *("release:toyengine", "release:toyengine>=1", "release:toyengine==1.*", "release:toyengine==1,==2"),
        *("release:toyengine[x]==1", "release:", "release:--help", "release:toyengine @ file:///x"),
        *("release:toyengine==1; sys_platform == 'linux'", "release:toyengine===1", "wheel:toyengine.tar.gz", "wheel:"),
    ],
)
def test_what_pins_no_release_is_refused(name: str, cache: SubjectCache, own: Interpreter) -> None:
    assert is_release(name)
    with pytest.raises(UsageError, match="expected"):
        provide_release(cache, name, own)
    assert not (cache_folder() / "logs").exists()


def test_what_pip_says_is_told_in_one_line(index: Path, cache: SubjectCache, own: Interpreter) -> None:
    build_wheel(index, "toyengine", "1.0", ENGINE)
    with pytest.raises(
        UsageError, match=r"^release:toyengine==3: Could not find .*from versions: 1.0.*log: .*; pip i"
    ) as told:
        provide_release(cache, "release:toyengine==3", own)
    assert "\n" not in str(told.value)
    broken = index / "toyengine-4.0-py3-none-any.whl"
    broken.write_bytes(b"no zip file")
    with pytest.raises(UsageError, match=r"^wheel:.*toyengine-4.0.* invalid.*build it again"):
        provide_release(cache, f"wheel:{broken}", own)
    with pytest.raises(UsageError, match=r"cannot be read"):
        provide_release(cache, f"wheel:{index / 'gone-1-py3-none-any.whl'}", own)
    assert list((cache_folder() / "releases").iterdir()) == []
    logs = sorted((cache_folder() / "logs").iterdir())
    assert len(logs) == 2
    assert all("ERROR" in log.read_text() for log in logs)
    cache.__exit__(None, None, None)
    clean()
    assert not (cache_folder() / "logs").exists()


def test_a_contradiction_is_refused_unless_it_is_allowed(index: Path, cache: SubjectCache, tmp_path: Path) -> None:
    wheel = build_wheel(
        index, "toyengine", "1.0", ENGINE, requires=["packaging<1", "absent-thing", 'rich<1; extra == "x"']
    )
    toy = f"wheel:{wheel}"
    with pytest.raises(UsageError, match=r"toyengine-1.0\S+ contradicts .*packaging \S+ \(asks for <1\)") as told:
        resolved(toy, cache, tmp_path)
    assert "--allow-mismatch" in str(told.value)
    subject = resolved(toy, cache, tmp_path, allow_mismatch=True)
    assert len(subject.mismatches) == 1
    assert subject.provenance()["mismatches"] == list(subject.mismatches)
    assert subject.notes == ("the environment has no absent-thing, which toyengine asks for",)


def test_contradictions_follow_markers_and_versions(own: Interpreter) -> None:
    has = dataclasses.replace(own, versions={"numpy": "1.26.4", "odd": "not a version", "pre": "2.0rc1"})
    asked = [
        "numpy<2",
        "numpy>=2; python_version < '3'",
        "NumPy>=2; extra == 'x'",
        "odd",
        "pre>=2.0rc1",
        "gone==1",
        "not a requirement at all",
        "numpy>=2; 'x' in dependency_groups",
        "numpy>=2; 'a' ~= 'b'",
    ]
    assert contradictions(asked, has) == ()
    assert contradictions(["numpy>=2.0.0", "odd>1", "pre>=2"], has) == (
        "numpy 1.26.4 (asks for >=2.0.0)",
        "odd not a version (asks for >1)",
        "pre 2.0rc1 (asks for >=2)",
    )
    assert installed(asked, has) == {"numpy": "1.26.4", "odd": "not a version", "pre": "2.0rc1", "gone": None}
    assert str(Requirement("numpy<2")) == "numpy<2"


def test_an_adapter_is_the_same_on_both_sides_and_the_release_goes_before_it(
    index: Path, cache: SubjectCache, tmp_path: Path
) -> None:
    library = f"wheel:{build_wheel(index, 'library', '1.0', {'library/__init__.py': ''})}"
    (tmp_path / "toyengine").mkdir()
    (tmp_path / "toyengine/core.py").write_text("import library\n")
    scenario = scenario_of(tmp_path, '[subject]\npackage = "library"\n')
    engine = prepare_engine(scenario, (library,), cache)
    subject = resolve_subject(library, engine, tmp_path, cache)
    assert subject.engine_root == tmp_path
    assert subject.measured_root is not None
    assert (subject.measured_root / "library").is_dir()
    assert subject.adapter is not None
    other = f"wheel:{build_wheel(index, 'toyengine', '1.0', ENGINE)}"
    with pytest.raises(UsageError, match="has no package 'library'"):
        resolve_subject(other, engine, tmp_path, cache)
    with pytest.raises(UsageError, match=r"no package 'library' here: name a release"):
        resolve_subject(".", engine, tmp_path, cache)


def test_an_installed_adapter_is_linked_alone_for_another_python(
    index: Path, cache: SubjectCache, tmp_path: Path, own: Interpreter
) -> None:
    library = f"wheel:{build_wheel(index, 'library', '1.0', {'library/__init__.py': ''})}"
    other = dataclasses.replace(own, python=Path("/elsewhere/python"))
    engine = Engine(
        factory="engine_under_test.verl:build_engine", settings=SubjectSettings(package="library"), interpreter=other
    )
    provide_release(cache, library, own)  # the other Python is none that could
    subject = resolve_subject(library, engine, tmp_path, cache)
    assert subject.engine_root is not None
    assert [path.name for path in subject.engine_root.iterdir()] == ["engine_under_test"]
    assert (subject.engine_root / "engine_under_test/base.py").is_file()
    assert clean()["sides"].in_use == 1
    cache.__exit__(None, None, None)
    assert not subject.engine_root.exists()
