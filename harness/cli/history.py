"""`stepduel history`: a scenario over time, as a table or a page."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import html_option, json_option, repo_option, reports_option


@click.command()
@click.argument("scenario")
@reports_option()
@repo_option("Repository to ask for the order of commits")
@html_option
@json_option
def history(scenario: str, reports: Path, repo: Path, html: Path | None, as_json: bool) -> None:
    """Show every stored run and duel of SCENARIO by commit: its trend, where its level changed, what is odd.

    What is not comparable is kept apart: other machines, collectors, versions of Stepduel or of the scenario.
    """
    from harness.cli.history_table import print_history
    from harness.cli.output import print_json
    from harness.errors import UsageError, closest
    from harness.history import scenario_history
    from harness.history.document import document
    from harness.history.page import render_history
    from harness.report import write_report
    from harness.store import Baselines, open_results
    from harness.store.timeline import History
    from harness.subject.order import commit_order

    with open_results(reports) as store:
        stored = History(store)
        measured = stored.measured(scenario)
        if not measured:
            known = stored.scenarios()
            hint = closest(scenario, known) or (f" There is {', '.join(known)}." if known else "")
            raise UsageError(f"{store.path}: nothing is stored of {scenario!r}.{hint} stepduel bench {scenario}")
        pinned = Baselines(store).of(scenario)
    found = scenario_history(
        scenario,
        measured,
        order=commit_order(repo, [record.revision for record in measured if record.revision]),
        baseline=None if pinned is None else pinned.revision,
    )
    if html is not None:
        write_report(html, render_history(found))
    if as_json:
        print_json(document(found))
    else:
        print_history(found)
