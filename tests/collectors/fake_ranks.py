"""A launch in small: starts rank processes that step with ranges, as torchrun and the worker do. For test_nsys.py.

Usage: fake_ranks.py RANKS WARMUP STEPS [RANK]
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import nvtx

from harness import names


def meet(where: str, rank: int, ranks: int) -> None:
    """Wait until every rank has come here; stands in for the collectives of the worker."""
    folder = Path(os.environ["TMPDIR"])
    (folder / f"{where}.{rank}").touch()
    while not all((folder / f"{where}.{other}").exists() for other in range(ranks)):
        time.sleep(0.002)


def rank_main(ranks: int, warmup: int, steps: int, rank: int) -> None:
    """Rank 0 opens the capture range before anybody's first measured step, and closes it after everybody's last."""
    capture = None
    domain = nvtx.get_domain(names.NVTX_DOMAIN)
    for index in range(warmup + steps):
        if index == warmup:
            meet("warm", rank, ranks)
            if rank == 0:
                capture = nvtx.start_range(message=names.CAPTURE, domain=names.NVTX_DOMAIN)
            meet("open", rank, ranks)
        with nvtx.annotate(names.STEP, domain=names.NVTX_DOMAIN):
            domain.mark(domain.get_event_attributes(message=names.RANK_MARK, payload=rank))
            time.sleep(0.002)
    meet("done", rank, ranks)
    if capture is not None:
        nvtx.end_range(capture)


def main() -> None:
    ranks, warmup, steps, *rank = map(int, sys.argv[1:])
    if rank or ranks == 1:
        rank_main(ranks, warmup, steps, rank[0] if rank else 0)
        return
    children = [
        subprocess.Popen([sys.executable, *sys.argv, str(each)], env={**os.environ, "RANK": str(each)})
        for each in range(ranks)
    ]
    sys.exit(max(child.wait() for child in children))


if __name__ == "__main__":
    main()
