"""Checks the scenario's `[engine]` keys against the engine's factory, and builds its arguments.

A factory that takes one parameter annotated with a dataclass gets an instance of it; any other gets the keys as
keyword arguments. Keys that the scenario does not set are left to the engine, so that an older engine without a newer
option still runs.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harness.errors import UsageError, closest

_Factory = Callable[..., Any]


def load_factory(path: str) -> _Factory:
    """Import `module:callable`. Raises UsageError when either does not exist or the import fails."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise UsageError(f"factory {path!r}: expected module:callable")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # whatever a module raises while it is imported
        raise UsageError(
            f"factory {path!r}: importing {module_name} failed: {type(error).__name__}: {error}"
        ) from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            near = closest(part, [name for name, item in vars(found).items() if callable(item) and name[0] != "_"])
            raise UsageError(f"factory {path!r}: {module_name} has no {part!r}{near and '.' + near}")
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(f"factory {path!r}: is a {type(found).__name__}, not a callable")
    return typing.cast(_Factory, found)


def bind_options(factory: _Factory, engine: Mapping[str, Any]) -> Callable[[], Any]:
    """Return a call of `factory` with the keys of `engine`. Raises UsageError for a key or value that does not fit."""
    parameters = list(inspect.signature(factory).parameters.values())
    hints = _hints(factory)
    required = [
        p for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    sole = required[0] if len(required) == 1 else parameters[0] if len(parameters) == 1 else None
    config_type = hints.get(sole.name) if sole is not None else None
    if dataclasses.is_dataclass(config_type) and isinstance(config_type, type):
        config = _build(config_type, engine, "engine")
        return lambda: factory(config)
    named = [p for p in parameters if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    _check_names(engine, [p.name for p in named], "engine", takes_any)
    missing = [p.name for p in named if p.default is p.empty and p.name not in engine]
    if missing:
        raise UsageError(f"engine: the factory needs {', '.join(missing)}, which the scenario does not set")
    values = {key: _convert(value, hints.get(key, Any), f"engine.{key}") for key, value in engine.items()}
    return lambda: factory(**values)


def _hints(owner: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(
            owner if inspect.isroutine(owner) or isinstance(owner, type) else type(owner).__call__
        )
    except Exception:  # annotations may be any code: one that cannot be evaluated checks nothing
        return {}


def _build(config_type: type[Any], values: Mapping[str, Any], where: str) -> Any:
    """Return `config_type(**values)`, with names, types and the type's own rules checked."""
    fields = {field.name: field for field in dataclasses.fields(config_type) if field.init}
    _check_names(values, list(fields), where, False)
    hints = _hints(config_type)
    converted = {key: _convert(value, hints.get(key, Any), f"{where}.{key}") for key, value in values.items()}
    needed = [
        name
        for name, field in fields.items()
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING and name not in values
    ]
    if needed:
        raise UsageError(f"{where}: {config_type.__name__} needs {', '.join(needed)}, which the scenario does not set")
    try:
        return config_type(**converted)
    except (ValueError, TypeError) as error:
        raise UsageError(f"{where}: {error}") from error


def _check_names(values: Mapping[str, Any], known: Sequence[str], where: str, takes_any: bool) -> None:
    for key in values:
        if key not in known and not takes_any:
            allowed = ", ".join(sorted(known)) or "none"
            raise UsageError(f"{where}: unknown key {key!r}.{closest(key, known)} Allowed: {allowed}")


def _convert(value: Any, hint: Any, where: str) -> Any:
    """Return the JSON `value` as `hint` wants it; raises UsageError when it does not fit."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or isinstance(hint, typing.TypeVar):
        return value
    if origin is typing.Annotated:
        return _convert(value, arguments[0], where)
    if origin is typing.Literal:
        if not any(value == choice and type(value) is type(choice) for choice in arguments):
            near = closest(value, [c for c in arguments if isinstance(c, str)]) if isinstance(value, str) else ""
            raise UsageError(f"{where} is {value!r}.{near} Allowed: {', '.join(map(repr, arguments))}")
        return value
    if origin in (typing.Union, types.UnionType):
        return _convert_union(value, arguments, where)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, Mapping):
        return _build(hint, value, where)
    return _convert_plain(value, hint, where)


def _convert_union(value: Any, members: Sequence[Any], where: str) -> Any:
    messages = []
    for member in members:
        try:
            return _convert(value, member, where)
        except UsageError as error:
            messages.append(str(error))
    raise UsageError(messages[0])


def _convert_plain(value: Any, hint: Any, where: str) -> Any:
    kind = typing.get_origin(hint) or hint
    arguments = typing.get_args(hint)
    if isinstance(kind, type) and isinstance(value, list) and issubclass(kind, Sequence) and not issubclass(kind, str):
        item = arguments[0] if arguments else Any
        items = [_convert(entry, item, f"{where}[{index}]") for index, entry in enumerate(value)]
        return tuple(items) if issubclass(tuple, kind) and kind is tuple else items
    is_number = type(value) in (int, float)
    if kind is float and is_number:
        return float(value)
    fits = isinstance(kind, type) and isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
    if not fits:
        expected = getattr(hint, "__name__", str(hint)) if not arguments else str(hint)
        raise UsageError(f"{where} is {value!r} ({type(value).__name__}); expected {expected}")
    return value
