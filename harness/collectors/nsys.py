"""Drives NVIDIA Nsight Systems: one nsys around the whole torchrun tree of a node, then `nsys export` to SQLite.

nsys collects from the worker's `capture` range to its end. Collection starts and stops for all processes at once, so
only rank 0 opens that range: before it hands out the first measured step, and until every rank has answered the last.

nsys is not trusted: it is known to crash, to hang when the program has ended, and to leave a raw `.qdstrm` or nothing
at all. Every wait has a limit, and a trace counts only when its export holds the measured steps of every rank.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from harness import names
from harness.collectors import cupti, nsys_cli
from harness.collectors.base import Abilities, Availability
from harness.errors import LaunchError, TraceError, UsageError
from harness.trace import schema

if TYPE_CHECKING:
    from harness.trace.model import Trace

REPORT_NAME: Final = "nsys.nsys-rep"
COMMANDS_NAME: Final = "nsys.commands.json"
PLAN_NAME: Final = "plan.json"
LOG_NAME: Final = "torchrun.log"
LOG_LINES: Final = 8
MINIMUM_FREE_BYTES: Final = 1 << 30
"""A step of a small model is some MB of report, a large one some hundred; nsys writes it twice (raw, then imported)."""

_RAW_REPORT: Final = re.compile(r"\S+\.qdstrm")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Nsys:
    """Host side of the `nsys` collector; see `harness.collectors.base.Collector`."""

    env: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    minimum_free_bytes: int = MINIMUM_FREE_BYTES

    name: str = "nsys"
    abilities: ClassVar[Abilities] = Abilities(
        settle_s=0.5,
        ends_in_order=True,
        sees_gpu=True,
        fixed_pace=True,
        automatic="always",
        named_by=nsys_cli.EXECUTABLE_VARIABLE,
    )

    @property
    def finish_timeout_s(self) -> float:
        """How long the launch may take to end after its last rank did: nsys writes its report then."""
        return nsys_cli.NsysOptions.from_environment(self.env).finish_timeout_s

    def available(self) -> Availability:
        """Look for nsys, its version, and another profiler around us. Never raises."""
        try:
            tool = self._tool()
            nsys_cli.NsysOptions.from_environment(self.env)
        except UsageError as error:
            return Availability(ok=False, reason=str(error))
        client = cupti.active_client(self.env)
        if client is not None:
            return Availability(ok=False, reason=f"already inside {client}: only one profiler can trace CUDA at a time")
        return Availability(ok=True, reason=f"nsys {tool.version_text} at {tool.executable}")

    def wrap(self, argv: Sequence[str], env: Mapping[str, str], launch_dir: Path) -> tuple[list[str], dict[str, str]]:
        """`argv` under nsys. Logs the exact command and stores it in `nsys.commands.json`.

        Raises UsageError when nsys cannot be used, or the disk that it writes to is nearly full.
        """
        availability = self.available()
        if not availability.ok:
            raise UsageError(f"cannot trace with nsys: {availability.reason}")
        for folder in (launch_dir, Path(env.get("TMPDIR") or tempfile.gettempdir())):
            self._require_space(folder)
        tool = self._tool()
        report = launch_dir / REPORT_NAME
        options = nsys_cli.NsysOptions.from_environment(self.env)
        command = nsys_cli.profile_command(tool, options, report=report, argv=argv)
        _store_command(launch_dir, "profile", command, nsys_version=tool.version_text)
        return command, dict(env)

    def collect(self, launch_dir: Path, ranks: int, destination: Path) -> Path:
        """Export nsys' report to `destination`, and move the report beside it for the Nsight Systems GUI.

        Raises LaunchError, with the last lines of nsys' log, when there is no report, it cannot be exported, or the
        export lacks measured steps of a rank.
        """
        report = launch_dir / REPORT_NAME
        if not report.is_file() or report.stat().st_size == 0:
            raise LaunchError(f"nsys left no report{_raw_report(launch_dir)}{_log_tail(launch_dir)}")
        export = self._export(launch_dir, report)
        destination.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(export, destination)
        shutil.move(report, destination.with_suffix(".nsys-rep"))
        _require_steps(destination, ranks, _measured_steps(launch_dir), launch_dir)
        return destination

    def _tool(self) -> nsys_cli.NsysTool:
        executable = nsys_cli.locate(self.env)
        if executable is None:
            raise UsageError(f"no nsys on PATH; install Nsight Systems, or name it with {nsys_cli.EXECUTABLE_VARIABLE}")
        return nsys_cli.probe(executable, self.env)

    def _require_space(self, folder: Path) -> None:
        free = shutil.disk_usage(folder).free
        if free < self.minimum_free_bytes:
            raise UsageError(
                f"{folder} has {free / 2**20:,.0f} MiB free and nsys may need {self.minimum_free_bytes / 2**20:,.0f};"
                " make room, or point TMPDIR and the results folder at a larger disk"
            )

    def _export(self, launch_dir: Path, report: Path) -> Path:
        export = launch_dir / "nsys.sqlite"
        command = nsys_cli.export_command(_stored_commands(launch_dir)["profile"][0], report=report, export=export)
        _store_command(launch_dir, "export", command)
        limit_s = self.finish_timeout_s
        try:
            code, output = nsys_cli.run_limited(command, env=self.env, timeout_s=limit_s)
        except UsageError as error:
            raise LaunchError(f"{error}; the report is kept at {report}") from error
        if code == 0 and export.is_file():
            return export
        export.unlink(missing_ok=True)
        what = f"did not end within {limit_s:.0f} s" if code is None else f"failed with exit code {code}"
        said = nsys_cli.last_lines(output, LOG_LINES)
        raise LaunchError(f"nsys export {what}; the report is kept at {report}" + (f":\n{said}" if said else ""))


def _stored_commands(launch_dir: Path) -> dict[str, Any]:
    path = launch_dir / COMMANDS_NAME
    commands: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return commands


def _store_command(launch_dir: Path, step: str, command: Sequence[str], **more: str) -> None:
    _log.info("nsys %s: %s", step, shlex.join(command))
    stored = _stored_commands(launch_dir) | more | {step: list(command)}
    (launch_dir / COMMANDS_NAME).write_text(json.dumps(stored, indent=1), encoding="utf-8")


def _log_tail(launch_dir: Path) -> str:
    """`:` and the last lines of what nsys and torchrun printed; empty where they printed nothing."""
    path = launch_dir / LOG_NAME
    said = nsys_cli.last_lines(path.read_text(encoding="utf-8", errors="replace"), LOG_LINES) if path.exists() else ""
    return f":\n{said}" if said else ""


def _raw_report(launch_dir: Path) -> str:
    """Where the raw `.qdstrm` is, when nsys got only so far. Its importer, or a newer nsys' GUI, may still open it."""
    left = [str(path) for path in sorted(launch_dir.glob("*.qdstrm"))]
    log = launch_dir / LOG_NAME
    if log.exists():
        named = _RAW_REPORT.findall(log.read_text(encoding="utf-8", errors="replace"))
        left += [path.strip("'\"") for path in named if Path(path.strip("'\"")).is_file()]
    return f" but only its raw {left[0]}" if left else ""


def _measured_steps(launch_dir: Path) -> int:
    """How many steps the plan of this launch measures."""
    plan = json.loads((launch_dir / PLAN_NAME).read_text(encoding="utf-8"))
    if plan.get("capture") is None:
        return int(plan["steps"])
    first, last = plan["capture"]
    return int(last) - int(first) + 1


def _require_steps(export: Path, ranks: int, steps: int, launch_dir: Path) -> None:
    """Raise LaunchError unless `export` opens and holds `steps` whole step ranges of each of `ranks` processes."""
    from harness.trace.reader import read_trace

    try:
        found = sorted(step_counts(read_trace(export)).values(), reverse=True)
    except TraceError as error:
        raise LaunchError(f"nsys wrote an export that cannot be read: {error}") from error
    if found != [steps] * ranks:
        raise LaunchError(
            f"nsys' trace {export} holds {_counts(found)} whole {names.STEP!r} ranges, expected {steps} from"
            f" each rank ({ranks}){_log_tail(launch_dir)}"
        )


def _counts(found: Sequence[int]) -> str:
    return " + ".join(map(str, found)) if found else "no"


def step_counts(trace: Trace) -> dict[int, int]:
    """Closed `step` ranges in the stepduel domain, by global pid."""
    import numpy as np

    ranges = trace.ranges
    is_step = np.array([name == names.STEP for name in trace.strings] + [False], dtype=bool)  # the last is NO_NAME, -1
    is_ours = np.array([name == names.NVTX_DOMAIN for name in trace.strings] + [False], dtype=bool)
    whole = ranges.closed & is_step[ranges.name_id] & is_ours[ranges.domain_id]
    pids, counts = np.unique(ranges.global_tid[whole] & schema.GLOBAL_PID_MASK, return_counts=True)
    return dict(zip(pids.tolist(), counts.tolist(), strict=True))
