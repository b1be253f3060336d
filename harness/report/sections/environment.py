"""What it ran on, and what differs between the sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from harness.comparison import Comparison
from harness.report.page import Section, draw
from harness.report.page import name as shown
from harness.report.tables import Column, Row, facts, table
from harness.units import bytes_text, some_of

MOST_FILES: Final = 20
"""Files named in one row."""

TEMPLATE: Final = """
<h3>Differences between the sides</h3>
{% if different %}
{{ different }}
{% else %}
<p class="nothing">None besides the code: same machine, same software, same settings.</p>
{% endif %}
<h3>Both sides</h3>
{{ facts }}
"""


def of_comparison(comparison: Comparison) -> Section:
    """Return the machine, the software and the settings of a duel."""
    duel = comparison.duel
    base, head = _side_facts(comparison, "base"), _side_facts(comparison, "head")
    keys = list(dict.fromkeys((*base, *head)))
    changes = comparison.environment_changes
    different = [(one.name, one.base or "absent", one.head or "absent") for one in changes]
    different += [(key, base.get(key, ""), head.get(key, "")) for key in keys if base.get(key) != head.get(key)]
    shared = [(key, base[key]) for key in keys if base.get(key) and base[key] == head.get(key)]
    both = [
        *machine_facts(comparison.environment),
        ("device", str(duel.device or "none")),
        ("ranks a side", str(duel.ranks)),
        *shared,
        ("measured with", f"stepduel {duel.harness_version}"),
    ]
    columns = [Column(title="What", kind="name"), Column(title="Base", kind="path"), Column(title="Head", kind="path")]
    rows = [Row(cells=[shown(text) for text in row]) for row in different]
    html = draw(
        TEMPLATE,
        different=table("Differences between the sides", columns, rows) if rows else None,
        facts=facts(both),
    )
    return Section(anchor="environment", title="Environment", html=html)


def of_run(rows: Sequence[tuple[str, str]]) -> Section:
    """Return the environment of a single launch or trace."""
    return Section(anchor="environment", title="Environment", html=facts(rows))


def machine_facts(environment: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what is stored about the machine and the harness's own software as rows."""
    gpus = [f"{gpu['name']}, driver {gpu['driver']}" for gpu in environment.get("gpus") or ()]
    versions = environment.get("versions") or {}
    return [
        ("processor", str(environment.get("cpu_model", ""))),
        ("cores", f"{environment.get('usable_cores', '?')} usable of {environment.get('logical_cores', '?')}"),
        ("memory", bytes_text(environment["memory_bytes"]) if environment.get("memory_bytes") else ""),
        ("GPUs", "; ".join(gpus) or "none"),
        ("kernel", str(environment.get("kernel", ""))),
        ("harness’s Python", str(environment.get("python", ""))),
        ("harness’s packages", ", ".join(f"{package} {version}" for package, version in sorted(versions.items()))),
    ]


def _side_facts(comparison: Comparison, which: str) -> dict[str, str]:
    """Facts of one side by name. Its revision, which is meant to differ, stands in the first screen."""
    duel = comparison.duel
    side, subject = (comparison.base, duel.base) if which == "base" else (comparison.head, duel.head)
    changed = {one.name for one in comparison.environment_changes}
    told = sorted(item for item in side.versions.items() if item[0] not in changed)
    found = {f"engine’s {package}": str(version) for package, version in told}
    found["overrides"] = ", ".join(side.overrides)
    found["uncommitted changes"] = "yes" if side.dirty else "no"
    found["collector"] = str(subject.get("collector", duel.collector))
    found["notes"] = "; ".join(map(str, subject.get("notes") or ()))
    found["release"] = " ".join(str((subject.get("release") or {}).get(key, "")) for key in ("file", "sha256")).strip()
    found["runs with, against what it asks for"] = "; ".join(map(str, subject.get("mismatches") or ()))
    loaded = side.loaded or {}
    found["loaded from its own files"] = f"{loaded['files']} files" if loaded else ""
    found["loaded files that differ"] = some_of(loaded.get("differing") or (), MOST_FILES)
    found["shared with the working tree"] = some_of(loaded.get("shared") or (), MOST_FILES)
    found["programs started"] = ", ".join(loaded.get("started") or ())
    installed = (subject.get("environment") or {}).get("versions") or {}
    found["installed"] = ", ".join(f"{name} {version}" for name, version in installed.items() if name not in changed)
    launches = [pair.base_launch if which == "base" else pair.head_launch for pair in comparison.pairs]
    engine = dict(launches[0].get("engine") or {}) if launches else {}
    return found | {f"engine: {key}": str(value) for key, value in engine.items()}
