"""Which libraries each command loads: those that take longest to load are left to the commands that need them."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from disentune.results.steady import SETTLED_S
from processes import patience_s
from run_examples import course, quick_trial

HEAVY = ("torch", "pandas", "matplotlib", "scipy", "sklearn", "numba", "optuna", "ray", "wandb", "h5py", "requests",
         "pyarrow", "starlette")  # fmt: skip
SCRIPT = f"""
import json, sys
from disentune.cli.app import main
try:
    main()
finally:
    print(json.dumps([name for name in {HEAVY} if name in sys.modules]), file=sys.stderr)
"""
FIRST = {"--help": (), "stop demo": (), "results demo --json": ("pandas", "pyarrow")}
"""What a command may load at its first call."""
AGAIN = {"list": (), "runs": (), "status demo": (), "results demo": ()}
"""What it may load when it has answered before and nothing has changed since."""


@pytest.fixture
def study(make_run, tmp_path, monkeypatch):
    """A run that nobody has written to for a while."""
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"}, seeds=2)
    for seed in range(2):
        quick_trial(maker, course(0.5, np.random.default_rng(seed)), seed=seed)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def loaded(line, folder):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *line.split()], cwd=folder, capture_output=True, text=True,
        timeout=patience_s(60), env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stderr.splitlines()[-1])), done.stdout


@pytest.mark.parametrize("line", FIRST)
def test_a_command_loads_at_most_these_libraries(study, line):
    assert loaded(line, study)[0] <= set(FIRST[line])


READ = f"""
import json, sys, disentune
light = [name for name in {HEAVY} if name in sys.modules]
rows = disentune.load("demo").rows
print(json.dumps([light, len(rows), [name for name in {HEAVY} if name in sys.modules]]))
"""


def test_reading_a_run_in_python_needs_only_the_libraries_of_tables(study):
    done = subprocess.run(
        [sys.executable, "-c", READ], cwd=study, capture_output=True, text=True, timeout=patience_s(60), check=True
    )
    light, rows, found = json.loads(done.stdout)
    assert (light, rows > 0) == ([], True)
    assert set(found) <= {"pandas", "pyarrow"}


@pytest.mark.long
@pytest.mark.parametrize("line", AGAIN)
def test_a_repeated_command_loads_at_most_these_libraries_and_prints_the_same(study, line):
    time.sleep(SETTLED_S)
    _, before = loaded(line, study)
    found, said = loaded(line, study)
    assert found <= set(AGAIN[line])
    if line != "runs":  # it prints ages
        assert said == before
