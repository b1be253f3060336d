"""Reports reach the disk whole or not at all: written under another name, then renamed over the old one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from harness.errors import UsageError


def write_report(target: Path, text: str) -> None:
    """Write `text` as `target`, replacing an older one. Raises UsageError, with the old file untouched, on any failure.

    The new file is on the disk before it takes the name, so that a full disk or a power cut leaves old or new, no half.
    """
    content = text.encode("utf-8", errors="backslashreplace")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:100]}-", dir=target.parent)
    except OSError as error:
        raise _cannot(target, error) from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(target)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise _cannot(target, error) from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _cannot(target: Path, error: OSError) -> UsageError:
    kept = "; the report that is there stays as it was" if target.is_file() else ""
    return UsageError(f"cannot write {target}: {error.strerror or error}{kept}: free space or choose another place")


def _umask() -> int:
    """The process's mask, which `mkstemp` does not go by; it can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
