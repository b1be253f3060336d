"""Ranks on cores: who gets which, and that a bound process stays there with every thread it has or starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest
from child_process import PIPE, child
from hypothesis import given
from hypothesis import strategies as st

from harness.launch.placement import fits, keep_to, let_go, place_ranks, processor_ns, unplaced

THREADED = """
import os, sys, threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=lambda: print(sorted(os.sched_getaffinity(0)), flush=True)).start()
time.sleep(60)
"""


@given(st.integers(1, 8), st.integers(1, 4), st.sets(st.integers(0, 63), min_size=1))
def test_every_rank_gets_its_own_cores_or_none_gets_any(ranks: int, threads: int, cores: set[int]) -> None:
    placement = place_ranks(ranks, threads, cores)
    if ranks * threads > len(cores):
        assert placement is None
        return
    assert placement is not None
    given_out = list(chain.from_iterable(placement))
    assert [len(own) for own in placement] == [threads] * ranks
    assert len(set(given_out)) == len(given_out)
    assert set(given_out) <= cores
    assert min(given_out) > max(cores - set(given_out), default=-1)  # the first ones stay free


@pytest.fixture
def threaded() -> Iterator[subprocess.Popen[str]]:
    with child([sys.executable, "-c", THREADED], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process


def test_a_process_keeps_to_its_core_with_the_threads_it_has_and_starts(threaded: subprocess.Popen[str]) -> None:
    core = max(os.sched_getaffinity(0))
    assert unplaced([threaded.pid])
    keep_to([threaded.pid], ((core,),))
    threads = [int(entry.name) for entry in Path(f"/proc/{threaded.pid}/task").iterdir()]
    assert len(threads) == 2
    assert all(os.sched_getaffinity(thread) == {core} for thread in threads)
    if len(os.sched_getaffinity(0)) > 1:
        assert not unplaced([threaded.pid])
    assert threaded.stdin is not None
    assert threaded.stdout is not None
    threaded.stdin.write("\n")
    threaded.stdin.flush()
    assert threaded.stdout.readline() == f"[{core}]\n"


def test_a_process_that_has_ended_is_not_to_be_placed(threaded: subprocess.Popen[str]) -> None:
    threaded.kill()
    threaded.wait()
    assert not unplaced([threaded.pid])
    keep_to([threaded.pid], ((0,),))


def test_processor_time_is_that_of_all_threads_and_processes(threaded: subprocess.Popen[str]) -> None:
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    before_ns = processor_ns([threaded.pid])
    with child([sys.executable, "-c", busy], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        both_ns = processor_ns([threaded.pid, process.pid])
    assert 0.29e9 < both_ns - before_ns < 1e9
    assert processor_ns([threaded.pid]) - before_ns < 0.05e9, "it sleeps"
    assert processor_ns([process.pid]) == 0, "it has ended"


def test_only_a_launch_that_needs_no_more_cores_is_placed() -> None:
    one_rank_of_two_threads = ((2, 3),)
    assert fits(one_rank_of_two_threads, 2.05)
    assert not fits(one_rank_of_two_threads, 2.5)


SPAWNS = r"""
import subprocess, sys
burns = "import time\nuntil = time.thread_time() + 0.3\nwhile time.thread_time() < until: pass"
for line in sys.stdin:
    subprocess.run([sys.executable, "-c", burns])
    print("done", flush=True)
"""


def test_children_that_have_ended_count_with_their_parent() -> None:
    with child([sys.executable, "-c", SPAWNS], stdin=PIPE, stdout=PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        before_ns = processor_ns([process.pid])
        process.stdin.write("go\n")
        process.stdin.flush()
        assert process.stdout.readline() == "done\n"
        assert 0.28e9 < processor_ns([process.pid]) - before_ns < 1.5e9
        process.stdin.close()


def test_what_a_bound_process_starts_is_let_go(threaded: subprocess.Popen[str]) -> None:
    everywhere = os.sched_getaffinity(0)
    core, placement = max(everywhere), ((max(everywhere),),)
    keep_to([threaded.pid], placement)
    let_go([threaded.pid], placement)
    assert os.sched_getaffinity(threaded.pid) == everywhere
    others = everywhere - {core}
    if others:
        os.sched_setaffinity(threaded.pid, others)
        let_go([threaded.pid], placement)
        assert os.sched_getaffinity(threaded.pid) == others, "what the engine has bound stays"
