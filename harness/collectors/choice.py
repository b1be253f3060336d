"""Which collector traces a launch: the one asked for, or the one that sees most here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.collectors import cupti
from harness.collectors.base import Collector
from harness.errors import UsageError, closest

AUTO: Final = "auto"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """`collector`, and in one line why it was taken, for the log and for the user."""

    collector: Collector
    reason: str


def choose(
    name: str, collectors: Mapping[str, Collector], env: Mapping[str, str], *, cuda: bool | None = None
) -> Choice:
    """The collector called `name` among `collectors`; for `auto` the first that can be used and is `automatic` here.

    `cuda` says whether there is a CUDA device; None looks for its device file. Raises UsageError for an unknown name,
    for a collector that was asked for by name and cannot be used here, and for one that the user's environment insists
    on (`named_by`) and that cannot be used: falling back would hide it.
    """
    if name == AUTO:
        return _automatic(collectors, env, cupti.cuda_device_present(env) if cuda is None else cuda)
    if name not in collectors:
        known = [AUTO, *collectors]
        raise UsageError(f"no collector {name!r}; expected one of {', '.join(known)}.{closest(name, known)}")
    availability = collectors[name].available()
    if not availability.ok:
        raise UsageError(f"collector {name} cannot be used here: {availability.reason}")
    return Choice(collector=collectors[name], reason=availability.reason)


def _automatic(collectors: Mapping[str, Collector], env: Mapping[str, str], cuda: bool) -> Choice:
    missing = ""  # why the last one that sees more cannot be used
    for collector in collectors.values():
        able = collector.abilities
        if able.automatic == "never" or (able.automatic == "on_cuda" and not cuda):
            continue
        found = collector.available()
        if found.ok:
            return Choice(collector=collector, reason=_reason(found.reason, missing, cuda and able.sees_gpu, cuda))
        if able.named_by and env.get(able.named_by):
            raise UsageError(f"{able.named_by} is set, but {found.reason}; unset it or choose a collector")
        missing = found.reason
    raise UsageError(f"no collector can be used here: {missing}")


def _reason(found: str, missing: str, gpu_times: bool, cuda: bool) -> str:
    if not missing:
        return found
    if cuda and not gpu_times:
        return f"no GPU times: {missing}"
    return f"{'CUDA device' if cuda else 'no CUDA device'}, and {missing}"
