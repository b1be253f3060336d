"""Holds the layer table of docs/architecture.md: imports go down only, and the light parts stay light."""

from __future__ import annotations

import ast
import itertools
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from generate import import_graph, imported, layers, modules, package_graph, part

from harness.collectors.registry import collectors

ROOT = Path(__file__).resolve().parent.parent
RANK_OF = {name: index for index, line in enumerate(layers()) for name in line}
PURE_MODULES = {
    "__future__", "collections", "dataclasses", "difflib", "enum", "functools", "harness", "itertools", "json", "math",
    "numpy", "operator", "pandas", "pathlib.PurePath", "re", "scipy", "statistics", "typing",
}  # fmt: skip
IMPURE_NAMES = {"__import__", "eval", "exec", "input", "open", "print"}
IMPURE_ATTRIBUTES = {"default_rng", "fromfile", "load", "loadtxt", "memmap", "read_csv", "save", "to_csv"}

RANK_SIDES = {able for able in (item.abilities.rank_side for item in collectors().values()) if able is not None}
HARNESS_FILES = sorted(modules().values())


def reached(names: set[str]) -> list[str]:
    """Return `names` and every module that importing them runs, the packages that hold one included."""
    found, further = set[str](), names
    while further:
        found |= further
        imports = {other for module in further for other in import_graph()[module]}
        further = imports.union(*map(packages_of, imports)) - found
    return sorted(found)


def packages_of(module: str) -> set[str]:
    return set(itertools.accumulate(module.split(".")[:-1], "{}.{}".format))


def test_every_package_is_in_the_layer_table_and_no_other() -> None:
    assert sorted(name for line in layers() for name in line) == sorted(package_graph())


@pytest.mark.parametrize("name", sorted(package_graph()))
def test_imports_go_down_only(name: str) -> None:
    above = {other for other in package_graph()[name] if RANK_OF[other] <= RANK_OF[name]}
    assert not above, f"{name} imports {sorted(above)}, which the layer table does not have below it"


def test_no_modules_import_each_other_in_a_circle() -> None:
    try:
        tuple(TopologicalSorter(import_graph()).static_order())
    except CycleError as error:
        pytest.fail(f"a circle of imports: {' → '.join(error.args[1])}")


@pytest.mark.parametrize("name", ["analysis", "stats", "verdict"])
def test_what_is_pure_opens_no_file_and_reads_no_clock(name: str) -> None:
    # harness itself hands out `harness.frames` to those who ask for it by name.
    for module in set(reached({module for module in modules() if part(module) == name})) - {"harness"}:
        found = impure(modules()[module])
        assert not found, f"{module}, which {name} imports: {found}"


def impure(path: Path) -> list[str]:
    """What a file uses that makes its results depend on more than its arguments."""
    uses = [f"imports {module}" for module in imported(path) if not {module, module.split(".")[0]} & PURE_MODULES]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name) and node.id in IMPURE_NAMES:
            uses.append(f"line {node.lineno}: {node.id}")
        elif isinstance(node, ast.Attribute) and node.attr in IMPURE_ATTRIBUTES:
            uses.append(f"line {node.lineno}: .{node.attr}")
    return uses


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("import time", 1),
        ("from datetime import datetime", 1),
        ("open('x')", 1),
        ("from pathlib import Path", 1),
        ("np.random.default_rng()", 1),
        ("import math\nnp.log(values)", 0),
    ],
)
def test_a_look_at_files_or_clocks_is_seen(text: str, count: int, tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(text, encoding="utf-8")
    assert len(impure(tmp_path / "module.py")) == count


def test_harness_and_engine_do_not_know_each_other() -> None:
    for path in HARNESS_FILES:
        assert not any(m.split(".")[0] == "engine_under_test" for m in imported(path)), path
    for path in sorted((ROOT / "engine_under_test").rglob("*.py")):
        tops = {m.split(".")[0] for m in imported(path)}
        assert not tops & {"harness", "nvtx"}, path


def test_the_worker_needs_only_the_standard_library_nvtx_and_torch() -> None:
    # numpy is seeded where it is installed, and not asked for
    allowed = set(sys.stdlib_module_names) | {"nvtx", "torch", "harness", "__future__", "numpy"}
    for module in reached(RANK_SIDES | {module for module in modules() if part(module) == "worker"}):
        tops = {m.split(".")[0] for m in imported(modules()[module])}
        assert tops <= allowed, f"{module} imports {sorted(tops - allowed)}"


def test_no_command_loads_pandas() -> None:
    """Only `harness.frames` does, which no command imports."""
    code = (
        "import sys, pkgutil, importlib, harness.cli as cli\n"
        "for module in pkgutil.iter_modules(cli.__path__):\n"
        "    module.name == '__main__' or importlib.import_module(f'harness.cli.{module.name}')\n"
        "import harness.bench, harness.duel, harness.gate.reports, harness.history.page, harness.report\n"
        "import harness.comparison.rows, harness.analysis.analyze\n"
        "print([m for m in ('torch', 'pandas') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"


def test_importing_harness_loads_no_heavy_package() -> None:
    code = "import harness, sys; print([m for m in ('torch', 'pandas', 'numpy', 'matplotlib') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"
