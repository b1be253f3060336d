"""Range trees as icicles on one time axis, zoomable. Boxes are HTML: their text keeps its size at every zoom.

Every box is a button, so that a keyboard reaches it and a screen reader says its path and time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from harness.measured import TreeRange
from harness.report import figures
from harness.report.page import Section, draw
from harness.report.page import name as shown
from harness.units import count_text, milliseconds, percent, plural, signed_ms

SMALLEST: Final = 0.0005
"""Share of the axis below which a range has no box: under half a pixel."""
MOST_BOXES: Final = 600
ROW: Final = 26
MOST_TICKS: Final = 10

TEMPLATE: Final = """
{% if trees %}
<p>{{ note }}</p>
<div class="icicles" data-span="{{ span_ms }}">
<div class="icicle-bar">
<span id="icicle-hint">Choose a range to zoom in on it; arrow keys move between ranges, Escape zooms out.</span>
<button type="button" class="zoom-out" hidden>Zoom out</button>
</div>
{% for tree in trees %}
<div class="icicle-head">
{% if tree.side %}
{{ m.side(tree.side) }}
{% endif %}
<strong>{{ tree.total_ns | ms }} ms</strong> <span class="muted">{{ tree.caption }}</span>
</div>
<div class="icicle" role="group" aria-label="{{ tree.label }}" aria-describedby="icicle-hint"
 style="height:{{ tree.height }}px">
{% for box in tree.boxes %}
<button type="button" class="box {{ box.role }}" tabindex="{{ 0 if loop.first else -1 }}" aria-label="{{ box.label }}"
 style="left:{{ box.left }}%;width:{{ box.width }}%;top:{{ box.top }}px" data-left="{{ box.left }}"
 data-width="{{ box.width }}" data-depth="{{ box.depth }}" data-path="{{ box.path }}" data-tip="{{ box.tip }}">
<span>{{ box.name }}</span></button>
{% endfor %}
</div>
{% endfor %}
<div class="icicle-axis" aria-hidden="true">
{% for tick in ticks %}
<span style="left:{{ tick.at }}%">{{ tick.text }}</span>
{% endfor %}
</div>
</div>
{% if hidden %}
<p class="note">{{ hidden }} too short to see {{ "is" if hidden.startswith("1 ") else "are" }} not drawn.</p>
{% endif %}
{% else %}
<p class="nothing">Nothing was traced: there is no tree to show.</p>
{% endif %}
"""


@dataclass(frozen=True, kw_only=True)
class Tree:
    """One step to draw. `side` is empty where there is only one; `caption` says which step it is."""

    side: str
    caption: str
    ranges: Sequence[TreeRange]

    @property
    def total_ns(self) -> float:
        """Time of the outermost ranges, which follow each other."""
        return sum(item.total_ns for item in self.ranges if item.depth == 0)


def section(trees: Sequence[Tree], note: str, changes_ns: Mapping[str, float] | None = None) -> Section:
    """Return the trees, one below the other. `changes_ns` are the own-time differences of ranges that really moved."""
    span_ns = max((tree.total_ns for tree in trees), default=0)
    drawn = [_drawn(tree, span_ns, changes_ns or {}) for tree in trees] if span_ns else []
    hidden = sum(len(tree.ranges) for tree in trees) - sum(len(boxes) for _, boxes in drawn)
    return Section(
        anchor="trees",
        title="A median step, range by range",
        html=draw(
            TEMPLATE,
            note=note,
            span_ms=f"{span_ns / 1e6:.6f}",
            trees=[
                {
                    "side": tree.side,
                    "caption": tree.caption,
                    "total_ns": tree.total_ns,
                    "height": (max(int(str(box["depth"])) for box in boxes) + 1) * ROW,
                    "label": f"Ranges of a median step{' of ' + tree.side if tree.side else ''}",
                    "boxes": boxes,
                }
                for tree, boxes in drawn
                if boxes
            ],
            ticks=_ticks(span_ns / 1e6) if drawn else [],
            hidden=plural(hidden, "range") if hidden else "",
        ),
    )


def _ticks(span_ms: float) -> list[dict[str, object]]:
    """Round times, four to nine of them; the script makes the same for each zoom."""
    step = 10 ** math.floor(math.log10(span_ms / 2))
    step *= next(factor for factor in (1, 2, 5) if span_ms / (step * factor) < MOST_TICKS)
    digits = max(0, -math.floor(math.log10(step)))
    times = [step * index for index in range(math.floor(span_ms / step) + 1)]
    return [{"at": round(100 * ms / span_ms, 4), "text": f"{ms:.{digits}f}{'' if ms else ' ms'}"} for ms in times]


def _drawn(tree: Tree, span_ns: float, changes_ns: Mapping[str, float]) -> tuple[Tree, list[dict[str, object]]]:
    boxes = [
        _box(tree, item, start_ns, span_ns, changes_ns.get(item.path, 0.0))
        for item, start_ns in zip(tree.ranges, _starts(tree.ranges), strict=True)
        if item.total_ns >= SMALLEST * span_ns
    ]
    return tree, boxes[:MOST_BOXES]


def _starts(ranges: Sequence[TreeRange]) -> list[float]:
    """Where each range's box begins: siblings follow each other from their parent's start, its own time comes last."""
    starts: list[float] = []
    free_ns = [0.0]
    for item in ranges:
        del free_ns[item.depth + 1 :]
        starts.append(free_ns[item.depth])
        free_ns[item.depth] += item.total_ns
        free_ns.append(starts[-1])
    return starts


def _box(tree: Tree, item: TreeRange, start_ns: float, span_ns: float, change_ns: float) -> dict[str, object]:
    whole = f"{milliseconds(item.total_ns)} ms, {percent(item.total_ns / (tree.total_ns or 1))} of the step"
    calls = f"{count_text(item.calls)} {'call' if item.calls == 1 else 'calls'}"
    facts = [whole, f"own time {milliseconds(item.self_ns)} ms", calls]
    if change_ns:
        facts.append(figures.typographic(f"own time {signed_ms(change_ns)} ms in head"))
    return {
        "path": shown(item.path, 300),
        "name": shown(item.name, 80),
        "depth": item.depth,
        "left": round(100 * start_ns / span_ns, 4),
        "width": round(100 * item.total_ns / span_ns, 4),
        "top": item.depth * ROW,
        "role": figures.direction(change_ns) if change_ns else "",
        "tip": Markup("\n").join(facts),
        "label": f"{shown(item.path, 120)}: {', '.join(facts)}",
    }
