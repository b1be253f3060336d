"""Subjects: the code being measured. `resolve` finds it, `trees` keeps exported revisions, `git` asks git safely."""

from __future__ import annotations

from harness.subject.git import merge_base, resolve_commit
from harness.subject.resolve import (
    WORKING_TREE,
    NoEngineError,
    Subject,
    default_names,
    git_state,
    resolve_pair,
    resolve_subject,
    uncommitted,
    working_tree,
)
from harness.subject.trees import Cleaned, Tree, TreeCache, cache_folder, clean

__all__ = [
    "WORKING_TREE",
    "Cleaned",
    "NoEngineError",
    "Subject",
    "Tree",
    "TreeCache",
    "cache_folder",
    "clean",
    "default_names",
    "git_state",
    "merge_base",
    "resolve_commit",
    "resolve_pair",
    "resolve_subject",
    "uncommitted",
    "working_tree",
]
