"""Simulates many sweeps with faults: `make simulate SEEDS=10000`, or `python -m simulation` in the folder tests."""

import argparse
import os
import tempfile
from pathlib import Path

from simulation.running import MEMORY, explained, say, simulate, upper_bound


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seeds", type=int, default=1000, help="how many")
    options.add_argument("--first", type=int, default=0, help="the first of them")
    options.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None, prefix="disentune-") as folder:
        failures, happened = simulate(chosen.first, chosen.seeds, chosen.jobs, Path(folder))
        faults = ", ".join(f"{kind} {times:,}" for kind, times in sorted(happened.items()))
        say(f"faults that happened: {faults}")
        bound = upper_bound(len(failures), chosen.seeds)
        say(f"{len(failures)} of {chosen.seeds:,} failed; with 95 % confidence the rate is below {bound:.2g}")
        if failures:
            say(f"the first failure, with no more faults than it needs:\n{explained(failures[0][0], Path(folder))}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
