"""Matplotlib as SVG: names stay names, colours become roles, ids keep apart, bytes repeat."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from harness.report.palette import COLOURS
from harness.report.plots import colour, place, plot, svg

NAMES = ["$x_2$", "<b>&amp;\"'", ' id="a" url(#b) #00a000', "\\alpha", "日本語"]


def drawn(label: str, name: str = "one") -> str:
    with plot(300, 200) as (figure, axes):
        place(figure, axes, left=40, right=10, top=10, bottom=30)
        axes.plot([0, 1, 2], [1.0, 3.0, 2.0], color=colour("head"), alpha=0.5)
        axes.axhspan(1, 2, color=colour("same-soft"))
        axes.text(0, 1, label, color=colour("text"))
        axes.set_xlabel(label)
        return str(svg(figure, name, f"about {label}"))


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_as_they_are(name: str) -> None:
    root = ElementTree.fromstring(str(drawn(name)).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1))
    texts = ["".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")]
    assert texts.count(name) == 2
    assert root.attrib["aria-label"] == f"about {name}"


def test_colours_are_roles_and_nothing_else() -> None:
    text = drawn("label")
    assert "var(--head)" in text
    assert "var(--same-soft)" in text
    assert "#000000" not in text
    assert len({colour(role) for role in COLOURS}) == len(COLOURS)


def test_bytes_repeat_and_ids_of_two_figures_differ() -> None:
    assert drawn("label") == drawn("label")
    ids = [{part.split('"')[0] for part in drawn("label", name).split(' id="')[1:]} for name in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert "2026" not in drawn("label")
