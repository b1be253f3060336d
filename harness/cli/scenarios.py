"""`stepduel scenarios`: what can be run, and what a scenario resolves to."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import click
from rich.text import Text

from harness.cli.options import json_option, set_option
from harness.cli.output import clean, print_json, stderr_console, stdout_console
from harness.errors import UsageError
from harness.scenario import Scenario, load_scenario, scenario_files, search_path


@click.command()
@click.argument("name", required=False)
@set_option("Override a key, as in bench.")
@json_option
def scenarios(name: str | None, overrides: tuple[str, ...], as_json: bool) -> None:
    """List the scenarios, or show one resolved.

    NAME is a scenario's name or the path of a TOML file; what is shown has its base and overrides applied.
    """
    if name is None:
        if overrides:
            raise UsageError("--set needs the scenario that it overrides: stepduel scenarios NAME --set …")
        _list(as_json)
    else:
        _show(load_scenario(name, overrides), as_json)


def _list(as_json: bool) -> None:
    found = [load_scenario(name) for name in scenario_files()]
    if as_json:
        rows = [{"name": item.name, "description": item.description, "hash": item.hash} for item in found]
        print_json({"schema": "stepduel/scenarios/1", "scenarios": rows})
        return
    if not found:
        folders = ", ".join(map(str, search_path())) or "./scenarios"
        raise UsageError(f"no scenarios found in {folders}: a scenario is one TOML file there")
    width = max(len(clean(item.name)) for item in found)
    for item in found:
        line = Text.assemble((f"{clean(item.name):<{width}}", "bold"), f"  {clean(item.description)}")
        stdout_console().print(line, soft_wrap=True)  # never wrapped by us: one line each, in a pipe too
    _say_what_is_missing(found)


def _say_what_is_missing(found: Sequence[Scenario]) -> None:
    """Say on stderr which scenarios measure a package that is not here, and so need a subject that is named."""
    packages = Counter(item.subject.package for item in found if item.subject.package is not None)
    for package, count in sorted(packages.items()):
        if importlib.util.find_spec(package) is None:
            some = f"{count} scenarios measure" if count > 1 else "1 scenario measures"
            text = (
                f"{some} {package}, which is not installed here: name a release of it as the subject, as in "
                f"release:{package}==VERSION, or its checkout with --repo"
            )
            stderr_console().print(Text(clean(text), style="dim"), soft_wrap=True)


def _show(scenario: Scenario, as_json: bool) -> None:
    if as_json:
        document = {"name": scenario.name, "hash": scenario.hash, **scenario.document()}
        print_json({"schema": "stepduel/scenario/1", **document})
        return
    lines = [f"# {scenario.name}, resolved; hash {scenario.hash}", *_as_toml(scenario.document())]
    for line in lines:
        stdout_console().print(Text(clean(line), style="bold" if line.startswith("[") else ""), soft_wrap=True)


def _as_toml(document: dict[str, Any]) -> list[str]:
    """Return the resolved scenario as the TOML file that would give it without `extends`."""
    lines = [f"{key} = {_toml_value(value)}" for key, value in document.items() if not isinstance(value, dict)]
    for section, table in document.items():
        if isinstance(table, dict):
            lines += ["", f"[{section}]", *(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in table.items())]
    return lines


def _toml_key(key: str) -> str:
    return key if key.replace("_", "").replace("-", "").isalnum() and key.isascii() else json.dumps(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, dict):
        inner = ", ".join(f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items() if item is not None)
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value)  # TOML writes strings (escapes included), integers and booleans as JSON does
