"""Finds the callables that probes name, and replaces them by wrapped ones wherever they were imported to.

`from gc import collect` binds the function itself, so replacing `gc.collect` alone would miss such callers. Every
module in `sys.modules`, and every class in one, is searched for attributes that *are* the callable. A module imported
later takes the wrapped one from where it looks. Out of reach are references held elsewhere: closures, default
arguments, containers, bound methods stored by an instance.
"""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from harness import names
from harness.errors import UsageError, closest
from harness.worker.garbage import explicit_collect
from harness.worker.plan import ProbeSpec
from harness.worker.ranges import Ranges
from harness.worker.wrapping import wrap

_COLLECT = gc.collect
EXPLICIT_COLLECTIONS = ProbeSpec(name=names.GC_COLLECT, target="gc.collect", result=names.COLLECTED_OBJECTS)
"""Added to every plan that does not probe `gc.collect` itself, so that `gc.auto` means automatic."""


@dataclass(frozen=True, kw_only=True)
class _Target:
    """What a probe wraps. `stored` is what the owner's namespace holds, a staticmethod object for instance."""

    spec: ProbeSpec
    owner: Any
    attribute: str
    stored: Any
    function: Callable[..., Any]
    inherited: bool


class Probes:
    """The probes of one rank. `install` once; `uninstall` puts everything back."""

    def __init__(self, specs: Sequence[ProbeSpec], ranges: Ranges) -> None:
        """Find every target. Raises UsageError for one that matches nothing, naming the closest match."""
        if all(spec.target != EXPLICIT_COLLECTIONS.target for spec in specs):
            specs = (*specs, EXPLICIT_COLLECTIONS)
        self._ranges = ranges
        self._targets = [_find(spec) for spec in specs]
        self._undo: list[Callable[[], None]] = []
        seen: dict[int, str] = {}
        for target in self._targets:
            other = seen.setdefault(id(target.function), target.spec.target)
            if other != target.spec.target or sum(t.function is target.function for t in self._targets) > 1:
                raise UsageError(f"probe {target.spec.target}: the callable has a probe already ({other}); keep one")

    def install(self) -> None:
        """Wrap every target, in its own place and wherever else the same object is bound."""
        replacements: dict[int, Any] = {}
        for target in self._targets:
            function = explicit_collect if target.function is _COLLECT else target.function
            probed = wrap(function, self._ranges, target.spec.name, target.spec.result)
            stored = type(target.stored)(probed) if isinstance(target.stored, staticmethod | classmethod) else probed
            try:
                self._set(target.owner, target.attribute, stored)
            except TypeError as error:
                self.uninstall()
                raise UsageError(f"probe {target.spec.target}: cannot be replaced: {error}") from error
            if not target.inherited:
                replacements[id(target.stored)] = stored
                replacements[id(target.function)] = probed
        for owner, attribute, value in list(_bindings()):
            if id(value) in replacements:
                self._set(owner, attribute, replacements[id(value)])

    def uninstall(self) -> None:
        """Put every original back."""
        while self._undo:
            self._undo.pop()()

    def _set(self, owner: Any, attribute: str, value: Any) -> None:
        own = vars(owner)
        before, had = own.get(attribute), attribute in own
        setattr(owner, attribute, value)
        self._undo.append(lambda: setattr(owner, attribute, before) if had else delattr(owner, attribute))


def _bindings() -> Iterator[tuple[Any, str, Any]]:
    """Every (owner, attribute, value) of the modules that are loaded and of the classes in them, ours left out."""
    seen: set[int] = set()
    for module_name, module in list(sys.modules.items()):
        own = module_name.split(".")[0] in ("harness", "__main__")
        if own or not issubclass(type(module), ModuleType):
            continue
        bound: list[tuple[str, Any]] = list(module.__dict__.items())
        for attribute, value in bound:
            yield module, attribute, value
            # Of its type, not isinstance(): that asks the value, and lazy objects answer by importing things.
            if issubclass(type(value), type) and id(value) not in seen:
                seen.add(id(value))
                heap_type = bool(value.__flags__ & 1 << 9)  # Py_TPFLAGS_HEAPTYPE: built-in ones cannot be changed
                if heap_type:
                    yield from ((value, name, held) for name, held in list(value.__dict__.items()))


def _find(spec: ProbeSpec) -> _Target:
    owner: Any
    owner, path = _import_prefix(spec.target)
    parts = spec.target.split(".")[len(path) :]
    for part in parts[:-1]:
        owner = _attribute(spec.target, owner, path, part)
        path = [*path, part]
    attribute = parts[-1]
    value = _attribute(spec.target, owner, path, attribute)
    stored, inherited = value, False
    if isinstance(owner, type):
        holder = next((base for base in owner.__mro__ if attribute in vars(base)), owner)
        stored = vars(holder).get(attribute, value)
        inherited = holder is not owner
    function = stored.__func__ if isinstance(stored, staticmethod | classmethod) else stored
    if isinstance(function, type):
        raise UsageError(f"probe {spec.target}: is a class; name a method of it, {spec.target}.__init__ for instance")
    if not callable(function):
        raise UsageError(f"probe {spec.target}: is a {type(function).__name__}, not a callable")
    return _Target(spec=spec, owner=owner, attribute=attribute, stored=stored, function=function, inherited=inherited)


def _import_prefix(target: str) -> tuple[ModuleType, list[str]]:
    """Import the longest prefix of `target` that is a module, short of its last part; return it and its path."""
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        name = ".".join(parts[:length])
        try:
            return importlib.import_module(name), parts[:length]
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if missing != name and not name.startswith(f"{missing}."):
                raise UsageError(f"probe {target}: importing {name} failed: {error}") from error
        except Exception as error:  # whatever a module raises while it is imported
            raise UsageError(f"probe {target}: importing {name} failed: {error!r}") from error
    known = {name.split(".")[0] for name in sys.modules} | set(sys.stdlib_module_names)
    near = closest(parts[0], known)
    raise UsageError(f"probe {target}: no module {parts[0]!r}.{near}")


def _attribute(target: str, owner: Any, path: list[str], name: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        where = ".".join(path)
        submodules = [m.removeprefix(f"{where}.") for m in sys.modules if m.startswith(f"{where}.")]
        near = closest(name, [*(n for n in dir(owner) if not n.startswith("__")), *submodules])
        near = near.replace("'", f"'{where}.", 1)
        raise UsageError(f"probe {target}: matches nothing: {where} has no {name!r}.{near}") from None
