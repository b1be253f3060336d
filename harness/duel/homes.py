"""Where both sides of a duel live, launch pair after launch pair, and what their ranks loaded there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.duel.launches import launch_request
from harness.duel.loaded import Finding, SideFiles, differing, edited, identical, mixed, read_loaded
from harness.duel.plan import DuelPlan, DuelSide
from harness.errors import LaunchError, UsageError
from harness.launch import LaunchRequest, Pace
from harness.store import SIDES, SideName
from harness.subject import LiveFolder, Subject, SubjectCache, missing_hint, rename_hint


@dataclass(kw_only=True)
class Homes:
    """Use it in a `with` statement: the folders are removed at the end."""

    plan: DuelPlan
    loaded: dict[SideName, SideFiles] = field(default_factory=dict)
    """By the launches of the newest pair."""
    differing: frozenset[str] | None = None
    """Files that differ between the trees of both sides; None where a side has none."""
    _folders: dict[SideName, LiveFolder] = field(default_factory=dict)
    _subjects: dict[SideName, Subject] = field(default_factory=dict)
    _elsewhere: dict[str, Any] = field(default_factory=dict)
    _open: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Homes:
        place = self._open.enter_context(SubjectCache()).private()
        subjects = {name: side.subject for name, side in self.plan.sides.items()}
        self._folders = {name: LiveFolder(subject=subject, folder=place / name) for name, subject in subjects.items()}
        self.differing = differing(subjects)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def request(
        self, name: SideName, side: DuelSide, launch_dir: Path, pace: Pace, env: Mapping[str, str]
    ) -> LaunchRequest:
        """Return the launch of a side in a new copy of its files; what its last launch wrote there is gone."""
        self._subjects[name] = self._folders[name].fresh()
        return launch_request(replace(side, subject=self._subjects[name]), launch_dir, pace, env)

    def hints(self, errors: Mapping[SideName, Exception]) -> list[str]:
        """Return what to do about sides that cannot run."""
        found = [missing_hint(str(error), self._subjects[side].checkout) for side, error in errors.items()]
        found += [rename_hint(str(error), side, self._subjects[side].name) for side, error in errors.items()]
        return [hint for hint in found if hint is not None]

    def look(self, requests: Mapping[SideName, LaunchRequest]) -> None:
        """Read what the ended launches of a pair loaded. Raises if something that both sides share was changed."""
        for name in SIDES:
            request = requests[name]
            found = read_loaded(request.plan.launch_dir, request.ranks, self._subjects[name])
            changed = edited(self._elsewhere, found.elsewhere)
            if changed is not None:
                raise UsageError(
                    f"{name}: {changed} was edited while it was being measured; commit it and compare revisions"
                )
            self._elsewhere.update(found.elsewhere)
            self.loaded[name] = found
        for name in SIDES:
            if written := self._folders[name].written_to():
                raise LaunchError(
                    f"{written[0]}, which both sides share with the working tree, was changed while they ran: have the "
                    "engine write elsewhere, or move the file out of the repository"
                )

    def finding(self, *, parted: bool) -> Finding | None:
        """Return why the comparison ends with what was loaded; `parted` sides are not called identical."""
        plan = self.plan
        found = mixed(self._subjects, self.loaded, built=plan.scenario.subject.build is not None)
        if found is None and self.differing is not None and plan.kind == "compare" and not parted:
            found = identical(self.loaded, self.differing, self._subjects)
        return found

    def document(self, name: SideName) -> dict[str, Any]:
        """Return what is stored of a side's files."""
        files, checkout = self.loaded[name], self._subjects[name].checkout
        return {
            "files": len(files.own),
            "differing": sorted(files.own & (self.differing or frozenset())),
            "shared": [] if checkout is None else list(checkout.ignored.shared),
            "started": list(files.started),
        }
