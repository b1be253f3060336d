"""The parent of a launch's ranks, where no tool needs to see them start: it has imported torch, and forks them.

torchrun imports torch and starts ranks that import it again, which is most of what a short duel waits for. A process
forked from one that has only imported what a rank imports is what it would be after its own imports, to its modules
and the counters of its garbage collector. At the fork no other thread runs, no device is initialised, and nothing has
been drawn from a random generator.

To its ranks this process is what torchrun's agent is on one node, which stays in charge elsewhere: the same variables,
the store that they meet in, the end of all when one fails, and the same words about it, which `launch.failure` reads.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Mapping
from typing import Final, NoReturn

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # documented there, but not in its stubs

_ADDRESS: Final = "127.0.0.1"
_PORT_BYTES: Final = 2
_FAIL_TOGETHER_S: Final = 0.1
"""Ranks that fail within this time of each other are all told of: the first to end need not be the cause."""
_TERMINATE_S: Final = 30.0
_LOOK_S: Final = 0.02


def fork_ranks(ranks: int) -> None:
    """Return in each of `ranks` new processes. This one serves and watches them, and ends when they have ended."""
    reader, writer = os.pipe()
    running: dict[int, int] = {}
    for rank in range(ranks):
        pid = os.fork()
        if pid == 0:
            os.close(writer)
            os.setsid()  # as torchrun does
            port = os.read(reader, _PORT_BYTES)
            os.close(reader)
            if not port:
                os._exit(1)  # the parent has ended
            os.environ.update(_variables(rank, ranks, int.from_bytes(port, "big")))
            return
        running[pid] = rank
    # After the forks: the store has a thread, whose locks a child would inherit.
    store = TCPStore(_ADDRESS, 0, is_master=True, wait_for_workers=False)
    os.write(writer, store.port.to_bytes(_PORT_BYTES, "big") * ranks)
    _watch(running)


def _variables(rank: int, ranks: int, port: int) -> Mapping[str, str]:
    """What torchrun tells a rank of a job on one node that is not restarted."""
    places = {f"{group}RANK": str(rank) for group in ("", "LOCAL_", "ROLE_")}
    sizes = {f"{group}WORLD_SIZE": str(ranks) for group in ("", "LOCAL_", "ROLE_")}
    elastic = {
        "RUN_ID": f"stepduel-{os.getppid()}",
        "USE_AGENT_STORE": "True",
        "RESTART_COUNT": "0",
        "MAX_RESTARTS": "0",
    }
    return {
        **places,
        **sizes,
        **{f"TORCHELASTIC_{name}": value for name, value in elastic.items()},
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
        "MASTER_ADDR": _ADDRESS,
        "MASTER_PORT": str(port),
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def _watch(running: dict[int, int]) -> NoReturn:
    """Sleep until every rank (by process) has ended, or one has failed: then end the others and say who failed."""
    while running:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        if code:
            failed = [(running.pop(pid), pid, code)]
            time.sleep(_FAIL_TOGETHER_S)
            failed += _ended(running)
            _terminate(running)
            for rank, pid, code in failed:
                print(f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {pid})", file=sys.stderr)
            sys.stderr.flush()
            os._exit(1)
        del running[pid]
    os._exit(0)


def _ended(running: dict[int, int]) -> list[tuple[int, int, int]]:
    """Take the ranks that have ended out of `running`; return rank, process and exit code of those that failed."""
    failed = []
    for pid, rank in list(running.items()):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            del running[pid]
            if code := os.waitstatus_to_exitcode(status):
                failed.append((rank, pid, code))
    return failed


def _terminate(running: dict[int, int]) -> None:
    """End the ranks that are left, by SIGTERM, and those that do not heed it by SIGKILL."""
    for number, within_s in ((signal.SIGTERM, _TERMINATE_S), (signal.SIGKILL, 1.0)):
        for pid in running:
            print(f"Sending process {pid} closing signal {number.name}", file=sys.stderr, flush=True)
            os.kill(pid, number)
        deadline = time.monotonic() + within_s
        while running and time.monotonic() < deadline:
            _ended(running)
            time.sleep(_LOOK_S)
