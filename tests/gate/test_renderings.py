"""What CI shows: the same answer everywhere, and no name or message that could do more than be read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st
from judged import comparison, gate_job

from harness.errors import LaunchError
from harness.gate import JobOutcome, Limits, Policy, judge
from harness.gate.github import workflow_commands
from harness.gate.junit import junit
from harness.gate.markdown import MARKER, code, markdown
from harness.metrics import LIMITED

POLICY = Policy(source="p", scenarios=("a",), limits={"a": Limits()})
HOSTILE = 'x`|</code><script>alert(1)</script>\n::error::owned\r\n@everyone ![i](http://e/) % \x1b[2J ]]> "&'
PAGES = {"20260101-000000-000-abcdef": "d.html"}
SLOW = [0.20, 0.21, 0.19, 0.20]


def test_markdown_names_the_range_that_grew() -> None:
    text = markdown(judge([JobOutcome(job=gate_job(), comparison=comparison(SLOW))], POLICY), PAGES)
    assert text.startswith(MARKER)
    assert "❌ regression" in text
    assert re.search(r"\| `load` \| 1\.000 \| 21\.\d+ \| \+20\.0\d* \|", text), text
    assert "+20.0 % [" in text
    assert "`d.html`" in text


def test_hostile_names_stay_text_everywhere() -> None:
    hostile = JobOutcome(
        job=gate_job(HOSTILE), comparison=comparison(SLOW, path=f"step/{HOSTILE}", head=HOSTILE, alpha=0.005)
    )
    gate = judge([hostile, JobOutcome(job=gate_job(), problem=LaunchError(HOSTILE))], POLICY)
    text = markdown(gate, PAGES)
    outside = re.sub(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", "", text)
    for part in ("script", "::error", "@everyone", "![i]"):
        assert part in text
        assert part not in outside, outside
    assert "\x1b" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7 + len(LIMITED), 6}

    cases = ElementTree.fromstring(junit(gate)).findall(".//testcase")
    assert [case.attrib["name"].startswith("x`|</code><script>") for case in cases] == [True, False]
    assert [case.find("failure") is not None for case in cases] == [True, False]
    assert cases[1].find("error") is not None

    commands = workflow_commands(gate)
    assert len(commands) == 2
    for command in commands:
        assert re.fullmatch(r"::error title=[^:,\n\r]*::[^\n\r]*", command)


@given(st.text(max_size=80))
def test_a_code_span_holds_any_text_on_one_line(text: str) -> None:
    span = code(text)
    fence = re.match("`+", span)
    assert fence is not None
    assert "\n" not in span
    assert "\r" not in span
    assert span.endswith(fence[0])
    inner = span[len(fence[0]) : -len(fence[0])]
    assert fence[0] not in re.findall("`+", inner), "nothing inside closes it"
    assert not inner.startswith("`")
    assert not inner.endswith("`")


@given(st.text())
def test_any_text_makes_a_document_and_a_command(text: str) -> None:
    gate = judge([JobOutcome(job=gate_job("a"), problem=LaunchError(text))], POLICY)
    assert len(ElementTree.fromstring(junit(gate)).findall(".//error")) == 1
    (command,) = workflow_commands(gate)
    assert len(command.splitlines()) == 1


def test_an_undecided_duel_that_may_pass_is_skipped_and_warned_of() -> None:
    policy = Policy(source="p", scenarios=("a",), limits={"a": Limits()}, undecided="pass")
    gate = judge([JobOutcome(job=gate_job(), comparison=comparison([0.20, -0.15, 0.18, -0.1]))], policy)
    assert ElementTree.fromstring(junit(gate)).attrib["skipped"] == "1"
    assert workflow_commands(gate)[0].startswith("::warning ")
    assert "the policy lets it pass" in markdown(gate, PAGES)
    assert gate.line == "PASS: 0 of 1 within their limits, 1 undecided, which the policy lets pass"
