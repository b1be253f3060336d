"""What Ctrl-C, SIGTERM or a closed terminal make of a duel that has launch pairs to show."""

from __future__ import annotations

from harness.comparison import Comparison


class DuelStoppedError(KeyboardInterrupt):
    """The duel was stopped between or within launch pairs. `so_far` is what the whole ones, which are stored, say."""

    def __init__(self, so_far: Comparison) -> None:
        super().__init__("interrupted")
        self.so_far = so_far
