"""What every command that launches a subject says on stderr about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from harness.subject import Subject, SubjectCache


@contextmanager
def subject_cache() -> Iterator[SubjectCache]:
    """Give the cache of subjects, which says on stderr what takes time."""
    from harness.cli.output import clean, stderr_console
    from harness.subject import SubjectCache

    def announce(text: str) -> None:
        stderr_console().print(Text(clean(text), style="dim"), soft_wrap=True)

    with SubjectCache(announce=announce) as cache:
        yield cache


def tell_of_subjects(*subjects: Subject) -> None:
    """Say on stderr what subjects lack or share, and which run with what they did not ask for."""
    from harness.cli.output import clean, stderr_console

    by_note: dict[str, list[str]] = {}
    for one in subjects:
        for note in one.notes:
            by_note.setdefault(note, []).append(one.name)
    told = [(f"note: {' and '.join(dict.fromkeys(names))}: {note}", "dim") for note, names in by_note.items()]
    told += [(f"warning: {caveat}", "yellow") for one in subjects for caveat in one.caveats]
    told += [
        (f"warning: {one.name} runs with {', '.join(one.mismatches)}", "yellow") for one in subjects if one.mismatches
    ]
    for text, style in dict.fromkeys(told):
        stderr_console().print(Text(clean(text), style=style), soft_wrap=True)
