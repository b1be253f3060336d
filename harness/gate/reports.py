"""Writes everything the gate has to show, before it ends: HTML of each duel, and Markdown, JUnit and JSON for CI.

The HTML of a duel lies in the reports folder itself, beside the traces it links to; what CI picks up has fixed names in
`gate/` below it. Nothing here decides anything.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Final

from harness.comparison import Comparison
from harness.comparison.rows import duel_rows
from harness.documents import json_text
from harness.errors import UsageError
from harness.gate.decision import GateResult
from harness.gate.document import document
from harness.gate.github import workflow_commands
from harness.gate.junit import junit
from harness.gate.markdown import markdown
from harness.report import render_comparison, write_index, write_report
from harness.store import RESULTS, Duels, Store
from harness.subject.commits import commits_between

FOLDER: Final = "gate"
NAMES: Final = ("gate.json", "gate.md", "junit.xml")


def write_reports(gate: GateResult, reports: Path, repo: Path) -> list[Path]:
    """Write all reports and return their paths; Markdown also goes to the summary of a GitHub job.

    Every file is whole or not there. UsageError when one cannot be written, after all others have been tried.
    """
    pages = {
        judgement.comparison.duel.id: f"{judgement.comparison.duel.id}.html"
        for judgement in gate.judgements
        if judgement.comparison is not None
    }
    text = markdown(gate, pages)
    written: list[Path] = []
    problems: list[UsageError] = []

    def write(path: Path, content: str) -> None:
        try:
            write_report(path, content)
            written.append(path)
        except UsageError as error:
            problems.append(error)

    for name, content in zip(NAMES, (json_text(document(gate)), text, junit(gate)), strict=True):
        write(reports / FOLDER / name, content)
    _append_summary(text, problems)
    with Store(reports / RESULTS) as store:
        for judgement in gate.judgements:
            if judgement.comparison is not None:
                page = _page(judgement.comparison, Duels(store), reports, repo)
                write(reports / pages[judgement.comparison.duel.id], page)
        try:
            written.append(write_index(reports, Duels(store).find()))
        except UsageError as error:
            problems.append(error)
    if problems:
        raise problems[0]
    return written


def remove_old(reports: Path) -> None:
    """Remove what an earlier gate left for CI: one that is killed must not leave another's pass behind."""
    for name in NAMES:
        with contextlib.suppress(OSError):  # what cannot be removed cannot be replaced either, and that is told
            (reports / FOLDER / name).unlink(missing_ok=True)


def announce(gate: GateResult, *, to_stderr: bool) -> None:
    """On GitHub, print the annotations that its pages show; commands of the runner are read from both streams."""
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in workflow_commands(gate):
            print(line, file=sys.stderr if to_stderr else sys.stdout)


def _page(comparison: Comparison, duels: Duels, reports: Path, repo: Path) -> str:
    base, head = comparison.base.revision, comparison.head.revision
    commits = commits_between(repo, base, head) if base and head else None
    return render_comparison(comparison, duel_rows(duels, comparison, reports), commits)


def _append_summary(text: str, problems: list[UsageError]) -> None:
    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return
    try:
        with Path(target).open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        problems.append(UsageError(f"cannot append to GITHUB_STEP_SUMMARY {target}: {error.strerror}"))
