"""Releases of a distribution: `release:NAME==VERSION` from the package index, `wheel:PATH` from a file.

A release is unpacked without its dependencies into a folder of its own in the cache, which goes on the ranks' path. The
environment that the ranks run in is the other side's too; `contradictions` says what of it the release did not ask for.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, canonicalize_version, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from harness.errors import UsageError
from harness.subject.cache import SubjectCache
from harness.subject.installing import InstallError, run_pip
from harness.subject.interpreter import Interpreter

RELEASE: Final = "release:"
WHEEL: Final = "wheel:"
_MANIFEST: Final = "release.json"
_CODE: Final = "code"
_PLATFORM: Final = ("implementation_name", "python_version", "platform_machine", "sys_platform")


@dataclass(frozen=True, kw_only=True)
class Release:
    """One unpacked release. `root` goes on the ranks' path; the rest tells which it is wherever it lies."""

    root: Path
    distribution: str
    version: str
    file: str
    sha256: str
    requires: tuple[str, ...]
    """Its Requires-Dist, as its metadata has them."""

    def document(self) -> dict[str, Any]:
        """Return what is stored about it as JSON-ready values."""
        return {
            "distribution": self.distribution,
            "version": self.version,
            "file": self.file,
            "sha256": self.sha256,
        }


def is_release(name: str) -> bool:
    """Whether a subject's name asks for a release rather than a git revision."""
    return name.startswith((RELEASE, WHEEL))


def provide_release(cache: SubjectCache, name: str, interpreter: Interpreter) -> Release:
    """Return the release that `name` asks for, fetched now or before, in which case no network is used.

    It is the file that pip takes for the version and platform of `interpreter`.

    Raises `UsageError` in one line, naming the log, when it cannot be had.
    """
    source = _wheel(name) if name.startswith(WHEEL) else _pinned(name)
    platform = [interpreter.markers[marker] for marker in _PLATFORM]
    key = hashlib.sha256(json.dumps([source.key, platform]).encode()).hexdigest()[:16]
    log = cache.log(f"release-{key}")

    def build(folder: Path, lock: int) -> None:
        cache.announce(f"fetching {name}")
        log.write_text("", encoding="utf-8")
        pip = partial(run_pip, interpreter.python, log=log, lock=lock)
        download = folder / "download"
        if source.file is None:
            pip("download", ["--no-deps", "--dest", str(download), source.requirement])
        file = source.file or next(download.iterdir())
        pip("install", ["--no-deps", "--target", str(folder / _CODE), str(file)])
        _describe(folder, file)
        shutil.rmtree(download, ignore_errors=True)  # a wheel of the user's was not downloaded

    try:
        folder = cache.entry("releases", key, build, read_only=True)
    except InstallError as error:
        raise UsageError(f"{name}: {error} (log: {log}); {source.advice}") from error
    except OSError as error:
        raise UsageError(f"cannot unpack {name} into {cache.folder}: {error}") from error
    try:
        document = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        return Release(root=folder / _CODE, **{**document, "requires": tuple(document["requires"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder}: this cached release is damaged ({error}): run stepduel clean") from error


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Where a release comes from: a requirement for the index, or a file."""

    key: str
    requirement: str
    file: Path | None
    advice: str


def _pinned(name: str) -> _Source:
    text = name.removeprefix(RELEASE).strip()
    expected = f"{name}: expected {RELEASE}NAME==VERSION, as in {RELEASE}verl==0.8.0"
    try:
        asked = Requirement(text)
        (one,) = asked.specifier
        version = canonicalize_version(Version(one.version))  # which refuses ==1.*; 1.0 is the release 1
    except (InvalidRequirement, InvalidVersion, ValueError) as error:
        raise UsageError(expected) from error
    if one.operator != "==" or asked.extras or asked.url or asked.marker:
        raise UsageError(expected)
    pin = f"{canonicalize_name(asked.name)}=={version}"
    return _Source(key=pin, requirement=pin, file=None, advice=f"pip index versions {asked.name} lists what there is")


def _wheel(name: str) -> _Source:
    path = Path(name.removeprefix(WHEEL)).expanduser()
    try:
        parse_wheel_filename(path.name)
        content = hashlib.sha256(path.read_bytes()).hexdigest()
    except InvalidWheelFilename as error:
        raise UsageError(
            f"{name}: expected {WHEEL}PATH of a wheel, as in {WHEEL}dist/verl-0.8.0-py3-none-any.whl"
        ) from error
    except OSError as error:
        raise UsageError(f"{name}: cannot be read: {error.strerror}; expected the path of a wheel") from error
    return _Source(key=content, requirement="", file=path.absolute(), advice="build it again, or name another")


def _describe(folder: Path, file: Path) -> None:
    """Write down what was installed into the folder, and from which file."""
    root = folder / _CODE
    try:
        (found,) = importlib.metadata.distributions(path=[str(root)])
        distribution = canonicalize_name(found.metadata["Name"])
    except (ValueError, AttributeError, TypeError) as error:  # none, several, or one without a name
        raise InstallError(f"{file.name} did not install as one distribution") from error
    release = Release(
        root=root,
        distribution=distribution,
        version=found.version,
        file=file.name,
        sha256=hashlib.sha256(file.read_bytes()).hexdigest(),
        requires=tuple(found.requires or ()),
    )
    document = {key: value for key, value in asdict(release).items() if key != "root"}
    (folder / _MANIFEST).write_text(json.dumps(document, indent=1), encoding="utf-8")


def contradictions(requires: Sequence[str], interpreter: Interpreter) -> tuple[str, ...]:
    """Return, for each requirement that an installed version does not meet, what is there and what is asked for.

    What is not installed at all contradicts nothing: a scenario lists what its engine uses of a distribution, which is
    seldom everything. What is used and missing fails as an import that names it.
    """
    return tuple(
        f"{requirement.name} {version} (asks for {requirement.specifier})"
        for requirement, version in _applying(requires, interpreter)
        if version is not None and not _meets(requirement, version)
    )


def installed(requires: Sequence[str], interpreter: Interpreter) -> dict[str, str | None]:
    """Return the installed version of each distribution among the requirements; None where there is none."""
    return {requirement.name: version for requirement, version in _applying(requires, interpreter)}


def _applying(requires: Sequence[str], interpreter: Interpreter) -> Iterator[tuple[Requirement, str | None]]:
    """Each requirement that holds here without any extra, with the version that is installed."""
    for text in requires:
        try:
            requirement = Requirement(text)
            applies = requirement.marker is None or requirement.marker.evaluate({**interpreter.markers, "extra": ""})
        except (InvalidRequirement, UndefinedComparison, UndefinedEnvironmentName):
            continue  # older than the standard, or about what is no part of it: pip leaves it out as well
        if applies:
            yield requirement, interpreter.versions.get(canonicalize_name(requirement.name))


def _meets(requirement: Requirement, version: str) -> bool:
    try:
        return requirement.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return not requirement.specifier
