"""How busy the slots of a sweep are: trial-seconds / (slots x wall time), for trials of about 30 seconds.

The target is for the time from the first trial's start to the last one's end, which is what a long sweep consists of.
The whole command, from the shell and back to it, also starts and ends Ray: that costs the same for few trials as for
many, and is judged where there are many.
"""

import argparse
import json

from bench_runners import SLOTS, spans_of_ours, steps_for
from environments import OURS, seconds_of, workplace
from ratios import LONG, Bench
from rivals.work import world

from disentune.runs.ledger import Run

GOAL, MANY = 95.0, 24


def spans(trials: int, steps: int) -> tuple[float, list[tuple[float, float]]]:
    """Wall time of the command, and when each trial began and ended."""
    with workplace() as (folder, variables):
        sweep = {"name": "slots", "trial": world(steps), "seeds": trials, "resources": {"concurrent": SLOTS}}
        (folder / "sweep.yaml").write_text(json.dumps(sweep))
        wall = seconds_of([OURS, "run", "sweep.yaml", "--storage", "runs"], folder, variables)
        return wall, spans_of_ours(Run(folder / "runs" / "slots" / "main"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=MANY if LONG else 6)
    parser.add_argument("--seconds", type=float, default=30, help="of a trial")
    options = parser.parse_args()
    bench = Bench("slots")
    wall, found = spans(options.trials, steps_for(options.seconds))
    inside = max(end for _, end in found) - min(begin for begin, _ in found)
    busy = sum(end - begin for begin, end in found)
    what = f"{options.trials} trials of {options.seconds:g} s on {SLOTS} slots"
    bench.number(f"{what}: slots busy, first start to last end", 100 * busy / (SLOTS * inside), "%", at_least=GOAL)
    goal = GOAL if options.trials >= MANY else None
    bench.number(f"{what}: slots busy, whole command", 100 * busy / (SLOTS * wall), "%", at_least=goal)
    bench.number(f"{what}: before the first trial and after the last", wall - inside, "s")
    bench.close()


if __name__ == "__main__":
    main()
