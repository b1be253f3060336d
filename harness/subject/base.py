"""Which commit code is held against when nobody names one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.subject.git import line, resolve_commit

WORKING_TREE: Final = "."
_MAINS: Final = (
    "refs/remotes/origin/HEAD",
    "refs/remotes/origin/main",
    "refs/remotes/origin/master",
    "refs/heads/main",
    "refs/heads/master",
)


def default_base(folder: Path, head: str = WORKING_TREE) -> str:
    """Return BASE of `head`, a revision or the working tree: the commit at which its branch left the main branch.

    The main branch is the first there is of `_MAINS`. On it, that commit would be `head` itself. Then it is HEAD for a
    working tree with changes, and otherwise the parent (of a merge, the one that was merged into). A file that git does
    not track is no change: a build leaves such files, and nothing that is tracked imports them. Raises `UsageError`.
    """
    commit = resolve_commit(folder, "HEAD" if head == WORKING_TREE else head)
    main = next((name for name in _MAINS if line(folder, "rev-parse", "--verify", "--quiet", name)), None)
    if main is None:
        raise UsageError("no main branch found (origin/HEAD, main or master): name BASE")
    common = line(folder, "merge-base", main, commit)
    if common is None:
        raise UsageError(f"HEAD and {main} share no commit (a shallow clone?): name BASE, or git fetch --unshallow")
    if common != commit:
        return common
    if head == WORKING_TREE and line(folder, "status", "--porcelain", "--untracked-files=no"):
        return common
    parent = line(folder, "rev-parse", "--verify", "--quiet", f"{commit}~1")
    if parent is not None:
        return parent
    if line(folder, "rev-parse", "--is-shallow-repository") == "true":
        raise UsageError(
            f"this clone is shallow and lacks the parent of {commit[:12]}, which is BASE here: git fetch --deepen 1, "
            "or fetch-depth: 2 of actions/checkout"
        )
    raise UsageError("HEAD is the only commit and nothing is uncommitted: there is no BASE to compare with")


def is_ancestor(folder: Path, base: str, head: str) -> bool:
    """Whether `head`, a revision or the working tree, was made on top of `base`."""
    commit = "HEAD" if head == WORKING_TREE else head
    return line(folder, "merge-base", "--is-ancestor", base, commit) is not None
