"""An engine that changes the clock it is measured with: real launches, whose times stay the machine's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.duel.launches import trace_problem
from harness.duel.lockstep import PairRun
from harness.launch import CLOCK, Launch, LaunchFailedError, LaunchRequest
from harness.launch.clock import clock_problem
from harness.store import DuelRangeRecord, DuelStepRecord
from harness.worker.plan import Plan

ROOT = Path(__file__).resolve().parents[2]

MS = 1_000_000
SPIN_MS = 20
ENGINE = """
import sys, time, types

kept = [time.perf_counter_ns]  # in a list, out of reach of what replaces the names of modules
REAL_NAMES = ("perf_counter_ns", "monotonic_ns")

def real():
    return kept[0]()

def spin(seconds):
    end = real() + seconds * 1e9
    while real() < end: pass

def halve_module():
    for name in REAL_NAMES:
        setattr(time, name, lambda: real() // 2)

def halve_everywhere():
    "As freezegun does: in every loaded module, under whatever name it has the function."
    replace_everywhere(lambda: real() // 2)

def freeze_everywhere():
    now = real()
    replace_everywhere(lambda: now)

def replace_everywhere(fake):
    replaced = [getattr(time, name) for name in REAL_NAMES]
    for module in list(sys.modules.values()):
        for name, value in list(vars(module).items()) if hasattr(module, "__dict__") else ():
            if any(value is one for one in replaced):
                setattr(module, name, fake)

def reach_into_the_worker():
    "No longer an accident: it looks for the harness's own instrument."
    import gc
    from harness.worker.step import Instrument
    for found in gc.get_objects():
        if isinstance(found, Instrument):
            object.__setattr__(found, "now_ns", lambda: real() // 2)


def behave():
    pass

def build(cheat):
    globals()[cheat]()
    return types.SimpleNamespace(
        batch=lambda step: step, forward_backward=lambda batch: spin(0.02) or 1.0, optimizer_step=lambda: None
    )
"""


def launch(folder: Path, cheat: str) -> Launch:
    root = folder / "subject"
    root.mkdir()
    (root / "cheats.py").write_text(ENGINE, encoding="utf-8")
    plan = Plan(
        launch_dir=folder / "launch",
        engine_root=root,
        factory="cheats:build",
        engine={"cheat": cheat},
        rank_side="harness.collectors.recorder",
    )
    return Launch(LaunchRequest(plan=plan))


@pytest.mark.slow
@pytest.mark.parametrize("cheat", ["halve_module", "halve_everywhere", "freeze_everywhere"])
def test_a_clock_that_an_engine_replaces_is_not_the_worker_s(tmp_path: Path, cheat: str) -> None:
    with launch(tmp_path, cheat) as started:
        started.wait_ready()
        durations_ns = [started.step().duration_ns for _ in range(4)]
        assert started.stop().clean_exit
    assert all(SPIN_MS * MS <= duration_ns < 10 * SPIN_MS * MS for duration_ns in durations_ns)


@pytest.mark.slow
def test_one_that_reaches_the_worker_s_own_is_told_by_the_coordinator(tmp_path: Path) -> None:
    with launch(tmp_path, "reach_into_the_worker") as started:
        started.wait_ready()
        with pytest.raises(LaunchFailedError, match="changed the clock") as caught:
            started.step()
    assert caught.value.reason == CLOCK


@pytest.mark.slow
@pytest.mark.parametrize(("cheat", "reason"), [("reach_into_the_worker", "clock"), ("halve_module", None)])
def test_a_head_that_changes_the_clock_is_never_faster(tmp_path: Path, cheat: str, reason: str | None) -> None:
    launch(tmp_path, cheat)  # writes the engine
    scenario = tmp_path / "cheats.toml"
    run = '[run]\nwarmup_steps = 1\n[engine]\nfactory = "cheats:build"\ncheat = "behave"\n'
    scenario.write_text(f'description = "spins"\n{run}')
    command = [sys.executable, "-m", "harness.cli", "compare", str(scenario), ".", ".", "--json", "--pairs", "3"]
    command += ["--repo", str(tmp_path / "subject"), "--head-set", f"engine.cheat={cheat}", "--steps", "8"]
    command += ["--reports", str(tmp_path / "reports")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 3), done.stderr
    verdict = json.loads(done.stdout)["verdict"]
    assert verdict["state"] != "faster"
    if reason is not None:
        assert (verdict["state"], verdict["reason"]) == ("invalid", reason)
        assert "head: step 0 of rank 0" in verdict["detail"]


def traced(*shares: float) -> str | None:
    """Return what is wrong where each step reports 20 ms and its trace has these shares of it."""
    run = PairRun(pair=1, loss_tolerance=0.0)
    ranges = []
    for sequence, share in enumerate(shares):
        step: dict[str, Any] = {"pair": 1, "side": "head", "sequence": sequence, "rank": 0}
        run.steps.append(
            DuelStepRecord(
                **step, slot=0, measured=True, began_ns=0, duration_ns=20 * MS, loss=1.0, tokens=None, figures={}
            )
        )
        ns = round(share * 20 * MS)
        ranges.append(DuelRangeRecord(**step, path="step", calls=1, total_ns=ns, self_ns=ns))
    return trace_problem(ranges, run, "head")


@pytest.mark.parametrize(
    ("shares", "fits"),
    [
        ([1.0, 0.999, 1.0], True),
        ([1.0, 0.7, 1.0], True),  # one hiccup between clock and range
        ([1.0, 1.2, 1.0], False),  # the trace has more than was reported
        ([0.5, 0.5, 1.0], False),
        ([2.0, 2.0, 2.0], False),
    ],
)
def test_a_step_takes_what_its_trace_says(shares: list[float], fits: bool) -> None:
    assert (traced(*shares) is None) == fits


def event(began_ns: int, duration_ns: int) -> dict[str, object]:
    return {"index": 3, "begins_ns": [1_000_000, began_ns], "durations_ns": [MS, duration_ns]}


@pytest.mark.parametrize(
    ("began_ns", "duration_ns", "fits"),
    [
        (2 * MS, 5 * MS, True),
        (1 * MS, 9 * MS, True),
        (2 * MS, 0, False),  # frozen
        (2 * MS, -1, False),  # set back
        (MS // 2, 5 * MS, False),  # of another pace
        (2 * MS, 9 * MS, False),  # ends after it was reported
    ],
)
def test_a_step_lies_between_its_request_and_its_report(began_ns: int, duration_ns: int, fits: bool) -> None:
    problem = clock_problem(event(began_ns, duration_ns), MS, 10 * MS)
    assert (problem is None) == fits
    if problem is not None:
        assert "step 3 of rank 1" in problem
