"""What to do about a side that cannot run: files that it lacks and the working tree has, names that it has not yet."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

from harness.subject.checkout import Checkout

_MISSING: Final = (
    re.compile(r"No module named '(?P<module>[\w.]+)'"),
    re.compile(r"cannot import name '(?P<name>\w+)' from (?:partially initialized module )?'(?P<module>[\w.]+)'"),
)


_NO_FACTORY: Final = re.compile(r"^factory '(?P<module>[\w.]+):[\w.]+': (?:[\w.]+ has no|importing [\w.]+ failed)")
_NO_KEY: Final = re.compile(r"^engine: unknown key '(?P<key>\w+)'")


def rename_hint(message: str, side: str, revision: str) -> str | None:
    """Return how to give `side` alone the name that its revision has; None where the failure is another one."""
    if (found := _NO_FACTORY.search(message)) is not None:
        return f"if {revision} has another name for it: --{side}-set engine.factory={found['module']}:NAME"
    if (found := _NO_KEY.search(message)) is not None:
        return f"--{side}-set engine.{found['key']}= leaves that out of {revision}, --{side}-set engine.NAME=VALUE adds"
    return None


def missing_hint(message: str, checkout: Checkout | None) -> str | None:
    """Return which ignored file the failed import in `message` means, and what to do; None if none."""
    if checkout is None:
        return None
    for pattern in _MISSING:
        for found in pattern.finditer(message):
            module = ".".join(part for part in (found["module"], found.groupdict().get("name")) if part)
            for file in checkout.ignored.code:
                if _is_module(file, module) and not (checkout.tree / file).exists():
                    return (
                        f"{file} is in the working tree but git ignores it, so a revision lacks it: give "
                        "[subject] build the command that makes it"
                    )
    return None


def _is_module(file: str, module: str) -> bool:
    """Whether the file, below any folder, is the module: `src/pkg/_c.cpython-311-x86_64-linux-gnu.so` is `pkg._c`."""
    parts = [*PurePosixPath(file).parts[:-1], PurePosixPath(file).name.partition(".")[0]]
    wanted = module.split(".")
    return parts[-len(wanted) :] == wanted or parts[-len(wanted) - 1 :] == [*wanted, "__init__"]
