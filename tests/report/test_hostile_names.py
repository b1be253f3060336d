"""Names are untrusted: none becomes markup, a formula, a link or an invisible character, in any section."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from markup import check_page
from stored_duels import DuelSpec, comparison_of

from harness.analysis.findings.finding import Evidence as FindingEvidence
from harness.analysis.findings.finding import EvidenceRow, Finding
from harness.analysis.path_summary import PathSummary
from harness.analysis.range_part import JudgedPart
from harness.measured import TreeRange
from harness.report import render_comparison
from harness.report.page import Page, Section, draw
from harness.report.sections import attribution, findings, gpu, headline, range_trees, ranges, reproduce
from harness.report.sections import steps as run_order
from harness.report.tables import Column, Row, facts, table
from harness.subject.commits import Commit, CommitRange

HOSTILE = [
    "<script>alert(1)</script>",
    "</title></style></script><b>x",
    "\"' onmouseover=alert(1) x='",
    "$\\frac{1}{0}$ and $x_2",
    "javascript:alert(1)",
    "\u202eesrever\u202c \u2066isolated",
    "nul\0 bell\a escape\x1b[31m \x7f",
    "{{ 7 * 7 }}{% raw %}",
    "&lt;b&gt; &#x3c;",
    "lone \udc80 surrogate",
    " ",
    "<!--",
    "]]>",
    "日本語 🎉",
    "n" * 100_000,
]
INVISIBLE = [
    chr(code) for code in (*range(0x20), 0x7F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)) if chr(code) != "\n"
]


def checked(page: str) -> str:
    """Check a page made of hostile names, and that every one of them is shown short and visible."""
    root = check_page(page)
    assert not [character for character in INVISIBLE if character in page]
    assert "n" * 1000 not in page
    page.encode()  # no lone surrogate
    shown = root.text
    assert "{{ 7 * 7 }}" in shown or "7 * 7" not in shown
    return shown


@pytest.mark.parametrize("name", [HOSTILE[at] for at in (0, 2, 3, 5, 6, -1)], ids=lambda name: repr(name[:12]))
def test_a_duel_with_this_name_everywhere(name: str, tmp_path: Path) -> None:
    stored = name.encode("utf-8", "replace").decode()  # the database holds UTF-8 alone
    subject = {
        "subject": stored,
        "revision": stored,
        "dirty": True,
        "identity": "a",
        "overrides": [stored],
        "notes": [stored],
        "collector": stored,
        "versions": {stored: stored},
    }
    made = DuelSpec(
        pairs=4,
        steps=3,
        ranks=1,
        scenario=stored,
        description=stored,
        base=subject,
        head={**subject, "overrides": [], "versions": {}},
        renamed={"load_fsdp_model_to_gpu": stored, "forward_backward": f"{stored}/{stored}", "clone_state": stored * 2},
    )
    comparison, evidence = comparison_of(tmp_path, made)
    duel = replace(comparison.duel, logs=stored, reason=stored, device=stored)
    commits = CommitRange(commits=(Commit(revision=stored, subject=stored),), count=9, behind=0)
    checked(render_comparison(replace(comparison, duel=duel), evidence, commits))


def test_every_section_with_every_name_at_once() -> None:
    evidence = FindingEvidence(
        total_ns=1, steps=1, ranges=tuple(EvidenceRow(name=name, calls=1, total_ns=1) for name in HOSTILE[:5]),
        calls=tuple(EvidenceRow(name=name, calls=1, total_ns=1, bytes=3) for name in HOSTILE[-5:]),
    )  # fmt: skip
    found = [Finding(rule=name, summary=name, advice=name, ns_per_step=1e6, evidence=evidence) for name in HOSTILE]
    parts = [
        JudgedPart(path=name, base_ns=i * 1e6, head_ns=2e6, ci_ns=None, q=None, significant=True)
        for i, name in enumerate(HOSTILE)
    ]
    tree_ranges = [TreeRange(path=name, name=name, depth=0, total_ns=1e6, self_ns=1e6, calls=1) for name in HOSTILE]
    rows = [
        PathSummary(path=name, name=name, depth=1, calls_per_step=1, median_ns=1, p90_ns=1, self_median_ns=1)
        for name in HOSTILE
    ]
    lines = [run_order.Line(side="head", rank=0, order=[0, 1], times_ns=[5, 6])]
    sections = (
        attribution.section(parts, HOSTILE[0]),
        range_trees.section([range_trees.Tree(side="", caption=HOSTILE[0], ranges=tree_ranges)], "", {HOSTILE[0]: 5.0}),
        ranges.section(rows, HOSTILE[1]),
        run_order.section([run_order.Panel(title=name, warmup=0, lines=lines) for name in HOSTILE[:4]], HOSTILE[2]),
        findings.section(found[:8], found[6:]),
        gpu.section({}, HOSTILE[0]),
        Section(anchor="facts", title="facts", html=facts([(name, name) for name in HOSTILE])),
        reproduce.section(
            [(name[:99], name[:99].replace("\0", "")) for name in HOSTILE[:4]],
            [reproduce.File(label="file", path=name, folder="..") for name in HOSTILE if "\udc80" not in name],
        ),
    )
    tiles = [headline.Tile(title="t", rows=[(name, "1") for name in HOSTILE])]
    lead = headline.section(crumb=HOSTILE[0], sentence=HOSTILE[1], lines=HOSTILE, tiles=tiles)
    shown = checked(Page(kind="Test", heading=HOSTILE[0], lead=lead, sections=sections).render())
    assert "$\\frac{1}{0}$ and $x_2" in shown  # as written, in tables and in plots
    assert "\\u202e" in shown
    assert "🎉" in shown


def test_values_of_tables_and_templates_are_escaped() -> None:
    html = table("<i>", [Column(title="<i>", kind="name")], [Row(cells=["<i>"], role='"><i>')])
    assert "<i>" not in html
    assert "<i>" not in draw("{{ value }}", value="<i>")
    assert "<i>" not in draw('<p title="{{ value }}"></p>', value='"><i>')
