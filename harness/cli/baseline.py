"""`stepduel baseline`: the pinned revision that slow creep is held against."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import json_option, repo_option, reports_option


@click.group()
def baseline() -> None:
    """Pin a revision of a scenario, for the creep that commit-to-commit gates miss.

    The gate duels against it where the policy sets max_creep; stepduel history shows what has been lost since.
    """


@baseline.command("set")
@click.argument("scenario")
@click.argument("revision", default="HEAD")
@repo_option("Repository that holds the revision")
@reports_option()
def set_(scenario: str, revision: str, repo: Path, reports: Path) -> None:
    """Pin REVISION (HEAD unless given) for SCENARIO, instead of what it had."""
    from datetime import UTC, datetime

    from harness.cli.output import clean, stdout_console
    from harness.scenario import load_scenario
    from harness.store import RESULTS, BaselineRecord, Baselines, Store, check_writable
    from harness.subject import resolve_commit

    name, commit = load_scenario(scenario).name, resolve_commit(repo, revision)
    check_writable(reports / RESULTS)
    with Store(reports / RESULTS) as store:
        pinned_at = datetime.now(UTC).isoformat(timespec="seconds")
        Baselines(store).pin(BaselineRecord(scenario=name, revision=commit, pinned_at=pinned_at))
    stdout_console().print(f"{clean(name)}: pinned {commit[:12]}", soft_wrap=True)


@baseline.command()
@click.argument("scenario", required=False)
@reports_option()
@json_option
def show(scenario: str | None, reports: Path, as_json: bool) -> None:
    """Show the pinned revision of SCENARIO, or of every scenario that has one."""
    from harness.cli.output import clean, print_json, stdout_console
    from harness.store import Baselines, open_results

    with open_results(reports) as store:
        found = [item for item in Baselines(store).all() if scenario in (None, item.scenario)]
    if as_json:
        print_json({"schema": "stepduel/baseline/1", "baselines": found})
        return
    for item in found:
        line = f"{clean(item.scenario)}: {item.revision[:12]}, pinned {item.pinned_at}"
        stdout_console().print(line, soft_wrap=True)
    if not found:
        stdout_console().print("no baseline is pinned; stepduel baseline set SCENARIO [REVISION]", soft_wrap=True)


@baseline.command()
@click.argument("scenario")
@reports_option()
def clear(scenario: str, reports: Path) -> None:
    """Forget the pinned revision of SCENARIO."""
    from harness.cli.output import clean, stdout_console
    from harness.errors import UsageError, closest
    from harness.store import Baselines, open_results

    with open_results(reports) as store:
        baselines = Baselines(store)
        if not baselines.unpin(scenario):
            hint = closest(scenario, [item.scenario for item in baselines.all()])
            raise UsageError(f"{scenario!r} has no pinned baseline.{hint}")
    stdout_console().print(f"{clean(scenario)}: baseline cleared", soft_wrap=True)
