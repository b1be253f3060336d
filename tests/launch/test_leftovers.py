"""What `stepduel clean` ends and what it leaves alone, on real processes."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

from child_process import PIPE, child

from harness.launch import supervisor
from harness.launch.leftovers import remove_leftovers
from harness.launch.supervisor import MARK, marked_processes


def test_a_launch_of_another_installation_is_left_alone_until_its_supervisor_is_gone(tmp_path: Path) -> None:
    elsewhere = tmp_path / "site-packages" / "harness" / "launch" / "supervisor.py"
    elsewhere.parent.mkdir(parents=True)
    shutil.copy(supervisor.__file__, elsewhere)
    argv = [sys.executable, "-I", "-S", str(elsewhere), "elsewhere", str(tmp_path / "folder"), "sleep", "60"]
    environment = {**os.environ, MARK: "elsewhere"}
    with child(argv, stdin=PIPE, stdout=PIPE, env=environment) as process:
        deadline = time.monotonic() + 10
        while len(marked_processes("elsewhere")) < 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        (sleep,) = set(marked_processes("elsewhere")) - {process.pid}
        remove_leftovers()
        assert marked_processes("elsewhere") == sorted([process.pid, sleep])
        process.kill()
        process.wait()
        assert marked_processes("elsewhere") == [sleep]
        assert remove_leftovers().processes >= 1
        while marked_processes("elsewhere") and time.monotonic() < deadline:
            time.sleep(0.05)
    assert marked_processes("elsewhere") == []
