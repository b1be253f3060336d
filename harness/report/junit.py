"""A gate as JUnit XML: one test case a scenario, as GitLab, Jenkins and others show it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from xml.etree import ElementTree

from harness.report.outcome import Outcome
from harness.visible import shortened

SUITE: Final = "stepduel"
_NOT_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(outcomes: Sequence[Outcome]) -> str:
    """Return the document. A regression is a failure; no verdict and what did not run are errors, never passes."""
    failures = sum(outcome.standing == "regressed" for outcome in outcomes)
    errors = sum(outcome.standing in ("undecided", "failed") for outcome in outcomes)
    seconds = f"{sum(outcome.duration_s for outcome in outcomes):.3f}"
    counts = {"tests": str(len(outcomes)), "failures": str(failures), "errors": str(errors), "time": seconds}
    root = ElementTree.Element("testsuites", counts)
    suite = ElementTree.SubElement(root, "testsuite", {"name": SUITE, "skipped": "0", **counts})
    for outcome in outcomes:
        _case(suite, outcome)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, outcome: Outcome) -> None:
    attributes = {"classname": SUITE, "name": _shown(outcome.scenario, 200), "time": f"{outcome.duration_s:.3f}"}
    case = ElementTree.SubElement(suite, "testcase", attributes)
    message = _shown(outcome.message, 600)
    details = "\n".join(_details(outcome))
    if outcome.standing == "passed":
        ElementTree.SubElement(case, "system-out").text = f"{message}\n{details}"
        return
    kind = "failure" if outcome.standing == "regressed" else "error"
    problem = ElementTree.SubElement(case, kind, {"message": message, "type": _kind(outcome)})
    problem.text = details or message


def _kind(outcome: Outcome) -> str:
    return outcome.standing if outcome.comparison is None else outcome.comparison.verdict.reason.value


def _details(outcome: Outcome) -> list[str]:
    comparison = outcome.comparison
    if comparison is None:
        return []
    lines = [_shown(comparison.verdict.line, 600)]
    lines += [
        f"{part.delta_ns / 1e6:+.3f} ms  {_shown(part.path, 160)}"
        for part in comparison.ranges
        if part.significant and part.delta_ns
    ]
    return lines[:20]


def _shown(text: str, width: int) -> str:
    """Characters that XML cannot hold at all were written as escapes already, but for a few that have no category."""
    return _NOT_XML.sub("?", shortened(text, width))
