"""The place of revisions in a repository's history, for whoever shows results by commit."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from harness.subject.git import GitError, git

_HASH = re.compile(r"[0-9a-f]{40,64}")


def commit_order(folder: Path, revisions: Iterable[str]) -> dict[str, int]:
    """Return the place of each revision (a full hash) that the repository around `folder` holds: parents come first.

    Empty without a repository. Revisions that it does not hold, or that are no hash, are left out.
    """
    wanted = sorted({revision for revision in revisions if _HASH.fullmatch(revision)})
    if not wanted:
        return {}
    try:
        listed = git(folder, "rev-list", "--topo-order", "--reverse", "--ignore-missing", *wanted)
    except GitError:
        return {}
    known = set(wanted)
    return {name: place for place, name in enumerate(os.fsdecode(listed).split()) if name in known}
