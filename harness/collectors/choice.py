"""Which collector traces a launch: the one asked for, or the one that sees most here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from harness.collectors import cupti, nsys_cli
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
    """The collector called `name` among `collectors`, or for `auto` the first that fits of:

    1. `nsys`, where it is installed (with or without a CUDA device: it also has operating system calls and the GUI);
    2. `kineto`, where there is a CUDA device (`cuda`; None looks for its device file);
    3. `recorder`, always.

    Raises UsageError for an unknown name, for a collector that was asked for by name and cannot be used here, and for
    an nsys that STEPDUEL_NSYS names and that cannot be used: falling back would hide it.
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
    nsys = collectors["nsys"].available()
    if nsys.ok:
        return Choice(collector=collectors["nsys"], reason=nsys.reason)
    if env.get(nsys_cli.EXECUTABLE_VARIABLE):
        raise UsageError(f"{nsys_cli.EXECUTABLE_VARIABLE} is set, but {nsys.reason}; unset it or choose a collector")
    if not cuda:
        return Choice(collector=collectors["recorder"], reason=f"no CUDA device, and {nsys.reason}")
    kineto = collectors["kineto"].available()
    if kineto.ok:
        return Choice(collector=collectors["kineto"], reason=f"CUDA device, and {nsys.reason}")
    return Choice(collector=collectors["recorder"], reason=f"no GPU times: {kineto.reason}")
