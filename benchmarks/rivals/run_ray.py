"""run_ray.py TRIALS STEPS SLOTS [reuse]: plain Ray Tune with a function, as its documentation shows.

With `reuse` trials take over the processes of those before them, and Ray starts without its dashboard.
"""

import os
import sys

import ray
from ray import tune
from work import train


def trainable(config: dict) -> None:
    tune.report({"loss": train(config["seed"], config["steps"])})


if __name__ == "__main__":
    trials, steps, slots = map(int, sys.argv[1:4])
    reuse = sys.argv[4:] == ["reuse"]
    ray.init("local", num_cpus=slots, include_dashboard=not reuse)
    tuner = tune.Tuner(
        trainable,
        param_space={"seed": tune.grid_search(list(range(trials))), "steps": steps},
        tune_config=tune.TuneConfig(metric="loss", mode="min", reuse_actors=reuse),
        run_config=tune.RunConfig(storage_path=os.getcwd()),
    )
    print(tuner.fit().get_best_result().metrics["loss"])
