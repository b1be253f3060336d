"""The commands that repeat what was measured, and where its traces and logs lie."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from harness.comparison import Comparison, Side
from harness.report.page import Section, draw

TEMPLATE: Final = """
{% for sentence, line in commands %}
<p>{{ sentence }}</p>
{{ m.command(line) }}
{% endfor %}
{% if files %}
<h3>Traces and logs</h3>
<ul class="files">
{% for file in files %}
<li>{{ file.label }}: <a href="{{ file.href }}">{{ file.path | name }}</a></li>
{% endfor %}
</ul>
<p class="note">Links lead into the reports folder from where this file was written.</p>
{% endif %}
"""


@dataclass(frozen=True, kw_only=True)
class File:
    """A file or folder by its path below the reports folder, which `folder` leads to from the report."""

    label: str
    path: str
    folder: str = "."

    @property
    def href(self) -> str:
        """The path as a relative link; a name can hold anything, so it can never become another scheme."""
        return f"./{quote(self.folder)}/{quote(self.path)}".replace("/./", "/")


def section(commands: Sequence[tuple[str, str]], files: Sequence[File]) -> Section:
    """Return commands, each with a sentence before it, and links to files."""
    return Section(
        anchor="reproduce", title="Traces and reproduction", html=draw(TEMPLATE, commands=commands, files=files)
    )


def of_comparison(comparison: Comparison, traces: Mapping[str, str], folder: str) -> Section:
    """Return how to repeat a duel, and its traces, given by side relative to the reports folder."""
    duel = comparison.duel
    commands = [("Measure again, with the same order of steps:", compare_command(comparison))]
    commands.append(
        ("Write this report again from the database alone:", f"stepduel report {duel.id} --html report.html")
    )
    if len(traces) == 2:
        pair = " ".join(shlex.quote(traces[side]) for side in ("base", "head"))
        commands.append(("Read both traces range by range, from within the reports folder:", f"stepduel diff {pair}"))
    files = [File(label=f"{side}’s trace", path=path, folder=folder) for side, path in traces.items()]
    if duel.logs is not None:
        files.append(File(label="Logs of every launch", path=f"{duel.logs}/", folder=folder))
    return section(commands, files)


def compare_command(comparison: Comparison) -> str:
    """Return the command line of a duel."""
    duel, rule = comparison.duel, comparison.rule
    words = ["stepduel", "aa" if duel.kind == "aa" else "compare", duel.scenario]
    if duel.kind != "aa":
        words += [_revision(comparison.base), _revision(comparison.head)]
        words += [word for text in comparison.base.overrides for word in ("--base-set", text)]
        words += [word for text in comparison.head.overrides for word in ("--head-set", text)]
    words += ["--ranks", str(duel.ranks), "--pairs", str(rule.looks[-1]), "--seed", str(duel.seed)]
    if duel.steps is not None:
        words += ["--steps", str(duel.steps)]
    return shlex.join(words)


def _revision(side: Side) -> str:
    return "." if side.dirty or side.revision is None else side.revision[:12]
