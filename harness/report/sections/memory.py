"""Peak memory of both sides and the limit that head is held to."""

from __future__ import annotations

from typing import Final

from harness.comparison import Comparison
from harness.report import figures
from harness.report.page import Section, draw

TEMPLATE: Final = """
{% if not memory %}
<p class="nothing">The launches reported no memory figures.</p>
{% else %}
<p>{{ sentence }}</p>
<div class="scroll" role="region" aria-label="Memory" tabindex="0"><table>
<thead><tr><th scope="col">Largest of all ranks and launches</th><th scope="col" class="n">Base</th><th scope="col" class="n">Head</th><th scope="col" class="n">Difference</th></tr></thead>
<tbody>
<tr><th scope="row">{{ "Peak on the device" if cuda else "Peak resident set" }}</th><td class="n">{{ memory.base_peak_bytes | bytes }}</td><td class="n">{{ memory.head_peak_bytes | bytes }}</td><td class="n">{{ peak }}</td></tr>
{% if rss %}<tr><th scope="row">Resident set at a step’s end</th><td class="n">{{ memory.base_rss_bytes | bytes }}</td><td class="n">{{ memory.head_rss_bytes | bytes }}</td><td class="n">{{ rss }}</td></tr>{% endif %}
<tr><th scope="row">Limit for head</th><td class="n"></td><td class="n">{{ memory.limit_bytes | bytes }}</td><td class="n"></td></tr>
</tbody></table></div>
{% endif %}
"""


def section(comparison: Comparison) -> Section:
    """Return the memory of a comparison."""
    memory = comparison.memory
    sentence = peak = rss = ""
    if memory is not None:
        peak = figures.signed_bytes(memory.head_peak_bytes - memory.base_peak_bytes)
        if memory.base_rss_bytes is not None and memory.head_rss_bytes is not None:
            rss = figures.signed_bytes(memory.head_rss_bytes - memory.base_rss_bytes)
        held = "exceeds its limit" if memory.exceeded else "stays below its limit"
        sentence = f"Head’s peak {held}. Peaks repeat so closely that a plain threshold does; they are no part of the verdict on time."
    return Section(
        anchor="memory",
        title="Memory",
        html=draw(
            TEMPLATE, memory=memory, sentence=sentence, peak=peak, rss=rss, cuda=comparison.duel.device == "cuda"
        ),
    )
