"""What the registry says of every collector, and what importing it costs."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from harness.collectors import base, registry

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", registry.names_where())
def test_a_collector_is_what_its_abilities_say(name: str) -> None:
    collector = registry.collectors()[name]
    able = collector.abilities
    assert collector.name == name
    assert able.traces or able == base.Abilities(traces=False), "what traces nothing can do nothing else"
    if able.rank_side is not None:
        module = importlib.import_module(able.rank_side)
        assert callable(module.start_rank)
        assert isinstance(collector, vars(module)[type(collector).__name__]), "one file holds both sides"


def test_choices_follow_abilities() -> None:
    assert registry.names_where() == ["nsys", "kineto", "recorder", "none"], "the order in which auto tries them"
    assert registry.names_where(lambda able: able.sees_gpu) == ["nsys", "kineto"]
    assert registry.names_where(lambda able: not able.traces) == [registry.UNTRACED]
    assert registry.collectors()[registry.DEFAULT].abilities.automatic == "always"
    assert not registry.collectors()[registry.DEFAULT].abilities.fixed_pace, "a duel finds its pace by itself"


def test_importing_the_registry_loads_nothing_heavy() -> None:
    heavy = ("torch", "numpy", "pandas", "pyarrow", "nvtx", "matplotlib")
    code = f"import harness.collectors.registry, sys; print([m for m in {heavy} if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert out.stdout.strip() == "[]"
