"""Which nodes there are, and what each answers, with a Ray that answers in this process."""

import time
from types import SimpleNamespace

import pytest

from disentune.driver import nodes, placement
from disentune.driver.nodes import Node
from disentune.driver.ray_internals import HEAD

A, B, C = (letter * 56 for letter in "abc")
"""What Ray takes for the id of a node."""


class FakeRay:
    """Every node answers at once but those that are `silent`; a task is its node and what it would do there."""

    def __init__(self, silent=()):
        self.silent, self.cancelled = silent, []

    def nodes(self):
        return [
            {"NodeID": A, "NodeManagerHostname": "one", "NodeManagerAddress": "10.0.0.1", "Alive": True,
             "Resources": {"CPU": 0.0, HEAD: 1.0}},
            {"NodeID": B, "NodeManagerHostname": "two", "NodeManagerAddress": "10.0.0.2", "Alive": False,
             "Resources": {}},
        ]  # fmt: skip

    def remote(self, num_cpus, max_retries):
        assert (num_cpus, max_retries) == (0, 0)
        return lambda function: SimpleNamespace(options=lambda **how: self._pinned(function, **how))

    def _pinned(self, function, scheduling_strategy):
        assert not scheduling_strategy.soft
        return SimpleNamespace(remote=lambda *given: (scheduling_strategy.node_id, function, given))

    def wait(self, waiting, timeout):
        done = [one for one in waiting if one[0] not in self.silent][:1]
        if not done:
            time.sleep(timeout)
        return done, [one for one in waiting if one not in done]

    def get(self, task):
        _, function, given = task
        return function(*given)

    def cancel(self, task, force):
        assert force
        self.cancelled.append(task[0])
        raise RuntimeError("its worker has gone")


def half(number):
    if number % 2:
        raise ValueError("odd")
    return number // 2


def test_only_nodes_that_are_alive_are_listed_and_the_head_is_known():
    (node,) = nodes.alive(FakeRay())
    assert node == Node(A, "one", {"CPU": 0.0, HEAD: 1.0}, "10.0.0.1")
    assert node.is_head
    assert not Node(B, "two", {"CPU": 1.0}).is_head


def test_each_node_gives_an_answer_an_error_or_silence():
    ray, numbers = FakeRay(silent=[B]), {A: 4, B: 6, C: 3}
    there, began = [Node(id, id[:1], {}) for id in numbers], time.time()
    answers = nodes.ask(ray, there, half, lambda node: (numbers[node.id],), answer_s=0.05)
    assert list(answers) == [A, B, C], "in the order of the nodes"
    assert (answers[A].value, answers[A].is_given) == (2, True)
    assert began <= answers[A].time <= time.time()
    assert (answers[B].is_silent, answers[B].is_given, answers[B].error) == (True, False, None)
    assert (str(answers[C].error), answers[C].is_silent, answers[C].is_given) == ("odd", False, False)
    assert ray.cancelled == [B]


def test_nothing_is_an_answer():
    (answer,) = nodes.ask(FakeRay(), [Node(A, "a", {})], lambda: None, lambda node: (), answer_s=1).values()
    assert answer.is_given


def test_where_there_is_no_node_there_is_no_answer():
    assert nodes.ask(FakeRay(), [], half, lambda node: (), answer_s=1) == {}


def test_for_placing_trials_only_given_answers_count(monkeypatch):
    monkeypatch.setattr(placement, "ray", FakeRay(silent=[B]))
    monkeypatch.setattr(placement, "ANSWER_S", 0.05)
    assert placement._answers([Node(id, "", {}) for id in (A, B)], half, 4) == {A: 2}
    assert placement._answers([Node(A, "", {})], half, 3) == {}


def test_a_node_is_dead_only_when_a_running_ray_says_so(monkeypatch):
    import ray

    monkeypatch.setattr(ray, "nodes", FakeRay().nodes)
    assert not nodes.is_dead(B), "no Ray runs"
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    assert [nodes.is_dead(id) for id in (A, B, C, "")] == [False, True, False, False]


@pytest.mark.parametrize(("runs", "found"), [(True, A), (False, "")])
def test_a_process_outside_ray_has_no_node(monkeypatch, runs, found):
    import ray

    monkeypatch.setattr(ray, "is_initialized", lambda: runs)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: A))
    assert nodes.own_node() == found
