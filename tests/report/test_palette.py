"""Contrast of text in both themes, by the formula of WCAG 2.2."""

from __future__ import annotations

import re

import pytest

from harness.report.page import TEMPLATES
from harness.report.palette import COLOURS, READABLE_PAIRS, contrast, stylesheet

AA = 4.5
AA_GRAPHICS = 3.0


def test_the_formula_gives_what_the_standard_says() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=0.001)  # the best known near miss
    assert contrast("#336699", "#336699") == 1


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), READABLE_PAIRS, ids=lambda role: role)
def test_text_is_readable(text: str, ground: str, theme: int) -> None:
    assert contrast(COLOURS[text][theme], COLOURS[ground][theme]) >= AA


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("mark", ["base", "head", "slower", "faster", "same", "undecided", "invalid", "muted"])
def test_marks_of_plots_stand_out(mark: str, theme: int) -> None:
    for ground in ("page", "panel", "same-soft"):
        assert contrast(COLOURS[mark][theme], COLOURS[ground][theme]) >= AA_GRAPHICS


def test_every_colour_of_the_style_is_one_of_the_palette() -> None:
    style = (TEMPLATES / "style.css").read_text(encoding="utf-8")
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;}\s])", style)
    used = set(re.findall(r"var\(--([a-z-]+)\)", style)) - {"share"}
    assert used <= set(COLOURS)
    assert all(f"--{role}:" in stylesheet() for role in COLOURS)
