"""Tiny distributions, built as wheels into a folder that pip is told is the whole index: no network, and fast."""

from __future__ import annotations

import base64
import hashlib
import sysconfig
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest


def only_index(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Path:
    """Let pip find packages in `folder` and nowhere else, whatever this machine's configuration says."""
    folder.mkdir(exist_ok=True)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    return folder


def build_wheel(
    folder: Path, name: str, version: str, files: Mapping[str, str], *, requires: Sequence[str] = ()
) -> Path:
    """Write a wheel of pure Python files."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}", *(f"Requires-Dist: {r}" for r in requires)]
    content = {
        **files,
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text.encode())}\n" for path, text in content.items())
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inner, text in {**content, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(inner, text)
    return path


def build_stand_ins(folder: Path) -> None:
    """Write wheels of what every rank needs, empty."""
    for name, version in (("torch", "2.13.0"), ("nvtx", "0.2.17")):
        build_wheel(folder, name, version, {f"{name}/__init__.py": ""})


def build_loans(folder: Path) -> None:
    """Write wheels of the same that lend the real ones of this interpreter to an environment."""
    here = sysconfig.get_paths()["purelib"]
    for name, version in (("torch", "2.13.0"), ("nvtx", "0.2.17")):
        build_wheel(folder, name, version, {f"lend_{name}.pth": f"{here}\n"})


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
