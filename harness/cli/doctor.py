"""`stepduel doctor`: what is wrong with this machine for measuring, and what a duel can detect on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from harness.cli.options import json_option, ranks_option, reports_option


@click.command()
@click.argument("name", metavar="[SCENARIO]", default="smoke")
@ranks_option()
@reports_option("results.db, whose same-code duels tell what can be seen")
@json_option
def doctor(name: str, ranks: int | None, reports: Path, as_json: bool) -> None:
    """Say what is wrong with this machine for measuring, and what a duel of SCENARIO can detect on it.

    SCENARIO is smoke unless given.
    """
    from harness.cli.output import clean, print_json, stdout_console
    from harness.doctor import examine
    from harness.scenario import load_scenario

    scenario = load_scenario(name, [f"run.ranks={ranks}"] if ranks else [])
    remarks = examine(scenario.run.ranks)
    seen = _detectable(name, scenario, reports)
    if as_json:
        document = {
            "schema": "stepduel/doctor/1",
            "remarks": remarks,
            "minimum_detectable_effect": seen,
        }
        print_json(document)
        return
    styles = {"fine": "green", "warning": "bold yellow", "unknown": "dim"}
    for remark in remarks:
        advice = f": {remark.advice}" if remark.advice else ""
        line = Text.assemble(
            (f"{remark.level:<8}", styles[remark.level]), clean(f" {remark.topic}: {remark.seen}{advice}")
        )
        stdout_console().print(line, soft_wrap=True)
    stdout_console().print(Text(clean(_detectable_line(seen))), soft_wrap=True)


def _detectable(name: str, scenario: Any, reports: Path) -> dict[str, Any]:
    """What same-code duels of this machine say that a duel sees; without any, what typical machines see."""
    from harness.collectors.registry import DEFAULT
    from harness.duel import PooledPrior, forecast, pooled_prior, same_code_duels
    from harness.duel.pacing import MIN_STEPS
    from harness.environment import read_environment
    from harness.stats.rule import Rule
    from harness.store import RESULTS, Duels, Store

    rule, known = Rule(), PooledPrior()
    if (reports / RESULTS).exists():
        with Store(reports / RESULTS) as store:
            machine = read_environment().machine
            known = pooled_prior(same_code_duels(Duels(store), scenario.hash, machine, DEFAULT, pinned=True))
    found = forecast(rule, known.steps or MIN_STEPS, known, ())
    return {
        "scenario": name,
        "looks": list(rule.looks),
        "first_look": found.first_look,
        "last_look": found.last_look,
        "same_code_duels": known.duels,
    }


def _detectable_line(seen: dict[str, Any]) -> str:
    from harness.units import plural
    from harness.verdict import detectable_text

    first, last = detectable_text(seen["first_look"]), detectable_text(seen["last_look"])
    pairs = f"{seen['looks'][0]} launch pairs see {first}, {seen['looks'][-1]} see {last}"
    if seen["same_code_duels"]:
        return f"{seen['scenario']}: {pairs} (from {plural(seen['same_code_duels'], 'same-code duel')} here)"
    return f"{seen['scenario']}: {pairs} on a typical machine; `stepduel aa {seen['scenario']}` measures this one"
