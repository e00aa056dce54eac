"""What the older autoscaler starts next, asked of Ray's own scheduler and its own record of refusals."""

from functools import partial

from ray.autoscaler._private.node_provider_availability_tracker import NodeProviderAvailabilityTracker
from ray.autoscaler._private.resource_demand_scheduler import (
    AUTOSCALER_UTILIZATION_SCORER_KEY,
    ResourceDemandScheduler,
    _default_utilization_scorer,
    get_nodes_for,
)
from ray.autoscaler.node_launch_exception import NodeLaunchException

from disentune.cluster.fallback import score

GPU = {"CPU": 8, "GPU": 1}
TYPES = {
    "head": {"resources": {"CPU": 0, "GPU": 0}, "max_workers": 0},
    "gpu_spot": {"resources": GPU, "max_workers": 3},
    "gpu_on_demand": {"resources": GPU, "max_workers": 2},
}
REFUSED = NodeLaunchException("InsufficientInstanceCapacity", "no spot capacity", None)


class Record:
    """Ray's tracker with a clock of our own."""

    def __init__(self):
        self.now = 1000.0
        self.tracker = NodeProviderAvailabilityTracker(timer=lambda: self.now)

    def tell(self, type_name, exception=None):
        self.tracker.update_node_availability(type_name, int(self.now), exception)


def started(trials, record, types=TYPES, scorer=score):
    scorer = partial(scorer, node_availability_summary=record.tracker.summary())
    nodes, _ = get_nodes_for(types, {"head": 1}, "head", 20, [dict(trial) for trial in trials], scorer)
    return dict(nodes)


def trials(count, gpu=1.0):
    return [{"CPU": 1.0, "GPU": gpu}] * count


def test_spot_is_taken_while_it_is_given():
    record = Record()
    assert started(trials(2), record) == {"gpu_spot": 2}
    record.tell("gpu_spot")
    assert started(trials(2), record) == {"gpu_spot": 2}


def test_a_machine_that_is_used_better_comes_before_spot():
    types = {**TYPES, "large_spot": {"resources": {"CPU": 64, "GPU": 8}, "max_workers": 2}}
    types.pop("gpu_spot")
    assert started(trials(1), Record(), types) == {"gpu_on_demand": 1}


def test_fractions_share_a_machine():
    assert started(trials(8, gpu=0.25), Record()) == {"gpu_spot": 2}


def test_what_was_refused_comes_second_until_the_record_is_too_old():
    record = Record()
    record.tell("gpu_spot", REFUSED)
    assert started(trials(2), record) == {"gpu_on_demand": 2}
    record.now += 30 * 60 + 1
    assert started(trials(2), record) == {"gpu_spot": 2}


def test_a_success_ends_the_refusal():
    record = Record()
    record.tell("gpu_spot", REFUSED)
    record.tell("gpu_spot")
    assert started(trials(1), record) == {"gpu_spot": 1}


def test_a_full_type_leaves_the_rest_to_the_other_also_when_that_was_refused():
    record = Record()
    assert started(trials(9), record) == {"gpu_spot": 3, "gpu_on_demand": 2}
    record.tell("gpu_spot", REFUSED)
    assert started(trials(3), record) == {"gpu_on_demand": 2, "gpu_spot": 1}


def test_a_refused_machine_that_suits_comes_before_one_that_does_not():
    types = TYPES | {"cpu": {"resources": {"CPU": 8}, "max_workers": 5}}
    record = Record()
    record.tell("cpu", REFUSED)
    assert started([{"CPU": 1.0}], record, types) == {"cpu": 1}
    record.tell("gpu_spot", REFUSED)
    record.tell("gpu_on_demand", REFUSED)
    assert started(trials(1), record, types) == {"gpu_spot": 1}


def test_rays_own_rule_asks_for_what_was_refused():
    """The reason for ours; when this fails, Ray has learnt it and ours can go."""
    record = Record()
    record.tell("gpu_spot", REFUSED)
    assert started(trials(2), record, scorer=_default_utilization_scorer) == {"gpu_spot": 2}


def test_ray_finds_the_rule_by_the_name_that_our_files_give(monkeypatch):
    monkeypatch.setenv(AUTOSCALER_UTILIZATION_SCORER_KEY, "disentune.cluster.fallback.score")
    assert ResourceDemandScheduler(None, TYPES, 5, "head", 1.0).utilization_scorer is score
