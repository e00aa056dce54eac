"""run_syne_tune.py TRIALS STEPS SLOTS: Syne Tune's local backend, which starts a process for each trial.

It looks for trials that have ended every 0.1 s instead of its default of 5.
"""

import sys
from argparse import ArgumentParser

from work import train


def trial() -> None:
    from syne_tune import Reporter

    parser = ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--steps", type=int)
    values, _ = parser.parse_known_args()
    Reporter()(loss=train(values.seed, values.steps))


def main(trials: int, steps: int, slots: int) -> None:
    from syne_tune import StoppingCriterion, Tuner
    from syne_tune.backend import LocalBackend
    from syne_tune.config_space import randint
    from syne_tune.optimizer.baselines import RandomSearch

    space = {"seed": randint(0, 10**6), "steps": steps}
    Tuner(
        trial_backend=LocalBackend(entry_point=__file__),
        scheduler=RandomSearch(space, metrics=["loss"], do_minimize=True),
        stop_criterion=StoppingCriterion(max_num_trials_started=trials - 1),  # it stops at more than that
        n_workers=slots,
        sleep_time=0.1,
        wait_trial_completion_when_stopping=True,
    ).run()


if __name__ == "__main__":
    if "--seed" in sys.argv:
        trial()
    else:
        main(*map(int, sys.argv[1:4]))
