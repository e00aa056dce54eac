"""The nodes of the Ray that this process drives: a list of them, and a way to call a function on each."""

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
    """Whether the cluster knows that a node is gone; Ray may take a minute to notice."""
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
    """What a function returned on a node, or the error that it raised; neither if the node did not answer."""

    value: Any = None
    error: Exception | None = None
    time: float | None = None
    """When the answer came, by this machine's clock; None if the node did not answer."""

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
    """Calls a function on every node and returns the answers by node id, in the order of the nodes. The calls run at
    the same time, as tasks that need no CPU and so run on a busy node too. A node that has not answered after
    `answer_s` counts as silent."""
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
    """Catches every exception: a node that lacks our package, or has another version of it, can fail in many ways."""
    try:
        return Answer(ray.get(reference), time=time.time())
    except Exception as error:
        return Answer(error=error, time=time.time())
