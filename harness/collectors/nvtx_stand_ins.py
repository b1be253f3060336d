"""Stand-ins for the names of the `nvtx` package that make events, for `harness.collectors.recorder`.

They have the signatures of nvtx 0.2.17 and behave as nvtx does when a tool is attached. A range costs two readings of
the clock and one extension of a flat list; the calls that matter are closures, which spares attribute lookups.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import Any, Final

from harness.collectors.range_log import ROW_FIELDS, RangeLog
from harness.trace import schema

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
        self.value = None if payload is None else _value_of(payload)

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


class Domain:
    """Stands in for `nvtx.Domain`; its calls are closures, which spares the attribute lookups on the hot path."""

    def __init__(self, log: RangeLog, name: str | None) -> None:
        self.name = name
        self.push_range, self.pop_range, self.mark = _thread_calls(log, _storable(name or ""))
        self.start_range, self.end_range = _process_calls(log, _storable(name or ""))

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


def _thread_calls(log: RangeLog, domain: str) -> tuple[Callable[..., None], Callable[[], None], Callable[..., None]]:
    """Return `push_range`, `pop_range` and `mark` of one domain. The hot path: every lookup is a closure cell."""
    local = threading.local()
    now = time.perf_counter_ns
    full = log.rows_in_memory * ROW_FIELDS
    push_pop, mark_type = schema.NVTX_PUSH_POP, schema.NVTX_MARK

    def open_log() -> None:
        own = log.thread_log()
        local.stack = own.stacks.setdefault(domain, [])
        local.rows = own.rows

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
            log.spill()

    def mark(attributes: EventAttributes | None = None, **changes: Any) -> None:
        time_ns = now()
        if changes or attributes is None:
            attributes = _resolve(attributes, changes)
        if not hasattr(local, "rows"):
            open_log()
        rows = local.rows
        rows += (time_ns, None, mark_type, attributes.text, domain, attributes.value)
        if len(rows) >= full:
            log.spill()

    return push_range, pop_range, mark


def _process_calls(log: RangeLog, domain: str) -> tuple[Callable[..., int], Callable[[int], None]]:
    """Return `start_range` and `end_range` of one domain: ranges that another thread may end."""
    now = time.perf_counter_ns

    def start_range(attributes: EventAttributes | None = None, **changes: Any) -> int:
        if changes or attributes is None:
            attributes = _resolve(attributes, changes)
        thread = log.thread_log().global_tid
        range_id = next(log.range_ids)
        log.started[range_id] = (now(), attributes.text, thread, domain, attributes.value)
        return range_id

    def end_range(range_id: int) -> None:
        end_ns = now()
        started = log.started.pop(range_id, None)
        if started is None:
            return
        start_ns, text, thread, domain, value = started
        ender = log.thread_log().global_tid
        log.process_rows.append((start_ns, end_ns, schema.NVTX_START_END, text, thread, ender, domain, value))
        if len(log.process_rows) >= log.rows_in_memory:
            log.spill()

    return start_range, end_range


def _rebuilt_annotate(*init_args: Any) -> Any:
    import nvtx

    return nvtx.annotate(*init_args)


class Annotate:
    """Stands in for `nvtx.annotate`, as context manager and as decorator.

    Made anew at every use by many libraries, so it is its own attributes: `text` and `value` are what a row stores.
    """

    __slots__ = ("domain", "init_args", "text", "value")
    get_domain: Callable[[str | None], Domain]  # set in a subclass of each log's own

    def __init__(
        self,
        message: str | None = None,
        color: object = None,
        domain: str | None = None,
        category: object = None,
        payload: object = None,
    ) -> None:
        self.init_args = (message, color, domain, category, payload)
        self.domain = self.get_domain(domain)
        self.text = message if type(message) is str and message.isascii() else _text_of(message)
        self.value = None if payload is None else _value_of(payload)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _rebuilt_annotate, self.init_args

    def __enter__(self) -> Annotate:
        self.domain.push_range(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.domain.pop_range()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        push, pop = self.domain.push_range, self.domain.pop_range
        attributes = EventAttributes(self.text or function.__name__, payload=self.value)

        @wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            push(attributes)
            try:
                return function(*args, **kwargs)
            finally:
                pop()

        return inner


def stand_ins(log: RangeLog) -> dict[str, Any]:
    """Every name of the nvtx package that makes events, by name, bound to `log`."""
    domains: dict[str | None, Domain] = {}

    def get_domain(name: str | None = None) -> Domain:
        known = domains.get(name)
        return known if known is not None else domains.setdefault(name, Domain(log, name))

    own = {"get_domain": staticmethod(get_domain), "__slots__": (), "__module__": "nvtx"}
    annotate = type("annotate", (Annotate,), own)

    class DomainByName(Domain):
        def __new__(cls, name: str | None = None) -> Any:
            return get_domain(name)

        __init__ = object.__init__  # never runs: __new__ returns no instance of it

    functions = _module_functions(get_domain)
    return {"annotate": annotate, "Domain": DomainByName, "get_domain": get_domain, **functions}


def _module_functions(get_domain: Callable[[str | None], Domain]) -> dict[str, Any]:
    """nvtx's functions by name; they find the domain at every call, as nvtx's own do."""

    def start_range(
        message: object = None,
        color: object = None,
        domain: str | None = None,
        category: object = None,
        payload: object = None,
    ) -> tuple[int, Domain]:
        attributes = EventAttributes(message, color, category, payload)
        return get_domain(domain).start_range(attributes), get_domain(domain)

    def end_range(range_id: tuple[int, Domain] | None) -> None:
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

    functions = (start_range, end_range, push_range, pop_range, mark, enabled)
    return {function.__name__: function for function in functions}
