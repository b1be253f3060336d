"""Lets commands take nsys' own reports (`.nsys-rep`) where nsys is installed: they are exported for the while."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.collectors import nsys_cli
from harness.errors import TraceError
from harness.trace.model import Trace
from harness.trace.reader import read_trace

REPORT_SUFFIXES: Final = (".nsys-rep", ".qdrep")


def read_any(paths: Sequence[Path], env: Mapping[str, str], *, streams: bool = True) -> Trace:
    """Read exports and, where nsys is present, its reports as one trace; `streams` as in `read_trace`.

    Raises TraceError, one line, for a report where nsys is absent or fails to export it, and as `read_trace` does.
    """
    with contextlib.ExitStack() as exports:
        return read_trace(*(exports.enter_context(_exported(path, env)) for path in paths), streams=streams)


@contextlib.contextmanager
def _exported(path: Path, env: Mapping[str, str]) -> Iterator[Path]:
    """Yield `path` itself, or the export of it when it is a report; the export is removed afterwards."""
    # A report that does not exist is for the reader to complain about, like any other file.
    if path.suffix not in REPORT_SUFFIXES or not path.is_file():
        yield path
        return
    executable = nsys_cli.locate(env)
    if executable is None:
        raise TraceError(
            f"{path} is a report of Nsight Systems and nsys is not on PATH: export it where nsys is, with "
            f"`nsys export --type sqlite {path.name}`, or name an nsys with {nsys_cli.EXECUTABLE_VARIABLE}"
        )
    limit_s = nsys_cli.NsysOptions.from_environment(env).finish_timeout_s
    with tempfile.TemporaryDirectory(prefix="stepduel-") as folder:
        export = Path(folder) / f"{path.stem}.sqlite"
        command = nsys_cli.export_command(str(executable), report=path.resolve(), export=export)
        code, output = nsys_cli.run_limited(command, env=env, timeout_s=limit_s)
        if code != 0 or not export.is_file():
            what = f"did not end within {limit_s:.0f} s" if code is None else f"failed with exit code {code}"
            raise TraceError(f"nsys export of {path} {what}: {nsys_cli.last_lines(output, 1) or 'it said nothing'}")
        yield export
