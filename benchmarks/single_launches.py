"""What a duel should say: base and head launched alone, one after the other, many times, with nothing parked or bound.

    python benchmarks/single_launches.py smoke --head-set engine.slowdown_share=0.2 [--launches 30] [--steps 60]

The sides are the working tree under other settings. Launches come in pairs, base first in every other one. Printed
is the ratio of the mean step over launch pairs with its 95 % interval: that is what somebody sees who runs each side
alone. It takes long and is wide, which is why there are duels.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import numpy as np

from harness.collectors.registry import collectors
from harness.launch import Launch, Pace, scenario_request
from harness.scenario import load_scenario
from harness.stats.paired import mean_interval
from harness.subject import working_tree
from harness.units import change


def mean_step_ns(name: str, overrides: list[str], repo: Path, pace: Pace) -> float:
    """Run one launch and return the mean of its measured steps."""
    scenario = load_scenario(name, overrides)
    with tempfile.TemporaryDirectory() as folder:
        request = scenario_request(
            scenario, working_tree(scenario.factory, repo), collectors()["recorder"], pace, Path(folder) / "launch"
        )
        with Launch(request) as launch:
            launch.wait_ready()
            times = [launch.step().duration_ns for _ in range(pace.warmup_steps + pace.steps)]
            launch.stop()
    return float(np.mean(times[pace.warmup_steps :]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenario")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key on both sides")
    parser.add_argument("--head-set", action="append", default=[], metavar="KEY=VALUE", help="override a key of head")
    parser.add_argument("--repo", type=Path, default=Path.cwd(), help="working tree that holds the engine")
    parser.add_argument("--launches", type=int, default=30, help="of both sides together")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--warmup-steps", type=int, default=10)
    given = parser.parse_args()
    pace = Pace(warmup_steps=given.warmup_steps, steps=given.steps)
    settings = {"base": given.set, "head": [*given.set, *given.head_set]}
    changes: list[float] = []
    for pair in range(given.launches // 2):
        order = ("base", "head") if pair % 2 else ("head", "base")
        means = {side: mean_step_ns(given.scenario, settings[side], given.repo, pace) for side in order}
        changes.append(math.log(means["head"] / means["base"]))
        print(f"{pair + 1}: {change(math.exp(changes[-1]))}", flush=True)
    low, high, _ = (float(part[0]) for part in mean_interval(np.array(changes)[:, None], 0.95))
    mean = math.exp(float(np.mean(changes)))
    print(f"{given.launches} single launches: {change(mean, (math.exp(low), math.exp(high)))} of the mean step")


if __name__ == "__main__":
    main()
