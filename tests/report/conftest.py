"""A made-up study that many figures show, written once."""

from collections.abc import Callable
from functools import cache

import pytest

from conftest import RunMaker
from disentune.report.scores import RunScores
from disentune.results.tables import read
from disentune.runs.ledger import Run
from disentune.spec.settings import Objective
from run_examples import study


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Run]:
    """`studied(seeds=2)`: the run of `study` with this many seeds. Do not change it: other tests read it, too."""

    @cache
    def make(**choices: object) -> Run:
        maker = RunMaker(tmp_path_factory.mktemp("study") / "runs" / "demo" / "main")
        study(maker, **choices)  # type: ignore[arg-type]
        return maker.run

    return make


@pytest.fixture
def scores_of_study(studied: Callable[..., Run]) -> Callable[..., RunScores]:
    """`scores_of_study(seeds=2)`: its scores by MIG."""
    return lambda **choices: RunScores(read(studied(**choices)), Objective(metric="mig", mode="max"))
