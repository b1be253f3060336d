"""What the documentation takes from the code is current, and nothing a command can end with is missing from it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import generate
import pytest

from harness.cli.__main__ import COMMANDS, EXIT_CODES
from harness.errors import StepduelError
from harness.gate.decision import EXIT_CODES as GATE_EXIT_CODES

README = generate.ROOT / "README.md"


def test_the_graph_of_packages_is_current() -> None:
    assert generate.ARCHITECTURE.read_text(encoding="utf-8") == generate.architecture(), "run make docs"


def test_the_graph_leaves_out_what_a_longer_way_implies_and_nothing_else() -> None:
    graph = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set[str]()}
    assert generate.reduced(graph) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}
    assert "  cli --> " in generate.mermaid()


def test_the_reference_of_commands_is_current(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    text = generate.reference()
    assert generate.REFERENCE.read_text(encoding="utf-8") == text, "run make docs"
    assert set(re.findall(r"^## stepduel (\S+)$", text, re.MULTILINE)) == set(COMMANDS)
    assert "## stepduel db merge" in text


def exit_codes() -> Iterator[int]:
    """Every exit code that the harness gives: of errors, of the gate, and of constants named for it."""
    yield from GATE_EXIT_CODES.values()
    families = [StepduelError]
    while families:
        family = families.pop()
        yield family.exit_code
        families += family.__subclasses__()
    for module, path in generate.modules().items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and re.fullmatch("EXIT_[A-Z_]+", target.id):
                value = getattr(__import__(module, fromlist=["*"]), target.id)
                if isinstance(value, int):
                    yield value


def test_every_exit_code_is_documented() -> None:
    assert set(exit_codes()) | {0} == set(EXIT_CODES)
    words = " ".join(README.read_text(encoding="utf-8").split())
    assert ", ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items()) + "." in words


def test_every_command_is_told_of_in_prose() -> None:
    pages = [README, *(path for path in README.parent.glob("docs/*.md") if path != generate.REFERENCE)]
    prose = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    assert not [name for name in COMMANDS if f"stepduel {name}" not in prose]
