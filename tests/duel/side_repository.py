"""A repository whose engine tells where everything it uses came from, each way of using a file once.

`VERSION` stands for the commit in every file that differs between its two commits.
"""

from __future__ import annotations

import os
from pathlib import Path

from duel_bench import git

ENGINE = """
import importlib.resources, multiprocessing, os, subprocess, sys

server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(["blocks"])
multiprocessing.forkserver.ensure_running()  # before the engine is there

from pathlib import Path
from types import SimpleNamespace

import blocks, linked, pkg, namespaced.far, namespaced.near, spawned
import torch

def build(open_also="", width=1):
    told = []
    for context in (multiprocessing.get_context("spawn"), server):
        queue = context.Queue()
        process = context.Process(target=spawned.tell, args=(queue,))
        process.start()
        told.append(queue.get(timeout=60))
        process.join()
    left = Path("checkpoints/last.pt")
    found = left.exists()
    left.parent.mkdir(exist_ok=True)
    torch.save({}, left)
    if open_also:
        Path(open_also).read_text()
    asked = {"check": True, "capture_output": True, "text": True}
    description = {
        "import": pkg.VERSION,
        "relative path": Path("config.txt").read_text().strip(),
        "resource": importlib.resources.files("pkg").joinpath("data.txt").read_text().strip(),
        "editable sibling": blocks.VERSION,
        "namespace, two roots": f"{namespaced.near.VERSION} {namespaced.far.VERSION}",
        "link": linked.VERSION,
        "child of an editable install": subprocess.run(
            [sys.executable, "-P", "-c", "import blocks; print(blocks.VERSION)"], **asked
        ).stdout.strip(),
        "python -m": subprocess.run([sys.executable, "-m", "pkg.child"], **asked).stdout.strip(),
        "spawned process": told[0],
        "fork server": told[1],
        "git log": subprocess.run(["git", "log", "-1", "--format=%s"], **asked).stdout.strip(),
        "git describe": subprocess.run(["git", "describe", "--tags"], **asked).stdout.strip(),
        "git status": subprocess.run(["git", "status", "--porcelain", "-uno"], **asked).stdout.strip(),
        "ignored data": Path("data/set.bin").stat().st_size,
        ".env": Path(".env").read_text().strip(),
        "checkpoint of an earlier launch": found,
        "folder of extensions": Path(os.environ["TORCH_EXTENSIONS_DIR"]).parent.parent.name,
    }
    return SimpleNamespace(
        description=description,
        batch=lambda step: torch.ones(4) * step,
        forward_backward=lambda batch: batch.sum(),
        optimizer_step=lambda: None,
    )
"""

FILES = {
    "trainer/side_engine.py": ENGINE,
    "trainer/spawned.py": "import blocks\n\ndef tell(queue):\n    queue.put(blocks.VERSION)\n",
    "trainer/pkg/__init__.py": "VERSION = 'VERSION'\n",
    "trainer/pkg/child.py": "print('VERSION')\n",
    "trainer/pkg/data.txt": "VERSION\n",
    "trainer/config.txt": "VERSION\n",
    "trainer/namespaced/near.py": "VERSION = 'VERSION'\n",
    "libs/far/namespaced/far.py": "VERSION = 'VERSION'\n",
    "libs/blocks/src/blocks/__init__.py": "VERSION = 'VERSION'\n",
    "libs/linked/__init__.py": "VERSION = 'VERSION'\n",
    ".gitignore": "data/\n.env\n*.so\n__pycache__/\n",
}
OWN = (
    *("import", "relative path", "resource", "editable sibling", "link", "python -m", "spawned process"),
    *("fork server", "child of an editable install"),
)
"""What is the commit's in the engine's description."""


def make_repository(repo: Path) -> list[str]:
    """Make the repository with the tags `base` and `head`; return the folders of its editable installs."""
    for tag in ("base", "head"):
        for name, text in FILES.items():
            path = repo / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(
                text.replace("'VERSION'", f"'{tag}'") if name.endswith(".py") else text.replace("VERSION", tag)
            )
        if tag == "base":
            (repo / "trainer/linked").symlink_to("../libs/linked")
            git(repo, "init", "-q", "-b", "main")
        git(repo, "add", ".")
        git(repo, "commit", "-q", "-m", tag)
        git(repo, "tag", tag)
    (repo / "trainer/data").mkdir()
    with (repo / "trainer/data/set.bin").open("wb") as data:
        data.truncate(2 << 20)
    (repo / "trainer/.env").write_text("KEY=1\n")
    return [str(repo / "libs/blocks/src"), str(repo / "libs/far")]


def search_path(folders: list[str]) -> str:
    """Return PYTHONPATH as an editable install of the repository's own packages has it."""
    return os.pathsep.join([*folders, *filter(None, [os.environ.get("PYTHONPATH")])])
