"""Probes: found wherever they were imported to, transparent to callers, and ranges that nest whatever runs."""

from __future__ import annotations

import asyncio
import gc
import importlib
import inspect
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from probed_modules import write_probed_modules
from recorded_events import Event, parent_of, read_events, recording

from harness.collectors.recorder import Recorder
from harness.errors import UsageError
from harness.worker.garbage import AutomaticCollections
from harness.worker.plan import ProbeSpec
from harness.worker.probes import Probes
from harness.worker.ranges import Ranges


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with recording(tmp_path) as recorder:
        yield recorder


@pytest.fixture
def recorded(recorder: Recorder) -> Callable[[], list[Event]]:
    """Close the recorder and return what it wrote."""
    return lambda: read_events(recorder.close()[0])


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ModuleType, ModuleType]]:
    write_probed_modules(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield importlib.import_module("probed_source"), importlib.import_module("probed_user")
    for name in ("probed_source", "probed_user"):
        del sys.modules[name]


Probe = Callable[..., Probes]


@pytest.fixture
def probe(recorder: Recorder) -> Iterator[Probe]:
    """Install probes on `probed_source.*`, named as their targets' ends."""
    installed = []

    def install(*targets: str, result: str | None = None) -> Probes:
        specs = [ProbeSpec(name=t.removeprefix("probed_source."), target=t, result=result) for t in targets]
        probes = Probes(specs, Ranges())
        probes.install()
        installed.append(probes)
        return probes

    yield install
    for probes in reversed(installed):
        probes.uninstall()


Recorded = Callable[[], list[Event]]
Modules = tuple[ModuleType, ModuleType]


def counts(events: Sequence[Event]) -> Counter[str]:
    return Counter(event.text for event in events)


def test_a_function_is_probed_wherever_it_was_imported_to(modules: Modules, probe: Probe, recorded: Recorded) -> None:
    source, user = modules
    probe("probed_source.load")
    assert source.load(2, scale=3) == 6
    assert user.renamed(1) == 1
    assert user.Holder.load(1) == 1
    assert source.Base.also_load(1) == 1
    assert counts(recorded()) == {"load": 4}


def test_a_module_imported_later_gets_the_probed_one(modules: Modules, probe: Probe, recorded: Recorded) -> None:
    del sys.modules["probed_user"]
    probe("probed_source.load")
    importlib.import_module("probed_user").renamed(1)
    assert counts(recorded()) == {"load": 1}


def test_methods_of_every_kind(modules: Modules, probe: Probe, recorded: Recorded) -> None:
    source, _ = modules
    probe("probed_source.Base.method", "probed_source.Base.static", "probed_source.Base.made")
    for cls in (source.Base, source.Derived):
        assert cls().method(1) == (cls.__name__, 1)
        assert cls.static(2) == cls().static(2) == 2
        assert cls.made(3) == cls().made(3) == (cls.__name__, 3)
    assert isinstance(vars(source.Base)["static"], staticmethod)
    assert isinstance(vars(source.Base)["made"], classmethod)
    assert counts(recorded()) == {"Base.method": 2, "Base.static": 4, "Base.made": 4}


def test_an_inherited_method_is_probed_for_the_named_class_only(
    modules: Modules, probe: Probe, recorded: Recorded
) -> None:
    source, _ = modules
    probe("probed_source.Derived.method")
    source.Base().method(1)
    source.Derived().method(1)
    assert counts(recorded()) == {"Derived.method": 1}


def test_uninstalling_puts_every_original_back(modules: Modules, probe: Probe) -> None:
    source, user = modules
    owners = (source, user, source.Base, source.Derived, user.Holder, gc)
    before = [dict(vars(owner)) for owner in owners]
    probes = probe("probed_source.load", "probed_source.Base.static", "probed_source.Derived.method", "gc.collect")
    assert user.renamed is source.load is not before[0]["load"]
    assert user.collect is gc.collect is not before[5]["collect"]
    probes.uninstall()
    assert [dict(vars(owner)) for owner in owners] == before


@pytest.mark.parametrize("name", ["load", "generator", "coroutine", "async_generator", "cached", "Base.method"])
def test_signature_kind_and_names_are_kept(name: str, modules: Modules, probe: Probe) -> None:
    source, _ = modules

    def look_up() -> Any:
        found: Any = source
        for part in name.split("."):
            found = getattr(found, part)
        return found

    original = look_up()
    probe(f"probed_source.{name}")
    probed = look_up()
    assert probed is not original
    assert inspect.signature(probed) == inspect.signature(original)
    assert (probed.__name__, probed.__doc__, probed.__module__) == (
        original.__name__,
        original.__doc__,
        original.__module__,
    )
    for kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction):
        assert kind(probed) == kind(original)
    if name == "cached":
        assert probed(3) == 3
        assert probed.cache_info().misses == 1


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    args=st.lists(st.integers(), max_size=3),
    kwargs=st.dictionaries(st.sampled_from(["size", "scale", "other"]), st.integers(), max_size=2),
)
def test_any_call_returns_or_raises_what_the_original_does(
    args: list[int], kwargs: dict[str, int], modules: Modules, probe: Probe
) -> None:
    source, _ = modules

    def outcome(function: Callable[..., Any]) -> tuple[Any, ...]:
        try:
            return ("returned", function(*args, **kwargs))
        except TypeError as error:
            return ("raised", str(error))

    if not hasattr(source.load, "__wrapped__"):  # the fixtures live for all examples
        probe("probed_source.load")
    assert outcome(source.load) == outcome(source.load.__wrapped__)


def test_the_very_exception_goes_through_and_the_range_is_closed(
    modules: Modules, probe: Probe, recorded: Recorded
) -> None:
    source, _ = modules
    probe("probed_source.fails")
    with pytest.raises(LookupError, match="why"):
        source.fails("why")
    (event,) = recorded()
    assert event.end_ns is not None


def test_recursion_nests(modules: Modules, probe: Probe, recorded: Recorded) -> None:
    source, _ = modules
    probe("probed_source.factorial")
    assert source.factorial(5) == 120
    events = recorded()
    depths = []
    for event in events:
        depth, above = 0, parent_of(event, events)
        while above is not None:
            depth, above = depth + 1, parent_of(above, events)
        depths.append(depth)
    assert depths == [0, 1, 2, 3, 4]


def test_an_integer_result_is_a_mark_inside_the_range(modules: Modules, probe: Probe, recorded: Recorded) -> None:
    source, _ = modules
    probe("probed_source.load", result="moved_bytes")
    assert source.load(7) == 7
    assert source.load("x") == "x"
    events = recorded()
    (mark,) = (event for event in events if event.text == "moved_bytes")
    assert mark.payload == 7
    assert parent_of(mark, events) == events[0]


def test_a_generator_has_a_range_for_every_stretch(modules: Modules, probe: Probe, recorded: Recorded) -> None:
    source, _ = modules
    probe("probed_source.generator")
    running = source.generator(2)
    assert next(running) == 0
    assert running.send("a") == 1
    with pytest.raises(StopIteration) as stopped:
        running.send("b")
    assert stopped.value.value == ["a", "b"]
    thrown = source.generator(2)
    next(thrown)
    with pytest.raises(KeyError):
        thrown.throw(KeyError("k"))
    closed = source.generator(2)
    next(closed)
    closed.close()
    assert counts(recorded()) == {"generator": 3 + 2 + 2}


def test_interleaved_coroutines_keep_ranges_nested(modules: Modules, probe: Probe, recorded: Recorded) -> None:
    source, _ = modules
    probe("probed_source.coroutine", "probed_source.async_generator", "probed_source.load")

    async def consume() -> list[int]:
        return [source.load(item) async for item in source.async_generator(3)]

    async def everything() -> list[Any]:
        return list(await asyncio.gather(source.coroutine(4), consume(), source.coroutine(2), consume()))

    assert asyncio.run(everything()) == [4, [0, 1, 2], 2, [0, 1, 2]]
    events = recorded()
    # Any two ranges of a thread are apart or one holds the other; `load` runs between an async generator's stretches.
    for one in events:
        for other in events:
            assert one.end_ns is not None
            assert other.end_ns is not None
            apart = one.end_ns <= other.start_ns or other.end_ns <= one.start_ns
            assert apart or one.contains(other) or other.contains(one)
    assert {parent_of(event, events) for event in events} == {None}
    assert counts(events) == {"coroutine": 5 + 3, "async_generator": 2 * (2 * 3 + 1), "load": 6}


def test_an_async_generator_can_be_thrown_into_and_closed(modules: Modules, probe: Probe) -> None:
    source, _ = modules
    probe("probed_source.async_generator")

    async def use() -> None:
        running = source.async_generator(3)
        assert await anext(running) == 0
        with pytest.raises(KeyError):
            await running.athrow(KeyError("k"))
        closed = source.async_generator(3)
        await anext(closed)
        await closed.aclose()
        with pytest.raises(StopAsyncIteration):
            await anext(closed)

    asyncio.run(use())


def test_threads_do_not_mix(modules: Modules, probe: Probe, recorded: Recorded) -> None:
    source, _ = modules
    probe("probed_source.factorial")
    threads = [threading.Thread(target=source.factorial, args=(6,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    events = recorded()
    assert Counter(event.global_tid for event in events).most_common() == [
        (tid, 6) for tid in dict.fromkeys(event.global_tid for event in events)
    ]
    assert sum(parent_of(event, events) is None for event in events) == 4


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("probed_source.laod", "matches nothing: probed_source has no 'laod'. Did you mean 'probed_source.load'?"),
        ("probed_source.Base.metod", "Did you mean 'probed_source.Base.method'?"),
        ("probed_sorce.load", "no module 'probed_sorce'. Did you mean 'probed_source'?"),
        ("probed_source.number", "is a int, not a callable"),
        ("probed_source.Base.size", "is a property, not a callable"),
        ("probed_source.Base", "is a class; name a method of it"),
        ("int.bit_length", "no module 'int'"),
        ("builtins.int.bit_length", "cannot be replaced"),
    ],
)
def test_a_probe_that_matches_nothing_is_refused(target: str, said: str, modules: Modules, probe: Probe) -> None:
    with pytest.raises(UsageError) as caught:
        probe(target)
    assert said in str(caught.value)


def test_two_probes_on_one_callable_are_refused(modules: Modules, probe: Probe) -> None:
    with pytest.raises(UsageError, match="has a probe already"):
        probe("probed_source.load", "probed_user.renamed")


def test_automatic_collections_have_ranges_and_explicit_ones_have_their_own(
    modules: Modules, probe: Probe, recorded: Recorded
) -> None:
    _, user = modules
    probe()  # gc.collect is always probed
    automatic = AutomaticCollections(Ranges())
    automatic.install()
    thresholds = gc.get_threshold()
    try:
        gc.disable()
        user.collect()
        cycle: list[Any] = []
        cycle.append(cycle)
        del cycle
        assert gc.collect() >= 1
        gc.set_threshold(1, 1, 1)
        gc.enable()
        kept = [[] for _ in range(20)]  # type: ignore[var-annotated]  # anything the collector counts
        gc.disable()
    finally:
        gc.set_threshold(*thresholds)
        gc.enable()
        automatic.uninstall()
    assert len(kept) == 20
    events = recorded()
    found = counts(events)
    assert found["gc.collect"] == 2
    assert found["gc.auto"] >= 1
    assert found["collected_objects"] == found["gc.collect"] + found["gc.auto"]
    assert all(parent_of(event, events) is None for event in events if event.text == "gc.auto")
