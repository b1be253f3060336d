"""Figures as people write and read them: the one reader of shares and times, and the one text of every quantity.

Values are kept in base units (ns, bytes, fractions); only what stands here turns them into text, the same text in the
terminal, in Markdown, HTML, JUnit and findings. Three to four digits count, and no figure has an exponent. A sign is
ASCII, since a verdict's line is read by programs; pages show it as a real minus (`report/figures.py`). What rounds to
nothing has no minus.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import Final

_AMOUNT: Final = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([A-Za-z%]*)")
_BYTES: Final = {"": 1.0, "B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_SECONDS: Final = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_share(value: object) -> float:
    """Return `"2%"` or `0.02` as a fraction. Without the unit it lies below 1: `5` is meant as 5 %, not as 500."""
    expected = "expected a share, such as 2% or 0.02"
    number, unit = _amount(value, ("", "%"), expected)
    if unit == "%":
        return number / 100
    if number >= 1:
        raise ValueError(f"{expected} ({number:g} is {number * 100:g} %: write {number:g}% or {number / 100:g})")
    return number


def parse_bytes(value: object) -> float:
    """Return `300000`, `"300 kB"` or `"1.5MB"` in bytes, above 0. Prefixes are decimal."""
    expected = "expected a size above 0, such as 300kB or 1.5MB"
    number, unit = _amount(value, _BYTES, expected)
    if not number:
        raise ValueError(expected)
    return number * _BYTES[unit]


def parse_seconds(value: object) -> float:
    """Return `90`, `"90s"`, `"10m"` or `"1.5h"` in seconds, above 0."""
    expected = "expected a time above 0, such as 90 (seconds), 10m or 1h"
    number, unit = _amount(value, _SECONDS, expected)
    if not number:
        raise ValueError(expected)
    return number * _SECONDS[unit]


def parse_milliseconds(value: object) -> float:
    """Return `5` or `"5ms"` as milliseconds, 0 or more."""
    return _amount(value, ("", "ms"), "expected milliseconds of at least 0, such as 5 or 5ms")[0]


def _amount(value: object, units: Iterable[str], expected: str) -> tuple[float, str]:
    """Return a number of at least 0 and its unit: a bare number, or text. ValueError says what was expected."""
    unit = ""
    if isinstance(value, str) and (found := _AMOUNT.fullmatch(value.strip())) and found[2] in units:
        value, unit = float(found[1]), found[2]
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < math.inf:
        raise ValueError(expected)
    return float(value), unit


def milliseconds(ns: float) -> str:
    """Return ns as milliseconds, to the µs at most: `1,234`, `160.4`, `12.35`, `0.012`."""
    ms = ns / 1e6
    size = abs(ms)
    return _rounded(ms, 0 if size >= 999.95 else 1 if size >= 99.995 else 2 if size >= 9.9995 else 3)


def time_text(ns: float) -> str:
    """Return a time with its unit, ms, or µs below 0.1 ms: `160.4 ms`, `14.2 µs`."""
    return f"{_three_digits(ns / 1000)} µs" if abs(ns) < 1e5 else f"{milliseconds(ns)} ms"


def bytes_text(count: float) -> str:
    """Return a number of bytes with a decimal prefix and three digits: `0 B`, `1.23 kB`, `19.1 MB`, `162 GB`."""
    if abs(count) < 999.5:
        return f"{_rounded(count, 0)} B"
    value = float(count)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if abs(value) < 999.5:
            return f"{_three_digits(value)} {unit}"
    return f"{_three_digits(value / 1000)} TB"


def percent(share: float) -> str:
    """Return a share (1.0 = all) as percent: `100 %`, `12.3 %`."""
    value = share * 100
    return f"{_rounded(value, 0 if abs(value) >= 99.95 else 1, '')} %"


def count_text(count: float) -> str:
    """Return a count, or a mean of counts: `3`, `1,204`, `2.5`."""
    return _rounded(count, 0 if float(count).is_integer() else 1)


def tokens_per_s_text(rate: float) -> str:
    """Return a rate of tokens: `1,204 tokens/s`."""
    return f"{_rounded(rate, 0)} tokens/s"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """Return `1 step`, `3 steps`, `1,204 steps`."""
    return f"{count:,} {noun if count == 1 else many or f'{noun}s'}"


def ordinal(number: int) -> str:
    """Return `1st`, `2nd`, `8th`, `11th`, `22nd`."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def gb_per_s(bandwidth: float) -> str:
    """Return a bandwidth; of tiny copies, which are all latency, with three decimals: `8.5`, `0.012`."""
    return _rounded(bandwidth, 1 if bandwidth >= 0.1 else 3)


def signed(text: str) -> str:
    """Return the text of a difference with its sign, which nothing has, too: `+19.1 MB`, `-3`, `+0 B`."""
    return text if text.startswith("-") else f"+{text}"


def signed_ms(ns: float) -> str:
    """Return a difference of times in ms: `+4.125`, `-12.35`."""
    return signed(milliseconds(ns))


def signed_percent(share: float) -> str:
    """Return a difference as a fraction: `+3.1 %`."""
    return f"{_points(share)} %"


def change(ratio: float, interval: tuple[float, float] | None = None) -> str:
    """Return new/old as the change it means, with its interval: `+3.1 %`, `+3.1 % [+1.4, +4.8]`."""
    text = signed_percent(ratio - 1)
    return text if interval is None else f"{text} [{_points(interval[0] - 1)}, {_points(interval[1] - 1)}]"


def _points(share: float) -> str:
    value = share * 100
    return signed(_rounded(value, 0 if abs(value) >= 999.95 else 1, ""))


def _three_digits(value: float) -> str:
    return _rounded(value, 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2)


def _rounded(value: float, digits: int, thousands: str = ",") -> str:
    text = f"{value:{thousands}.{digits}f}"
    return text if re.search("[1-9]", text) else text.lstrip("-")


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return names for people, the first of them where there are many: `a, b, c and 4 more`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
