"""Reports reach the disk whole or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.report.writing import write_report

FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from harness.errors import UsageError
from harness.report.writing import write_report
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
try:
    write_report(Path(sys.argv[1]), "new" * 100_000)
except UsageError as error:
    print(error)
"""


def test_a_new_report_replaces_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "report.html"
    write_report(target, "old")
    write_report(target, "new é \udc80")
    assert target.read_text(encoding="utf-8") == "new é \\udc80"
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]
    mask = os.umask(0o022)
    os.umask(mask)
    assert stat.S_IMODE(target.stat().st_mode) == 0o666 & ~mask


def test_a_write_that_fails_half_way_leaves_the_old_report(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(target)], capture_output=True, text=True, check=True, timeout=60
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stdout.startswith(f"cannot write {target}: ")
    assert "the report that is there stays as it was" in done.stdout
    assert target.read_text(encoding="utf-8") == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk that is full")
def test_a_full_disk_leaves_the_old_report(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("this container may not mount")
    try:
        target = disk / "report.html"
        write_report(target, "old")
        with pytest.raises(UsageError, match="No space left on device; the report that is there stays as it was"):
            write_report(target, "new" * 100_000)
        assert target.read_text(encoding="utf-8") == "old"
        assert [path.name for path in disk.iterdir()] == ["report.html"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_folder_that_cannot_be_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match=r"cannot write .*report\.html: (File exists|Not a directory)"):
        write_report(tmp_path / "file" / "report.html", "text")
    with pytest.raises(UsageError, match="Is a directory"):
        write_report(tmp_path, "text")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
