"""Decides whether a path can be a SQLite export, and how to open it without writing beside it."""

from __future__ import annotations

import contextlib
import shutil
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from harness.errors import TraceError

_MAGIC: Final = b"SQLite format 3\x00"
_HEADER_BYTES: Final = 100
_REPORT_SUFFIXES: Final = (".nsys-rep", ".qdrep", ".qdstrm")
_EXPORT_HINT: Final = "`nsys export --type sqlite`"


@contextlib.contextmanager
def readable_database(path: Path) -> Iterator[str]:
    """Yield a URI that opens `path` read-only for both SQLite drivers; TraceError when it is no SQLite file.

    A file whose writer was killed within a transaction, or that has a write-ahead log, can only be read by writing
    beside it. A copy of it in a temporary folder is recovered and read instead.
    """
    header = _header(path)
    leftovers = [beside for suffix in ("-journal", "-wal") if _holds_data(beside := Path(f"{path}{suffix}"))]
    if leftovers:
        with tempfile.TemporaryDirectory(prefix="stepduel-") as folder:
            copy = Path(folder) / path.name
            for original in (path, *leftovers):
                shutil.copyfile(original, copy.with_name(original.name))
            yield f"{copy.as_uri()}?mode=rw"
        return
    # A file in WAL mode without its log: opened normally, SQLite would create one.
    in_wal_mode = header[18] == 2
    yield f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if in_wal_mode else ''}"


def _header(path: Path) -> bytes:
    if path.is_dir():
        raise TraceError(f"{path} is a folder; expected one SQLite export, made with {_EXPORT_HINT}")
    if path.suffix in _REPORT_SUFFIXES:
        raise TraceError(
            f"{path} is a report of Nsight Systems; expected its SQLite export: run {_EXPORT_HINT} {path.name} "
            "where nsys is installed"
        )
    try:
        with path.open("rb") as file:
            header = file.read(_HEADER_BYTES)
        size = path.stat().st_size
    except FileNotFoundError:
        raise TraceError(f"{path} does not exist; expected a SQLite export of Nsight Systems") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be opened: {error.strerror}") from error
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        what = "is empty" if not header else "is not a SQLite file"
        raise TraceError(f"{path} {what}; expected an export made with {_EXPORT_HINT}")
    expected = _expected_size(header)
    if size < expected:
        raise TraceError(f"{path} is truncated: it holds {size:,} of {expected:,} bytes; copy or export it again")
    return header


def _expected_size(header: bytes) -> int:
    """Size by the page count in the header; 0 when the header's count is not valid (SQLite file format, 1.3.8)."""
    (page_size,) = struct.unpack_from(">H", header, 16)
    changed, pages = struct.unpack_from(">II", header, 24)
    (valid_for,) = struct.unpack_from(">I", header, 92)
    return (65_536 if page_size == 1 else page_size) * pages if changed == valid_for else 0


def _holds_data(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
