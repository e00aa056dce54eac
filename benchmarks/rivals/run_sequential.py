"""run_sequential.py TRIALS STEPS: one trial after another."""

import sys

from work import train

if __name__ == "__main__":
    trials, steps = map(int, sys.argv[1:3])
    print(min(train(seed, steps) for seed in range(trials)))
