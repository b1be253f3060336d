"""The recorder: what it writes is what was executed, whatever way into nvtx was taken, and it survives a kill."""

from __future__ import annotations

import gc
import itertools
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nvtx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_events import Event, parent_of, read_events, recording

from harness.collectors.recorder import Recorder
from harness.names import RECORDER_FLUSH
from harness.trace import schema

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with recording(tmp_path) as recorder:
        yield recorder


@pytest.fixture
def recorded(recorder: Recorder) -> Callable[[], list[Event]]:
    """Close the recorder and return what it wrote."""
    return lambda: read_events(recorder.close()[0])


@dataclass
class Node:
    """One event of a generated program: how it is made, in which domain, and what happens inside."""

    way: str
    domain: str | None
    payload: int | float | None
    children: list[Node] = field(default_factory=list)
    name: str = ""


@contextmanager
def _module_push(node: Node) -> Any:
    nvtx.push_range(node.name, domain=node.domain, payload=node.payload)
    yield
    nvtx.pop_range(domain=node.domain)


@contextmanager
def _domain_push(node: Node) -> Any:
    domain = nvtx.get_domain(node.domain)
    domain.push_range(domain.get_event_attributes(message=node.name, payload=node.payload))
    yield
    domain.pop_range()


@contextmanager
def _domain_push_by_keywords(node: Node) -> Any:
    domain = nvtx.Domain(node.domain)
    domain.push_range(message=node.name, payload=node.payload)
    yield
    domain.pop_range()


@contextmanager
def _module_start(node: Node) -> Any:
    started = nvtx.start_range(node.name, domain=node.domain, payload=node.payload)
    yield
    nvtx.end_range(started)


@contextmanager
def _domain_start(node: Node) -> Any:
    domain = nvtx.get_domain(node.domain)
    started = domain.start_range(message=node.name, payload=node.payload)
    yield
    domain.end_range(started)


def _mark(node: Node) -> AbstractContextManager[Any]:
    nvtx.mark(node.name, domain=node.domain, payload=node.payload)
    return nullcontext()


def _domain_mark(node: Node) -> AbstractContextManager[Any]:
    nvtx.get_domain(node.domain).mark(message=node.name, payload=node.payload)
    return nullcontext()


WAYS: dict[str, Callable[[Node], AbstractContextManager[Any]]] = {
    "annotate": lambda node: nvtx.annotate(node.name, domain=node.domain, payload=node.payload),
    "module push": _module_push,
    "domain push": _domain_push,
    "domain push by keywords": _domain_push_by_keywords,
    "module start": _module_start,
    "domain start": _domain_start,
    "mark": _mark,
    "domain mark": _domain_mark,
}
KIND = dict.fromkeys((*WAYS, "decorator"), schema.NVTX_PUSH_POP)
KIND |= {"module start": schema.NVTX_START_END, "domain start": schema.NVTX_START_END}
KIND |= {"mark": schema.NVTX_MARK, "domain mark": schema.NVTX_MARK}

nodes = st.recursive(
    st.builds(
        Node,
        way=st.sampled_from(sorted(KIND)),
        domain=st.sampled_from([None, "stepduel", "library"]),
        payload=st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)),
    ),
    lambda children: st.builds(
        Node,
        way=st.sampled_from(sorted(KIND)),
        domain=st.sampled_from([None, "stepduel", "library"]),
        payload=st.none(),
        children=st.lists(children, max_size=4),
    ),
    max_leaves=12,
)


def execute(node: Node) -> None:
    def inside() -> None:
        for child in node.children:
            execute(child)

    if node.way == "decorator":
        nvtx.annotate(node.name, domain=node.domain, payload=node.payload)(inside)()
        return
    with WAYS[node.way](node):
        inside()


def execute_all(roots: list[Node]) -> None:
    for root in roots:
        execute(root)


def expect(node: Node, parent: str | None, expected: dict[str, tuple[Any, ...]]) -> None:
    """Add to `expected`, by name: kind, domain, payload and name of the parent among push/pop ranges."""
    kind = KIND[node.way]
    expected[node.name] = (kind, node.domain or "", node.payload, parent)
    for child in node.children:
        expect(child, node.name if kind == schema.NVTX_PUSH_POP else parent, expected)


def name_all(roots: list[Node], prefix: str) -> None:
    numbers = itertools.count()
    queue = list(roots)
    while queue:
        node = queue.pop()
        node.name = f"{prefix}.{next(numbers)}"
        queue.extend(node.children)


@settings(max_examples=25)
@given(programs=st.lists(st.lists(nodes, max_size=3), min_size=1, max_size=3))
def test_rows_are_what_several_threads_executed(programs: list[list[Node]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "rank0.sqlite", rank=0)
        recorder.install()
        try:
            threads = []
            for number, program in enumerate(programs):
                name_all(program, f"t{number}")
                threads.append(threading.Thread(target=execute_all, args=(program,), name=f"t{number}"))
            for thread in threads:
                thread.start()
            recorder.flush()  # in the middle of it all
            for thread in threads:
                thread.join()
        finally:
            recorder.uninstall()
        events = read_events(recorder.close()[0])
    expected: dict[str, tuple[Any, ...]] = {}
    for program in programs:
        for root in program:
            expect(root, None, expected)
    found = {}
    for event in events:
        parent = parent_of(event, events)
        found[event.text] = (event.kind, event.domain, event.payload, parent.text if parent else None)
    assert found == expected
    assert len(events) == len(expected)
    by_thread = {event.text.split(".")[0]: event.global_tid for event in events}
    assert len(set(by_thread.values())) == len(by_thread)


def test_a_range_may_end_on_another_thread(recorder: Recorder, recorded: Callable[[], list[Event]]) -> None:
    started = nvtx.start_range("handed over")
    thread = threading.Thread(target=nvtx.end_range, args=(started,))
    thread.start()
    thread.join()
    (event,) = recorded()
    assert (event.text, event.kind) == ("handed over", schema.NVTX_START_END)
    with sqlite3.connect(recorder.writer.path) as connection:
        begun_on, ended_on = connection.execute(
            "SELECT globalTid, endGlobalTid FROM NVTX_EVENTS WHERE eventType = 60"
        ).fetchone()
    connection.close()
    assert begun_on & 0xFFFFFF == threading.get_native_id()
    assert ended_on != begun_on


def test_exceptions_close_ranges_and_stray_calls_do_nothing(recorded: Callable[[], list[Event]]) -> None:
    @nvtx.annotate()  # type: ignore[untyped-decorator]  # nvtx ships no types
    def fails() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        fails()
    nvtx.pop_range()
    nvtx.get_domain("never pushed").pop_range()
    nvtx.end_range(None)
    nvtx.get_domain().end_range(12345)
    assert [event.text for event in recorded()] == ["fails"]


def test_unfinished_ranges_are_written_without_an_end(recorded: Callable[[], list[Event]]) -> None:
    nvtx.push_range("open")
    nvtx.start_range("started")
    assert {(event.text, event.end_ns) for event in recorded()} == {("open", None), ("started", None)}


def test_attributes_can_be_changed_between_uses(recorded: Callable[[], list[Event]]) -> None:
    domain = nvtx.get_domain("d")
    attributes = domain.get_event_attributes(message="first", payload=1)
    domain.mark(attributes)
    attributes.message = domain.get_registered_string("second")
    attributes.payload = 2.5
    domain.mark(attributes)
    domain.mark(attributes, message="third", payload=2**70)  # no 64-bit number: kept without its payload
    domain.mark(message="odd \ud800 text", payload=[1, 2])
    found = [(event.text, event.payload) for event in recorded()]
    assert found == [("first", 1), ("second", 2.5), ("third", None), ("odd ? text", None)]


def test_annotations_can_be_pickled(recorder: Recorder) -> None:
    again = pickle.loads(pickle.dumps(nvtx.annotate("x", domain="d", payload=3)))
    assert again.init_args == ("x", None, "d", None, 3)


def test_uninstalling_gives_nvtx_its_own_names_back(tmp_path: Path) -> None:
    before = {name: vars(nvtx)[name] for name in ("annotate", "push_range", "mark", "enabled")}
    before |= {name: vars(nvtx)[name] for name in ("get_domain", "Domain") if name in vars(nvtx)}  # not in nvtx 0.2.10
    recorder = Recorder(tmp_path / "rank0.sqlite", rank=0)
    recorder.install()
    assert nvtx.annotate is not before["annotate"]
    assert nvtx.nvtx.push_range is nvtx.push_range
    recorder.uninstall()
    recorder.close()
    assert {name: vars(nvtx)[name] for name in before} == before


def test_memory_is_bounded_and_the_writing_shows(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "rank0.sqlite", rank=0, rows_in_memory=50)
    recorder.install()
    try:
        largest = 0
        for number in range(1000):
            with nvtx.annotate("r", payload=number):
                largest = max(largest, len(recorder.thread_log().rows))
            nvtx.end_range(nvtx.start_range("s"))
        written = len(read_events(recorder.writer.path))
    finally:
        recorder.uninstall()
    assert largest <= 51 * 6
    assert written >= 1900
    events = read_events(recorder.close()[0])
    assert [event.payload for event in events if event.text == "r"] == list(range(1000))
    flushes = [event for event in events if event.text == RECORDER_FLUSH]
    assert len(flushes) >= 19
    assert sum(int(event.payload or 0) for event in flushes) <= len(events)


def test_recording_starts_no_garbage_collection(recorder: Recorder) -> None:
    domain = nvtx.get_domain("d")
    attributes = domain.get_event_attributes(message="r", payload=1)
    gc.collect()
    before = gc.get_stats()
    for _ in range(20_000):
        domain.push_range(attributes)
        domain.push_range(attributes)
        domain.mark(attributes)
        domain.pop_range()
        domain.pop_range()
    assert gc.get_stats() == before


def test_a_finished_threads_log_is_forgotten(recorder: Recorder) -> None:
    for _ in range(20):
        thread = threading.Thread(target=lambda: nvtx.mark("m"))
        thread.start()
        thread.join()
    recorder.flush()
    assert recorder._logs == []
    (path,) = recorder.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT count(*) FROM ThreadNames").fetchone() == (20,)
    connection.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from harness.collectors.recorder import start_rank
recorder = start_rank(Path(sys.argv[1]), 3)
import nvtx
for number in range(100):
    with nvtx.annotate("flushed", payload=number):
        pass
recorder.flush()
with nvtx.annotate("lost"):
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""

FORKED = """
import os, sys, warnings
from pathlib import Path
from harness.collectors.recorder import start_rank
recorder = start_rank(Path(sys.argv[1]), 0)
import nvtx
nvtx.mark("before")
child = os.fork()
nvtx.mark("after")
recorder.flush()
if child == 0:
    recorder.close()
    os._exit(0)
os.waitpid(child, 0)
nvtx.mark("last")
recorder.close()
"""

DISABLED = """
import sys
from pathlib import Path
from harness.collectors.recorder import start_rank
recorder = start_rank(Path(sys.argv[1]), 0)
from nvtx import annotate, enabled
assert enabled()
@annotate("decorated")
def f(): pass
f()
recorder.close()
"""


def run_script(script: str, path: Path, **env: str) -> int:
    return subprocess.run([sys.executable, "-c", script, str(path)], cwd=ROOT, env={**os.environ, **env}).returncode


def test_a_killed_process_leaves_what_it_had_flushed(tmp_path: Path) -> None:
    path = tmp_path / "rank3.sqlite"
    assert run_script(KILLED, path) == -signal.SIGKILL
    assert [entry.name for entry in tmp_path.iterdir()] == ["rank3.sqlite"]  # no journal that could get lost
    assert [event.payload for event in read_events(path)] == list(range(100))


def test_a_forked_child_does_not_write_into_its_parents_trace(tmp_path: Path) -> None:
    assert run_script(FORKED, tmp_path / "rank0.sqlite") == 0
    assert [event.text for event in read_events(tmp_path / "rank0.sqlite")] == ["before", "after", "last"]


def test_it_records_where_nvtx_is_disabled(tmp_path: Path) -> None:
    assert run_script(DISABLED, tmp_path / "rank0.sqlite", NVTX_DISABLE="1") == 0
    assert [event.text for event in read_events(tmp_path / "rank0.sqlite")] == ["decorated"]
