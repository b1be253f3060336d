"""The commits between two revisions, for people who read why a step got slower."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.subject.git import GitError, git

MOST_COMMITS: Final = 50


@dataclass(frozen=True, kw_only=True)
class Commit:
    """One commit: full hash and subject line. Who wrote it and when does not matter here."""

    revision: str
    subject: str


@dataclass(frozen=True, kw_only=True)
class CommitRange:
    """What head has and base lacks, newest first, at most `MOST_COMMITS` of `count`; `behind` counts the reverse."""

    commits: tuple[Commit, ...]
    count: int
    behind: int


def commits_between(folder: Path, base: str, head: str) -> CommitRange | None:
    """Return the commits of `base..head`, both full hashes; None where the repository does not hold them both."""
    if base.startswith("-") or head.startswith("-"):
        return None
    try:
        log = git(folder, "log", "--format=%H%x00%s%x00", f"--max-count={MOST_COMMITS}", f"{base}..{head}", "--")
        sides = git(folder, "rev-list", "--left-right", "--count", f"{base}...{head}", "--")
    except GitError:
        return None
    fields = os.fsdecode(log).split("\0")
    behind, count = map(int, sides.split())
    commits = tuple(
        Commit(revision=revision.strip(), subject=subject)
        for revision, subject in zip(fields[::2], fields[1::2], strict=False)
    )
    return CommitRange(commits=commits, count=count, behind=behind)
