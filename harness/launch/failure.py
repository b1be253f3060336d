"""Finds out why a launch failed, from what its ranks and their parent left in the launch's folder."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.errors import LaunchError

LOG_LINES: Final = 20
_LINE_CHARACTERS: Final = 500
"""Of a message or a log's line, in what is printed and stored; the whole is in the log."""
BUILD_RAISED: Final = "build_raised"
CLOCK: Final = "clock"
"""Reason of a launch whose engine raised before the first step."""

# One entry of the table that torchrun prints at its end, for every rank that failed; `worker.fork` prints them alike.
_TORCHRUN_ENTRY: Final = re.compile(r"rank\s*:\s*(\d+) \(local_rank: \d+\)\s*\n\s*exitcode\s*:\s*(-?\d+) \(pid: \d+\)")

_TERMINATED: Final = re.compile(r"Sending process (\d+) closing signal")
"""What they print of each rank that it ends because another one failed."""

# How gloo and NCCL say that the other side's process is gone.
_PEER_GONE: Final = re.compile(
    r"connection (was )?closed|connection reset|broken pipe|remote process|ncclRemoteError", re.IGNORECASE
)

# What faulthandler's timer writes of each thread; the main thread comes last.
_STACKS: Final = re.compile(r"^Timeout \(\d+:\d\d:\d\d(?:\.\d+)?\)!$", re.MULTILINE)
_INNERMOST_FRAME: Final = re.compile(r'^Thread .*\n  File "([^"]*)"', re.MULTILINE)


_WAYS_OUT: Final = (
    (
        re.compile(r"initialize the default process group twice"),
        "the harness has made the process group: guard yours by `if not torch.distributed.is_initialized()`",
    ),
    (
        re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE),
        "another process has that port; where it is the other side of a comparison: --interleave blocks",
    ),
)
"""What to do about errors that a rank may meet because it does not run alone, or not by its own script."""


class LaunchFailedError(LaunchError):
    """A launch that did not end as asked.

    `reason` is one of `start_timeout`, `build_raised`, `step_raised`, `step_timeout`, `rank_died`, `rank_exited`,
    `stop_timeout`, `launcher_failed`, `clock`. `rank`, `phase` and `step` tell where, as far as it is
    known; `log_tail` holds the last lines of the log that matters most.
    """

    def __init__(
        self,
        message: str,
        *,
        reason: str,
        launch_dir: Path,
        rank: int | None = None,
        phase: str | None = None,
        step: int | None = None,
        log_tail: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.launch_dir = launch_dir
        self.rank = rank
        self.phase = phase
        self.step = step
        self.log_tail = log_tail


@dataclass(frozen=True, kw_only=True)
class RankPhase:
    """What a rank was doing when it was last heard of."""

    rank: int
    pid: int
    phase: str
    step: int | None

    def __str__(self) -> str:
        return f"rank {self.rank} in {self.phase}" + ("" if self.step is None else f" {self.step}")


def read_phases(launch_dir: Path, ranks: int) -> list[RankPhase]:
    """The phases of those ranks that came far enough to tell."""
    phases = []
    for rank in range(ranks):
        try:
            words = (launch_dir / f"rank{rank}.phase").read_text(encoding="ascii").split()
        except OSError:
            continue
        if len(words) >= 2:
            step = int(words[2]) if len(words) > 2 else None
            phases.append(RankPhase(rank=rank, pid=int(words[0]), phase=words[1], step=step))
    return phases


def laggards(launch_dir: Path, phases: list[RankPhase]) -> list[RankPhase]:
    """The ranks that hold up the others: those that are not in a collective, by the stacks in their logs, if any."""
    busy = [phase for phase in phases if not _in_collective(launch_dir / f"rank{phase.rank}.log")]
    return busy or phases


def has_stacks(log: Path) -> bool:
    """Whether the last lines of a rank's log hold the stacks of its threads."""
    return bool(_STACKS.search("\n".join(_last_lines(log))))


def _in_collective(log: Path) -> bool:
    """Whether the last stacks in `log` have the main thread inside torch.distributed."""
    stacks = _STACKS.split("\n".join(_last_lines(log)))[1:]
    found = _INNERMOST_FRAME.findall(stacks[-1]) if stacks else []
    return bool(found) and "/torch/distributed/" in found[-1]


def timed_out(launch_dir: Path, ranks: int, waited_for: str, seconds: float) -> LaunchFailedError:
    """The failure of a launch that did not do `waited_for` (`start`, `step`, `stop`) in time."""
    phases = laggards(launch_dir, read_phases(launch_dir, ranks))
    where = "; ".join(map(str, phases)) or "no rank had started"
    first = phases[0] if phases else None
    log = launch_dir / (f"rank{first.rank}.log" if first else "torchrun.log")
    found = "its stack is in" if has_stacks(log) else "log:"
    return LaunchFailedError(
        f"launch hung: no {waited_for} within {seconds:g} s ({where}); {found} {log}",
        reason=f"{waited_for}_timeout",
        launch_dir=launch_dir,
        rank=first.rank if first else None,
        phase=first.phase if first else None,
        step=first.step if first else None,
        log_tail=tail(log),
    )


def diagnose(launch_dir: Path, ranks: int, status: int | None) -> LaunchFailedError:
    """Why the tree ended before it was told to: call it once the tree has ended, with its top's exit status.

    When one rank dies, the others raise within milliseconds, because their collectives break. So a rank ended by a
    signal comes first, then one that ended without saying why, then the earliest of those that raised. A rank that
    ended with status 0 is no failure to torchrun; it shows by what it did not leave, see `_left_early`.
    """
    statuses = _torchrun_statuses(launch_dir / "torchrun.log")
    killed = [(rank, status) for rank, status in statuses if status < 0 and status != -signal.SIGTERM]
    if killed:
        return _died(launch_dir, ranks, *killed[0])
    silent = [
        (r, status) for r, status in statuses if status > 0 and not (launch_dir / f"rank{r}.failure.json").exists()
    ]
    if silent:
        rank, status = silent[0]
        return _ended(launch_dir, ranks, rank, "rank_exited", f"exited with status {status}")
    failures = sorted(_rank_failures(launch_dir, ranks), key=lambda failure: float(failure["time_ns"]))
    if status == 0 or (failures and _PEER_GONE.search(failures[0]["error"])):
        left = _left_early(launch_dir, ranks)
        if len(left) == 1:
            return _ended(launch_dir, ranks, left[0], "rank_exited", "exited with status 0")
    if failures:
        return _raised(launch_dir, failures[0])
    log = launch_dir / "torchrun.log"
    lines = tail(log)
    last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed nothing")
    return LaunchFailedError(
        f"the launcher {_ending(status)} before its ranks were done: {last} (log: {log})",
        reason="launcher_failed",
        launch_dir=launch_dir,
        log_tail=lines,
    )


def _ending(status: int | None) -> str:
    """How the launcher ended. A shell and our supervisor tell signals as 128 + their number, the kernel as minus it."""
    if status is None:
        return "was ended"
    number = -status if status < 0 else status - 128
    if number in set(signal.Signals):
        return f"was ended by {signal.Signals(number).name}"
    return f"exited with status {status}"


def _left_early(launch_dir: Path, ranks: int) -> list[int]:
    """The ranks that ended before their stop with nothing said: no failure of theirs, none in torchrun's eyes.

    Those that torchrun ended because of another rank look the same, but for what it prints of them.
    """
    log = launch_dir / "torchrun.log"
    terminated = {int(pid) for pid in _TERMINATED.findall("\n".join(_last_lines(log)))}
    failed = {rank for rank, _ in _torchrun_statuses(log)} | {
        int(failure["rank"]) for failure in _rank_failures(launch_dir, ranks)
    }
    return [
        phase.rank
        for phase in read_phases(launch_dir, ranks)
        if phase.phase != "stop" and phase.rank not in failed and phase.pid not in terminated
    ]


def tail(log: Path) -> tuple[str, ...]:
    """The last lines of a log, each cut to a length that can be shown; empty when there is none."""
    return tuple(_bounded(line) for line in _last_lines(log)[-LOG_LINES:])


def _bounded(line: str) -> str:
    return line if len(line) <= _LINE_CHARACTERS else line[: _LINE_CHARACTERS - 1] + "…"


def _last_lines(log: Path) -> list[str]:
    try:
        with log.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 64 * 1024))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()


def _raised(launch_dir: Path, failure: dict[str, Any]) -> LaunchFailedError:
    rank, phase, step = failure["rank"], failure["phase"], failure["step"]
    log = launch_dir / f"rank{rank}.log"
    where = phase if step is None else f"{phase} {step}"
    error = _bounded(failure["error"].splitlines()[0])
    return LaunchFailedError(
        f"rank {rank} raised in {where}: {error}{_way_out(failure['error'])} (log: {log})",
        reason=BUILD_RAISED if phase in ("start", "import", "build") else "step_raised",
        launch_dir=launch_dir,
        rank=rank,
        phase=phase,
        step=step,
        log_tail=tail(log),
    )


def _way_out(error: str) -> str:
    return next((f": {text}" for pattern, text in _WAYS_OUT if pattern.search(error)), "")


def _died(launch_dir: Path, ranks: int, rank: int, status: int) -> LaunchFailedError:
    name = signal.Signals(-status).name
    hint = " (the kernel sends it, too, when memory runs out)" if -status == signal.SIGKILL else ""
    return _ended(launch_dir, ranks, rank, "rank_died", f"was ended by {name}{hint}")


def _ended(launch_dir: Path, ranks: int, rank: int, reason: str, how: str) -> LaunchFailedError:
    phase = next((phase for phase in read_phases(launch_dir, ranks) if phase.rank == rank), None)
    log = launch_dir / f"rank{rank}.log"
    if not log.exists():  # it ended before it had a log of its own
        log = launch_dir / "torchrun.log"
    where = "" if phase is None else f" in {phase.phase}" + ("" if phase.step is None else f" {phase.step}")
    return LaunchFailedError(
        f"rank {rank} {how}{where} (log: {log})",
        reason=reason,
        launch_dir=launch_dir,
        rank=rank,
        phase=phase.phase if phase else None,
        step=phase.step if phase else None,
        log_tail=tail(log),
    )


def _rank_failures(launch_dir: Path, ranks: int) -> list[dict[str, Any]]:
    paths = [launch_dir / f"rank{rank}.failure.json" for rank in range(ranks)]
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]


def _torchrun_statuses(log: Path) -> list[tuple[int, int]]:
    """(rank, exit status) of every rank that torchrun saw fail; a status below 0 is a signal."""
    try:
        text = log.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [(int(rank), int(status)) for rank, status in _TORCHRUN_ENTRY.findall(text)]
