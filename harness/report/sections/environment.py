"""What it ran on, and what differs between the sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.comparison import Comparison
from harness.metrics import bytes_text
from harness.report.page import Section, draw

TEMPLATE: Final = """
{% if two %}
<h3>Differences between the sides</h3>
{% if different %}
<div class="scroll" role="region" aria-label="Differences" tabindex="0"><table><thead><tr><th scope="col">What</th><th scope="col">Base</th><th scope="col">Head</th></tr></thead><tbody>
{% for row in different %}<tr><th scope="row">{{ row[0] | name }}</th><td class="path">{{ row[1] | name }}</td><td class="path">{{ row[2] | name }}</td></tr>
{% endfor %}</tbody></table></div>
{% else %}<p class="nothing">None besides the code: same machine, same software, same settings.</p>{% endif %}
<h3>Both sides</h3>
{% endif %}
<div class="scroll" role="region" aria-label="Environment" tabindex="0"><table class="facts"><tbody>
{% for row in facts %}<tr><th scope="row">{{ row[0] | name }}</th><td>{{ row[1] | name(300) }}</td></tr>
{% endfor %}</tbody></table></div>
"""


def of_comparison(comparison: Comparison) -> Section:
    """Return the machine, the software and the settings of a duel."""
    duel = comparison.duel
    base, head = _side_facts(comparison, "base"), _side_facts(comparison, "head")
    keys = list(dict.fromkeys((*base, *head)))
    different = [(key, base.get(key, "–"), head.get(key, "–")) for key in keys if base.get(key) != head.get(key)]
    shared = [(key, base[key]) for key in keys if key in base and base[key] == head.get(key) and base[key]]
    facts = [
        *machine_facts(comparison.environment),
        ("Device", str(duel.device or "–")),
        ("Ranks a side", str(duel.ranks)),
        *shared,
        ("Measured with", f"stepduel {duel.harness_version}"),
    ]
    return Section(
        anchor="environment",
        title="Environment",
        html=draw(TEMPLATE, two=True, different=different, facts=facts),
    )


def of_run(facts: Sequence[tuple[str, str]]) -> Section:
    """Return the environment of a single launch or trace."""
    return Section(anchor="environment", title="Environment", html=draw(TEMPLATE, two=False, different=[], facts=facts))


def machine_facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is stored about the machine and the harness's own software as rows."""
    gpus = [f"{gpu['name']}, driver {gpu['driver']}" for gpu in environment.get("gpus") or ()]
    versions = environment.get("versions") or {}
    return [
        ("Processor", str(environment.get("cpu_model", "–"))),
        ("Cores", f"{environment.get('usable_cores', '–')} usable of {environment.get('logical_cores', '–')}"),
        ("Memory", bytes_text(environment["memory_bytes"]) if environment.get("memory_bytes") else "–"),
        ("GPUs", "; ".join(gpus) or "none"),
        ("Kernel", str(environment.get("kernel", "–"))),
        ("Python", str(environment.get("python", "–"))),
        ("Harness’s packages", ", ".join(f"{package} {version}" for package, version in sorted(versions.items()))),
    ]


def _side_facts(comparison: Comparison, which: str) -> dict[str, str]:
    """Facts of one side by name; what only the code makes different (its revision) is in the first screen."""
    duel = comparison.duel
    side, subject = (comparison.base, duel.base) if which == "base" else (comparison.head, duel.head)
    facts = {f"engine’s {package}": str(version) for package, version in sorted(side.versions.items())}
    facts["Overrides"] = ", ".join(side.overrides)
    facts["Uncommitted changes"] = "yes" if side.dirty else "no"
    facts["Collector"] = str(subject.get("collector", duel.collector))
    for note in subject.get("notes") or ():
        facts[f"Note: {note}"] = "yes"
    launches = [pair.base_launch if which == "base" else pair.head_launch for pair in comparison.pairs]
    for key, value in dict(launches[0].get("engine") or {} if launches else {}).items():
        facts[f"engine: {key}"] = str(value)
    return facts
