"""From what a scenario asks for to the interpreter that both sides run under."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from harness.errors import UsageError
from harness.scenario import Scenario
from harness.subject.cache import SubjectCache
from harness.subject.environments import provide_environment
from harness.subject.interpreter import given_interpreter, own_interpreter
from harness.subject.model import Subject
from harness.subject.releases import is_release, provide_release
from harness.subject.resolve import Engine, resolve_subject


def prepare_engine(
    scenario: Scenario,
    names: Iterable[str | None],
    cache: SubjectCache,
    *,
    python: str | None = None,
    allow_mismatch: bool = False,
) -> Engine:
    """Return the engine of a scenario with the interpreter that the subjects `names` will run under.

    That is the one at `python`; else an environment with the scenario's requirements, made once; else the harness's
    own. Raises `UsageError`; releases are fetched first, since a mistyped one is found in a second and an environment
    takes minutes.
    """
    releases = [name for name in names if name is not None and is_release(name)]
    requirements = scenario.subject.requirements
    given = given_interpreter(python) if python is not None else None
    if given is None and releases and scenario.subject.environment:
        raise UsageError(
            "subject.environment is of git revisions: a release has no lock; name an interpreter by --python"
        )
    interpreter = given or (own_interpreter() if releases else None)
    if interpreter is not None:
        for name in releases:
            provide_release(cache, name, interpreter)
    if given is None and requirements:
        interpreter = provide_environment(cache, requirements)
    return Engine(
        factory=scenario.factory,
        settings=scenario.subject,
        interpreter=interpreter,
        allow_mismatch=allow_mismatch,
        given_python=given is not None,
    )


def prepare_subject(
    scenario: Scenario,
    name: str,
    repository: Path,
    cache: SubjectCache,
    *,
    python: str | None = None,
    allow_mismatch: bool = False,
) -> Subject:
    """Return the one subject called `name`, ready to run `scenario`; see `prepare_engine` and `resolve_subject`."""
    engine = prepare_engine(scenario, (name,), cache, python=python, allow_mismatch=allow_mismatch)
    return resolve_subject(name, engine, repository, cache)
