"""The folder that the launches of one side run in, made anew for each of them and removed at the end.

What a launch writes (checkpoints, logs, caches beside the sources) neither meets the other side nor the next launch,
nor the user's folder. Compiled Python files and what just-in-time compilers keep stay from launch to launch, as the
tree is the same; each side has its own.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from harness.subject.cache import remove
from harness.subject.checkout import Checkout, copy_tree
from harness.subject.git import GitError, git, line
from harness.subject.model import Home, Subject

_JIT: Final[Mapping[str, str]] = {
    "TORCH_EXTENSIONS_DIR": "torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TRITON_CACHE_DIR": "triton",
    "NUMBA_CACHE_DIR": "numba",
}
"""Variables that say where just-in-time compilers keep their results: by name or source path, one folder a user."""
_COMPILED: Final = "__pycache__"


@dataclass(kw_only=True)
class LiveFolder:
    """Where `subject` lives. One without a checkout (a release, an installed engine) lives where it lies."""

    subject: Subject
    folder: Path
    """Its own; it need not exist yet."""
    _shared: dict[str, tuple[int, int]] = field(default_factory=dict)

    def fresh(self) -> Subject:
        """Return the subject in a new copy of its files, without what an earlier launch left."""
        checkout = self.subject.checkout
        if checkout is None:
            return self.subject
        root, compiled = self.folder / "tree", self.folder / "compiled"
        self._clear(root, compiled)
        copy_tree(checkout.tree, root)
        _share(checkout, root)
        if not (self.folder / "git").exists():
            _make_repository(checkout, self.folder / "git")
        copy_tree(self.folder / "git", root / ".git")
        _bring_back(compiled, root)
        self._shared = _states(checkout)
        stands = root / checkout.within
        home = Home(
            root=root,
            cwd=None if self.subject.adapter else stands if stands.is_dir() else root,
            top=checkout.top,
            env=self._environment(checkout, root),
        )
        engine, measured = (
            None if place is None else checkout.moved(place, root)
            for place in (self.subject.engine_root, self.subject.measured_root)
        )
        return replace(self.subject, home=home, engine_root=engine, measured_root=measured)

    def _environment(self, checkout: Checkout, root: Path) -> dict[str, str]:
        found = {name: str(self.folder / "jit" / place) for name, place in _JIT.items()}
        if checkout.members:
            given = os.environ.get("PYTHONPATH")
            found["PYTHONPATH"] = os.pathsep.join(
                (*(str(root / one) for one in checkout.members), *([given] if given else []))
            )
        return found

    def written_to(self) -> list[str]:
        """Return the shared files that are not what they were when `fresh` was called."""
        checkout = self.subject.checkout
        now = {} if checkout is None else _states(checkout)
        return [name for name, state in self._shared.items() if now.get(name) != state]

    def _clear(self, root: Path, compiled: Path) -> None:
        if root.exists():
            if compiled.exists():
                remove(compiled)
            _keep_compiled(root, compiled)
            remove(root)
        root.parent.mkdir(parents=True, exist_ok=True)


def _share(checkout: Checkout, root: Path) -> None:
    """Put ignored data of the working tree beside the tree's own files, which come first."""
    for names, put in ((checkout.ignored.copied, _copy_file), (checkout.ignored.linked, _link)):
        for name in names:
            target = root / name
            if not os.path.lexists(target) and not _under_a_file(target, root):
                target.parent.mkdir(parents=True, exist_ok=True)
                with contextlib.suppress(FileNotFoundError):  # gone since the command started, as a log may be
                    put(checkout.top / name, target)


def _under_a_file(target: Path, root: Path) -> bool:
    """Whether what is a folder in the working tree is none here."""
    return any(os.path.lexists(folder) and not folder.is_dir() for folder in target.parents if folder != root)


def _copy_file(source: Path, target: Path) -> None:
    shutil.copy2(source, target)


def _link(source: Path, target: Path) -> None:
    target.symlink_to(source)


def _states(checkout: Checkout) -> dict[str, tuple[int, int]]:
    """Size and time of modification of each linked file; a linked folder is not looked into."""
    states = {}
    for name in checkout.ignored.linked:
        path = checkout.top / name
        if path.is_file():
            about = path.stat()
            states[name] = about.st_size, about.st_mtime_ns
    return states


def _keep_compiled(root: Path, kept: Path) -> None:
    for found in _compiled_folders(root):
        place = kept / found.relative_to(root)
        place.parent.mkdir(parents=True, exist_ok=True)
        found.rename(place)


def _bring_back(kept: Path, root: Path) -> None:
    for found in _compiled_folders(kept):
        place = root / found.relative_to(kept)
        if place.parent.is_dir() and not place.exists():
            found.rename(place)


def _compiled_folders(root: Path) -> Iterator[Path]:
    for folder, folders, _ in os.walk(root):
        if _COMPILED in folders:
            folders.remove(_COMPILED)
            yield Path(folder, _COMPILED)


def _make_repository(checkout: Checkout, git_dir: Path) -> None:
    """Make the `.git` of a side: its commit checked out, with the tags and branches of the user's repository.

    For code that asks git who it is. It borrows the repository's objects and writes into none of its files.
    """
    top = checkout.top
    objects = Path(os.fsdecode(git(top, "rev-parse", "--path-format=absolute", "--git-path", "objects")).strip())
    hashes = line(top, "rev-parse", "--show-object-format") or "sha1"
    git(git_dir.parent, "init", "--quiet", "--bare", "--template=", f"--object-format={hashes}", str(git_dir))
    (git_dir / "objects" / "info").mkdir(parents=True, exist_ok=True)
    (git_dir / "objects" / "info" / "alternates").write_text(f"{objects}\n", encoding="utf-8")
    shallow = line(top, "rev-parse", "--path-format=absolute", "--git-path", "shallow")
    if shallow is not None and Path(shallow).is_file():
        shutil.copyfile(shallow, git_dir / "shallow")
    refs = git(top, "for-each-ref", "--format=%(objectname) %(refname)", "refs/tags", "refs/heads", "refs/remotes")
    (git_dir / "packed-refs").write_bytes(refs)
    (git_dir / "HEAD").write_text(f"{checkout.commit}\n", encoding="utf-8")
    where = f"--git-dir={git_dir}"
    git(git_dir, where, "config", "core.bare", "false")
    url = line(top, "config", "--get", "remote.origin.url")
    if url:
        git(git_dir, where, "config", "remote.origin.url", url)
    try:
        git(git_dir, where, f"--work-tree={git_dir.parent}", "read-tree", "HEAD")
    except GitError:  # a partial clone without its trees: git can still tell the commit
        (git_dir / "index").unlink(missing_ok=True)
