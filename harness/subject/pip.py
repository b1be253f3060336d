"""Pip as this project uses it: for another interpreter, under the user's own configuration, everything it says logged.

Where packages come from (index, proxies, certificates, constraints) is the user's affair and stays; what would send
files elsewhere than asked for is dropped.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from harness.errors import UsageError

_DROPPED: Final = frozenset(
    {
        *("PIP_DRY_RUN", "PIP_PREFIX", "PIP_PYTHON", "PIP_REPORT", "PIP_REQUIREMENT", "PIP_REQUIRE_VIRTUALENV"),
        *("PIP_ROOT", "PIP_TARGET", "PIP_USER", "PYTHONHOME", "PYTHONPATH"),
    }
)  # fmt: skip
_LONGEST_WORDS: Final = 300


class PipError(Exception):
    """Pip failed; the text is its own reason, in one line."""


def run_pip(python: Path, command: str, arguments: Sequence[str], *, log: Path, lock: int) -> None:
    """Run `pip command arguments` for `python`; its words are added to `log`, `lock` is held while it lives.

    Raises `PipError` when it fails, and `UsageError` where there is no pip.
    """
    if importlib.util.find_spec("pip") is None:
        raise UsageError(f"{sys.executable} has no pip, which installs releases: run {sys.executable} -m ensurepip")
    whole = [sys.executable, "-m", "pip", "--python", str(python), command, "--no-input", "--progress-bar=off"]
    environment = {name: value for name, value in os.environ.items() if name not in _DROPPED}
    environment |= {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("a", encoding="utf-8") as file:
        file.write(f"$ pip {command} {' '.join(arguments)}\n")
        file.flush()
        start = file.tell()
        # A group of its own: on Ctrl-C we end it whole, what it has started to build included.
        process = subprocess.Popen(
            [*whole, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
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
        raise PipError(_last_words(log, start) or f"pip ended with status {status}")


def _last_words(log: Path, start: int) -> str:
    """Return what pip says the error is: its first line marked so, else its last line."""
    with log.open(encoding="utf-8", errors="replace") as file:
        file.seek(start)
        lines = [line.strip() for line in file if line.strip()]
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    words = errors[0] if errors else lines[-1] if lines else ""
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
