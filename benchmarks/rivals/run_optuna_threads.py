"""run_optuna_threads.py TRIALS STEPS SLOTS: Optuna with n_jobs, which are threads."""

import sys

import optuna
from work import train

if __name__ == "__main__":
    trials, steps, slots = map(int, sys.argv[1:4])
    study = optuna.create_study()
    study.optimize(lambda trial: train(trial.suggest_int("seed", 0, 10**6), steps), n_trials=trials, n_jobs=slots)
    print(study.best_value)
