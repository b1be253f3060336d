"""Pip and uv as this project uses them: for another interpreter, under the user's own configuration, with a log.

Where packages come from (index, proxies, certificates, constraints) is the user's affair and stays; what would send
files elsewhere than asked for is dropped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.errors import UsageError

_DROPPED: Final = frozenset(
    {
        *("PIP_DRY_RUN", "PIP_PREFIX", "PIP_PYTHON", "PIP_REPORT", "PIP_REQUIREMENT", "PIP_REQUIRE_VIRTUALENV"),
        *("PIP_ROOT", "PIP_TARGET", "PIP_USER", "PYTHONHOME", "PYTHONPATH"),
    }
)  # fmt: skip
_DROPPED_FOR_UV: Final = frozenset({"PYTHONHOME", "PYTHONPATH", "UV_PROJECT", "UV_SYSTEM_PYTHON", "UV_WORKING_DIR"})
_LONGEST_WORDS: Final = 300


class InstallError(Exception):
    """Pip or uv failed; the text is its own reason, in one line."""


def run_pip(python: Path, command: str, arguments: Sequence[str], *, log: Path, lock: int) -> None:
    """Run `pip command arguments` for `python`; its words are added to `log`, `lock` is held while it lives.

    Raises `InstallError` when it fails, and `UsageError` where there is no pip.
    """
    if importlib.util.find_spec("pip") is None:
        raise UsageError(f"{sys.executable} has no pip, which installs releases: run {sys.executable} -m ensurepip")
    whole = [sys.executable, "-m", "pip", "--python", str(python), command, "--no-input", "--progress-bar=off"]
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    _run("pip", [*whole, *arguments], environment, log=log, lock=lock)


def run_uv(arguments: Sequence[str], *, environment: Path, log: Path, lock: int, cwd: Path | None = None) -> None:
    """Run `uv arguments` for the virtual environment in the folder `environment`; as `run_pip` otherwise."""
    given = {name: value for name, value in os.environ.items() if name not in _DROPPED_FOR_UV}
    given |= {
        "UV_PROJECT_ENVIRONMENT": str(environment),
        "VIRTUAL_ENV": str(environment),
        "UV_NO_PROGRESS": "1",
        "NO_COLOR": "1",
    }
    _run("uv", [find_uv(), *arguments], given, log=log, lock=lock, cwd=cwd)


def find_uv() -> str:
    """Return the program: installed beside the harness, or on PATH. Raises `UsageError`."""
    beside = Path(sys.executable).parent / "uv"
    found = str(beside) if beside.is_file() else shutil.which("uv")
    if found is None:
        raise UsageError(f"subject.environment needs uv: run {sys.executable} -m pip install uv")
    return found


def _run(
    name: str,
    whole: Sequence[str],
    environment: Mapping[str, str],
    *,
    log: Path,
    lock: int,
    cwd: Path | None = None,
) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ {' '.join(whole)}\n")
        file.flush()
        start = file.tell()
        # A group of its own: on Ctrl-C we end it whole, what it has started to build included.
        process = subprocess.Popen(
            whole,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=cwd,
            pass_fds=(lock,),
            start_new_session=True,
        )
        try:
            status = process.wait()
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    if status != 0:
        raise InstallError(_last_words(log, start) or f"{name} ended with status {status}")


def _last_words(log: Path, start: int) -> str:
    """Return what the tool says the error is: its first line marked so, else its last line."""
    with log.open(encoding="utf-8", errors="replace") as file:
        file.seek(start)
        lines = [line.strip() for line in file if line.strip()]
    marked = (number for number, line in enumerate(lines) if line.startswith(("ERROR:", "error:", "\u00d7")))
    first = next(marked, len(lines) - 1)
    words = "".join(lines[first : first + 1])
    # uv says the cause on the next line, or as a tree below.
    words += "".join(f": {line}" for line in lines[first + 1 :] if line.startswith(("cause:", "\u2570")))
    words = re.sub(r"^(?:ERROR: |error: |\u00d7)\s*|(?<=: )(?:cause:|[\u2570\u2500\u25b6]+)\s*", "", words)
    if "from versions: none" in words and any("Retrying" in line for line in lines):
        words = f"the index cannot be reached ({_cause(lines)})"
    words = re.sub(r"\s+", " ", words)
    return (
        words if len(words) <= _LONGEST_WORDS else f"{words[: _LONGEST_WORDS // 2]} … {words[-_LONGEST_WORDS // 2 :]}"
    )


def _cause(lines: Sequence[str]) -> str:
    retry = next(line for line in lines if "Retrying" in line)
    found = re.search(r"(?:Error|Exception)\(.*?: ([^:'\"]+)['\"]", retry)
    return found[1].strip() if found else "pip retried and gave up"
