"""Where scenarios are: `./scenarios` of the current folder, then those that came with Stepduel, or any TOML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from harness.errors import UsageError, closest
from harness.scenario.layers import Entry, Layer, parse_override, read_layer, shown
from harness.scenario.model import Scenario
from harness.scenario.resolve import resolve


def search_path() -> list[Path]:
    """Return the folders searched for scenarios: `./scenarios` first, then those that came with Stepduel."""
    package = Path(__file__).resolve().parent.parent
    packaged = package / "_scenarios"  # in a wheel; a checkout has them beside the package
    own = packaged if packaged.is_dir() else package.parent / "scenarios"
    return list(dict.fromkeys(path.resolve() for path in (Path("scenarios"), own) if path.is_dir()))


def scenario_files() -> dict[str, Path]:
    """Return every scenario by name. Files that begin with `_` are there to be extended only."""
    found: dict[str, Path] = {}
    for folder in search_path():
        for path in sorted(folder.glob("*.toml")):
            if not path.name.startswith("_"):
                found.setdefault(path.stem, path)
    return dict(sorted(found.items()))


@dataclass(frozen=True, kw_only=True)
class ScenarioFile:
    """A scenario as its files have it: read once, resolved as often as overrides differ."""

    path: Path
    layer: Layer

    @property
    def name(self) -> str:
        """What it is called in results."""
        return self.path.stem

    def overridden(self, overrides: Sequence[str]) -> ScenarioFile:
        """Return the same with more overrides, which win over what it has. UsageError for one that fits nothing."""
        layer = dict(self.layer)
        for text in overrides:
            for key, entry in parse_override(text).items():
                if entry.value is not None:
                    layer[key] = entry
                elif layer.pop(key, None) is None:
                    raise UsageError(f"{entry.origin}: takes away what nothing sets; KEY=VALUE sets it")
        return replace(self, layer=layer)

    def resolve(self) -> Scenario:
        """Return the scenario. Raises UsageError naming the file, the key, what is allowed and the nearest name."""
        return resolve(self.path, self.layer)


def read_scenario(name: str) -> ScenarioFile:
    """Read the scenario called `name`, or in the file `name`, when it ends in `.toml`. Raises UsageError."""
    path = _find(name)
    layer = read_layer(path)
    extends = layer.pop(("", "extends"), None)
    if extends is not None:
        layer = {**_read_base(extends, path), **layer}
    return ScenarioFile(path=path, layer=layer)


def load_scenario(name: str, overrides: Sequence[str] = ()) -> Scenario:
    """Return the scenario called `name` with `overrides` applied; see `read_scenario` and `ScenarioFile.resolve`."""
    return read_scenario(name).overridden(overrides).resolve()


def _find(name: str) -> Path:
    if name.endswith(".toml"):
        path = Path(name)
        if not path.is_file():
            raise UsageError(f"no scenario file {name}: expected a path to an existing TOML file")
        return path.resolve()
    known = scenario_files()
    if name not in known:
        hint = closest(name, known) or " `stepduel scenarios` lists them."
        raise UsageError(f"no scenario named {name!r}.{hint}")
    return known[name]


def _read_base(extends: Entry, child: Path) -> Layer:
    if not isinstance(extends.value, str):
        raise UsageError(f"{extends.origin}: extends = {shown(extends.value)}: expected the name of a scenario")
    folders = [child.parent, *search_path()]
    for folder in folders:
        path = folder / f"{extends.value}.toml"
        if path.is_file():
            break
    else:
        known = {path.stem for folder in folders for path in folder.glob("*.toml")}
        raise UsageError(
            f"{extends.origin}: extends = {extends.value!r}: no such scenario.{closest(extends.value, known)}"
        )
    base = read_layer(path)
    if ("", "extends") in base:
        raise UsageError(
            f"{extends.origin}: extends {extends.value!r}, which itself extends another: one level is allowed, "
            "so that a scenario is read in two files at most"
        )
    return base
