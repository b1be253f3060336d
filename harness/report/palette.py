"""The colours of every report, once, for light and for dark. A test holds each pair below to WCAG AA contrast.

Templates and plots name a role and never a colour. Orange means slower and teal faster, which also people with a colour
deficiency tell apart; every such mark carries a sign or a word as well.
"""

from __future__ import annotations

from typing import Final

# role: (light, dark)
COLOURS: Final[dict[str, tuple[str, str]]] = {
    "page": ("#ffffff", "#10151c"),
    "panel": ("#f5f7f9", "#18202a"),
    "line": ("#dbe0e6", "#2d3846"),
    "grid": ("#e8ecf0", "#232d38"),
    "text": ("#17202b", "#e4e9ef"),
    "muted": ("#566271", "#9ba8b7"),
    "link": ("#1f56b8", "#8ab4f8"),
    "base": ("#66717f", "#a3afbd"),
    "head": ("#2559c2", "#86aefa"),
    "slower": ("#b0410e", "#f39a68"),
    "faster": ("#0a7566", "#4fc7ad"),
    "same": ("#3f5b78", "#a4bdd8"),
    "undecided": ("#855a00", "#e2b655"),
    "invalid": ("#79409c", "#cda2e8"),
    "slower-soft": ("#fbeee7", "#3a2419"),
    "faster-soft": ("#e4f4f1", "#14312d"),
    "same-soft": ("#eaf0f6", "#1c2a39"),
    "undecided-soft": ("#fbf3e0", "#332a15"),
    "invalid-soft": ("#f5edf9", "#2e2138"),
    "quiet": ("#c3cad2", "#47535f"),
    "box": ("#e3e8ee", "#2a3542"),
}


def stylesheet() -> str:
    """Return the CSS variables: by the reader's system, or as the page's own switch says."""
    light, dark = ("".join(f"--{role}:{pair[index]};" for role, pair in COLOURS.items()) for index in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n"
    )
