"""A coordinator in a process of its own, to be interrupted or killed: `drive.py LAUNCH_DIR`."""

from __future__ import annotations

import sys
from pathlib import Path

from harness.launch import Launch, LaunchRequest
from harness.worker.plan import Plan

plan = Plan(
    launch_dir=Path(sys.argv[1]),
    engine_root=Path(__file__).parent / "engine_root",
    factory="toy_engine:build",
    engine={"fault": "hang", "on_rank": 0, "helper": True},
    rank_side="harness.collectors.recorder",
)
with Launch(LaunchRequest(plan=plan)) as launch:
    launch.wait_ready()
    launch.step()
    launch.request_step()
    print(launch.launch_id, launch._channel.path if launch._channel else None, flush=True)
    launch.await_step()
