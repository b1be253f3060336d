"""`stepduel gate`: duels every scenario of the project's policy against a base, and answers with an exit code."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from harness.cli.figures import SECONDS
from harness.cli.subject_options import subject_options


@click.command()
@click.option("--base", metavar="REVISION", help="Hold HEAD against this; default: the policy's, or the merge-base.")
@click.option(
    "--head", metavar="REVISION", default=".", show_default=True, help="What to judge; . is the working tree."
)
@click.option("--scenario", "names", multiple=True, metavar="NAME", help="Only this scenario of the policy.")
@click.option("--base-set", "base_overrides", multiple=True, metavar="KEY=VALUE", help="Override a key for BASE only.")
@click.option("--head-set", "head_overrides", multiple=True, metavar="KEY=VALUE", help="Override a key for HEAD only.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key on both sides.")
@click.option("--policy", "policy_file", type=click.Path(path_type=Path, dir_okay=False), help="File with the policy.")
@click.option("--pairs", type=click.IntRange(min=2), help="Most launch pairs a duel, instead of the policy's.")
@click.option("--steps", type=click.IntRange(min=2), help="Measured steps a launch, instead of the policy's.")
@click.option("--budget", "budget_s", type=SECONDS, help="Time for all duels, such as 10m, instead of the policy's.")
@click.option("--undecided", type=click.Choice(["fail", "pass"]), help="What undecided means, instead of the policy's.")
@click.option("--resume", is_flag=True, help="Go on with the stored launch pairs of the same unfinished duels.")
@click.option("--seed", type=click.IntRange(min=0), help="Seed of the order of steps; default: a fresh one.")
@subject_options
@click.option(
    "--reports",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("reports"),
    show_default=True,
    help="Folder of results.db, of the HTML reports, and of gate/ with what CI shows.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def gate(
    base: str | None,
    head: str,
    names: tuple[str, ...],
    base_overrides: tuple[str, ...],
    head_overrides: tuple[str, ...],
    overrides: tuple[str, ...],
    policy_file: Path | None,
    pairs: int | None,
    steps: int | None,
    budget_s: float | None,
    undecided: str | None,
    resume: bool,
    seed: int | None,
    repo: Path,
    python: str | None,
    allow_mismatch: bool,
    reports: Path,
    as_json: bool,
) -> int:
    """Duel every scenario of the policy against BASE, and fail on a regression.

    The policy is [tool.stepduel.gate] of pyproject.toml, or [gate] of stepduel.toml.

    Exit codes: 0 pass, 1 regression, 2 usage or environment, 3 undecided or invalid, 4 a launch failed. Of several the
    gate ends with the first of 1, 4, 2, 3. All reports are written before it ends.
    """
    from harness.cli.gate_jobs import GateRequest, run_gate
    from harness.cli.gate_output import print_gate
    from harness.gate import find_policy, read_policy
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
    result = run_gate(
        GateRequest(
            policy=policy,
            names=names,
            head=head,
            base_overrides=base_overrides,
            head_overrides=head_overrides,
            overrides=overrides,
            resume=resume,
            seed=seed,
            repo=repo,
            python=python,
            allow_mismatch=allow_mismatch,
            reports=reports,
        )
    )
    written = write_reports(result, reports, repo)
    print_gate(result, written, as_json=as_json)
    announce(result, to_stderr=as_json)
    return result.exit_code
