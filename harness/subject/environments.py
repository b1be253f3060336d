"""Environments for engines: a virtual environment with what a scenario's engine needs, made once and shared.

With `[subject] requirements` both sides of a comparison run in the same one, with each side's release beside it, so
that torch, transformers and the rest are the same bits on both; with `[subject] environment` each has its own
(`locks`). It holds its own torch although the harness has one: borrowing that
(`--system-site-packages`) would bring the harness's numpy and pandas along, in front of no one knows which versions of
the engine's own, and would change under a cached environment whenever the harness is upgraded.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from harness.environment import installed_versions
from harness.errors import UsageError
from harness.subject.cache import SubjectCache
from harness.subject.installing import InstallError, run_pip
from harness.subject.interpreter import NEEDED_BY_RANKS, Interpreter, ask
from harness.units import bytes_text

FREE_BYTES: Final = 4 << 30
"""Asked for before anything is installed: 1.4 GB with torch for a CPU, and pip's downloads and unpacked copies."""
_MANIFEST: Final = "stepduel-environment.json"


def provide_environment(cache: SubjectCache, requirements: Sequence[str]) -> Interpreter:
    """Return the environment with `requirements`, made now or before; no network is asked for one made before.

    Raises `UsageError` in one line, naming the log, when it cannot be made.
    """
    wanted = complete(requirements)

    def install(folder: Path, log: Path, lock: int) -> None:
        # What is imported is compiled by the first launch; compiling everything takes as long as installing it.
        run_pip(python_of(folder), "install", ["--no-compile", *wanted], log=log, lock=lock)

    return cached_environment(
        cache,
        environment_key(wanted),
        install,
        content=", ".join(wanted),
        advice="change the scenario's subject.requirements",
    )


def cached_environment(
    cache: SubjectCache, key: str, install: Callable[[Path, Path, int], None], *, content: str, advice: str
) -> Interpreter:
    """Return the environment called `key`, made now by `install` or before.

    `install` gets the folder of an empty virtual environment, the log to write to, and the lock to hand on to what it
    starts. Raises `UsageError` with `content` and `advice` in it when it cannot be made.
    """
    log = cache.log(f"environment-{key}")

    def build(folder: Path, lock: int) -> None:
        _check_space(cache.folder)
        cache.announce(f"installing {content} once, which takes minutes (log: {log})")
        log.write_text("", encoding="utf-8")
        _make_venv(folder, lock)
        install(folder, log, lock)
        document = {**asdict(ask(python_of(folder))), "python": None, "content": content}
        (folder / _MANIFEST).write_text(json.dumps(document, indent=1), encoding="utf-8")

    try:
        folder = cache.entry("environments", key, build, read_only=False)
    except InstallError as error:
        raise UsageError(
            f"no environment with {content}: {error} (log: {log}); {advice}, or name an environment of yours with "
            "--python"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot make an environment in {cache.folder}: {error}") from error
    return _stored(folder)


def python_of(folder: Path) -> Path:
    """Return the interpreter of the virtual environment in `folder`."""
    return folder / "bin" / "python"


def complete(requirements: Sequence[str]) -> list[str]:
    """Return the requirements, normalised and sorted, with what a rank needs and they do not name.

    Nvtx is the harness's own need and gets the harness's version; torch is left to what the others ask for.
    """
    asked = [Requirement(text) for text in requirements]
    missing = set(NEEDED_BY_RANKS) - {canonicalize_name(one.name) for one in asked}
    own = installed_versions(("nvtx",))
    added = [f"{name}=={own[name]}" if name in own else name for name in missing]
    return sorted({*map(str, asked), *added})


def environment_key(content: Sequence[str]) -> str:
    """Return 16 hexadecimal digits over what is installed and the Python and platform it is installed for."""
    whole = [list(content), platform.python_version(), sys.base_prefix, sysconfig.get_platform()]
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]


def _make_venv(folder: Path, lock: int) -> None:
    try:
        # Without pip, which would date from the day of this Python: ours installs into it.
        venv = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(venv, check=True, capture_output=True, text=True, pass_fds=(lock,))
    except subprocess.SubprocessError as error:
        raise InstallError(str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]) from error


def _stored(folder: Path) -> Interpreter:
    python = python_of(folder)
    try:
        document = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        found = Interpreter(python=python, versions=document["versions"], markers=document["markers"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder}: this cached environment is damaged ({error}): run stepduel clean") from error
    if shutil.which(found.python) is None:
        raise UsageError(f"{folder}: the Python that this environment was made with is gone: run stepduel clean")
    # The kernel may have been updated since; a marker that asks for its release must see the one of today.
    today = {"platform_release": platform.release(), "platform_version": platform.version()}
    return replace(found, markers={**found.markers, **today})


def _check_space(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < FREE_BYTES:
        raise UsageError(
            f"{folder} has {bytes_text(free)} free, and an environment needs up to {bytes_text(FREE_BYTES)}: "
            "free some, set XDG_CACHE_HOME to another disk, or name an environment of yours with --python"
        )
