"""Whether a trial fits on a cluster, what its autoscaler could add, and which node has a trial's data."""

from types import SimpleNamespace

import pytest

from disentune.driver import placement, ray_internals
from disentune.driver.placement import Alone, Homes, Node, Waiting, kinds, misfit
from disentune.driver.ray_internals import autoscaling_file
from disentune.errors import ConfigError, Unavailable
from disentune.runs.ledger import Run
from disentune.spec.config import TrialConfig
from disentune.spec.settings import Resources

HEAD = Node("head", "head", {"CPU": 0, ray_internals.HEAD: 1})
CPU = Node("cpu", "one", {"CPU": 8})
GPU = Node("gpu", "two", {"CPU": 4, "GPU": 1})


@pytest.mark.parametrize(
    ("wanted", "here", "addable", "words"),
    [
        ({"cpu": 8}, [HEAD, CPU], [], ""),
        ({"cpu": 9}, [HEAD, CPU], [], "a trial needs 9 CPU, but no node of the cluster has more than 8 CPU and 0 GPU"),
        ({"gpu": 0.5}, [CPU], [], "a trial needs 1 CPU and 0.5 GPU, but no node of the cluster has more than 8 CPU"),
        ({"gpu": 0.5}, [CPU, GPU], [], ""),
        ({"cpu": 8, "gpu": 1}, [CPU, GPU], [], "has more than 8 CPU and 1 GPU"),
        ({"gpu": 1}, [HEAD], [{"CPU": 8}], "a trial needs 1 CPU and 1 GPU"),
        ({"gpu": 1}, [HEAD], [{"CPU": 8}, {"CPU": 8, "GPU": 1}], ""),
        ({"gpu": 1}, [HEAD], None, ""),
        ({}, [], [], "a trial needs 1 CPU, but no node of the cluster has more than 0 CPU and 0 GPU"),
    ],
)
def test_a_trial_fits_on_a_node_that_is_there_or_can_be_added(wanted, here, addable, words):
    problem = misfit(Resources(**wanted), here, addable)
    assert words in problem
    assert bool(words) == bool(problem)


AWS = "provider: {type: aws}\nhead_node_type: head\navailable_node_types:\n  head: {resources: {CPU: 0}}\n"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("provider: {type: local}", []),
        (AWS, []),
        (AWS + "  a: {resources: {GPU: 1}, max_workers: 2}", [{"GPU": 1}]),
        (AWS + "  a: {resources: {GPU: 1}}\nmax_workers: 3", [{"GPU": 1}]),
        (AWS + "  a: {resources: {GPU: 1}, max_workers: 0}\nmax_workers: 3", []),
        (AWS + "  a: {resources: {GPU: 1}, max_workers: 2}\n  b: {max_workers: 1}", None),
        (AWS + "  a: 3", None),
        ("just a text", None),
        ("[1, 2]", None),
        ("", None),
        ("a: [", None),
    ],
)
def test_what_a_cluster_file_can_add(tmp_path, text, found):
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    assert kinds(path) == found


def test_a_file_that_is_gone_says_nothing(tmp_path):
    assert kinds(tmp_path / "none.yaml") is None


@pytest.fixture
def processes(tmp_path):
    def start(number, *words):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")

    start.folder = tmp_path
    return start


def test_the_autoscaler_of_this_very_cluster_is_found(processes):
    processes(1, "python", "/x/ray/_private/log_monitor.py", "--gcs-address=10.0.0.1:6379", "--autoscaling-config=/no")
    processes(2, "python", "/x/monitor.py", "--gcs-address=10.0.0.2:6379", "--autoscaling-config=/other.yaml")
    processes(3, "python", "/x/monitor.py", "--gcs-address=10.0.0.1:6379", "--autoscaling-config=/mine.yaml")
    (processes.folder / "4").mkdir()  # a process that has just ended
    assert str(autoscaling_file("10.0.0.1:6379", processes.folder)) == "/mine.yaml"
    assert autoscaling_file("10.0.0.3:6379", processes.folder) is None


def test_a_cluster_without_autoscaling_has_no_file(processes):
    processes(1, "python", "/x/monitor.py", "--gcs-address=10.0.0.1:6379")
    assert autoscaling_file("10.0.0.1:6379", processes.folder) is None


class Clock:
    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(placement, "time", made)
    return made


def test_a_node_that_is_still_joining_is_waited_for(monkeypatch, clock):
    monkeypatch.setattr(placement, "nodes", lambda: [HEAD, CPU] if clock.now > 20 else [HEAD])
    monkeypatch.setattr(placement, "growth", list)
    placement.assert_feasible(Resources(cpu=8), patience_s=30)
    assert 20 < clock.now < 30


def test_a_node_that_never_comes_is_reported_in_time(monkeypatch, clock):
    monkeypatch.setattr(placement, "nodes", lambda: [HEAD, CPU])
    monkeypatch.setattr(placement, "growth", list)
    with pytest.raises(ConfigError, match="1 GPU, but no node of the cluster has more than 8 CPU and 0 GPU"):
        placement.assert_feasible(Resources(gpu=1), patience_s=placement.JOIN_S)
    assert clock.now < 60


def test_a_node_that_ran_trials_before_is_waited_for_longer_and_this_is_printed_once(monkeypatch, clock):
    monkeypatch.setattr(placement, "nodes", lambda: [HEAD])
    monkeypatch.setattr(placement, "growth", list)
    said = []
    with pytest.raises(ConfigError, match="a trial needs 1 CPU, but"):
        placement.assert_feasible(Resources(), placement.RETURN_S, lambda text: said.append((clock.now, text)))
    ((moment, text),) = said
    assert placement.JOIN_S < moment < 60
    assert text.startswith("a trial needs 1 CPU, but no node of the cluster has more than 0 CPU")
    assert clock.now > placement.RETURN_S


def test_a_stop_request_does_not_wait_for_a_node(monkeypatch, clock):
    monkeypatch.setattr(placement, "nodes", lambda: [HEAD])
    monkeypatch.setattr(placement, "growth", list)
    placement.assert_feasible(Resources(), placement.RETURN_S, stopping=lambda: clock.now > 5)
    assert clock.now < 10


def test_what_fits_now_needs_no_look_at_the_autoscaler(monkeypatch):
    monkeypatch.setattr(placement, "nodes", lambda: [CPU])
    monkeypatch.setattr(placement, "growth", lambda: pytest.fail("asked"))
    placement.assert_feasible(Resources(), patience_s=0)


@pytest.mark.parametrize(
    ("answers", "blind"),
    [({"cpu": True, "gpu": True}, ""), ({"cpu": True, "gpu": False}, "two"), ({"gpu": False, "cpu": False}, "one, two"),
     ({}, "")],
)  # fmt: skip
def test_a_storage_that_a_node_does_not_see_is_refused(monkeypatch, tmp_path, answers, blind):
    asked = []
    monkeypatch.setattr(placement, "nodes", lambda: [HEAD, CPU, GPU])
    monkeypatch.setattr(placement, "_answers", lambda there, *task: asked.extend(there) or answers)
    if blind:
        with pytest.raises(ConfigError, match=f"is missing on {blind}; use a folder"):
            placement.assert_shared(Run(tmp_path), "me")
    else:
        placement.assert_shared(Run(tmp_path), "me")
    assert asked == [CPU, GPU], "the head runs no trials"


def test_a_run_is_seen_by_its_session(tmp_path, clock):
    run = Run(tmp_path / "run")
    with run.locked() as session:
        assert placement.sees(str(run.path), session)
        assert not placement.sees(str(run.path), "another")
    assert not placement.sees(str(tmp_path / "unmounted"), session)


@pytest.fixture
def waiting(monkeypatch, clock):
    said = []
    monkeypatch.setattr(placement, "nodes", lambda: [HEAD, CPU])
    made = Waiting(Resources(gpu=1), said.append)
    states = {"running": ["RUNNING", "PENDING"], "pending": ["PENDING", "TERMINATED"], "over": ["TERMINATED"]}

    def at(moment, state):
        clock.now = moment
        made.on_step_begin(0, [SimpleNamespace(status=status) for status in states[state]])
        return len(said)

    at.said = said
    return at


def test_the_reason_why_nothing_runs_is_printed_from_time_to_time(waiting):
    assert waiting(59, "pending") == 0
    assert waiting(61, "pending") == 1
    assert waiting.said == [
        "no trial is running: a trial needs 1 CPU and 1 GPU, but no node of the cluster has more than 8 CPU and 0 GPU; "
        "waiting for a larger node"
    ]
    assert waiting(300, "pending") == 1
    assert waiting(700, "pending") == 2


def test_nothing_is_printed_while_something_runs_or_nothing_waits(waiting):
    assert waiting(50, "running") == 0
    assert waiting(100, "pending") == 0
    assert waiting(500, "over") == 0
    assert waiting(501, "pending") == 1


@pytest.mark.parametrize(("states", "ends"), [(["PENDING"], True), (["RUNNING", "PENDING"], False), ([], True)])
def test_a_local_ray_without_its_node_is_not_waited_for_once_nothing_runs(monkeypatch, clock, states, ends):
    reasons, there = [], [HEAD]
    made = Alone(reasons.append)
    monkeypatch.setattr(placement, "nodes", lambda: there)
    for moment in (100, 200):
        clock.now = moment
        assert reasons == []
        made.on_step_begin(0, [SimpleNamespace(status=state) for state in states])
        there.clear()
    assert [type(reason) for reason in reasons] == [Unavailable] * ends


def config_of(name):
    tree = {
        "dataset": {"name": name},
        "model": {"name": "mlp", "latents": 2},
        "loss_scale": "sum",
        "framework": {"name": "beta_vae", "beta": 1},
        "recon": {"name": "mse"},
        "training": {"steps": 1, "batch_size": 2, "learning_rate": 1e-3},
        "seed": 0,
    }
    return TrialConfig.parse(tree)


@pytest.fixture(scope="module")
def sprites():
    return config_of("dsprites")


def test_a_trial_prefers_the_nodes_that_have_its_data_in_turn(sprites):
    homes = Homes({"dsprites": {"b", "a"}}, ["a", "b", "c"])
    assert [homes.of(sprites) for _ in range(4)] == ["a", "b", "a", "b"]


@pytest.mark.parametrize("holders", [set(), {"a", "b", "c"}])
def test_where_no_node_or_every_node_has_it_any_will_do(sprites, holders):
    assert Homes({"dsprites": holders}, ["a", "b", "c"]).of(sprites) is None


def test_a_trial_of_several_files_prefers_a_node_that_has_them_all(monkeypatch):
    monkeypatch.setattr(placement, "sources_of", lambda config: [SimpleNamespace(key=key) for key in ("one", "two")])
    homes = Homes({"one": {"a", "b"}, "two": {"b", "c"}}, ["a", "b", "c"])
    assert [homes.of(config_of("xysquares")) for _ in range(2)] == ["b", "b"]


def test_what_kubernetes_can_add_is_not_known_to_its_head(monkeypatch):
    monkeypatch.setenv("RAY_CLUSTER_NAME", "mine")
    assert placement.growth_of_this_machine() is None


def test_a_trial_that_reads_no_files_may_run_anywhere():
    assert Homes({"dsprites": {"a"}}, ["a", "b"]).of(config_of("xysquares")) is None
