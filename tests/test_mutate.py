"""`make mutate`, on a toy package with a test that notices and a boundary that no test looks at."""

from __future__ import annotations

from pathlib import Path

import mutate
import pytest
from mutants import mutants_of

TOY = """
def over(value: float, limit: float) -> bool:
    return value > limit
"""
TEST = """
from toy import over

def test_over():
    assert over(2, 1)
    assert not over(0, 1)
"""
PACKAGES = {"toy.py": mutate.Tests(["tests"])}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "tests").mkdir(parents=True)
    (root / "toy.py").write_text(TOY)
    (root / "tests" / "test_toy.py").write_text(TEST)
    return root


def run(root: Path, *arguments: str) -> int:
    explained = root.with_name("explained.toml")
    options = ["--root", str(root), "--explained", str(explained), "--line", "3", "--jobs", "1"]
    return mutate.main([*options, *arguments], PACKAGES)


def test_what_no_test_looks_at_survives_and_the_tree_is_left_alone(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(root) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 4
    assert said[0].startswith("noticed  toy.py:3  returned value → None")
    assert said[1].startswith("noticed  toy.py:3  > → <  in  return value > limit  tests/test_toy.py::test_over  (")
    assert said[2].startswith("SURVIVED toy.py:3  > → >=  in  return value > limit")
    assert said[3].startswith("2 of 3 noticed, 66.7% ")
    assert (root / "toy.py").read_text() == TOY
    assert sorted(path.name for path in root.rglob("*")) == ["test_toy.py", "tests", "toy.py"]


def test_what_is_explained_is_left_out_until_the_line_changes(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entry = '[[mutant]]\nfile = "toy.py"\nsource = "{}"\nchange = "{}"\nreason = "limits are never met exactly"\n'
    changes = ["> → >=", "returned value → None", "> → <"]
    explained = root.with_name("explained.toml")
    explained.write_text("".join(entry.format("return value > limit", change) for change in changes))
    (root / "toy.py").write_text(f"# another line above\n{TOY}")
    assert run(root, "--line", "4") == 0
    assert "0 of 0 noticed" in capsys.readouterr().out
    explained.write_text(entry.format("return value > bound", "> → >="))
    assert run(root, "--line", "1") == 1
    assert "explains nothing any more, or gives no reason: toy.py  return value > bound" in capsys.readouterr().out


def test_a_test_that_fails_without_any_change_notices_nothing(root: Path) -> None:
    (root / "tests" / "test_toy.py").write_text("def test_broken(): assert False")
    with pytest.raises(SystemExit, match=r"test_toy\.py::test_broken fails without any change too"):
        run(root)


CODE = '''"""What it is: 1 + 1."""
from typing import Final

LIMIT: Final = 0.5

@decorated(frozen=True)
def chosen(rows: list[int], edge: int = 3, *, name: str = "é") -> list[int]:
    """Return 1 of them."""
    found = [row for row in rows if row is not None]
    for row in found:
        if not row or row <= edge and max(row, 2) in rows:
            continue
        raise ValueError(f"{name}: {row + 1}")
    rows[0] = searched(found, side="left", scale=-edge)
    record(found, strict=True)
    return found
'''


def test_changes_are_made_where_they_stand_and_leave_a_file_that_compiles() -> None:
    found = mutants_of("code.py", CODE)
    assert {(mutant.line, mutant.change) for mutant in found} == {
        (4, "0.5 → 0.5 + 1"), (7, "3 → 3 + 1"), (9, "filter dropped"), (9, "is not → is"),
        (11, "condition → False"), (11, "not dropped"), (11, "or → and"), (11, "<= → <"), (11, "<= → >="),
        (11, "and → or"), (11, "max → min"), (11, "2 → 2 + 1"), (11, "in → not in"), (12, "continue dropped"),
        (13, "raise dropped"), (14, "statement dropped"), (14, "0 → 0 + 1"),
        (14, "left → right"), (14, "side= dropped"), (14, "scale= dropped"), (14, "- dropped"),
        (15, "statement dropped"), (16, "returned value → None"),
    }  # fmt: skip
    for mutant in found:
        changed = mutant.apply(CODE)
        compile(changed, "code.py", "exec")
        assert changed != CODE
        lines = zip(CODE.splitlines(), changed.splitlines(), strict=True)
        assert [number for number, (old, new) in enumerate(lines, 1) if old != new] == [mutant.line]


def test_the_same_seed_draws_the_same_and_another_one_others() -> None:
    found = mutate.all_mutants(mutate.ROOT, mutate.PACKAGES)
    drawn = mutate.draw(found, 1, 40)
    assert drawn == mutate.draw(found, 1, 40)
    assert len({(mutant.file, mutant.line) for mutant in drawn}) == 40
    assert len(set(drawn) & set(mutate.draw(found, 2, 40))) < 10


def test_every_explanation_fits_a_line_and_gives_a_reason() -> None:
    found = mutate.all_mutants(mutate.ROOT, mutate.PACKAGES)
    assert mutate.explained(found, mutate.EXPLAINED)[1] == []


def test_every_test_that_is_named_is_there() -> None:
    for tests in mutate.PACKAGES.values():
        assert all((mutate.ROOT / path).exists() for path in (*tests.fast, *tests.slow))
