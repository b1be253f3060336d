"""`stepduel clean`: cached source trees, and what killed runs left behind."""

from __future__ import annotations

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def clean(as_json: bool) -> None:
    """Remove cached source trees that nobody uses, and the processes and sockets of killed runs.

    Results, logs and traces stay, and so does everything that a running Stepduel needs.
    """
    from harness.cli.output import print_json, stdout_console
    from harness.launch.leftovers import remove_leftovers
    from harness.metrics import bytes_text
    from harness.subject import clean as clean_trees

    trees, left = clean_trees(), remove_leftovers()
    if as_json:
        document = {
            "trees": {"removed": trees.removed, "in_use": trees.in_use, "freed_bytes": trees.freed_bytes},
            "processes_ended": left.processes,
            "sockets_removed": left.sockets,
        }
        print_json({"schema": "stepduel/clean/1", **document})
        return
    in_use = f", {trees.in_use} in use" if trees.in_use else ""
    stdout_console().print(
        f"{trees.removed} source trees removed ({bytes_text(trees.freed_bytes)}{in_use}); "
        f"{left.processes} processes ended, {left.sockets} sockets removed",
        soft_wrap=True,
    )
