"""The nodes of the Ray that this process drives: which there are, and what each answers to a question."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from disentune.driver.ray_internals import HEAD


@dataclass(frozen=True)
class Node:
    id: str
    host: str
    resources: dict[str, float]
    ip: str = ""

    @property
    def is_head(self) -> bool:
        return HEAD in self.resources


def alive(ray: Any) -> list[Node]:
    return [
        Node(one["NodeID"], one["NodeManagerHostname"], one["Resources"], one["NodeManagerAddress"])
        for one in ray.nodes()
        if one["Alive"]
    ]


def is_dead(node_id: str) -> bool:
    """Whether the cluster knows that a node is gone; it may take a minute to notice."""
    import ray

    if not node_id or not ray.is_initialized():
        return False
    return any(node["NodeID"] == node_id and not node["Alive"] for node in ray.nodes())


def own_node() -> str:
    """The id of the node that this process runs on; empty outside Ray."""
    import ray

    return ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""


@dataclass(frozen=True)
class Answer:
    """What a function returned on a node, or the error that it raised there; neither when the node was silent."""

    value: Any = None
    error: Exception | None = None
    time: float | None = None
    """When it came, by the clock of this machine; None when the node was silent."""

    @property
    def is_silent(self) -> bool:
        return self.time is None

    @property
    def is_given(self) -> bool:
        return not self.is_silent and self.error is None


def ask(
    ray: Any,
    there: Sequence[Node],
    function: Callable[..., Any],
    arguments: Callable[[Node], tuple[Any, ...]],
    answer_s: float,
) -> dict[str, Answer]:
    """By node id, in the order of the nodes: what a function answers on each. All are asked at the same time, by a task
    that holds nothing and so runs on a busy node too; a node that has not answered after `answer_s` is silent."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(function)
    asked = {}
    for node in there:
        pinned = task.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node.id, soft=False))
        asked[pinned.remote(*arguments(node))] = node.id
    answers = {node.id: Answer() for node in there}
    deadline, waiting = time.monotonic() + answer_s, list(asked)
    while waiting and (left := deadline - time.monotonic()) > 0:
        done, waiting = ray.wait(waiting, timeout=left)
        answers |= {asked[one]: _answered(ray, one) for one in done}
    for one in waiting:
        with suppress(Exception):
            ray.cancel(one, force=True)
    return answers


def _answered(ray: Any, reference: Any) -> Answer:
    """A node that lacks our package, or has another version of it, fails here in its own way."""
    try:
        return Answer(ray.get(reference), time=time.time())
    except Exception as error:
        return Answer(error=error, time=time.time())
