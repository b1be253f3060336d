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

READABLE_PAIRS: Final[tuple[tuple[str, str], ...]] = (
    # (text, what it stands on): at least 4.5 to 1
    *((text, ground) for text in ("text", "muted", "link", "base", "head") for ground in ("page", "panel")),
    *((state, "page") for state in ("slower", "faster", "same", "undecided", "invalid")),
    *((state, f"{state}-soft") for state in ("slower", "faster", "same", "undecided", "invalid")),
    *(("text", f"{state}-soft") for state in ("slower", "faster", "same", "undecided", "invalid")),
    ("muted", "slower-soft"),
    ("muted", "faster-soft"),
    ("muted", "same-soft"),
    ("muted", "undecided-soft"),
    ("muted", "invalid-soft"),
    ("text", "box"),
    ("slower", "panel"),
    ("faster", "panel"),
)


def stylesheet() -> str:
    """Return the CSS variables: by the reader's system, or as the page's own switch says."""
    light, dark = ("".join(f"--{role}:{pair[index]};" for role, pair in COLOURS.items()) for index in (0, 1))
    return (
        f":root{{color-scheme:light;{light}}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}}}}}\n"
    )


def contrast(first: str, second: str) -> float:
    """Return the contrast ratio of two colours `#rrggbb`, from 1 to 21 (WCAG 2.2)."""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
