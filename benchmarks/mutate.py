"""How many single changes to what decides truth do the tests notice? `make mutate ARGS='--seed 1 --number 40'`.

Draws changes (`mutants.py`) with a seed, makes each alone in a temporary copy of the tree, and runs there the tests
that concern the changed package, the fast ones first, until one fails. What no test can notice, because it
changes nothing that anybody could see, is listed with its reason in `mutants_explained.toml` and is not drawn.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

from mutants import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
EXPLAINED = Path(__file__).with_name("mutants_explained.toml")
FAST = "not slow and not verl"
SLOW = "not verl"
LEFT_OUT = (".*", "__pycache__", "reports", "*.egg-info", "build", "dist")


@dataclass(frozen=True)
class Tests:
    """Tests that concern a package: fast ones, then slow ones (launches) only if those noticed nothing."""

    fast: Sequence[str]
    slow: Sequence[str] = ()

    def runs(self, root: Path, file: str) -> list[list[str]]:
        """Return the arguments of pytest for each run, in order. Test files that name the module come first."""
        module = file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        fast = {path: None for given in self.fast for path in _test_files(root / given)}
        ordered = sorted(fast, key=lambda path: module not in path.read_text(encoding="utf-8"))
        runs = [["-m", FAST, *(str(path.relative_to(root)) for path in ordered)], ["-m", SLOW, *self.slow]]
        return [run for run, paths in zip(runs, (self.fast, self.slow), strict=True) if paths]


def _test_files(given: Path) -> list[Path]:
    found = sorted(given.rglob("test_*.py")) if given.is_dir() else [given]
    return [path for path in found if path.name not in BROWSERS]


TOY_DUELS = ["tests/duel/test_duel.py", "tests/duel/test_paid.py", "tests/duel/test_ended_duels.py"]
PACKAGES: Mapping[str, Tests] = {
    "harness/stats": Tests(
        [
            "tests/stats",
            "tests/test_verdict.py",
            "tests/history",
            "tests/duel/test_pacing.py",
            "tests/duel/test_paid.py",
        ]
    ),
    "harness/verdict.py": Tests(["tests/test_verdict.py", "tests/gate"]),
    "harness/units.py": Tests(["tests/test_units.py", "tests/analysis/test_findings.py"]),
    "harness/analysis": Tests(["tests/analysis", "tests/cli/test_diff.py", "tests/cli/test_analyze.py"]),
    "harness/trace": Tests(
        ["tests/trace", "tests/analysis", "tests/cli/test_scrub.py", "tests/cli/test_export.py", "tests/worker"]
    ),
    "harness/store": Tests(["tests/test_store.py", "tests/history", "tests/gate", "tests/report", *TOY_DUELS]),
    "harness/comparison": Tests(["tests/comparison", "tests/duel/test_same_work.py", "tests/report", *TOY_DUELS]),
    "harness/duel": Tests(
        ["tests/duel/test_pacing.py", "tests/duel/test_assemble.py", "tests/worker/test_clock.py", *TOY_DUELS],
        ["tests/cli/test_compare.py"],
    ),
    "engine_under_test": Tests(["tests/engine"], ["tests/engine/test_engine_ranks.py"]),
}
BROWSERS = ("test_browser.py", "test_perfetto_ui.py")
"""They test what a page looks like, take long, and on a busy machine time out."""
NOT_HERE = ("engine_under_test/verl",)  # needs verl: `make test-verl`


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant: the test that noticed it, or None."""

    mutant: Mutant
    noticed_by: str | None
    seconds: float


def all_mutants(root: Path, packages: Mapping[str, Tests]) -> list[Mutant]:
    """Return every change to every file of the packages, files by name."""
    found = []
    for package in packages:
        top = root / package
        for path in sorted(top.rglob("*.py")) if top.is_dir() else [top]:
            file = path.relative_to(root).as_posix()
            if not file.startswith(NOT_HERE):
                found += mutants_of(file, path.read_text(encoding="utf-8"))
    return found


def explained(found: Sequence[Mutant], path: Path) -> tuple[set[Mutant], list[str]]:
    """Return the mutants that the file explains, and the entries that fit none: the code has changed since."""
    entries = tomllib.loads(path.read_text(encoding="utf-8")).get("mutant", []) if path.exists() else []
    known: set[Mutant] = set()
    stale = []
    for entry in entries:
        key = (entry["file"], entry["source"], entry["change"])
        fits = {mutant for mutant in found if (mutant.file, mutant.source, mutant.change) == key}
        known |= fits
        if not fits or not entry["reason"]:
            stale.append("  ".join(key))
    return known, stale


def draw(found: Sequence[Mutant], seed: int, number: int) -> list[Mutant]:
    """Draw lines by seed, then one change of each: a line with many constants weighs no more than another."""
    lines: dict[tuple[str, int], list[Mutant]] = {}
    for mutant in found:
        lines.setdefault((mutant.file, mutant.line), []).append(mutant)
    chance = random.Random(seed)
    chosen = chance.sample(sorted(lines), min(number, len(lines)))
    return [chance.choice(lines[line]) for line in chosen]


class Copy:
    """A copy of the tree that mutants are made in, one at a time. Children of its tests import it too."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = folder / root.name
        shutil.copytree(root, self.root, ignore=shutil.ignore_patterns(*LEFT_OUT))
        if (root / ".ci").is_dir():
            shutil.copytree(root / ".ci", self.root / ".ci")

    @contextlib.contextmanager
    def changed(self, mutant: Mutant) -> Iterator[None]:
        """Make the change for as long as the block lasts."""
        path = self.root / mutant.file
        text = path.read_text(encoding="utf-8")
        try:
            self._write(path, mutant.apply(text))
            yield
        finally:
            self._write(path, text)

    @staticmethod
    def _write(path: Path, text: str) -> None:
        """Compiled files go by size and second of the source: they would outlive a change within one second."""
        path.write_text(text, encoding="utf-8")
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()

    def failure(self, arguments: Sequence[str], limit_s: float) -> str | None:
        """Run pytest; return the first test that fails, or None. What the tests started is ended with them."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--tb=no", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self.root)}
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                out, _ = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return f"no end within {limit_s:.0f} s"
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        if process.returncode in (0, 5):  # 5: every test was deselected
            return None
        failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", out, re.MULTILINE)
        return failed[0] if failed else (out.strip().splitlines() or ["pytest said nothing"])[-1]


def survey(root: Path, packages: Mapping[str, Tests], drawn: Sequence[Mutant], jobs: int, limit_s: float) -> int:
    """Try the mutants, print a line for each; return how many were noticed.

    A test that notices must pass without the change: SystemExit where it does not.
    """
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        copies: SimpleQueue[Copy] = SimpleQueue()
        for number in range(jobs):
            copies.put(Copy(root, Path(folder) / str(number)))
        sound: set[str] = set()

        def attempt(mutant: Mutant) -> Outcome:
            copy, began = copies.get(), time.monotonic()
            try:
                with copy.changed(mutant):
                    runs = tests_of(packages, mutant).runs(copy.root, mutant.file)
                    found = next((said for run in runs if (said := copy.failure(run, limit_s))), None)
                took_s = time.monotonic() - began
                test = (found or "").partition("[")[0]
                if "::" in test and test not in sound:
                    if copy.failure(["-m", SLOW, test], limit_s):
                        raise SystemExit(f"{test} fails without any change too; mend that first")
                    sound.add(test)
                return Outcome(mutant, found, took_s)
            finally:
                copies.put(copy)

        noticed = 0
        try:
            for outcome in pool.map(attempt, drawn):
                noticed += outcome.noticed_by is not None
                result = "SURVIVED" if outcome.noticed_by is None else "noticed "
                print(f"{result} {outcome.mutant}  {outcome.noticed_by or ''}  ({outcome.seconds:.0f} s)", flush=True)
        finally:
            pool.shutdown(cancel_futures=True)
    return noticed


def tests_of(packages: Mapping[str, Tests], mutant: Mutant) -> Tests:
    """Return the tests of the package that the mutant is in."""
    return next(tests for package, tests in packages.items() if Path(mutant.file).is_relative_to(package))


def main(arguments: Sequence[str] | None = None, packages: Mapping[str, Tests] = PACKAGES) -> int:
    """Exit status 1: fewer were noticed than asked for, or an explanation fits nothing any more."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="what is drawn; the same tree and seed draw the same")
    parser.add_argument("--number", type=int, default=40, help="mutants to try (default: 40)")
    parser.add_argument("--only", default="", metavar="PATH", help="draw from files whose path begins so")
    parser.add_argument("--line", type=int, help="every change of this one line, instead of a draw")
    parser.add_argument("--at-least", type=float, default=0.95, metavar="SHARE", help="fail below (default: 0.95)")
    parser.add_argument("--jobs", type=int, default=2, help="mutants at once (default: 2)")
    parser.add_argument("--limit-s", type=float, default=600.0, help="longest run of tests; beyond counts as noticed")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    parser.add_argument("--explained", type=Path, default=EXPLAINED, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    found = all_mutants(options.root, packages)
    known, stale = explained(found, options.explained)
    for entry in stale:
        print(f"explains nothing any more, or gives no reason: {entry}")
    left = [mutant for mutant in found if mutant not in known and mutant.file.startswith(options.only)]
    if options.line is None:
        drawn = draw(left, options.seed, options.number)
    else:
        drawn = [mutant for mutant in left if mutant.line == options.line]
    noticed = survey(options.root, packages, drawn, options.jobs, options.limit_s)
    share = noticed / len(drawn) if drawn else 1.0
    print(f"{noticed} of {len(drawn)} noticed, {share:.1%} (seed {options.seed}; {len(found)} can be drawn, ", end="")
    print(f"{len(known)} of them explained)")
    return int(share < options.at_least or bool(stale))


if __name__ == "__main__":
    sys.exit(main())
