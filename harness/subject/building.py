"""Makes a tree ready to be imported by a command of the scenario (`[subject] build`), such as a build of extensions.

It runs in a copy of the tree, once a tree, interpreter and command. What pip installs goes to a folder in that copy
(`BUILT_SITE`, first on the ranks' `sys.path`): the interpreter is shared by both sides and stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from harness.environment import installed_versions
from harness.errors import UsageError
from harness.names import BUILT_SITE
from harness.subject.cache import SubjectCache
from harness.subject.checkout import copy_tree
from harness.subject.interpreter import Interpreter

SHELL: Final = "/bin/sh"


def built_tree(cache: SubjectCache, tree: Path, key: str, command: str, interpreter: Interpreter | None) -> Path:
    """Return a copy of `tree` in which `command` has run, now or before. `key` tells the tree's content.

    Raises `UsageError` with the last line that the command wrote, and its log.
    """
    python = interpreter.python if interpreter else Path(sys.executable)
    made_for = interpreter.id if interpreter else [sys.version, installed_versions(("torch",))]
    key = hashlib.sha256(json.dumps([key, command, str(python), made_for]).encode()).hexdigest()[:40]

    def build(folder: Path, lock: int) -> None:
        folder.rmdir()
        copy_tree(tree, folder)
        run_build(cache, folder, key, command, python, lock)

    return cache.entry("trees", key, build, read_only=True)


def run_build(cache: SubjectCache, folder: Path, key: str, command: str, python: Path, lock: int | None = None) -> None:
    """Run `command` in the tree at `folder`. Raises `UsageError` if it fails."""
    log = cache.log(f"build-{key[:16]}")
    cache.announce(f"building once: {command} (log: {log})")
    env = {
        **os.environ,
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PIP_TARGET": str(folder / BUILT_SITE),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    with log.open("wb") as output:
        done = subprocess.run(
            [SHELL, "-c", command],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
            pass_fds=() if lock is None else (lock,),
        )
    if done.returncode:
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
        raise UsageError(f"subject.build: {command!r} ended with {done.returncode}: {said[-1][:200]} (log: {log})")
