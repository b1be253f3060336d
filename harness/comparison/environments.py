"""What both sides of a duel have installed in other versions: a difference of code is not all that was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_FIRST: Final = ("python", "torch")


@dataclass(frozen=True, kw_only=True)
class VersionChange:
    """One distribution, or Python itself. A version is None where a side has none."""

    name: str
    base: str | None
    head: str | None

    @property
    def text(self) -> str:
        """The same for people."""
        return f"{self.name} {self.base or 'absent'} → {self.head or 'absent'}"


def version_changes(base: Mapping[str, str], head: Mapping[str, str]) -> tuple[VersionChange, ...]:
    """Return what differs, Python and torch first, then by name."""
    names = sorted({*base, *head}, key=lambda name: (name not in _FIRST, name))
    return tuple(
        VersionChange(name=name, base=base.get(name), head=head.get(name))
        for name in names
        if base.get(name) != head.get(name)
    )
