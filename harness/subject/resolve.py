"""What is measured: the code an engine is imported from, and how that code is told apart from other code.

A subject is `.`, a copy of the working tree with its uncommitted changes; a git revision, exported into the cache
(`trees`); a release (`releases`); or, where neither the folder nor its repository holds the engine, whatever is
installed. An engine may adapt something else, as one of ours does verl. Then that is looked for in the revision or the
release, and the adapter, the same on both sides, comes from the folder that the command is started in.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.errors import UsageError
from harness.scenario import SubjectSettings
from harness.subject.base import WORKING_TREE, default_base
from harness.subject.building import built_tree, run_build
from harness.subject.cache import SubjectCache
from harness.subject.checkout import Checkout, Ignored, copy_working_tree, ignored_files, top_folder
from harness.subject.git import commit_subject, line, resolve_commit
from harness.subject.interpreter import Interpreter
from harness.subject.locks import provide_locked
from harness.subject.model import Adapter, NoEngineError, Subject
from harness.subject.packages import bases, package_root
from harness.subject.releases import Release, contradictions, installed, is_release, provide_release
from harness.subject.trees import export_tree
from harness.subject.uncommitted import git_state, uncommitted
from harness.units import some_of


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What resolving needs to know of an engine.

    `factory` is `package.module:callable`. `interpreter` runs the ranks; None is the harness's own, or one that each
    side's lock asks for.
    """

    factory: str
    settings: SubjectSettings = field(default_factory=SubjectSettings)
    interpreter: Interpreter | None = None
    given_python: bool = False
    """Whether the user named the interpreter, which then holds whatever the scenario asks for."""
    allow_mismatch: bool = False
    adapter_folder: Path = field(default_factory=Path.cwd)
    """Where an adapter is looked for, before it is taken as installed."""

    @property
    def package(self) -> str | None:
        """What a revision must hold where the factory's module only adapts it; None where the engine is measured."""
        return self.settings.package

    @property
    def python(self) -> Path:
        """What the ranks run under."""
        return self.interpreter.python if self.interpreter else Path(sys.executable)

    @property
    def own_package(self) -> str:
        """The package of the factory."""
        return self.factory.partition(":")[0].partition(".")[0]

    @property
    def measured_package(self) -> str:
        """The package that code under measurement must hold."""
        return self.package or self.own_package


def resolve_subject(
    name: str, engine: Engine, folder: Path, cache: SubjectCache, *, overrides: Sequence[str] = ()
) -> Subject:
    """Return the subject `name`: `.`, a revision of the repository around `folder`, or a release.

    What was taken from the cache stays until it is closed. Raises `UsageError` for a name that is none of these and
    `NoEngineError` for code without the package.
    """
    if is_release(name):
        return replace(_of_release(name, engine, cache), overrides=tuple(overrides))
    if name == WORKING_TREE:
        found = working_tree(engine.measured_package, folder, within=engine.settings.root)
        if found.engine_root is None and engine.package is None:
            found = replace(found, engine_root=_installed_root(engine, cache))
        elif found.revision is not None:
            found = _copied(found, engine, folder, cache)
    else:
        found = _of_revision(name, engine, folder, cache)
    if found.interpreter is None:
        found = replace(found, python=engine.python, interpreter=engine.interpreter)
    found = replace(found, overrides=tuple(overrides))
    return found if engine.package is None else _adapted(found, engine, cache)


def default_names(base: str | None, head: str | None, folder: Path, *, one_code: bool) -> tuple[str, str]:
    """Return the names of both subjects. HEAD defaults to `.`, BASE to `default_base`.

    With neither name given and `one_code`, it is one code in two configurations: BASE is `.` too.
    """
    if base is None:
        base = WORKING_TREE if head is None and one_code else default_base(folder, head or WORKING_TREE)
    return base, head or WORKING_TREE


def working_tree(package: str, folder: Path, *, within: str | None = None, overrides: Sequence[str] = ()) -> Subject:
    """Return the code that `package`, or a factory in it, is imported from when the user stands in `folder`.

    `within` is `[subject] root`. See `packages` for where it is looked for.
    """
    package = package.partition(":")[0].partition(".")[0]
    root = package_root(package, bases(folder, within), top_folder(folder) if within is None else None)
    if root is None:
        return Subject(
            name="installed",
            engine_root=None,
            python=Path(sys.executable),
            revision=None,
            dirty=None,
            overrides=tuple(overrides),
        )
    revision, dirty = git_state(root)
    return Subject(
        name=WORKING_TREE,
        engine_root=root.resolve(),
        python=Path(sys.executable),
        revision=revision,
        dirty=dirty,
        commit_subject=commit_subject(root, revision) if revision else None,
        changes=uncommitted(root) if revision else None,
        overrides=tuple(overrides),
    )


def _copied(found: Subject, engine: Engine, folder: Path, cache: SubjectCache) -> Subject:
    """Return the working tree's subject in a copy of its files as they are now."""
    top, root = top_folder(folder), found.engine_root
    assert found.revision is not None
    if top is None or root is None or not root.is_relative_to(top):
        return found
    tree = cache.private()
    ignored = copy_working_tree(top, tree, ignored_files(top, engine.settings.shared))
    within = str(folder.resolve().relative_to(top))
    engine, members = _with_environment(engine, tree, within, WORKING_TREE, cache)
    if engine.settings.build is not None:
        run_build(cache, tree, found.identity(), engine.settings.build, engine.python)
    checkout = Checkout(tree=tree, top=top, commit=found.revision, within=within, ignored=ignored, members=members)
    return replace(
        found,
        engine_root=tree / root.relative_to(top),
        python=engine.python,
        interpreter=engine.interpreter,
        checkout=checkout,
        notes=(*found.notes, *_sharing_notes(ignored)),
    )


def _with_environment(
    engine: Engine, tree: Path, within: str, side: str, cache: SubjectCache
) -> tuple[Engine, tuple[str, ...]]:
    """Return the engine in the environment of the side's own lock, and the folders that this lock installs from."""
    if engine.settings.environment is None or engine.given_python:
        return engine, ()
    places = (*([tree / engine.settings.root] if engine.settings.root else []), tree / within, tree)
    folders = list(dict.fromkeys(place for place in places if place.is_dir()))
    locked = provide_locked(cache, tree, engine.settings.environment, engine.settings.uv_options, folders, side)
    return replace(engine, interpreter=locked.interpreter), locked.members


def _sharing_notes(ignored: Ignored) -> tuple[str, ...]:
    """Say what of the working tree's ignored files a side sees."""
    if not ignored.shared:
        return ()
    return (f"shares what git ignores with the working tree: {some_of(ignored.shared)}",)


def _of_revision(name: str, engine: Engine, folder: Path, cache: SubjectCache) -> Subject:
    commit = resolve_commit(folder, name)
    tree = export_tree(cache, folder, commit)
    # The user may stand in a subfolder that holds the engine; the same place is looked for in the export.
    prefix = line(folder, "rev-parse", "--show-prefix") or ""
    engine, members = _with_environment(engine, tree.folder, prefix or ".", name, cache)
    if engine.settings.build is not None:
        tree = replace(tree, folder=built_tree(cache, tree.folder, tree.key, engine.settings.build, engine.interpreter))
    package = engine.measured_package
    if engine.settings.root is not None:
        root = package_root(package, (tree.folder / engine.settings.root,))
    else:
        root = package_root(package, (tree.folder / prefix, tree.folder), tree.folder)
    if root is None:
        where = "the engine is younger, or lies elsewhere" if engine.package is None else "--repo names its checkout"
        raise NoEngineError(f"revision {name!r} ({commit[:12]}) has no package {package!r}: {where}")
    top = top_folder(folder)
    checkout, notes = None, tree.notes
    if top is not None:  # a bare repository has no working tree to share files of
        ignored = ignored_files(top, engine.settings.shared)
        checkout = Checkout(
            tree=tree.folder, top=top, commit=commit, within=prefix or ".", ignored=ignored, members=members
        )
        notes = (*notes, *_sharing_notes(ignored), *_lacking_code(checkout))
    return Subject(
        name=name,
        engine_root=root,
        python=engine.python,
        revision=commit,
        dirty=False,
        commit_subject=commit_subject(folder, commit),
        notes=notes,
        interpreter=engine.interpreter,
        checkout=checkout,
    )


def _lacking_code(checkout: Checkout) -> tuple[str, ...]:
    code = [name for name in checkout.ignored.code if Path(name).parts[0] not in ("build", "dist")]
    lacking = [name for name in code if Path(name).suffix in (".py", ".so") and not (checkout.tree / name).exists()]
    return (f"lacks what git ignores in the working tree: {some_of(lacking)}",) if lacking else ()


def _of_release(name: str, engine: Engine, cache: SubjectCache) -> Subject:
    interpreter = engine.interpreter
    assert interpreter is not None, "a release is resolved for an interpreter that was asked what it has"
    release = provide_release(cache, name, interpreter)
    if engine.package is not None and package_root(engine.package, (release.root,)) is None:
        raise UsageError(f"{name}: {release.file} has no package {engine.package!r}, which the scenario measures")
    found = Subject(
        name=name,
        engine_root=release.root,
        python=engine.python,
        revision=None,
        dirty=None,
        notes=_lacking(release, interpreter),
        release=release,
        interpreter=interpreter,
        mismatches=_mismatches(name, release, engine, interpreter),
    )
    # Either the release is the engine, or it is what the engine uses.
    return found if package_root(engine.own_package, (release.root,)) else _adapted(found, engine, cache)


def _lacking(release: Release, interpreter: Interpreter) -> tuple[str, ...]:
    absent = [name for name, version in installed(release.requires, interpreter).items() if version is None]
    return (f"the environment has no {', '.join(absent)}, which {release.distribution} asks for",) if absent else ()


def _mismatches(name: str, release: Release, engine: Engine, interpreter: Interpreter) -> tuple[str, ...]:
    found = contradictions(release.requires, interpreter)
    if found and not engine.allow_mismatch:
        raise UsageError(
            f"{name} contradicts the environment that both sides share: it would run with {', '.join(found)}: choose "
            "subject.requirements that suit both sides, or measure it all the same with --allow-mismatch"
        )
    return found


def _adapted(found: Subject, engine: Engine, cache: SubjectCache) -> Subject:
    """Put what was found before the adapter on the path. The adapter is that of the command's folder, or installed."""
    if found.engine_root is None:
        has = engine.interpreter is not None and engine.interpreter.versions.get(str(engine.package))
        if not has:
            raise UsageError(
                f"no package {engine.package!r} here: name a release, as in release:{engine.package}==VERSION, or "
                "its checkout with --repo"
            )
    adapter = working_tree(engine.own_package, engine.adapter_folder)
    root = adapter.engine_root or _installed_root(engine, cache)
    return replace(
        found,
        measured_root=found.engine_root,
        package=None if found.release else engine.package,
        engine_root=root,
        adapter=Adapter(revision=adapter.revision, changes=adapter.changes),
    )


def _installed_root(engine: Engine, cache: SubjectCache) -> Path | None:
    """A folder with the adapter that is installed beside the harness, for ranks under another Python; else None.

    It holds a link to that package alone: whatever else is installed beside it belongs to the harness's Python.
    """
    spec = None if engine.python == Path(sys.executable) else importlib.util.find_spec(engine.own_package)
    if spec is None or not spec.origin:
        return None
    place = Path(spec.origin)
    return cache.link(place.parent if spec.submodule_search_locations else place)
