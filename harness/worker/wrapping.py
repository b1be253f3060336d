"""Wraps one callable in an NVTX range: same signature, return value and exceptions.

A push/pop range must end on the thread and at the depth where it began. So a generator, coroutine or async generator,
which may be suspended while something else runs on its thread, gets one range for every stretch in which its body
runs, from a resume to the next suspension: ranges stay nested whatever a scheduler does, and a range's time is time
its body ran, never time it waited. A call then has as many ranges as stretches.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from functools import wraps
from typing import Any

from harness.worker.ranges import Ranges


def wrap(function: Callable[..., Any], ranges: Ranges, name: str, result: str | None = None) -> Callable[..., Any]:
    """Return `function` in ranges called `name`; `result` names the mark that carries an `int` it returns."""
    wrapper = _Wrapper(ranges, name, result)
    if inspect.iscoroutinefunction(function):
        return wrapper.coroutine(function)
    if inspect.isasyncgenfunction(function):
        return wrapper.async_generator(function)
    if inspect.isgeneratorfunction(function):
        return wrapper.generator(function)
    probed = wrapper.plain(function) if result is None else wrapper.plain_with_result(function)
    if not inspect.isfunction(function):
        _copy_extras(function, probed)
    return probed


def _copy_extras(function: Callable[..., Any], probed: Callable[..., Any]) -> None:
    """Give `probed` what a callable of a type of its own offers beyond a function, such as `cache_clear`."""
    for name in dir(function):
        if not name.startswith("__") and not hasattr(probed, name):
            setattr(probed, name, getattr(function, name))


class _Wrapper:
    """Makes the wrappers of one probe."""

    def __init__(self, ranges: Ranges, name: str, result: str | None) -> None:
        self._push, self._pop, self._mark = ranges.push, ranges.pop, ranges.mark
        self._attributes = ranges.attributes(name)
        self._result = result

    def plain(self, function: Callable[..., Any]) -> Callable[..., Any]:
        push, pop, attributes = self._push, self._pop, self._attributes

        @wraps(function)
        def probed(*args: Any, **kwargs: Any) -> Any:
            push(attributes)
            try:
                return function(*args, **kwargs)
            finally:
                pop()

        return probed

    def plain_with_result(self, function: Callable[..., Any]) -> Callable[..., Any]:
        push, pop, attributes, emit = self._push, self._pop, self._attributes, self._emit

        @wraps(function)
        def probed(*args: Any, **kwargs: Any) -> Any:
            push(attributes)
            try:
                returned = function(*args, **kwargs)
                emit(returned)
                return returned
            finally:
                pop()

        return probed

    def generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def probed(*args: Any, **kwargs: Any) -> Any:
            return (yield from self._stretches(function(*args, **kwargs)))

        return probed

    def coroutine(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        async def probed(*args: Any, **kwargs: Any) -> Any:
            return await _Awaitable(self._stretches(function(*args, **kwargs)))

        return probed

    def async_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        async def probed(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
            body = function(*args, **kwargs)
            resume = body.asend(None)
            while True:
                try:
                    item = await _Awaitable(self._stretches(resume))
                except StopAsyncIteration:
                    return
                try:
                    resume = body.asend((yield item))
                except GeneratorExit:
                    await _Awaitable(self._stretches(body.aclose()))
                    raise
                except BaseException as error:
                    resume = body.athrow(error)

        return probed

    def _stretches(self, body: Any) -> Generator[Any, Any, Any]:
        """Run `body` (anything with send, throw and close), with a range around every stretch of it."""
        push, pop, attributes = self._push, self._pop, self._attributes
        resume, given = body.send, None
        while True:
            push(attributes)
            try:
                item = resume(given)
            except StopIteration as stop:
                self._emit(stop.value)
                return stop.value
            finally:
                pop()
            try:
                resume, given = body.send, (yield item)
            except GeneratorExit:
                push(attributes)
                try:
                    body.close()
                finally:
                    pop()
                raise
            except BaseException as error:
                resume, given = body.throw, error

    def _emit(self, returned: object) -> None:
        if self._result is not None and isinstance(returned, int):
            self._mark(self._result, int(returned))


class _Awaitable:
    def __init__(self, stretches: Generator[Any, Any, Any]) -> None:
        self._stretches = stretches

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._stretches
