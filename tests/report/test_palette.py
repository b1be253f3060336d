"""Contrast of text in both themes, by the formula of WCAG 2.2."""

from __future__ import annotations

import re

import pytest

from harness.report.page import TEMPLATES
from harness.report.palette import COLOURS, stylesheet

AA = 4.5
AA_GRAPHICS = 3.0
READABLE_PAIRS = (
    # (text, what it stands on): at least 4.5 to 1
    *((text, ground) for text in ("text", "muted", "link", "base", "head") for ground in ("page", "panel")),
    *((state, "page") for state in ("slower", "faster", "same", "undecided", "invalid")),
    *((state, f"{state}-soft") for state in ("slower", "faster", "same", "undecided", "invalid")),
    *(("text", f"{state}-soft") for state in ("slower", "faster", "same", "undecided", "invalid")),
    ("muted", "slower-soft"),
    ("muted", "faster-soft"),
    ("muted", "same-soft"),
    ("muted", "undecided-soft"),
    ("muted", "invalid-soft"),
    ("text", "box"),
    ("slower", "panel"),
    ("faster", "panel"),
)


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours `#rrggbb`, from 1 to 21 (WCAG 2.2)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


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
