"""A made-up study that many figures show, written once."""

from collections.abc import Callable
from functools import cache

import pytest

from conftest import RunMaker
from disentune.report.scores import RunScores
from disentune.results.tables import Results, read
from disentune.spec.settings import Objective
from run_examples import study


@pytest.fixture(scope="session")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Results]:
    """`studied(seeds=2)`: results of `study` with this many seeds. Do not change them: other tests read them, too."""

    @cache
    def make(**choices: object) -> Results:
        maker = RunMaker(tmp_path_factory.mktemp("study") / "runs" / "demo" / "main")
        study(maker, **choices)  # type: ignore[arg-type]
        return read(maker.run)

    return make


@pytest.fixture
def scores_of_study(studied: Callable[..., Results]) -> Callable[..., RunScores]:
    """`scores_of_study(seeds=2)`: its scores by MIG."""
    return lambda **choices: RunScores(studied(**choices), Objective(metric="mig", mode="max"))
