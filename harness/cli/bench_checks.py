"""What `bench` checks around a launch: that its engine can be found at all, and that nothing else disturbs it."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from harness.cli.output import clean
from harness.errors import UsageError


def check_installed(factory: str, repo: Path) -> None:
    """Raise UsageError, naming the folders that were searched, where the factory's package is not installed either."""
    from harness.subject.packages import searched_folders

    package = factory.partition(":")[0].partition(".")[0]
    if package in sys.modules or importlib.util.find_spec(package) is not None:
        return
    searched = ", ".join(map(str, searched_folders(repo)))
    raise UsageError(
        f"engine.factory = {factory!r}: no package {package!r} in {searched}, and none is installed for "
        f"{sys.executable}: start in the folder that holds it, or name that with --repo"
    )


@contextmanager
def warning_of_disturbance() -> Iterator[None]:
    """Say on stderr, before the launch and after it, if something else takes the processors."""
    from harness.conditions import between, snapshot
    from harness.doctor import Remark, disturbances, steal

    def warn(remark: Remark) -> None:
        click.echo(f"stepduel: warning: {clean(remark.seen)}: {remark.advice}", err=True)

    found = disturbances()
    for remark in found:
        warn(remark)
    before = snapshot()
    yield
    stolen = steal(between(before, snapshot()))
    if stolen.level == "warning" and all(remark.topic != stolen.topic for remark in found):
        warn(stolen)
