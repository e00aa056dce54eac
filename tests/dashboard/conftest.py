"""A dashboard without a browser, and a small run whose models were really trained."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from dashboard_client import TOKEN, Client
from disentune.dashboard.app import app
from disentune.dashboard.desk import Desk, Followed
from disentune.dashboard.shelf import opened
from disentune.runs.ledger import Run
from simulator import simulate, sweep_file


@pytest.fixture
def dashboard() -> Iterator[Callable[[Path | str], Client]]:
    """`dashboard(storage)`: a server to ask; it stops reading when the test ends."""
    with ExitStack() as desks:

        def start(storage: Path | str) -> Client:
            desk = Desk(opened(storage))
            desks.callback(desk.close)
            return Client(app(desk, TOKEN))

        yield start


@pytest.fixture
def followed() -> Callable[[Run], Followed]:
    """`followed(run)`: a run as the server knows it after one look, without threads."""

    def look(run: Run) -> Followed:
        found = Followed("demo/main", run)
        found.look_at_rows()
        found.look_at_state()
        return found

    return look


@pytest.fixture(scope="session")
def trained_storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Holds tiny/main, twelve trials trained for twelve steps. Do not change it: other tests read it, too."""
    folder = tmp_path_factory.mktemp("trained")
    simulate(Run(folder / "runs" / "tiny" / "main"), sweep_file(folder), np.random.default_rng(0))
    return folder / "runs"
