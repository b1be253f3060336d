"""Stepduel's harness. Importing it costs nothing: each command imports what it needs.

The worker loads this package inside the engine's own environment, so nothing here may import beyond the standard
library. `load_trace`, `load_run` and `load_duel` are those of `harness.frames`, imported when they are used;
`__init__.pyi` has their types.
"""

import importlib

__version__ = "0.2.0"

_FRAMES = ("DuelFrames", "RunFrames", "TraceFrames", "load_duel", "load_run", "load_trace")


def __getattr__(name: str) -> object:
    if name not in _FRAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("harness.frames"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FRAMES])
