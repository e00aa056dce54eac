"""run_optuna_processes.py TRIALS STEPS SLOTS: Optuna's documented way to use more processes than one.

The same script runs in each of them and shares a study by a journal; each does its part of the trials.
"""

import subprocess
import sys


def part(trials: int, steps: int) -> None:
    import optuna
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend
    from work import train

    storage = JournalStorage(JournalFileBackend("journal.log"))
    study = optuna.create_study(study_name="short", storage=storage, load_if_exists=True)
    study.optimize(lambda trial: train(trial.suggest_int("seed", 0, 10**6), steps), n_trials=trials)


if __name__ == "__main__":
    trials, steps, *slots = map(int, sys.argv[1:])
    if slots:
        command = [sys.executable, __file__, str(trials // slots[0]), str(steps)]
        processes = [subprocess.Popen(command) for _ in range(slots[0])]
        sys.exit(max([process.wait() for process in processes]))
    part(trials, steps)
