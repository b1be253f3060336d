"""An engine that changes the clock it is measured with: real launches, whose times stay the machine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.launch import CLOCK, Launch, LaunchFailedError, LaunchRequest
from harness.launch.clock import clock_problem
from harness.worker.plan import Plan

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
