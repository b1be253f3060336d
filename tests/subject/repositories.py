"""Real git repositories for tests of subjects, apart from the user's configuration and cache."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

FACTORY = "toy_engine.core:build"


def isolate(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Give git a configuration of its own and the cache of subjects a folder of its own."""
    config = write(
        folder / "gitconfig",
        '[user]\nname = T\nemail = t@t\n[init]\ndefaultBranch = main\n[protocol "file"]\nallow = always\n',
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def commit(folder: Path, subject: str, **files: str) -> str:
    """Commit `files` (`__` stands for `/`, `_py` for `.py`) and return the hash."""
    for name, text in files.items():
        write(folder / name.replace("__", "/").replace("_py", ".py"), text)
    git(folder, "add", "--all")
    git(folder, "commit", "--allow-empty", "-m", subject)
    return git(folder, "rev-parse", "HEAD")


def make_repository(folder: Path) -> Path:
    """Three commits; the first has no engine."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    commit(folder, "start", README="hello\n")
    commit(folder, "engine: always switch", toy_engine__core_py="SPEED = 1\n")
    commit(folder, "engine: skip the switch", toy_engine__core_py="SPEED = 2\n")
    return folder


def snapshot(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Mode, modification time and content of every file in `folder`, `.git` included."""
    found: dict[str, tuple[int, int, bytes]] = {}
    for path in sorted(folder.rglob("*")):
        about = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(folder))] = (about.st_mode, about.st_mtime_ns, content)
    return found
