"""`stepduel gate`: duels every scenario of the project's policy against a base, and answers with an exit code."""

from __future__ import annotations

import contextlib
import dataclasses
from pathlib import Path
from typing import Any

import click

from harness.cli.figures import SECONDS
from harness.cli.options import (
    json_option,
    pairs_option,
    picked,
    reports_option,
    resume_option,
    seed_option,
    set_option,
    side_options,
    steps_option,
    subject_options,
)


@click.command()
@click.option(
    "--base",
    metavar="REVISION",
    help="Hold HEAD against this; default: the policy's, else the merge base or parent.",
)
@click.option(
    "--head", metavar="REVISION", default=".", show_default=True, help="What to judge; . is the working tree."
)
@click.option("--scenario", "names", multiple=True, metavar="NAME", help="Only this scenario of the policy.")
@side_options
@set_option()
@click.option("--policy", "policy_file", type=click.Path(path_type=Path, dir_okay=False), help="File with the policy.")
@pairs_option(" a duel, instead of the policy's")
@steps_option(" a launch, instead of the policy's")
@click.option("--budget", "budget_s", type=SECONDS, help="Time for all duels, such as 10m, instead of the policy's.")
@click.option("--undecided", type=click.Choice(["fail", "pass"]), help="What undecided means, instead of the policy's.")
@click.option("--explain-limit", is_flag=True, help="Say how duels end at each true slowdown; run none.")
@resume_option("duels")
@seed_option
@subject_options
@reports_option("results.db, of the HTML reports, and of gate/ with what CI shows")
@json_option
def gate(
    base: str | None,
    policy_file: Path | None,
    pairs: int | None,
    steps: int | None,
    budget_s: float | None,
    undecided: str | None,
    explain_limit: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Duel every scenario of the policy against BASE, and fail on a regression.

    The policy is [tool.stepduel.gate] of pyproject.toml, or [gate] of stepduel.toml.

    Exit codes: 0 pass, 1 regression, 2 usage or environment, 3 undecided or invalid, 4 a launch failed. Of several the
    gate ends with the first of 1, 4, 2, 3. All reports are written before it ends.
    """
    from harness.cli.gate_output import TerminalGateProgress, print_gate, print_limits
    from harness.cli.stopped import say_how_to_go_on
    from harness.cli.subjects import subject_cache
    from harness.duel import WantedSides
    from harness.gate import GateRequest, Result, explain_limits, find_policy, read_policy, run_gate
    from harness.gate.reports import announce, write_reports

    policy = read_policy(policy_file or find_policy(Path.cwd()))
    given: dict[str, Any] = {
        "base": base,
        "pairs": pairs,
        "steps": steps,
        "budget_s": budget_s,
        "undecided": undecided,
    }
    policy = dataclasses.replace(policy, **{key: value for key, value in given.items() if value is not None})
    wanted = picked(WantedSides, {"base": policy.base, **options})
    request = picked(GateRequest, {"policy": policy, "wanted": wanted, **options})
    if explain_limit:
        print_limits(explain_limits(request), as_json=as_json)
        return 0
    with subject_cache() as cache, TerminalGateProgress() as progress:
        result = run_gate(request, cache, progress)
    written = write_reports(result, request.reports, wanted.repo)
    if result.result is Result.INTERRUPTED:
        with contextlib.suppress(BrokenPipeError):  # Ctrl-C ends what stdout is piped into as well
            print_gate(result, written, as_json=as_json)
        say_how_to_go_on()
    else:
        print_gate(result, written, as_json=as_json)
    announce(result, to_stderr=as_json)
    return result.exit_code
