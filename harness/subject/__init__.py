"""Subjects: the code being measured, and the interpreter it runs under.

`prepare` chooses the interpreter, `resolve` finds the code, `trees`, `releases`, `environments` and `locks` keep what
had to be made for that in the `cache`; `live` is the folder that a launch runs in.
"""

from __future__ import annotations

from harness.subject.base import WORKING_TREE, default_base, is_ancestor
from harness.subject.cache import Cleaned, SubjectCache, cache_folder, clean
from harness.subject.checkout import Checkout
from harness.subject.git import commit_subject, resolve_commit
from harness.subject.interpreter import own_interpreter
from harness.subject.live import LiveFolder
from harness.subject.missing import missing_hint, rename_hint
from harness.subject.model import Home, NoEngineError, Subject
from harness.subject.prepare import prepare_engine, prepare_subject
from harness.subject.resolve import (
    Engine,
    default_names,
    resolve_subject,
    working_tree,
)
from harness.subject.uncommitted import git_state, uncommitted

__all__ = [
    "WORKING_TREE",
    "Checkout",
    "Cleaned",
    "Engine",
    "Home",
    "LiveFolder",
    "NoEngineError",
    "Subject",
    "SubjectCache",
    "cache_folder",
    "clean",
    "commit_subject",
    "default_base",
    "default_names",
    "git_state",
    "is_ancestor",
    "missing_hint",
    "own_interpreter",
    "prepare_engine",
    "prepare_subject",
    "rename_hint",
    "resolve_commit",
    "resolve_subject",
    "uncommitted",
    "working_tree",
]
