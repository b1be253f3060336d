"""What the other ranks do when a plan is refused. Needs no torch, whose absence may be the reason."""

from __future__ import annotations

import time
from typing import Final

_REFUSAL_S: Final = 30.0
"""Long enough for rank 0 to import torch and refuse as well."""


def leave_the_word_to_rank_0() -> None:
    """Sleep until the launch is killed, for that is what rank 0's refusal leads to.

    torchrun kills the others as soon as one rank ends, rank 0 perhaps before it has said why.
    """
    time.sleep(_REFUSAL_S)
