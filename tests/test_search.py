"""Ray's edge in the driver, without a Ray session: what Tune is told, and what the planner hears."""

import json
import pickle

import pytest
from ray.tune.search import Searcher

from disentune.ledger import Run
from disentune.planner import Planner
from disentune.search import LedgerSearch
from disentune.segment import Segment, work
from disentune.sweepfile import read_sweep
from simulator import sweep_file


@pytest.fixture
def edge(tmp_path):
    """A search over the tiny sweep, the news it passes on, and a switch that stops it."""
    run = Run(tmp_path / "runs" / "tiny" / "main")
    news, stop = [], []
    with run.locked() as session:
        planner = Planner(run, read_sweep(sweep_file(tmp_path)), session)
        search = LedgerSearch(planner, lambda: bool(stop), lambda *said: news.append(said), concurrent=2)
        yield search, news, stop


def segment_of(config) -> Segment:
    return Segment(**json.loads(config["segment"]))


def carry_out(search, ray_id, config) -> None:
    reports = list(work(segment_of(config)))
    result = {"at_step": reports[-1].step, "rows": [r.row for r in reports if r.row], "outcome": reports[-1].outcome}
    search.on_trial_result(ray_id, result)
    search.on_trial_complete(ray_id, result)


def test_at_most_so_many_trials_run_at_a_time(edge):
    search, _, _ = edge
    first, second = search.suggest("a"), search.suggest("b")
    assert search.suggest("c") is None
    carry_out(search, "a", first)
    third = search.suggest("c")
    assert len({segment_of(config).trial_id for config in (first, second, third)}) == 3


def test_it_is_finished_when_every_trial_has_ended(edge):
    search, _, _ = edge
    for number in range(12):
        carry_out(search, str(number), search.suggest(str(number)))
    assert search.suggest("x") == Searcher.FINISHED
    assert all(trial.status.state == "done" for trial in search.planner.trials.values())


def test_nothing_new_starts_once_it_is_asked_to_stop(edge):
    search, _, stop = edge
    stop.append(True)
    assert search.suggest("a") == Searcher.FINISHED


def test_a_lost_worker_is_told_with_its_cause_and_its_trial_runs_again(edge):
    search, news, _ = edge
    lost = segment_of(search.suggest("a")).trial_id
    search.causes["a"] = "the node burnt"
    search.on_trial_complete("a", None, error=True)
    assert "lost its worker" in news[-1][1]["lost"]
    assert segment_of(search.suggest("b")).trial_id == lost


def test_pickling_it_takes_nothing_along(edge):
    assert type(pickle.loads(pickle.dumps(edge[0]))) is Searcher
