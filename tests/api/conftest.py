"""A small run whose models were really trained."""

from pathlib import Path

import numpy as np
import pytest

from disentune import load
from disentune.api.run import RunResults
from disentune.runs.ledger import Run
from simulator import simulate, sweep_file

FEWER = ["framework.beta=0.1"]


@pytest.fixture(scope="session")
def trained_storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds tiny/main, four trials trained for twelve steps. Do not change it: other tests read it, too."""
    folder = tmp_path_factory.mktemp("trained")
    simulate(Run(folder / "runs" / "tiny" / "main"), sweep_file(folder), np.random.default_rng(0), overrides=FEWER)
    return folder / "runs"


@pytest.fixture
def run(trained_storage: Path) -> RunResults:
    return load(trained_storage / "tiny" / "main")
