"""The commits that head has and base lacks."""

from __future__ import annotations

from typing import Final

from harness.comparison import Comparison
from harness.report.page import Section, draw
from harness.subject.commits import CommitRange
from harness.units import plural

TEMPLATE: Final = """
<p>{{ sentence }}</p>
{% if commits %}
<ol class="commits">
{% for commit in commits %}
<li><code>{{ commit.revision[:10] | name }}</code> {{ commit.subject | name(200) }}</li>
{% endfor %}
</ol>
{% if older %}
<p class="note">and {{ older }} older ones</p>
{% endif %}
{% endif %}
"""


def section(comparison: Comparison, found: CommitRange | None) -> Section:
    """Return the commits between both sides; None where the repository could not tell."""
    commits = () if found is None else found.commits
    return Section(
        anchor="commits",
        title="Commits from base to head",
        html=draw(
            TEMPLATE,
            sentence=_sentence(comparison, found),
            commits=commits,
            older=0 if found is None else found.count - len(commits),
        ),
    )


def _sentence(comparison: Comparison, found: CommitRange | None) -> str:
    base, head = comparison.base, comparison.head
    changes = " Head has uncommitted changes besides." if head.dirty else ""
    if base.revision is not None and base.revision == head.revision:
        return f"Both sides are the same commit.{changes}"
    if found is None:
        return f"The commits between both sides are not known here.{changes}"
    behind = f" Base has {plural(found.behind, 'commit')} that head lacks." if found.behind else ""
    return f"Head adds {plural(found.count, 'commit')}.{behind}{changes}"
