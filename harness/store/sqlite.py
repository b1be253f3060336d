"""sqlite-utils without pandas.

It imports pandas where that is installed, only to know a type that is never stored here. Every command that opens the
database would wait 0.3 s for it.
"""

from __future__ import annotations

import sys

_HIDDEN = "pandas"

if _HIDDEN in sys.modules:
    from sqlite_utils import Database, Migrations
else:
    sys.modules[_HIDDEN] = None  # type: ignore[assignment]  # how Python marks a module that cannot be imported
    try:
        from sqlite_utils import Database, Migrations
    finally:
        del sys.modules[_HIDDEN]

__all__ = ["Database", "Migrations"]
