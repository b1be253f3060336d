"""A scenario is read from layers, and every mistake in it is answered with the file, the key and what is allowed."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_under_test.config import Fsdp2Config
from harness.errors import UsageError
from harness.scenario import load_scenario, scenario_files
from harness.scenario.model import CompareSettings, RunSettings

ROOT = Path(__file__).resolve().parent.parent
MINIMAL = """\
description = "A test"
[engine]
factory = "pkg.module:build"
layers = 2
"""


def write(folder: Path, text: str, name: str = "mine") -> str:
    """Put a scenario into `folder` and return the path to load it by."""
    path = folder / f"{name}.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_resolves_with_defaults(tmp_path: Path) -> None:
    scenario = load_scenario(write(tmp_path, MINIMAL))
    assert (scenario.name, scenario.description, scenario.factory) == ("mine", "A test", "pkg.module:build")
    assert scenario.engine == {"layers": 2}, "only what the file sets reaches the engine"
    assert (scenario.run.mode, scenario.run.ranks, scenario.run.warmup_steps, scenario.run.steps) == ("train", 1, 2, 10)
    assert scenario.probes == ()


def test_extends_is_overlaid_key_by_key(tmp_path: Path) -> None:
    write(tmp_path, MINIMAL + 'hidden = 3\n[run]\nsteps = 7\nranks = 2\n[probes]\na = "m.a"\n', name="_base")
    child = 'description = "B"\nextends = "_base"\n[run]\nranks = 4\n[engine]\nlayers = 9\n[probes]\nb = "m.b"\n'
    scenario = load_scenario(write(tmp_path, child))
    assert scenario.engine == {"layers": 9, "hidden": 3}
    assert (scenario.run.steps, scenario.run.ranks) == (7, 4)
    assert [probe.name for probe in scenario.probes] == ["a", "b"]


def test_extends_stops_after_one_level(tmp_path: Path) -> None:
    write(tmp_path, MINIMAL, name="one")
    write(tmp_path, 'description = "2"\nextends = "one"\n', name="two")
    with pytest.raises(UsageError, match=r"three\.toml: extends 'two', which itself extends another: one level"):
        load_scenario(write(tmp_path, 'description = "3"\nextends = "two"\n', name="three"))


def test_seed_reaches_the_engine_only_when_set(tmp_path: Path) -> None:
    assert "seed" not in load_scenario(write(tmp_path, MINIMAL)).engine
    scenario = load_scenario(write(tmp_path, MINIMAL), ["run.seed=7"])
    assert (scenario.run.seed, scenario.engine["seed"]) == (7, 7)


@pytest.mark.parametrize(
    ("text", "section", "key", "value"),
    [
        ("engine.lora_rank=16", "engine", "lora_rank", 16),
        ("engine.context_switch=always", "engine", "context_switch", "always"),
        ("engine.context_switch='always'", "engine", "context_switch", "always"),
        ("engine.param_offload = true", "engine", "param_offload", True),
        ("engine.rates=[1, 2.5]", "engine", "rates", [1, 2.5]),
        ("engine.revision=2.11.0", "engine", "revision", "2.11.0"),
        ("engine.path=a/b=c", "engine", "path", "a/b=c"),
        ("run.steps=3", "run", "steps", 3),
        ("run.timeout_s=3", "run", "timeout_s", 3.0),
    ],
)
def test_set_overrides_a_key(tmp_path: Path, text: str, section: str, key: str, value: object) -> None:
    document = load_scenario(write(tmp_path, MINIMAL), [text]).document()
    assert document[section][key] == value
    assert type(document[section][key]) is type(value)


def test_set_replaces_a_probe_whose_name_has_a_dot(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL + '[probes]\n"gc.collect" = "gc.collect"\n')
    scenario = load_scenario(path, ['probes.gc.collect={target="gc.collect", result="collected_objects"}'])
    assert [(probe.name, probe.result) for probe in scenario.probes] == [("gc.collect", "collected_objects")]


def test_an_override_without_a_value_takes_the_key_away(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    scenario = load_scenario(path, ["engine.x=1", "probes.y=a.b", "engine.x=", "probes.y="])
    assert scenario.hash == load_scenario(path).hash


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("engine.lora_rank", "expected SECTION.KEY=VALUE"),
        ("lora_rank=16", "expected SECTION.KEY=VALUE"),
        ("engin.lora_rank=16", "no section 'engin'. Did you mean 'engine'?"),
        ("run.rank=2", "no key 'rank'. Did you mean 'ranks'?"),
        ("run.ranks=0", "run.ranks = 0: expected an integer of at least 1"),
        ("run.seed=9223372036854775808", "expected an integer from 0 to 9223372036854775807"),
        (f"run.seed=1{'0' * 400}", "expected an integer from 0 to 9223372036854775807"),
        ("run.ranks=true", "run.ranks = True: expected an integer of at least 1"),
        ("run.ranks=1.5", "expected an integer of at least 1"),
        ("run.timeout_s=0", "expected a number above 0"),
        ("run.timeout_s=nan", "expected a number above 0"),
        ("run.timeout_s=inf", "expected a number above 0"),
        ("run.warmup_steps=-1", "expected an integer of at least 0"),
        ("run.mode=trian", "expected one of 'train', 'eval'. Did you mean 'train'?"),
        ("engine.x=1\nfactory='a:b'", "expected one value on one line"),
        ("engine.x=", "takes away what nothing sets"),
        ("engine.x=[1", "neither TOML nor a bare word"),
        ("engine.x=2020-01-01", "expected text, a number"),
        ("engine.x=[nan]", "expected text, a number"),
        ("engine.seed=3", "set run.seed"),
        ("engine.factory=oops", "expected 'package.module:callable'"),
        ("probes.x=1", "expected 'dotted.target' or"),
        ("probes.x=nodots", "expected the target as a dotted path"),
        ("probes.x={target='a.b', results='moved_bytes'}", "unknown key 'results'. Did you mean 'result'?"),
        ("probes.x={target='a.b', result='moved_byte'}", "Did you mean 'moved_bytes'?"),
        ("probes.a/b='a.b'", "cannot name a range"),
        ("probes.step='a.b'", "cannot name a range"),
        ("compare.loss_tolerance=-1", "expected a number of at least 0"),
        ("description=''", "expected one line of text"),
    ],
)
def test_bad_overrides_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_scenario(write(tmp_path, MINIMAL), [text])
    assert complaint in str(caught.value)
    assert f"--set {text}" in str(caught.value), "the layer that is wrong is named"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[engine\n", "not valid TOML"),
        (MINIMAL + "[runs]\n", "unknown key 'runs'. Did you mean 'run'?"),
        (MINIMAL.replace("description", "descriptoin"), "unknown key 'descriptoin'. Did you mean 'description'?"),
        ("run = 3\n" + MINIMAL, "expected a table, written as [run]"),
        ('description = "x"\n', "engine.factory is missing"),
        (MINIMAL.replace('"A test"', "3"), "description = 3: expected one line of text"),
        (MINIMAL.replace('description = "A test"', ""), "description is missing: expected one line on what it"),
        ("extends = 3\n" + MINIMAL, "expected the name of a scenario"),
        ('extends = "_basee"\n' + MINIMAL, "no such scenario. Did you mean '_base'?"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    write(tmp_path, MINIMAL, name="_base")
    with pytest.raises(UsageError) as caught:
        load_scenario(write(tmp_path, text))
    assert complaint in str(caught.value)
    assert "mine.toml" in str(caught.value)


def test_a_mistake_in_the_base_names_the_base(tmp_path: Path) -> None:
    write(tmp_path, MINIMAL + "[run]\nsteps = 0\n", name="_base")
    with pytest.raises(UsageError, match=r"_base\.toml: run\.steps = 0"):
        load_scenario(write(tmp_path, 'description = "x"\nextends = "_base"\n'))


def test_files_that_are_no_text_or_no_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="cannot be read as a TOML file"):
        load_scenario(str(tmp_path / "binary.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UsageError, match="expected a path to an existing TOML file"):
        load_scenario(str(tmp_path / "folder.toml"))


def test_own_scenarios_win_over_packaged_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scenarios").mkdir()
    write(tmp_path / "scenarios", MINIMAL, name="smoke")
    write(tmp_path / "scenarios", 'description = "x"\nextends = "_fsdp2"\n', name="extended")
    monkeypatch.chdir(tmp_path)
    assert load_scenario("smoke").description == "A test"
    assert load_scenario("extended").factory == "engine_under_test.fsdp2:build_engine", "a packaged base is found"
    assert "fsdp2_lora_no_offload" in scenario_files()
    assert not any(name.startswith("_") for name in scenario_files())
    with pytest.raises(UsageError, match=r"no scenario named 'smoek'\. Did you mean 'smoke'"):
        load_scenario("smoek")


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers() | st.text(max_size=5), max_size=4))
def test_hash_depends_on_engine_values_and_not_on_their_order(
    tmp_path_factory: pytest.TempPathFactory, keys: dict[str, int | str]
) -> None:
    plain = load_scenario(write(tmp_path_factory.mktemp("hash"), MINIMAL))
    changed = dataclasses.replace(plain, engine={**plain.engine, **keys})
    reordered = dataclasses.replace(plain, engine=dict(reversed(list(changed.engine.items()))))
    assert (changed.hash == plain.hash) == (not keys)
    assert reordered.hash == changed.hash


def test_hash_leaves_out_words_limits_and_tolerances(tmp_path: Path) -> None:
    path = write(tmp_path, MINIMAL)
    plain = load_scenario(path)
    for text in ("description=other", "run.timeout_s=1", "compare.loss_tolerance=0.5"):
        assert load_scenario(path, [text]).hash == plain.hash
    for text in ("run.steps=11", "run.ranks=2", "run.mode=eval", "run.seed=1", "engine.factory=a:b", "probes.a=b.c"):
        assert load_scenario(path, [text]).hash != plain.hash


PROMISED = [
    *(
        f"fsdp2_{kind}_{offload}"
        for kind, offload in itertools.product(
            ("lora", "full"),
            ("no_offload", "param_offload", "optimizer_offload", "param_optimizer_offload", "cpu_offload_policy"),
        )
    ),
    "fsdp2_lora_eval_no_offload",
    "fsdp2_lora_eval_param_offload",
    "qwen3_30b_a3b",
    "smoke",
]


def test_promised_scenarios_are_all_there() -> None:
    found = {path.stem for path in (ROOT / "scenarios").glob("[!_]*.toml")}
    assert set(PROMISED) == {name for name in found if not name.startswith("verl_")}  # test_verl_adapter.py has those


@pytest.mark.parametrize("name", PROMISED)
def test_promised_scenario_is_what_its_name_says(name: str) -> None:
    scenario = load_scenario(str(ROOT / "scenarios" / f"{name}.toml"))
    config = Fsdp2Config(**scenario.engine)  # type: ignore[arg-type]  # a scenario's values are checked by the config
    if not name.startswith("fsdp2_"):
        return
    assert (config.layers, config.experts) == (12, 64)
    assert (config.lora_rank > 0) == ("_lora_" in name)
    assert (scenario.run.mode == "eval") == ("_eval_" in name)
    assert config.param_offload == ("param_" in name)
    assert config.optimizer_offload == ("optimizer_offload" in name)
    assert config.cpu_offload_policy == ("cpu_offload_policy" in name)
    assert config.context_switch == "when_offloaded"


def test_the_page_beside_the_scenarios_names_every_key() -> None:
    page = (ROOT / "scenarios" / "README.md").read_text(encoding="utf-8")
    settings = {"run": dataclasses.fields(RunSettings), "compare": dataclasses.fields(CompareSettings)}
    for table, known in settings.items():
        assert [f"`{table}.{field.name}`" for field in known if f"`{table}.{field.name}`" not in page] == []
