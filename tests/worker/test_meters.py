"""Memory of a rank is that of its helpers, too."""

from __future__ import annotations

import sys

from child_process import PIPE, child

from harness.worker.meters import Meters

HOLDS_MB = 60
HELPER = f"""
import subprocess, sys
kept = bytearray({HOLDS_MB} * 2**20)
for at in range(0, len(kept), 4096):
    kept[at] = 1
child = subprocess.Popen(["sleep", "60"]) if sys.argv[1] == "deep" else None
print("ready", flush=True)
sys.stdin.read()
if child is not None:
    child.kill()
"""


def test_what_a_loader_worker_keeps_is_seen_until_it_ends() -> None:
    meters = Meters(cuda=False)
    alone = meters.read()
    with child([sys.executable, "-c", HELPER, "deep"], stdin=PIPE, stdout=PIPE) as helper:
        assert helper.stdout is not None
        assert helper.stdout.readline() == "ready\n"
        beside = meters.read()
    after = meters.read()
    for name in ("rss_bytes", "peak_memory_bytes"):
        assert beside[name] - alone[name] >= HOLDS_MB * 2**20
        assert after[name] - alone[name] < HOLDS_MB * 2**20 / 2
