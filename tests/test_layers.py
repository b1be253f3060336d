"""Holds the layer table of docs/architecture.md: imports go down only, and the light parts stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from harness.collectors.registry import collectors

ROOT = Path(__file__).resolve().parent.parent

# Highest first. A module may import from its own package and from lines below its own.
LAYERS: list[set[str]] = [
    {"cli"},
    {"gate", "history"},
    {"bench", "duel", "report", "doctor", "frames"},
    {"comparison", "launch", "worker"},
    {"collectors", "subject"},
    {"verdict", "analysis", "stats", "store"},
    {"trace"},
    {"scenario", "environment", "conditions"},
    {"metrics"},
    {"documents", "errors", "measured", "names", "units", "visible", "__init__"},
]
# The only imports allowed inside a line: a launch writes the worker's plan, verdict and attribution use statistics.
WITHIN_LINE = {("launch", "worker"), ("verdict", "stats"), ("analysis", "stats")}
RANK_OF = {name: index for index, line in enumerate(LAYERS) for name in line}
RANK_SIDES = {able for able in (item.abilities.rank_side for item in collectors().values()) if able is not None}
STANDARD_LIBRARY_ONLY = ["harness/worker", *(f"{module.replace('.', '/')}.py" for module in sorted(RANK_SIDES))]


def imported_modules(path: Path) -> set[str]:
    """Every absolute module name that `path` imports, at any depth of the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; this project imports absolutely"
            assert node.module is not None
            found.add(node.module)
            found.update(f"{node.module}.{alias.name}" for alias in node.names if node.module == "harness")
    return found


def part_of(path: Path) -> str:
    relative = path.relative_to(ROOT / "harness")
    return relative.parts[0].removesuffix(".py")


HARNESS_FILES = sorted((ROOT / "harness").rglob("*.py"))


@pytest.mark.parametrize("path", HARNESS_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_down_only(path: Path) -> None:
    own = part_of(path)
    assert own in RANK_OF, f"{own} has no line in the layer table"
    for module in imported_modules(path):
        if not module.startswith("harness."):
            continue
        other = module.split(".")[1]
        if other == own or other not in RANK_OF:
            continue
        allowed = RANK_OF[other] > RANK_OF[own] or (own, other) in WITHIN_LINE
        assert allowed, f"{own} (line {RANK_OF[own]}) imports {module} (line {RANK_OF[other]})"


def test_harness_and_engine_do_not_know_each_other() -> None:
    for path in HARNESS_FILES:
        assert not any(m.split(".")[0] == "engine_under_test" for m in imported_modules(path)), path
    for path in sorted((ROOT / "engine_under_test").rglob("*.py")):
        tops = {m.split(".")[0] for m in imported_modules(path)}
        assert not tops & {"harness", "nvtx"}, path


def worker_files() -> list[Path]:
    files: list[Path] = []
    for entry in STANDARD_LIBRARY_ONLY:
        path = ROOT / entry
        files.extend(sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.exists() else [])
    return files


def transitive(path: Path, seen: set[Path]) -> None:
    """Add `path` and every harness file that it reaches by import to `seen`."""
    if path in seen:
        return
    seen.add(path)
    for module in imported_modules(path):
        if module.split(".")[0] != "harness":
            continue
        base = ROOT.joinpath(*module.split("."))
        for candidate in (base.with_suffix(".py"), base / "__init__.py"):
            if candidate.exists():
                transitive(candidate, seen)


@pytest.mark.skipif(not worker_files(), reason="no worker yet")
def test_worker_needs_only_the_standard_library_nvtx_and_torch() -> None:
    reached: set[Path] = set()
    for path in worker_files():
        transitive(path, reached)
    allowed = set(sys.stdlib_module_names) | {"nvtx", "torch", "harness", "__future__"}
    for path in sorted(reached):
        tops = {m.split(".")[0] for m in imported_modules(path)}
        assert tops <= allowed, f"{path.relative_to(ROOT)} imports {sorted(tops - allowed)}"


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
