"""Untrusted text is shown, never obeyed; JSON output is JSON."""

from __future__ import annotations

import io
import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.cli.output import PipeConsole, clean, print_json, tree_labels


@given(st.text())
def test_clean_leaves_nothing_a_terminal_would_obey(text: str) -> None:
    cleaned = clean(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs") for c in cleaned)
    assert clean(cleaned) == cleaned


@given(st.text(st.characters(categories=["L", "M", "N", "P", "S", "Zs"])))
def test_clean_keeps_what_people_write(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\x9b2J", "\\x9b2J"),
        ("rtl\u202eoverride", "rtl\\u202eoverride"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("\ud800", "\\ud800"),
    ],
)
def test_clean_writes_escapes(text: str, shown: str) -> None:
    assert clean(text) == shown


def test_print_json_writes_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": "\x1b é"}})
    out = capsys.readouterr().out
    assert json.loads(out) == {"a": None, "b": [None, 1.5], "c": {"d": "\x1b é"}}
    assert "\x1b" not in out
    assert out.endswith("}\n")


def test_console_takes_nothing_for_markup() -> None:
    target = io.StringIO()
    PipeConsole(file=target, markup=False, emoji=False, highlight=False).print("[bold]x[/bold] :smile:")
    assert target.getvalue() == "[bold]x[/bold] :smile:\n"


def test_tree_labels_draw_the_tree() -> None:
    paths = ["step", "step/a", "step/a/x", "step/a/y", "step/b", "step/b/x/y", "other"]
    assert tree_labels(paths) == ["step", "├ a", "│ ├ x", "│ └ y", "└ b", "  └ x/y", "other"]
