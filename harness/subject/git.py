"""Git as this project uses it: read only, whatever the user's configuration, environment and revision strings hold.

Every call names its repository, takes no optional lock, asks no questions on the terminal and runs no hook. Variables
such as GIT_DIR and GIT_INDEX_FILE, which git sets in its own hooks, are dropped, or they would redirect us.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.errors import UsageError

TIMEOUT_S = 30
EXPORT_TIMEOUT_S = 600
_QUIET = (
    *("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false"),
    *("-c", "diff.autoRefreshIndex=false"),  # `git diff` writes the index in spite of --no-optional-locks
)
LOCAL_VARIABLES = {
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIFF_OPTS",
    "GIT_DIR",
    "GIT_EXTERNAL_DIFF",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_INTERNAL_SUPER_PREFIX",
    "GIT_LITERAL_PATHSPECS",
    "GIT_NAMESPACE",
    "GIT_NO_REPLACE_OBJECTS",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
}
"""Of what `git rev-parse --local-env-vars` lists: all but configuration, which may hold a needed safe.directory."""


class GitError(Exception):
    """Git is missing, took too long or failed; the text is its last line of complaint."""


def git(
    folder: Path,
    *arguments: str,
    timeout_s: float = TIMEOUT_S,
    extra: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
) -> bytes:
    """Return what `git -C folder arguments` prints. `extra` adds to the environment. Raises `GitError`.

    `inherited` are descriptors that stay open until git and whatever it started are gone.
    """
    command = ["git", "--no-optional-locks", "--no-pager", *_QUIET, "-C", str(folder), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in LOCAL_VARIABLES}
    # A pointer of Git LFS stays a pointer: content is not fetched from a network, nor put into the user's repository.
    environment |= {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1", **(extra or {})}
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
            check=False,
            env=environment,
            pass_fds=inherited,
        )
    except FileNotFoundError as error:
        raise GitError("git is not installed") from error
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise GitError(str(error)) from error
    if done.returncode != 0:
        complaint = done.stderr.decode(errors="replace").strip().splitlines()
        raise GitError(complaint[-1] if complaint else f"git {arguments[0]} ended with {done.returncode}")
    return done.stdout


def line(folder: Path, *arguments: str) -> str | None:
    """Return git's answer as one stripped string; None when git fails or is absent."""
    try:
        return os.fsdecode(git(folder, *arguments)).strip()
    except GitError:
        return None


def resolve_commit(folder: Path, revision: str) -> str:
    """Return the full hash of the commit that git understands by `revision`, `HEAD^{/engine: skip}` or `:/skip` too.

    A revision that begins with a dash is refused: git would read it as an option. Raises `UsageError`.
    """
    if line(folder, "rev-parse", "--git-dir") is None:
        raise UsageError(f"{folder}: no git repository to take revision {revision!r} from, or git is not installed")
    if not revision.strip() or revision.startswith("-") or "\0" in revision or "\n" in revision:
        raise UsageError(f"{revision!r}: expected a git revision, such as HEAD~1, a branch or a hash")
    found = line(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", revision)
    # Peeled in a second call: appended to `:/text` the suffix would become part of the text.
    commit = line(folder, "rev-parse", "--verify", "--quiet", f"{found}^{{commit}}") if found else None
    if commit is None:
        shallow = line(folder, "rev-parse", "--is-shallow-repository") == "true"
        hint = "this clone is shallow: git fetch --unshallow" if shallow else "see git log --oneline"
        if "==" in revision:
            hint = f"for a release of a distribution write release:{revision.rpartition(':')[2]}"
        raise UsageError(f"revision {revision!r} names no commit of {folder}: {hint}")
    return commit


def commit_subject(folder: Path, commit: str) -> str | None:
    """Return the first line of a commit's message; `commit` is a full hash."""
    return line(folder, "log", "-1", "--format=%s", commit, "--")
