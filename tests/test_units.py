"""Figures as people write and read them: one reader and one writer of each, whoever asks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import units
from harness.errors import UsageError
from harness.gate.policy import Limits, read_policy
from harness.report.figures import typographic
from harness.scenario import load_scenario

SCENARIOS = Path(__file__).resolve().parent.parent / "scenarios"


@pytest.mark.parametrize(
    ("written", "share"),
    [("5%", 0.05), ("0.05", 0.05), (0.05, 0.05), ("5 %", 0.05), (" 57% ", 0.57), ("1e-3", 0.001), (0, 0.0)],
)
def test_a_share_is_read_the_same_however_it_is_written(written: object, share: float) -> None:
    assert units.parse_share(written) == share


def test_whoever_writes_the_unit_means_it() -> None:
    assert units.parse_share("150%") == 1.5


@pytest.mark.parametrize("written", [5, "5", 1, 1.0, "2.5"])
def test_a_share_without_its_unit_that_would_be_more_than_all_is_a_percentage_that_lost_it(written: object) -> None:
    with pytest.raises(ValueError, match=r"^expected a share, such as 2% or 0\.02 \(") as caught:
        units.parse_share(written)
    number = float(str(written))
    assert str(caught.value).endswith(f"({number:g} is {number * 100:g} %: write {number:g}% or {number / 100:g})")


@pytest.mark.parametrize(
    "read", [units.parse_share, units.parse_seconds, units.parse_milliseconds], ids=lambda read: str(read.__name__)
)
@pytest.mark.parametrize("written", ["", "ten", -1, "-1", True, None, math.nan, math.inf, "inf", "nan", [1], "1x", "%"])
def test_no_reader_takes_what_is_no_figure(read: Callable[[object], float], written: object) -> None:
    with pytest.raises(ValueError, match=r"^expected "):
        read(written)


@pytest.mark.parametrize(
    ("read", "written", "meant"),
    [
        (units.parse_seconds, "90", 90),
        (units.parse_seconds, 90, 90),
        (units.parse_seconds, "90s", 90),
        (units.parse_seconds, "500ms", 0.5),
        (units.parse_seconds, "10 m", 600),
        (units.parse_seconds, "1.5h", 5400),
        (units.parse_milliseconds, "5ms", 5),
        (units.parse_milliseconds, "0.5", 0.5),
        (units.parse_milliseconds, 2.5, 2.5),
        (units.parse_milliseconds, "0", 0),
    ],
)
def test_times_are_read_with_their_unit(read: Callable[[object], float], written: object, meant: float) -> None:
    assert read(written) == meant


def policy_of(folder: Path, line: str) -> Limits:
    path = folder / "stepduel.toml"
    path.write_text(f'[gate]\nscenarios = ["a"]\n{line}\n', encoding="utf-8")
    return read_policy(path).limits["a"]


@pytest.mark.parametrize("key", ["max_slowdown", "max_memory_growth", "max_creep"])
def test_a_policy_refuses_a_limit_that_could_never_fail(tmp_path: Path, key: str) -> None:
    with pytest.raises(UsageError, match=rf"{key} = 5: expected a share.*\(5 is 500 %: write 5% or 0\.05\)"):
        policy_of(tmp_path, f"{key} = 5")


@pytest.mark.parametrize("written", ["5ms", "0.5", "2.5 ms", "0"])
def test_options_and_policy_agree_on_times(tmp_path: Path, written: str) -> None:
    from harness.cli.figures import MILLISECONDS

    value = MILLISECONDS(written)
    assert policy_of(tmp_path, f'min_abs = "{written}"').min_abs_ms == value


@pytest.mark.parametrize("written", ["5%", "0.05", "150%"])
def test_options_and_policy_agree_on_shares(tmp_path: Path, written: str) -> None:
    from harness.cli.figures import SHARE

    assert policy_of(tmp_path, f'max_slowdown = "{written}"').max_slowdown == SHARE(written)


@pytest.mark.parametrize("written", ["5", "five"])
def test_options_and_policy_refuse_the_same_shares_in_the_same_words(tmp_path: Path, written: str) -> None:
    from harness.cli.figures import SHARE

    with pytest.raises(UsageError) as policy:
        policy_of(tmp_path, f'max_slowdown = "{written}"')
    with pytest.raises(click.BadParameter) as option:
        SHARE(written)
    assert str(policy.value).partition("expected")[2] == option.value.message.partition("expected")[2]


def test_a_scenario_reads_its_times_and_shares_alike() -> None:
    path = SCENARIOS / "smoke.toml"
    scenario = load_scenario(str(path), ["run.timeout_s=2m", "compare.loss_tolerance=0.1%"])
    assert (scenario.run.timeout_s, scenario.compare.loss_tolerance) == (120.0, 0.001)
    with pytest.raises(UsageError, match=r"compare\.loss_tolerance = 5: expected a share.*5 is 500 %"):
        load_scenario(str(path), ["compare.loss_tolerance=5"])


AMOUNTS = st.floats(min_value=-1e17, max_value=1e17, allow_nan=False)
SHARES = st.floats(min_value=-1e4, max_value=1e4, allow_nan=False)
PREFIXES = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def number(text: str) -> float:
    """Read what `units` wrote, in the base of its unit."""
    figure, _, unit = text.partition(" ")
    return float(figure.replace(",", "")) * PREFIXES.get(unit, 1)


WRITERS = [
    (units.milliseconds, AMOUNTS, False),
    (units.signed_ms, AMOUNTS, True),
    (units.bytes_text, AMOUNTS, False),
    (lambda count: units.signed(units.bytes_text(count)), AMOUNTS, True),
    (units.percent, SHARES, False),
    (units.signed_percent, SHARES, True),
    (lambda value: units.change(1 + value), st.floats(min_value=-0.999, max_value=1e4), True),
]
IDS = ["milliseconds", "signed_ms", "bytes_text", "signed_bytes", "percent", "signed_percent", "change"]


@pytest.mark.parametrize(("write", "values", "signed"), WRITERS, ids=IDS)
def test_what_is_written_keeps_sign_order_and_digits(
    write: Callable[[float], str], values: st.SearchStrategy[float], signed: bool
) -> None:
    @given(one=values, other=values)
    def check(one: float, other: float) -> None:
        low, high = sorted((one, other))
        text = write(low)
        assert re.fullmatch(r"[+-]?(\d{1,3}(,\d{3})*|\d+)(\.\d+)?( ([kMGT]?B|%))?", text), text
        assert number(text) <= number(write(high)) + 1e-9 * abs(number(text)), (text, write(high))
        assert not number(text) or math.copysign(1, number(text)) == math.copysign(1, low)
        assert number(text) or not text.startswith("-"), f"{text}: nothing has no minus"
        assert text[0] in "+-" if signed else text[0] != "+"
        digits = re.sub(r"^0+|\D", "", text.partition(" ")[0])
        assert len(digits) <= 4 or "." not in text, f"{text}: more digits than count"

    check()


@given(st.floats(min_value=1e3, max_value=9.99e14))
def test_an_amount_of_memory_has_three_digits(count: float) -> None:
    assert len(re.sub(r"\D", "", units.bytes_text(count))) == 3


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0 B", 0),
        ("999 B", 999),
        ("1.00 kB", 1000),
        ("100 kB", 99_960),
        ("1.00 MB", 999_600),
        ("19.1 MB", 19.1e6),
        ("162 kB", 162_000),
        ("1,234 TB", 1.234e15),
        ("-1.50 GB", -1.5e9),
    ],
)
def test_bytes(text: str, count: float) -> None:
    assert units.bytes_text(count) == text


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1,234", 1.234e9),
        ("160.4", 160.4e6),
        ("12.35", 12.346e6),
        ("0.012", 12_000),
        ("1,000", 999.96e6),
        ("100.0", 99.996e6),
        ("10.00", 9.9996e6),
        ("0.000", -100),
    ],
)
def test_milliseconds(text: str, ns: float) -> None:
    assert units.milliseconds(ns) == text


def test_a_change_and_its_interval_share_one_unit() -> None:
    assert units.change(1.031) == "+3.1 %"
    assert units.change(1.031, (1.014, 1.048)) == "+3.1 % [+1.4, +4.8]"
    assert units.change(0.9999, (0.9, 1.0)) == "+0.0 % [-10.0, +0.0]"


def test_a_page_shows_the_same_text_with_a_real_minus() -> None:
    assert typographic("-3.1 % [-4.8, +1.4]") == "−3.1\N{NO-BREAK SPACE}% [−4.8, +1.4]"
    assert typographic("of -12.35 ms") == "of −12.35\N{NO-BREAK SPACE}ms"
    assert typographic("same-code duel-2") == "same-code duel-2"
