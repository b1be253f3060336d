"""What the stored same-code duels say together: how noisy the machine is, and whether the instrument is in order."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rich.text import Text

import harness
from harness.cli.output import stdout_console
from harness.collectors.registry import DEFAULT
from harness.comparison import compare_stored
from harness.duel import pooled_prior, same_code_duels
from harness.environment import read_environment
from harness.stats.rule import Rule
from harness.stats.variance_prior import MIN_DUELS, instrument_p
from harness.store import RESULTS, Duels, Store
from harness.units import percent, plural
from harness.verdict import State

BROKEN_P = 0.01


def print_history(reports: Path, scenario_hash: str, *, pinned: bool) -> None:
    """Print the counts of every state among the stored same-code duels of this machine, and what they lend."""
    with Store(reports / RESULTS) as store:
        duels = Duels(store)
        machine = read_environment().machine
        records = duels.same_code(scenario_hash, machine, DEFAULT, harness.__version__, pinned=pinned)
        states = Counter(compare_stored(duels, record.id).verdict.state for record in records)
        known = pooled_prior(same_code_duels(duels, scenario_hash, machine, DEFAULT, pinned=pinned))
    alarms, judged = states[State.SLOWER] + states[State.FASTER], sum(states.values()) - states[State.INVALID]
    counts = ", ".join(f"{states[state]} {state}" for state in State if states[state])
    say = stdout_console().print
    say(Text(f"{plural(len(records), 'same-code duel')} on this machine: {counts or 'none completed'}"), soft_wrap=True)
    if known.spread is not None:
        lent = (
            f"; they lend {known.prior.dof:.1f} degrees of freedom"
            if known.prior
            else f"; {MIN_DUELS} are needed before they lend degrees of freedom"
        )
        say(Text(f"launch pairs scatter by {percent(known.spread)}{lent}"), soft_wrap=True)
    if judged and instrument_p(alarms, judged, 2 * Rule().alpha) < BROKEN_P:
        warning = f"{plural(alarms, 'false alarm')} of {judged} are too many: do not trust verdicts here"
        say(Text(warning, style="bold red"), soft_wrap=True)
