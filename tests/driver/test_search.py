"""Ray's edge in the driver, without a Ray session: what Tune is told, and what the planner hears."""

import json
import os
import pickle
from types import SimpleNamespace

import pytest
from ray import cloudpickle, tune
from ray.air.execution._internal import RayActorManager
from ray.exceptions import (
    ActorDiedError,
    ActorUnavailableError,
    LocalRayletDiedError,
    NodeDiedError,
    OutOfMemoryError,
    RayActorError,
    RayTaskError,
    WorkerCrashedError,
)
from ray.tune.callback import CallbackList
from ray.tune.execution.tune_controller import TuneController
from ray.tune.experiment import Trial
from ray.tune.search import Searcher

from disentune.driver import search as search_module
from disentune.driver.ray_internals import expected_errors, heard_errors
from disentune.driver.search import Beat, Causes, Ended, Ends, LedgerSearch, as_expected, cause_of, named_node, words
from disentune.errors import ConfigError, Unavailable
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.segment import Preempted, Segment, StepReport, Superseded, Unclean, work
from disentune.spec.space import check
from disentune.spec.sweepfile import read_sweep
from simulator import sweep_file


@pytest.fixture
def edge(tmp_path):
    """A search over the tiny sweep, the news it passes on, and a switch that stops it."""
    run = Run(tmp_path / "runs" / "tiny" / "main")
    news, stop = [], []
    with run.locked() as session:
        planner = Planner(run, check(read_sweep(sweep_file(tmp_path))), session)
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


class OnRay:
    def __init__(self, status):
        self.status = status


@pytest.mark.parametrize(
    ("asked", "states", "ends"),
    [
        (True, ["PENDING", "TERMINATED"], True),
        (True, ["PENDING", "RUNNING"], False),
        (False, ["PENDING"], False),
    ],
)
def test_a_session_that_is_asked_to_stop_ends_with_its_last_running_segment(edge, asked, states, ends):
    search, _, stop = edge
    stop += [True] * asked
    Causes(search).on_step_begin(0, [OnRay(state) for state in states])
    assert Ends(search).stop_all() == ends
    assert not Ends(search)("a", {}), "no segment is cut short"


def test_a_beat_comes_with_every_look_for_events():
    beats = []
    Beat(lambda: beats.append(1)).on_step_begin(0, [])
    assert beats == [1]
    assert type(pickle.loads(pickle.dumps(Beat(beats.clear)))) is tune.Callback  # Tune pickles its callbacks


def test_a_session_in_trouble_ends_as_if_it_were_asked_to(edge):
    search, _, _ = edge
    assert not Ends(search).stop_all()
    search.give_up(ConfigError("Ray has died"))
    assert Ends(search).stop_all()


def test_a_storage_that_the_planner_gives_up_ends_the_session(edge, monkeypatch):
    search, _, _ = edge
    lost = Unavailable("no storage")
    monkeypatch.setattr(Planner, "trouble", lost)
    assert search.trouble is lost
    assert Ends(search).stop_all()
    assert search.suggest("a") == Searcher.FINISHED
    search.give_up(ConfigError("taken over"))
    assert str(search.trouble) == "taken over", "another driver has the run: nothing is to be tried again"


def test_every_word_of_a_worker_shows_that_the_storage_works(edge, monkeypatch):
    search, _, _ = edge
    search.suggest("a")
    told = []
    monkeypatch.setattr(search.planner, "report", lambda id, report: told.append(report))
    search.on_trial_result("a", {"at_step": 7, "rows": [], "outcome": None})
    assert told == [StepReport(7)]


def test_the_time_limit_is_seen_while_every_slot_is_busy(edge):
    search, _, _ = edge
    search.suggest("a")
    asked = []
    search.stopping = lambda: bool(asked.append(True))
    search.on_trial_result("a", {"at_step": 7, "rows": [], "outcome": None})
    assert asked


@pytest.mark.parametrize(("own", "certain"), [("here", False), (56 * "a", True)])
def test_a_node_that_may_have_died_unseen_is_not_a_certain_one(edge, monkeypatch, own, certain):
    search, _, _ = edge
    search.suggest("a")
    heard = []
    monkeypatch.setattr(search_module, "own_node", lambda: own)
    monkeypatch.setattr(search.planner, "lost", lambda *told: heard.append(told) or "")
    search.on_trial_error("a", RayActorError(error_msg=f"Node Id: {56 * 'a'} died"))
    assert heard[0][3] is certain


def test_a_last_result_may_come_only_with_the_end(edge):
    search, _, _ = edge
    reports = list(work(segment_of(search.suggest("a"))))
    rows = [report.row for report in reports if report.row]
    search.on_trial_complete("a", {"at_step": reports[-1].step, "rows": rows, "outcome": "done"})
    (ended,) = (trial for trial in search.planner.trials.values() if trial.status.state == "done")
    assert not ended.active
    assert ended not in search.planner.open


def test_a_lost_worker_is_reported_with_its_cause_and_its_trial_runs_again(edge):
    search, news, _ = edge
    lost = segment_of(search.suggest("a")).trial_id
    search.on_trial_complete("a", None, error=True)
    search.on_trial_error("a", WorkerCrashedError())
    assert "lost its worker at step 0 and continues from there: The worker died" in news[-1][1]["lost"]
    assert segment_of(search.suggest("b")).trial_id == lost


def test_pickling_it_takes_nothing_along(edge):
    assert type(pickle.loads(pickle.dumps(edge[0]))) is Searcher


# ---- causes


def raised(error) -> RayTaskError:
    """As Ray hands on what a worker raised."""
    return RayTaskError("step", "Traceback ...", error, proctitle="p", pid=1, ip="10.0.0.1").as_instanceof_cause()


NODE = "7" * 56


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (raised(OSError(28, "No space left on device")), "storage"),
        (raised(PermissionError(13, "Permission denied")), "storage"),
        (raised(Preempted("at step 3")), "preempted"),
        (RayActorError(preempted=True), "preempted"),
        (raised(Unclean("512 MB")), None),
        (raised(Superseded("given up")), "lost"),
        (raised(TypeError("another version")), "lost"),
        (Ended(OutOfMemoryError("1 worker(s) were killed due to the node running low on memory.")), "memory"),
        (Ended(NodeDiedError("gone")), "node"),
        (Ended(LocalRayletDiedError()), "node"),
        (Ended(WorkerCrashedError()), "lost"),
        (ActorDiedError(), "lost"),
        (ActorUnavailableError("no answer", None), "lost"),
    ],
)
def test_a_cause_is_known_by_the_type_of_its_error(error, cause):
    assert cause_of(error, "") == cause
    assert cause_of(cloudpickle.loads(cloudpickle.dumps(error)), "") == cause, "also as Tune keeps it"


@pytest.mark.parametrize("error", [ActorDiedError(), ActorUnavailableError("no answer", None)])
def test_a_worker_is_not_lost_but_its_node_where_that_is_dead(monkeypatch, error):
    monkeypatch.setattr(search_module, "is_dead", {NODE}.__contains__)
    assert cause_of(error, NODE) == "node"
    assert cause_of(error, "8" * 56) == "lost"


def test_the_node_that_ray_names_in_words_is_found():
    text = f"The actor died because its node has died. Node Id: {NODE}\n\tthe actor's node was terminated"
    assert named_node(RayActorError(error_msg=text)) == NODE
    assert named_node(RayActorError()) == ""
    assert named_node(raised(ValueError(text))) == ""


def test_ray_s_words_are_one_line():
    assert (
        words(Ended(OutOfMemoryError("2 worker(s) were killed\nTop 10 memory users: ..."))) == "2 worker(s) were killed"
    )
    assert words(RayActorError(error_msg="The actor died.\n\tpid: 7\nexit code 3.\n")) == "exit code 3."
    assert words(RayActorError(error_msg="")) == "RayActorError"
    assert len(words(RayActorError(error_msg="x" * 5000))) == 300


class FakeManager:
    """What Tune's manager of actors touches when a task of one fails, and what it tells Tune."""

    def __init__(self):
        self.told, self._failed_actor_ids = [], set()
        self._tracked_actor = self
        self.actor_id = 1
        self._on_error = lambda actor, error: self.told.append(error)

    def _cleanup_actor(self, tracked_actor):
        pass


@pytest.mark.parametrize("error", [OutOfMemoryError("killed"), NodeDiedError("gone")])
def test_tune_takes_an_error_it_does_not_expect_for_that_of_one_worker(error):
    manager = FakeManager()
    with expected_errors(as_expected):
        RayActorManager._actor_task_failed(manager, tracked_actor_task=manager, exception=error)
    assert [type(one) for one in manager.told] == [Ended, Ended], "once for the actor and once for its task"
    assert manager.told[0].reason is error


def test_an_error_while_a_worker_starts_is_one_that_tune_keeps():
    manager, error = FakeManager(), OutOfMemoryError("killed")
    with expected_errors(as_expected):
        RayActorManager._actor_start_failed(manager, tracked_actor=manager, exception=error)
    assert [type(one) for one in manager.told] == [Ended]
    assert manager.told[0].reason is error


def test_tune_without_help_gives_up_at_such_an_error():
    """When this fails, `expected_errors` has become needless."""
    manager = FakeManager()
    with pytest.raises(RuntimeError, match="unexpected exception"):
        RayActorManager._actor_task_failed(manager, manager, OutOfMemoryError("killed"))


def test_tune_is_as_it_was_after_the_session():
    def handlers():
        return RayActorManager._actor_task_failed, RayActorManager._actor_start_failed, Trial.handle_error

    before = handlers()
    with expected_errors(as_expected), heard_errors({}.__setitem__):
        assert not set(handlers()) & set(before)
    assert handlers() == before


@pytest.fixture
def trial(tmp_path):
    """A trial of Tune's own, named `a`, and what it does with one that fails, without a Ray session."""
    found = Trial("x", stub=True, trial_id="a")
    found.storage = SimpleNamespace(trial_driver_staging_path=str(tmp_path))
    found.status = Trial.RUNNING
    return found


def fail(trial, search, error, *before):
    """As Tune's controller does when a worker ends; callbacks `before` ours hear of it first."""
    causes = Causes(search)
    silent = SimpleNamespace(on_trial_error=lambda *told: None, on_trial_complete=search.on_trial_complete)
    controller = SimpleNamespace(
        _callbacks=CallbackList([*before, causes]), _scheduler_alg=silent, _search_alg=silent, _iteration=1,
        _trials=[], _schedule_trial_stop=lambda *told, **more: None,
    )  # fmt: skip
    with causes.listening():
        TuneController._process_trial_failure(controller, trial, error)
    return causes


def test_tune_tells_the_search_what_happened(edge, trial):
    search, news, _ = edge
    search.suggest("a")
    causes = fail(trial, search, raised(OSError(28, "No space left on device")))
    assert "could not use the storage at step 0" in news[-1][1]["lost"]
    assert search.segments == {}
    search.suggest("a")
    causes.on_trial_error(1, [], trial)
    assert "an error that Ray did not report" in news[-1][1]["lost"], "what was told is forgotten"


class Swap(tune.Callback):
    """Someone else's file in the place of Tune's, in a folder that every user of the machine may write to."""

    def __init__(self, path, mark):
        self.path, self.mark = path, mark

    def on_trial_error(self, iteration, trials, trial, **info):
        assert self.path.exists(), "Tune has written it by now"
        self.path.write_bytes(pickle.dumps(self))

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


def test_what_is_in_tune_s_file_is_never_unpickled(edge, trial, tmp_path):
    search, news, _ = edge
    search.suggest("a")
    fail(trial, search, Ended(OutOfMemoryError("killed")), Swap(tmp_path / "error.pkl", tmp_path / "run"))
    assert news[-1][1]["lost"].endswith("killed")
    assert not (tmp_path / "run").exists()


def test_an_error_that_nobody_tells_is_a_lost_worker(edge):
    search, news, _ = edge
    search.suggest("a")
    Causes(search).on_trial_error(1, [], SimpleNamespace(trial_id="a"))
    assert "lost its worker at step 0 and continues from there: an error that Ray did not report" in news[-1][1]["lost"]


def test_a_driver_whose_run_was_taken_over_starts_nothing_more(edge, monkeypatch):
    search, _, _ = edge
    search.suggest("a")
    monkeypatch.setattr(Run, "session", lambda self: "another")
    search.on_trial_error("a", raised(Superseded("another driver")))
    assert "taken over by another driver" in str(search.trouble)
    assert search.suggest("b") == Searcher.FINISHED


def test_a_worker_that_was_given_up_in_our_own_session_is_only_lost(edge):
    search, news, _ = edge
    search.suggest("a")
    search.on_trial_error("a", raised(Superseded("attempt 1 was given up")))
    assert not search.trouble
    assert "lost its worker" in news[-1][1]["lost"]


def test_what_a_worker_says_of_a_retry_is_passed_on(edge):
    search, news, _ = edge
    search.suggest("a")
    search.on_trial_result("a", {"at_step": 0, "rows": [], "outcome": "retried", "note": "it ran out of memory"})
    assert news[-1][1] == {"lost": "it ran out of memory"}
