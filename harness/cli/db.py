"""`stepduel db`: brings results databases together and keeps them small."""

from __future__ import annotations

from pathlib import Path

import click

from harness.cli.options import json_option, reports_option


@click.group()
def db() -> None:
    """Bring results databases together, or keep one small."""


@db.command()
@click.argument("sources", nargs=-1, required=True, type=click.Path(path_type=Path, dir_okay=False))
@reports_option()
@json_option
def merge(sources: tuple[Path, ...], reports: Path, as_json: bool) -> None:
    """Add the results of other databases, of several CI runners for example, to the one in --reports.

    What is there already is left alone, so merging twice adds nothing. Traces and logs are not copied.
    """
    from dataclasses import asdict

    from harness.cli.output import clean, print_json, stdout_console
    from harness.store import RESULTS, Store, check_writable
    from harness.store.merging import merge as merge_into

    check_writable(reports / RESULTS)
    with Store(reports / RESULTS) as store:
        added = {source: merge_into(store, source) for source in sources}
    if as_json:
        merged = [{"source": str(source), **asdict(one)} for source, one in added.items()]
        print_json({"schema": "stepduel/db-merge/1", "merged": merged})
        return
    for source, one in added.items():
        line = (
            f"{source}: {one.runs} runs, {one.duels} duels, {one.pairs} launch pairs, {one.baselines} baselines added"
        )
        stdout_console().print(clean(line), soft_wrap=True)


@db.command()
@click.option("--keep", type=click.IntRange(min=0), required=True, metavar="N", help="Newest runs and duels to keep.")
@click.option("--older-than", metavar="DAYS", type=click.IntRange(min=0), help="Remove only what is older than this.")
@click.option("--files", is_flag=True, help="Remove their traces and logs in the reports folder too.")
@reports_option()
@json_option
def prune(keep: int, older_than: int | None, files: bool, reports: Path, as_json: bool) -> None:
    """Remove all but the newest N runs of each scenario, and the newest N duels of each scenario and kind.

    What measured a pinned baseline stays.
    """
    from datetime import UTC, datetime, timedelta

    from harness.cli.output import print_json, stdout_console
    from harness.cli.stored import remove_files
    from harness.store import open_results
    from harness.store.pruning import prune as prune_store
    from harness.units import bytes_text

    before = None if older_than is None else datetime.now(UTC) - timedelta(days=older_than)
    with open_results(reports) as store:
        pruned = prune_store(store, keep=keep, before=before)
    freed_bytes = pruned.freed_bytes + (remove_files(reports, pruned.files) if files else 0)
    if as_json:
        ids = {"runs": list(pruned.runs), "duels": list(pruned.duels)}
        print_json({"schema": "stepduel/db-prune/1", **ids, "freed_bytes": freed_bytes})
        return
    stdout_console().print(
        f"{len(pruned.runs)} runs and {len(pruned.duels)} duels removed, {bytes_text(freed_bytes)} freed",
        soft_wrap=True,
    )
