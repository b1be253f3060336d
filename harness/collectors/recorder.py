"""Records, inside a rank, every range that goes through the `nvtx` Python package. Standard library and nvtx only.

How: `Recorder.install()` puts recording stand-ins in place of the names of the `nvtx` package, before the engine is
imported, so that `from nvtx import annotate` in any library gets them. Without a tool nvtx hands out dummy domains
(and nothing at all under `NVTX_DISABLE`), so nothing is lost by standing in for them. Ranges that do not go through
the Python package (`torch.cuda.nvtx`, C++ code, `nvtx.Profile`) are not seen.

What it costs: a range reads the clock twice and extends one flat list of its thread; it makes no container that lives
on, so it neither triggers garbage collections nor makes them longer. Rows go to SQLite when the worker calls `flush`,
between steps. Only a thread that collects `ROWS_IN_MEMORY` rows within a step writes them there and then, which bounds
the memory, and shows as a range of its own (`recorder.flush`). A background writer would take the interpreter lock in
the middle of somebody's range instead, and nobody could tell where.

Times are ns of CLOCK_MONOTONIC, the same for all processes of a node. Payloads are kept when they are an `int` or a
`float` that fits 64 bits; colors and categories are not kept.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import count, repeat
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Final

import nvtx

from harness import names
from harness.trace import schema
from harness.trace.writer import TraceWriter

ROWS_IN_MEMORY: Final = 65_536
"""Rows a thread may hold (about 8 MB) before it writes them itself; more than a step normally makes."""

_FIELDS: Final = 6  # of one row in a thread's flat list: start_ns, end_ns, event type, text, domain name, payload
_INT64: Final = range(-(2**63), 2**63)


class RegisteredString:
    """Stands in for nvtx's class of the same name; holds the text instead of a handle."""

    __slots__ = ("string",)

    def __init__(self, string: str | None) -> None:
        self.string = string


class EventAttributes:
    """Stands in for nvtx's class of the same name. `text` and `value` are what a row stores."""

    __slots__ = ("_payload", "category", "color", "text", "value")

    def __init__(self, message: object = None, color: object = None, category: object = None, payload: object = None):
        self.color = color
        self.category = category
        self.text = message if type(message) is str and message.isascii() else _text_of(message)
        self._payload = payload
        self.value = _value_of(payload)

    @property
    def message(self) -> RegisteredString | None:
        return RegisteredString(self.text) if self.text else None

    @message.setter
    def message(self, new: object) -> None:
        self.text = _text_of(new)

    @property
    def payload(self) -> object:
        return self._payload

    @payload.setter
    def payload(self, new: object) -> None:
        self._payload = new
        self.value = _value_of(new)


def _text_of(message: object) -> str:
    if isinstance(message, RegisteredString):
        message = message.string
    return "" if message is None else _storable(message)


def _value_of(payload: object) -> int | float | None:
    """Return what a row stores of a payload: the exact types that nvtx itself takes as numbers, or nothing."""
    if type(payload) is int:
        return payload if payload in _INT64 else None
    return payload if type(payload) is float else None


def _storable(text: object) -> str:
    """Return `text` as a string that SQLite takes: no lone surrogates, which would fail a whole batch of rows."""
    string = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
    return string if string.isascii() else string.encode(errors="replace").decode()


class _ThreadLog:
    """What one thread has recorded and not yet written: flat `rows`, and open ranges in a stack for each domain."""

    __slots__ = ("alive", "global_tid", "name", "named", "rows", "stacks")

    def __init__(self, owner: object, global_tid: int, name: str | None) -> None:
        self.rows: list[Any] = []
        self.stacks: dict[str, list[tuple[str, Any, int]]] = {}
        self.alive = weakref.ref(owner)  # the thread's local storage dies with it
        self.global_tid = global_tid
        self.name = name
        self.named = False

    def take(self) -> list[Any]:
        """Remove and return the finished rows. The owning thread may go on adding at the end meanwhile."""
        taken = self.rows[:]
        del self.rows[: len(taken)]
        return taken


class _Owner:
    """Lives in a thread's local storage, to show by its end that the thread ended."""


class _Domain:
    """Stands in for `nvtx.Domain`; its calls are closures, which spares the attribute lookups on the hot path."""

    def __init__(self, recorder: Recorder, name: str | None) -> None:
        self.name = name
        self.push_range, self.pop_range, self.mark = _thread_calls(recorder, _storable(name or ""))
        self.start_range, self.end_range = _process_calls(recorder, _storable(name or ""))

    def get_registered_string(self, string: str | None) -> RegisteredString:
        return RegisteredString(string)

    def get_category_id(self, name: str) -> int:  # noqa: ARG002 (nvtx's signature; categories are not kept)
        return 0

    def get_event_attributes(
        self, message: object = None, color: object = None, category: object = None, payload: object = None
    ) -> EventAttributes:
        return EventAttributes(message, color, category, payload)

    def set_event_attributes(self, attributes: EventAttributes, **changes: object) -> None:
        for key, value in changes.items():
            setattr(attributes, key, value)

    def get_counter(self, *_args: object, **_kwargs: object) -> _Counter:
        return _Counter()

    def get_timestamp(self) -> int:
        return time.perf_counter_ns()


class _Counter:
    """Stands in for nvtx's counters, which are not recorded."""

    def sample(self, value: object) -> None: ...
    def sample_no_value(self, reason: object) -> None: ...
    def batch_submit(self, values: object, timestamps: object) -> None: ...


def _resolve(attributes: EventAttributes | None, changes: dict[str, Any]) -> EventAttributes:
    if attributes is None:
        return EventAttributes(**changes)
    for key, value in changes.items():
        setattr(attributes, key, value)
    return attributes


def _thread_calls(
    recorder: Recorder, domain: str
) -> tuple[Callable[..., None], Callable[[], None], Callable[..., None]]:
    """Return `push_range`, `pop_range` and `mark` of one domain. The hot path: every lookup is a closure cell."""
    local = threading.local()
    now = time.perf_counter_ns
    full = ROWS_IN_MEMORY * _FIELDS
    push_pop, mark_type = schema.NVTX_PUSH_POP, schema.NVTX_MARK

    def open_log() -> None:
        log = recorder.thread_log()
        local.stack = log.stacks.setdefault(domain, [])
        local.rows = log.rows

    def push_range(attributes: EventAttributes | None = None, **changes: Any) -> None:
        if changes or attributes is None:
            attributes = _resolve(attributes, changes)
        try:
            stack = local.stack
        except AttributeError:
            open_log()
            stack = local.stack
        stack.append((attributes.text, attributes.value, now()))

    def pop_range() -> None:
        end_ns = now()
        try:
            text, value, start_ns = local.stack.pop()
        except (AttributeError, IndexError):
            return  # nvtx, too, ignores a pop without its push
        rows = local.rows
        rows += (start_ns, end_ns, push_pop, text, domain, value)
        if len(rows) >= full:
            recorder.spill()

    def mark(attributes: EventAttributes | None = None, **changes: Any) -> None:
        time_ns = now()
        if changes or attributes is None:
            attributes = _resolve(attributes, changes)
        if not hasattr(local, "rows"):
            open_log()
        rows = local.rows
        rows += (time_ns, None, mark_type, attributes.text, domain, attributes.value)
        if len(rows) >= full:
            recorder.spill()

    return push_range, pop_range, mark


def _process_calls(recorder: Recorder, domain: str) -> tuple[Callable[..., int], Callable[[int], None]]:
    """Return `start_range` and `end_range` of one domain: ranges that another thread may end."""

    def start_range(attributes: EventAttributes | None = None, **changes: Any) -> int:
        if changes or attributes is None:
            attributes = _resolve(attributes, changes)
        thread = recorder.thread_log().global_tid
        range_id = next(recorder.range_ids)
        recorder.started[range_id] = (time.perf_counter_ns(), attributes.text, thread, domain, attributes.value)
        return range_id

    def end_range(range_id: int) -> None:
        end_ns = time.perf_counter_ns()
        started = recorder.started.pop(range_id, None)
        if started is None:
            return
        start_ns, text, thread, domain, value = started
        ender = recorder.thread_log().global_tid
        recorder.process_rows.append((start_ns, end_ns, schema.NVTX_START_END, text, thread, ender, domain, value))
        if len(recorder.process_rows) >= ROWS_IN_MEMORY:
            recorder.spill()

    return start_range, end_range


def _rebuilt_annotate(*init_args: Any) -> Any:
    return nvtx.annotate(*init_args)


class _Annotate:
    """Stands in for `nvtx.annotate`, as context manager and as decorator."""

    recorder: Recorder  # set in a subclass of each recorder's own

    def __init__(
        self,
        message: str | None = None,
        color: object = None,
        domain: str | None = None,
        category: object = None,
        payload: object = None,
    ) -> None:
        self.init_args = (message, color, domain, category, payload)
        self.domain = self.recorder.get_domain(domain)
        self.attributes = EventAttributes(message, color, category, payload)
        self._push = self.domain.push_range
        self._pop = self.domain.pop_range

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuilt_annotate, self.init_args

    def __enter__(self) -> _Annotate:
        self._push(self.attributes)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._pop()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if not self.attributes.text:
            self.attributes.text = function.__name__
        push, pop, attributes = self._push, self._pop, self.attributes

        @wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            push(attributes)
            try:
                return function(*args, **kwargs)
            finally:
                pop()

        return inner


class Recorder:
    """Records this process into one trace file. Opened by a rank before it imports its engine.

    `writer` is open until `close`, for a collector that adds rows of its own to the same file.
    """

    def __init__(self, path: Path, *, rank: int, collector: str = "recorder") -> None:
        self.process_id = os.getpid()
        # perf_counter_ns is CLOCK_MONOTONIC on Linux: event times need no shift, and UTC is that of its zero.
        self.writer = TraceWriter(
            path,
            collector=collector,
            process_id=self.process_id,
            process_name=Path(sys.executable).name,
            session_start_utc_ns=time.time_ns() - time.perf_counter_ns(),
            system_clock_ns=0,
            rank=rank,
        )
        self.range_ids = count(1)
        self.started: dict[int, tuple[int, str, int, str, int | float | None]] = {}
        self.process_rows: list[tuple[Any, ...]] = []
        self._domains: dict[str | None, _Domain] = {}
        self._local = threading.local()
        self._logs: list[_ThreadLog] = []
        self._lock = threading.Lock()
        self._replaced: list[tuple[ModuleType, str, Any]] = []
        self._closed = False

    def install(self) -> None:
        """Stand in for the names of the nvtx package, until `uninstall`."""
        for module in (nvtx, sys.modules["nvtx.nvtx"]):
            for name, stand_in in self._stand_ins().items():
                self._replaced.append((module, name, module.__dict__.get(name)))
                setattr(module, name, stand_in)

    def uninstall(self) -> None:
        """Give the nvtx package its own names back."""
        for module, name, original in reversed(self._replaced):
            if original is None:  # a version without that name
                delattr(module, name)
            else:
                setattr(module, name, original)
        self._replaced.clear()

    def get_domain(self, name: str | None = None) -> _Domain:
        """Return the one domain called `name`; None is the default domain."""
        return self._domains.setdefault(name, self._domains.get(name) or _Domain(self, name))

    def thread_log(self) -> _ThreadLog:
        """Return the calling thread's log."""
        log: _ThreadLog | None = getattr(self._local, "log", None)
        if log is None:
            owner = self._local.owner = _Owner()
            # Not current_thread(): for a thread of C++ (autograd's) that leaves a dummy behind.
            ident = threading.get_ident()
            name = next((thread.name for thread in threading.enumerate() if thread.ident == ident), None)
            log = _ThreadLog(owner, schema.global_tid(os.getpid(), threading.get_native_id()), name)
            self._local.log = log
            self._logs.append(log)
        return log

    def spill(self) -> None:
        """Write in the middle of a step, from the thread whose buffer is full, as a range that says so.

        Leaves it to the next call where a write is going on: it may be our own thread's, interrupted by a collection
        whose `gc.auto` range filled the buffer.
        """
        start_ns = time.perf_counter_ns()
        if not self._lock.acquire(blocking=False):
            return
        try:
            log = self.thread_log()
            written = self._write()
        finally:
            self._lock.release()
        domain, end_ns = names.NVTX_DOMAIN, time.perf_counter_ns()
        log.rows += (start_ns, end_ns, schema.NVTX_PUSH_POP, names.RECORDER_FLUSH, domain, written)

    def flush(self) -> None:
        """Write every finished range and mark of every thread: after it they survive a SIGKILL."""
        with self._lock:
            self._write()

    def begin_capture(self) -> None:
        """Do nothing: warm-up steps are recorded as well."""

    def end_capture(self) -> None:
        """Do nothing, as `begin_capture`."""

    def close(self) -> list[Path]:
        """Write all that is left, open ranges with no end, and close the file. Later ranges are dropped."""
        with self._lock:
            if not self._closed and os.getpid() == self.process_id:
                self._write()
                self.writer.add_ranges(self._open_rows())
                named = [(log.global_tid, log.name) for log in self._logs if log.name and not log.named]
                self.writer.add_thread_names(named)
                self.writer.close()
            self._closed = True
        return [self.writer.path]

    def _write(self) -> int:
        """Move all finished rows to SQLite; return how many. Call with the lock held."""
        # A forked child shares the file with its parent, who alone may write it.
        dropping = self._closed or os.getpid() != self.process_id
        written = 0
        for log in list(self._logs):
            ended = log.alive() is None
            rows = log.take()
            if rows and not dropping:
                written += len(rows) // _FIELDS
                self.writer.add_ranges(self._thread_rows(rows, log.global_tid))
            if ended:
                self._logs.remove(log)
        process_rows = self.process_rows[:]
        del self.process_rows[: len(process_rows)]
        if process_rows and not dropping:
            written += len(process_rows)
            self.writer.add_ranges([(*row[:6], self.writer.domain_id(row[6]), row[7]) for row in process_rows])
        return written

    def _thread_rows(self, rows: list[Any], thread: int) -> Iterable[tuple[Any, ...]]:
        """Rows of one thread in the writer's layout, made by C loops."""
        start_ns, end_ns, event_type, text, domain, value = (rows[field::_FIELDS] for field in range(_FIELDS))
        domain_ids = {name: self.writer.domain_id(name) for name in set(domain)}
        ids = map(domain_ids.__getitem__, domain)
        return zip(start_ns, end_ns, event_type, text, repeat(thread), repeat(None), ids, value, strict=False)

    def _open_rows(self) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        for log in self._logs:
            for domain, stack in log.stacks.items():
                for text, value, start_ns in list(stack):
                    domain_id = self.writer.domain_id(domain)
                    rows.append((start_ns, None, schema.NVTX_PUSH_POP, text, log.global_tid, None, domain_id, value))
        for start_ns, text, thread, domain, value in list(self.started.values()):
            domain_id = self.writer.domain_id(domain)
            rows.append((start_ns, None, schema.NVTX_START_END, text, thread, None, domain_id, value))
        return rows

    def _stand_ins(self) -> dict[str, Any]:
        """Every name of the nvtx package that makes events, by name, bound to this recorder."""
        get_domain = self.get_domain

        class Domain(_Domain):
            def __new__(cls, name: str | None = None) -> Any:
                return get_domain(name)

            __init__ = object.__init__  # never runs: __new__ returns no instance of it

        def start_range(
            message: object = None,
            color: object = None,
            domain: str | None = None,
            category: object = None,
            payload: object = None,
        ) -> tuple[int, _Domain]:
            attributes = EventAttributes(message, color, category, payload)
            return get_domain(domain).start_range(attributes), get_domain(domain)

        def end_range(range_id: tuple[int, _Domain] | None) -> None:
            if range_id is not None:
                range_id[1].end_range(range_id[0])

        def push_range(
            message: object = None,
            color: object = "blue",
            domain: str | None = None,
            category: object = None,
            payload: object = None,
        ) -> None:
            get_domain(domain).push_range(EventAttributes(message, color, category, payload))

        def pop_range(domain: str | None = None) -> None:
            get_domain(domain).pop_range()

        def mark(
            message: object = None,
            color: object = "blue",
            domain: str | None = None,
            category: object = None,
            payload: object = None,
        ) -> None:
            get_domain(domain).mark(EventAttributes(message, color, category, payload))

        def enabled() -> bool:
            return True  # under NVTX_DISABLE too: libraries that ask must not leave their ranges out

        annotate = type("annotate", (_Annotate,), {"recorder": self, "__module__": "nvtx"})
        stand_ins = (start_range, end_range, push_range, pop_range, mark, enabled)
        return {"annotate": annotate, "Domain": Domain, "get_domain": get_domain} | {f.__name__: f for f in stand_ins}


def start_rank(trace_path: Path, rank: int) -> Recorder:
    """Start recording this rank into `trace_path`; see `harness.collectors.base.RankSide`."""
    recorder = Recorder(trace_path, rank=rank)
    recorder.install()
    return recorder
