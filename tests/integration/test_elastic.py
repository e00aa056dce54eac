"""Pending trials make an autoscaler add nodes, whatever the search; one that fits nowhere is refused at once."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from disentune.runs.ledger import Run
from processes import patience_s
from simulator import simulate, sweep_file, table

SETS = ["training.steps=320", "training.log_every=80", "evaluation.every=80"]
NAMESPACES = ["unshare", "--net", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "ip"))),
        reason="needs root for namespaces, and: apt-get install util-linux iproute2",
    ),
]


@pytest.fixture
def elastic(tmp_path):
    """Runs a sweep on an elastic cluster of its own and says how it went."""
    folder = Path(tempfile.mkdtemp(prefix="dt-", dir="/tmp"))  # short: a socket's path has at most 107 characters
    script = str(Path(__file__).with_name("elastic.py"))

    def run(sweep, *sets):
        done = subprocess.run(
            [*NAMESPACES, sys.executable, script, str(tmp_path), str(sweep), *sets],
            capture_output=True, text=True, timeout=patience_s(600), env={**os.environ, "RAY_TMPDIR": str(folder)},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    yield run
    shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("search", ["grid", "optuna"])
def test_pending_trials_add_nodes_for_every_search(elastic, tmp_path, search):
    path = sweep_file(tmp_path, search)
    calm = Run(tmp_path / "calm" / "tiny" / "main")
    simulate(calm, path, np.random.default_rng(0), overrides=SETS)
    outcome = elastic(path, *SETS)
    assert outcome["code"] == 0, outcome["output"]
    assert outcome["most_nodes"] == 4  # the head, which runs no trials, and all that may be added
    assert table(Run(tmp_path / "runs" / "tiny" / "main")) == table(calm)


def test_a_trial_that_no_node_can_ever_hold_is_refused_before_anything_runs(elastic, tmp_path):
    outcome = elastic(sweep_file(tmp_path), "resources.cpu=2")
    assert outcome["code"] == 2, outcome["output"]
    assert "resources: a trial needs 2 CPU, but no node of the cluster has more than 0 CPU" in outcome["output"]
    assert outcome["most_nodes"] == 1
    assert not list((tmp_path / "runs").glob("*/*/trials/*"))
