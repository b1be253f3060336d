"""How a history is told: what a series is called, what it says."""

from __future__ import annotations

from harness.history.series import DuelPoint, LevelChange, Series, code_label
from harness.stats.changepoints import MIN_POINTS
from harness.units import change, milliseconds, plural

MOST_KEYS = 8
"""Keys of a scenario that are named where it differs."""


def day(started_at: str) -> str:
    """Return a stored time to the minute."""
    return started_at[:16].replace("T", " ")


def title(series: Series) -> str:
    """Return what was measured, in a few words."""
    what = {"run": "runs", "duel": f"sides of duels, {series.key.interleave} in turn,"}[series.key.kind]
    return " ".join([what, *series.key.overrides, "on", series.cpu_model])


def subtitle(series: Series) -> list[str]:
    """Return the rest of the key, what differs in the scenario from the newest series, and how points are ordered."""
    key = series.key
    keys = [f"{name} = {value}" for name, value in series.scenario_keys.items()]
    more = f" and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else ""
    return [
        f"machine {key.machine}, collector {key.collector}, "
        f"Stepduel {key.harness_version}, scenario {key.scenario_hash}",
        *([f"another scenario than the newest: {', '.join(keys[:MOST_KEYS])}{more}"] if keys else []),
        "in the order of commits" if series.by_commit else "in the order of measurements",
    ]


def running_text(duel_id: str) -> str:
    """Return what is said of a duel under way."""
    return f"duel {duel_id} is under way, or was killed: no point until it has ended (stepduel compare … --resume)"


def changed(found: LevelChange) -> str:
    """Return what is said of the first point after a change of level."""
    return f"{change(found.ratio)}{' in the typical step' if found.typical else ''} from here on"


def ratios(duel: DuelPoint) -> str:
    """Return what a duel measured."""
    assert duel.ratio is not None
    assert duel.typical_ratio is not None
    return f"{change(duel.ratio)} in total, {change(duel.typical_ratio)} in the typical step"


def sentences(series: Series) -> list[str]:
    """Return what the series says: its levels, its odd points, its creep."""
    count, levels = len(series.points), series.levels
    level = "now at" if series.changes else "on average"
    last = levels[-1]
    took = f"{milliseconds(last.mean_ns)} ms a step, {milliseconds(last.median_ns)} ms in the median"
    lines = [f"{plural(count, 'point')}, {level} {took}"]
    if not series.changes:
        lines[0] += f"; no change of level among them{' (too few to tell)' if count < 2 * MIN_POINTS else ''}"
    for found, reached in zip(series.changes, levels[1:], strict=True):
        point = series.points[found.index]
        code = code_label(point.subject, point.revision, point.dirty)
        where = " in the typical step" if found.typical else ""
        to = milliseconds(reached.median_ns if found.typical else reached.mean_ns)
        lines.append(f"{change(found.ratio)}{where} from {code} on, to {to} ms (p = {found.p:.1g})")
    odd = [point for point in series.points if point.mark == "suspicious"]
    if odd:
        codes = ", ".join(code_label(point.subject, point.revision, point.dirty) for point in odd)
        lines.append(f"suspiciously slow, not measured again yet: {codes}")
    if series.creep is not None:
        typical = "" if series.typical_creep is None else f", {change(series.typical_creep)} in the typical step"
        lines.append(f"{change(series.creep)} in total{typical}, against the pinned baseline")
    return lines
