"""The gate as JUnit XML: one test case a duel, which GitLab, Jenkins and others show beside the unit tests."""

from __future__ import annotations

from typing import Final
from xml.etree import ElementTree

from harness.gate.decision import GateResult, Judgement, Result
from harness.units import signed_ms
from harness.visible import visible

SUITE: Final = "stepduel gate"
_FAILURES: Final = (Result.REGRESSION, Result.UNDECIDED)
"""What failed its test; everything else that counts could not be tested, which JUnit calls an error."""


def junit(gate: GateResult) -> str:
    """Return the gate's answer as a JUnit document."""
    cases = [_case(judgement) for judgement in gate.judgements]
    counts = {kind: sum(case.find(kind) is not None for case in cases) for kind in ("failure", "error", "skipped")}
    attributes = {
        "name": SUITE,
        "tests": str(len(cases)),
        "failures": str(counts["failure"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"]),
    }
    suites = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(suites, "testsuite", attributes)
    suite.extend(cases)
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(judgement: Judgement) -> ElementTree.Element:
    case = ElementTree.Element("testcase", {"classname": "stepduel.gate", "name": visible(judgement.job.name)})
    message = {"message": visible(judgement.detail)}
    if judgement.result is not Result.PASS:
        kind = "skipped" if not judgement.counts else "failure" if judgement.result in _FAILURES else "error"
        element = ElementTree.SubElement(case, kind, {**message, "type": judgement.result.value})
        element.text = "\n".join(_evidence(judgement))
    out = ElementTree.SubElement(case, "system-out")
    out.text = "\n".join(_evidence(judgement))
    return case


def _evidence(judgement: Judgement) -> list[str]:
    """The verdict and the ranges that grew; no control character reaches the document, XML has none."""
    comparison = judgement.comparison
    if comparison is None:
        return [visible(judgement.detail)]
    grown = [f"{visible(part.path)}: {signed_ms(part.delta_ns)} ms a step" for part in judgement.grown]
    return [visible(comparison.verdict.line), f"duel {comparison.duel.id}", *grown]
