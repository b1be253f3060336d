"""`stepduel clean`: cached code and environments, and what killed runs left behind."""

from __future__ import annotations

from typing import Final

import click

from harness.cli.options import json_option

_NAMES: Final = {"trees": "source trees", "releases": "releases", "environments": "environments"}
"""What people call the kinds of cache entries. Folders of running duels are ours alone."""


@click.command()
@json_option
def clean(as_json: bool) -> None:
    """Remove cached source trees, releases and environments that nobody uses, and what killed runs left.

    Results, logs and traces stay, and so does everything that a running Stepduel needs.
    """
    from harness.cli.output import print_json, stdout_console
    from harness.launch.leftovers import remove_leftovers
    from harness.subject import clean as clean_cache
    from harness.units import bytes_text

    cached, left = clean_cache(), remove_leftovers()
    if as_json:
        document: dict[str, object] = {str(kind): done for kind, done in cached.items()}
        document |= {"processes_ended": left.processes, "sockets_removed": left.sockets}
        print_json({"schema": "stepduel/clean/1", **document})
        return
    parts = [
        f"{done.removed} {_NAMES[kind]} removed ({bytes_text(done.freed_bytes)}"
        + (f", {done.in_use} in use)" if done.in_use else ")")
        for kind, done in cached.items()
        if kind in _NAMES
    ]
    parts.append(f"{left.processes} processes ended, {left.sockets} sockets removed")
    stdout_console().print("; ".join(parts), soft_wrap=True)
