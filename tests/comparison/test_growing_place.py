"""Which range is said to keep memory."""

from __future__ import annotations

from harness.comparison.growth import RangeGrowth, growing_place

RANGES = ("step/batch", "step/forward_backward", "step/optimizer_step")


def growth(*head: tuple[float, float, float]) -> RangeGrowth:
    """Base grows by 1 MB in forward_backward, head by that and what is given, launch pair by launch pair."""
    base = {(pair, "base", path): 1e6 * (path == RANGES[1]) for pair in range(1, len(head) + 1) for path in RANGES}
    own = {
        (pair, "head", path): base[pair, "base", path] + more
        for pair, grown in enumerate(head, 1)
        for path, more in zip(RANGES, grown, strict=True)
    }
    return {**base, **own}  # type: ignore[dict-item]


def test_the_range_that_grows_most_beyond_base_is_named() -> None:
    found = growing_place(growth((0, 2e4, 3e5), (0, 1e4, 3.001e5), (0, 3e4, 2.999e5)), [1, 2, 3])
    assert found is not None
    assert (found.path, round(found.delta)) == ("step/optimizer_step", 300_000)
    assert found.low < 3e5 < found.high
    assert found.text.startswith("in optimizer_step: 300 kB [")


def test_launches_that_do_not_agree_name_none() -> None:
    assert growing_place(growth((0, 0, 9e5), (0, 0, 0), (0, 0, 0)), [1, 2, 3]) is None
    assert growing_place(growth((0, 0, 3e5)), [1]) is None, "one launch pair has no interval"
    assert growing_place({}, [1, 2, 3]) is None
    assert growing_place(growth((0, 0, -3e5), (0, 0, -3e5)), [1, 2]) is None


def test_a_range_that_only_head_has_grows_from_nothing() -> None:
    found = growing_place({(pair, "head", "step/batch"): 5e4 for pair in (1, 2)}, [1, 2])
    assert found is not None
    assert (found.path, found.low, found.high) == ("step/batch", 5e4, 5e4)
