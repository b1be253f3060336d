"""Writes what the documentation takes from the code: python docs/generate.py (`make docs`)

The graph of packages in architecture.md, from the imports, and the reference of commands, cli.md, from click. A test
says when either is out of date.
"""

from __future__ import annotations

import ast
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import click

ROOT: Final = Path(__file__).resolve().parent.parent
ARCHITECTURE: Final = ROOT / "docs" / "architecture.md"
REFERENCE: Final = ROOT / "docs" / "cli.md"
_GRAPH = re.compile(r"(?<=<!-- graph: made by docs/generate.py -->\n).*?(?=<!-- end of graph -->)", re.DOTALL)

Graph = Mapping[str, set[str]]


@functools.cache
def modules() -> dict[str, Path]:
    """Return every module of the harness and its file; a package's is its `__init__.py`."""
    files = sorted((ROOT / "harness").rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in files}


@functools.cache
def imported(path: Path) -> set[str]:
    """Return every module that a file imports, at any depth of it; names taken from a module stand as `module.name`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; this project imports absolutely"
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


@functools.cache
def import_graph() -> dict[str, set[str]]:
    """Return for each module of the harness those that it imports."""
    known = modules()
    graph = {}
    for name, path in known.items():
        names = imported(path)
        graph[name] = {one if one in known else one.rpartition(".")[0] for one in names} & known.keys() - {name}
    return graph


def part(module: str) -> str:
    """Return the package or module right below `harness` that a module belongs to; `harness` for harness itself."""
    return module.split(".")[1] if "." in module else module


@functools.cache
def package_graph() -> dict[str, set[str]]:
    """Return for each part of the harness the others that it imports."""
    graph: dict[str, set[str]] = {}
    for module, others in import_graph().items():
        graph.setdefault(part(module), set()).update(part(other) for other in others)
    return {name: others - {name} for name, others in graph.items()}


def reduced(graph: Graph) -> dict[str, set[str]]:
    """Return a graph without circles less its arrows that a longer way implies."""

    def reached(name: str) -> set[str]:
        return {*graph[name], *(further for other in graph[name] for further in reached(other))}

    return {
        name: {one for one in others if not any(one in reached(other) for other in others)}
        for name, others in graph.items()
    }


def layers() -> list[list[str]]:
    """Return the lines of the layer table in architecture.md, highest first."""
    table = re.search(r"^    cli →[^\n]*\n(?:    [^\n]*\n)*", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    assert table is not None, f"{ARCHITECTURE} has no layer table"
    return [[name.strip() for name in line.split(",")] for line in " ".join(table[0].split()).split("→")]


def mermaid() -> str:
    """Return the graph of packages as GitHub draws it, a box for each line of the layer table."""
    graph = reduced(package_graph())
    boxes = [f'  subgraph line{place}[" "]\n    {" & ".join(line)}\n  end' for place, line in enumerate(layers())]
    arrows = [f"  {name} --> {' & '.join(sorted(graph[name]))}" for name in sorted(graph) if graph[name]]
    return "\n".join(["```mermaid", "flowchart TD", *boxes, *arrows, "```", ""])


def architecture() -> str:
    """Return architecture.md with the graph as it is."""
    return _GRAPH.sub(lambda _: mermaid(), ARCHITECTURE.read_text(encoding="utf-8"))


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield a command and those below it with their full names."""
    yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=name)
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            assert found is not None
            yield from commands(found, f"{name} {below}")


def reference() -> str:
    """Return cli.md: the exit codes, and what `--help` of each command prints."""
    from harness.cli.__main__ import EXIT_CODES, cli

    lines = ["# Commands", "", "Written by `make docs` from the commands themselves.", "", "## Exit codes", ""]
    lines += ["| code | |", "| --: | --- |", *(f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items())]
    for name, command in commands(cli, "stepduel"):
        context = click.Context(command, info_name=name, terminal_width=100, **cli.context_settings)
        lines += ["", f"## {name}", "", "```text", *map(str.rstrip, command.get_help(context).splitlines()), "```"]
    return "\n".join([*lines, ""])


def main() -> int:
    """Write both files."""
    ARCHITECTURE.write_text(architecture(), encoding="utf-8")
    REFERENCE.write_text(reference(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
