"""Where trials can run on a cluster: whether any node can ever hold one, and which nodes have its data prepared."""

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
"""How long a cluster is given until a node joins that can hold a trial, when nothing can be added to it: at first,
and once trials have run there, for then such a node exists and may come back."""
ANSWER_S, SHARED_S = 30.0, 10.0
WAIT_S, REMIND_S = 60.0, 600.0
"""When nothing has run for so long the user is told why, and told again."""
LOOK_S = 2.0
"""How often a local Ray is looked at while nothing runs."""


def nodes() -> list[Node]:
    """Those that are alive."""
    return alive(ray)


def workers() -> list[Node]:
    """Those that can run trials."""
    return [node for node in nodes() if node.resources.get("CPU", 0) > 0]


# ---- whether a trial fits at all


def bundle(resources: Resources) -> dict[str, float]:
    return {"CPU": resources.cpu, "GPU": resources.gpu}


def holds(resources: dict[str, float], wanted: Resources) -> bool:
    return all(resources.get(kind, 0) >= amount for kind, amount in bundle(wanted).items())


def growth() -> list[dict[str, float]] | None:
    """What kinds of nodes an autoscaler can add to this cluster; None when that cannot be known."""
    head = next((node for node in nodes() if node.is_head), None)
    if head is None:
        return None
    return _answers([head], growth_of_this_machine).get(head.id)


def growth_of_this_machine() -> list[dict[str, float]] | None:
    """As `growth`, on the head: its autoscaler was started with a file that says so."""
    if "RAY_CLUSTER_NAME" in os.environ:  # KubeRay: its autoscaler runs beside it, and has the list
        return None
    try:
        file = autoscaling_file(ray.get_runtime_context().gcs_address)
    except RayChanged:
        return None
    return [] if file is None else kinds(file)


def _answers(there: Sequence[Node], function: Callable[..., Any], *arguments: Any) -> dict[str, Any]:
    """By node id, what a function says on each node that answers in time."""
    answers = ask(ray, there, function, lambda node: arguments, ANSWER_S)
    return {node_id: answer.value for node_id, answer in answers.items() if answer.is_given}


def kinds(file: Path) -> list[dict[str, float]] | None:
    """Resources of each type of node that a cluster file can start; None when it does not say them."""
    try:
        content = documents.read(file).value
        if content["provider"]["type"] == "local":  # all its machines are started at once
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
    """Why no node can hold a trial; empty when one can, or could be added."""
    if any(holds(node.resources, wanted) for node in here):
        return ""
    if addable is None or any(holds(kind, wanted) for kind in addable):
        return ""
    return f"a trial wants {_words(bundle(wanted))}, but {_largest(here)}"


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
    """Raises ConfigError when no node can hold a trial: Ray itself would wait for ever. Where that is given longer than
    a node takes to join, the user is told what is waited for."""
    if any(holds(node.resources, wanted) for node in nodes()):
        return
    began, addable, told = time.monotonic(), growth(), False
    while not stopping() and (problem := misfit(wanted, nodes(), addable)):
        waited = time.monotonic() - began
        if waited > patience_s:
            raise ConfigError(
                f"resources: {problem}, and none that has can be added; lower them with --set resources.cpu=... or "
                "resources.gpu=..., or add such a node (`ray status` shows what there is)"
            )
        if waited > JOIN_S and not told:
            say(f"{problem}; this run has had one, so that is waited for, up to {patience_s - waited:.0f} s")
            told = True
        time.sleep(1)


def some_are(trials: Sequence[Any], status: str) -> bool:
    """Of all trials that Ray has been given. It is asked at every turn of Tune's loop; those that live are the last."""
    return any(trial.status == status for trial in reversed(trials))


class Waiting(tune.Callback):
    """Says why nothing runs, once it has been so for a while: a node may come, so the sweep goes on waiting."""

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
            return f"nothing runs: every node that could hold a trial ({_words(bundle(self.wanted))}) is busy; waiting"
        return f"nothing runs: a trial wants {_words(bundle(self.wanted))}, and {_largest(here)}; waiting for one"

    def __reduce__(self) -> Any:
        """Tune pickles its callbacks at the start and never reads them back here."""
        return (tune.Callback, ())


class Alone(tune.Callback):
    """Ends a session on a local Ray whose node has died with its workers: no other will ever come."""

    def __init__(self, give_up: Callable[[ConfigError], None]):
        self.give_up = give_up
        self.look_at = 0.0

    def on_step_begin(self, iteration: int, trials: list[Any], **info: Any) -> None:
        now = time.monotonic()
        if now < self.look_at or some_are(trials, "RUNNING"):
            return
        self.look_at = now + LOOK_S
        if not nodes():
            text = "Ray has died on this machine: its raylet was killed, perhaps for want of memory"
            self.give_up(Unavailable(f"{text}; resume the run: only the work since the last checkpoints is lost"))

    def __reduce__(self) -> Any:
        return (tune.Callback, ())


# ---- whether the storage is shared


def sees(path: str, session: str) -> bool:
    """Whether a run is to be seen on this node as its driver sees it; a shared folder may need a moment."""
    deadline = time.monotonic() + SHARED_S
    while not (same := Run(place(path)).session() == session) and time.monotonic() < deadline:
        time.sleep(0.5)
    return same


def assert_shared(run: Run, session: str) -> None:
    """Raises ConfigError when a node that can run trials does not see the run; one that does not answer is passed
    over."""
    there = workers()
    answers = _answers(there, sees, str(run.path), session)
    blind = sorted(node.host for node in there if answers.get(node.id) is False)
    if blind:
        raise ConfigError(
            f"--storage: {run.path} is not to be seen on {', '.join(blind)}; it must be a folder that every node has "
            "at the same path, or s3://BUCKET/FOLDER"
        )


# ---- where the data is


class Homes:
    """Which nodes have the data sets that some nodes lack. Trials prefer those nodes, and run anywhere when they are
    busy: there the data is prepared first."""

    def __init__(self, holders: dict[str, set[str]], everyone: Iterable[str]):
        everyone = set(everyone)
        self.holders = {key: held for key, held in holders.items() if held and held != everyone}
        self.turns: dict[frozenset[str], int] = {}

    def of(self, config: TrialConfig) -> str | None:
        """A node that has all that a trial reads, in turn; None when it does not matter."""
        known = [self.holders[source.key] for source in sources_of(config) if source.key in self.holders]
        common = frozenset(set.intersection(*known)) if known else frozenset()
        if not common:
            return None
        turn = self.turns[common] = self.turns.get(common, -1) + 1
        return sorted(common)[turn % len(common)]


def homes(sources: Sequence[Source], root: str | None) -> Homes:
    """Asks every node that can run trials; one that does not answer in time counts as having nothing."""
    there = workers()
    if not sources or len(there) < 2:
        return Homes({}, ())
    holders: dict[str, set[str]] = {source.key: set() for source in sources}
    for node_id, keys in _answers(there, prepared, sources, root).items():
        for key in keys:
            holders[key].add(node_id)
    return Homes(holders, (node.id for node in there))
