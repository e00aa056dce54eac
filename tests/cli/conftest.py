"""A small run that has ended, for every test of the commands that look at runs."""

import shutil

import numpy as np
import pytest

from disentune.runs.ledger import Run
from simulator import simulate, sweep_file


@pytest.fixture(scope="session")
def carried_out(tmp_path_factory):
    """The folder of a small sweep that has ended; to be copied."""
    folder = tmp_path_factory.mktemp("carried_out")
    simulate(Run(folder / "runs" / "tiny" / "main"), sweep_file(folder), np.random.default_rng(0))
    return folder


@pytest.fixture
def finished(carried_out, tmp_path):
    """A small run that has ended, at runs/tiny/main."""
    shutil.copytree(carried_out, tmp_path, dirs_exist_ok=True)
    return Run(tmp_path / "runs" / "tiny" / "main")
