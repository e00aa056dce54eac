"""Where trials can run on a cluster: whether any node is large enough, and which nodes have the data prepared."""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import ray
from ray import tune

from disentune.driver.nodes import Node, alive, ask
from disentune.driver.ray_internals import RayChanged, autoscaling_file
from disentune.errors import ConfigError, Unavailable
from disentune.files import documents
from disentune.files.storage import place
from disentune.plugin import Source
from disentune.runs.ledger import Run
from disentune.runs.preview import prepared, sources_of
from disentune.spec.config import TrialConfig
from disentune.spec.settings import Resources

JOIN_S, RETURN_S = 40.0, 900.0
"""How long to wait for a node that can hold a trial when no node can be added: JOIN_S in a new run, RETURN_S once
trials have run, because then such a node exists and may come back."""
ANSWER_S, SHARED_S = 30.0, 10.0
WAIT_S, REMIND_S = 60.0, 600.0
"""When nothing has run for WAIT_S, print the reason; print it again every REMIND_S."""
LOOK_S = 2.0
"""How often a local Ray is checked while nothing runs."""


def nodes() -> list[Node]:
    """All nodes that are alive."""
    return alive(ray)


def workers() -> list[Node]:
    """The nodes that can run trials."""
    return [node for node in nodes() if node.resources.get("CPU", 0) > 0]


# ---- whether a trial fits on any node


def bundle(resources: Resources) -> dict[str, float]:
    return {"CPU": resources.cpu, "GPU": resources.gpu}


def holds(resources: dict[str, float], wanted: Resources) -> bool:
    return all(resources.get(kind, 0) >= amount for kind, amount in bundle(wanted).items())


def growth() -> list[dict[str, float]] | None:
    """The resources of each kind of node that an autoscaler can add to this cluster; None if unknown."""
    head = next((node for node in nodes() if node.is_head), None)
    if head is None:
        return None
    return _answers([head], growth_of_this_machine).get(head.id)


def growth_of_this_machine() -> list[dict[str, float]] | None:
    """`growth`, called on the head: the autoscaler's own file lists the kinds of nodes."""
    if "RAY_CLUSTER_NAME" in os.environ:  # on KubeRay only the autoscaler's own container knows
        return None
    try:
        file = autoscaling_file(ray.get_runtime_context().gcs_address)
    except RayChanged:
        return None
    return [] if file is None else kinds(file)


def _answers(there: Sequence[Node], function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """What a function returns on each node that answers in time, by node id."""
    answers = ask(ray, there, function, lambda node: arguments, ANSWER_S)
    return {node_id: answer.value for node_id, answer in answers.items() if answer.is_given}


def kinds(file: Path) -> list[dict[str, float]] | None:
    """The resources of each type of node that a cluster file can start; None if the file does not list them."""
    try:
        content = documents.read(file).value
        if content["provider"]["type"] == "local":  # all machines are started at once, so none can be added
            return []
        types = content["available_node_types"].items()
        startable = [kind for name, kind in types if name != content["head_node_type"] and _most(kind, content)]
        return [dict(kind["resources"]) for kind in startable]
    except (ConfigError, KeyError, TypeError, AttributeError):
        return None


def _most(kind: dict[str, Any], content: dict[str, Any]) -> int:
    found: int = kind.get("max_workers", content.get("max_workers", 0))
    return found


def misfit(wanted: Resources, here: Sequence[Node], addable: list[dict[str, float]] | None) -> str:
    """Why no node can hold a trial; empty if one can, or if such a node could be added."""
    if any(holds(node.resources, wanted) for node in here):
        return ""
    if addable is None or any(holds(kind, wanted) for kind in addable):
        return ""
    return f"a trial needs {_words(bundle(wanted))}, but {_largest(here)}"


def _largest(here: Sequence[Node]) -> str:
    most = {kind: max((node.resources.get(kind, 0) for node in here), default=0) for kind in ("CPU", "GPU")}
    return f"no node of the cluster has more than {_words(most, always=True)}"


def _words(resources: dict[str, float], always: bool = False) -> str:
    named = [f"{amount:g} {kind}" for kind, amount in resources.items() if amount or always]
    return " and ".join(named)


def assert_feasible(
    wanted: Resources,
    patience_s: float,
    say: Callable[[str], None] = lambda text: None,
    stopping: Callable[[], bool] = lambda: False,
) -> None:
    """Raises ConfigError when no node can hold a trial after `patience_s`; Ray itself would wait forever. After JOIN_S
    it prints what it is waiting for."""
    if any(holds(node.resources, wanted) for node in nodes()):
        return
    began, addable, told = time.monotonic(), growth(), False
    while not stopping() and (problem := misfit(wanted, nodes(), addable)):
        waited = time.monotonic() - began
        if waited > patience_s:
            raise ConfigError(
                f"resources: {problem}, and no node that has it can be added; lower it with --set resources.cpu=... "
                "or resources.gpu=..., or add a larger node (`ray status` lists the nodes)"
            )
        if waited > JOIN_S and not told:
            say(f"{problem}; waiting up to {patience_s - waited:.0f} s for the node that ran earlier trials to return")
            told = True
        time.sleep(1)


def some_are(trials: Sequence[Any], status: str) -> bool:
    """Whether any trial has a status. Called in every iteration of Tune's loop; live trials are at the end of the
    list."""
    return any(trial.status == status for trial in reversed(trials))


class Waiting(tune.Callback):
    """Prints why nothing runs after a while. A node may still join, so the sweep keeps waiting."""

    def __init__(self, wanted: Resources, say: Callable[[str], None]):
        self.wanted, self.say = wanted, say
        self.speak_at = time.monotonic() + WAIT_S

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = time.monotonic()
        if some_are(trials, "RUNNING"):
            self.speak_at = now + WAIT_S
        elif now > self.speak_at and some_are(trials, "PENDING"):
            self.speak_at = now + REMIND_S
            self.say(self.reason(nodes()))

    def reason(self, here: Sequence[Node]) -> str:
        if any(holds(node.resources, self.wanted) for node in here):
            return f"no trial is running: every node with {_words(bundle(self.wanted))} is busy; waiting"
        wanted = _words(bundle(self.wanted))
        return f"no trial is running: a trial needs {wanted}, but {_largest(here)}; waiting for a larger node"

    def __reduce__(self) -> Any:
        """Tune pickles its callbacks at the start, and here never unpickles them."""
        return (tune.Callback, ())


class Alone(tune.Callback):
    """Ends a session on a local Ray whose only node has died."""

    def __init__(self, give_up: Callable[[ConfigError], None]):
        self.give_up = give_up
        self.look_at = 0.0

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = time.monotonic()
        if now < self.look_at or some_are(trials, "RUNNING"):
            return
        self.look_at = now + LOOK_S
        if not nodes():
            text = "Ray died on this machine: its raylet was killed, perhaps because memory ran out"
            self.give_up(Unavailable(f"{text}; resume the run: only the work since the last checkpoints is lost"))

    def __reduce__(self) -> Any:
        return (tune.Callback, ())


# ---- whether the storage is shared


def sees(path: str, session: str) -> bool:
    """Whether this node sees the same run as the driver does; a shared folder may need a moment to update."""
    deadline = time.monotonic() + SHARED_S
    while not (same := Run(place(path)).session() == session) and time.monotonic() < deadline:
        time.sleep(0.5)
    return same


def assert_shared(run: Run, session: str) -> None:
    """Raises ConfigError when a node that can run trials does not see the run. Nodes that do not answer are skipped."""
    there = workers()
    answers = _answers(there, sees, str(run.path), session)
    blind = sorted(node.host for node in there if answers.get(node.id) is False)
    if blind:
        raise ConfigError(
            f"--storage: {run.path} is missing on {', '.join(blind)}; use a folder that every node has at the same "
            "path, or s3://BUCKET/FOLDER"
        )


# ---- where the data is


class Homes:
    """Which nodes have the data sets that other nodes lack. Trials prefer these nodes; when all are busy, trials run on
    any node, which prepares the data first."""

    def __init__(self, holders: dict[str, set[str]], everyone: Iterable[str]):
        everyone = set(everyone)
        self.holders = {key: held for key, held in holders.items() if held and held != everyone}
        self.turns: dict[frozenset[str], int] = {}

    def of(self, config: TrialConfig) -> str | None:
        """A node that has all the data of a trial, chosen in turn; None if any node will do."""
        known = [self.holders[source.key] for source in sources_of(config) if source.key in self.holders]
        common = frozenset(set.intersection(*known)) if known else frozenset()
        if not common:
            return None
        turn = self.turns[common] = self.turns.get(common, -1) + 1
        return sorted(common)[turn % len(common)]


def homes(sources: Sequence[Source], root: str | None) -> Homes:
    """Asks every node that can run trials which data it has; a node that does not answer in time counts as having
    none."""
    there = workers()
    if not sources or len(there) < 2:
        return Homes({}, ())
    holders: dict[str, set[str]] = {source.key: set() for source in sources}
    for node_id, keys in _answers(there, prepared, sources, root).items():
        for key in keys:
            holders[key].add(node_id)
    return Homes(holders, (node.id for node in there))
