"""Entry of every rank. `torchrun … harness/worker/__main__.py PLAN.json` runs one; without torchrun,
`… PLAN.json RANKS` forks them. Run by its path, with the engine's Python.

`harness` is loaded from beside this file, not from `sys.path`: the subject may have a `harness` of its own, an older
one, and it must stay hidden without anything of ours coming before the engine's modules.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
from pathlib import Path
from typing import NoReturn


def load_harness() -> None:
    """Put the `harness` package that this file is in into `sys.modules`; take this file's folder off `sys.path`."""
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != here]
    package = here.parent
    spec = importlib.util.spec_from_file_location(
        "harness", package / "__init__.py", submodule_search_locations=[str(package)]
    )
    assert spec is not None  # a file location always gives one
    assert spec.loader is not None
    sys.modules["harness"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


def refuse(plan_path: Path, error: ImportError) -> NoReturn:
    """Tell the coordinator that this interpreter lacks what a rank needs."""
    if os.environ.get("RANK", "0") == "0":  # the parent of ranks to be forked speaks for them
        plan = json.loads(plan_path.read_text(encoding="utf-8"))
        message = f"{sys.executable} cannot run a rank: {error}; install torch and nvtx into its environment"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.connect(plan["control_socket"])
            connection.sendall(json.dumps({"event": "refused", "message": message}).encode() + b"\n")
    else:
        from harness.worker.refusal import leave_the_word_to_rank_0

        leave_the_word_to_rank_0()
    sys.exit(2)


if __name__ == "__main__":
    load_harness()
    try:
        from harness.worker.rank import main
    except ImportError as error:
        refuse(Path(sys.argv[1]), error)
    if len(sys.argv) > 2:
        from harness.worker.fork import fork_ranks

        fork_ranks(int(sys.argv.pop()))  # goes on in each rank
    main(Path(sys.argv[1]))
