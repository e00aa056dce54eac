"""Checks whether a running cluster has what a sweep needs: asks every node, and reports every problem at once."""

import os
import secrets
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from disentune.cluster.token import token_notes
from disentune.driver.joining import joined
from disentune.driver.nodes import Answer, alive, ask
from disentune.driver.nodes import Node as RayNode
from disentune.driver.ray_internals import is_started_by_a_program
from disentune.environment import environment, versions
from disentune.errors import ConfigError, first_line
from disentune.files.storage import Place, place
from disentune.plugin import Source
from disentune.runs.preview import prepared

JOIN_S, ANSWER_S = 60.0, 90.0
"""How long to wait for nodes to join, and for the answer of a node, which has to import torch first."""
CLOCK_S = 10.0
"""How far a node's clock may be off; the ledger stores times from it."""
SAME = ("disentune", "ray", "torch")
"""Packages that must have the same version wherever trials run."""


@dataclass(frozen=True)
class Question:
    """What each node has to check."""

    storage: str | None
    nonce: str
    sources: tuple[Source, ...] = ()
    """Data sets that must be prepared."""
    data_root: str | None = None


@dataclass(frozen=True)
class Node:
    """What Ray reports about a node, and what the node reports about itself."""

    id: str
    name: str
    ip: str
    is_head: bool
    cpus: float
    gpus: float
    trouble: str = ""
    """Why it did not answer; empty when it did."""
    versions: dict[str, str | None] = field(default_factory=dict)
    seen_gpus: int = 0
    """The GPUs that torch sees on the node."""
    storage: str = ""
    """What is wrong with the storage; empty if it works, or if none was given."""
    free_gb: float | None = None
    """None for an object store."""
    missing: list[str] = field(default_factory=list)
    """Keys of data sets that are not prepared on the node."""
    clock_s: float = 0.0
    """The least possible error of its clock; negative if the clock is behind."""

    @property
    def runs_trials(self) -> bool:
        return self.cpus > 0

    @property
    def label(self) -> str:
        return f"{self.name} ({self.ip})"


@dataclass(frozen=True)
class Verdict:
    nodes: list[Node]
    problems: list[str]
    notes: list[str]
    address: str = ""
    """The address of the cluster that was reached."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Verdict":
        return cls([Node(**one) for one in content["nodes"]], content["problems"], content["notes"], content["address"])


def verify(
    address: str = "auto",
    wanted: int | None = None,
    storage: str | None = None,
    sources: Sequence[Source] = (),
    data_root: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Checks every node of the cluster that this machine is part of; `wanted` is the expected number of nodes. Raises
    ConfigError when there is no cluster."""
    with joined(address) as ray:
        reached = ray.get_runtime_context().gcs_address
        _assert_cluster(address, reached)
        problems = _waited_for(ray, wanted, say) if wanted else []
        question = Question(storage, secrets.token_hex(8), tuple(sources), data_root)
        with _marked(question) as trouble:
            asked = question if not trouble else replace(question, storage=None)
            found = [_seen_from_here(node, asked) for node in _answers(ray, asked)]
    problems += [trouble] if trouble else []
    return Verdict(found, [*problems, *problems_of(found, sources)], [*notes_of(found), *token_notes()], reached)


# ---- Ray


def _assert_cluster(address: str, reached: str) -> None:
    """`auto` joins any Ray on this machine, for example that of a sweep which runs here without a cluster."""
    if is_started_by_a_program():
        raise ConfigError(
            f"--address {address}: the Ray at {reached} is not a cluster: a program on this machine started it for "
            "itself; run this command on a node of the cluster, or give --address HOST:PORT or http://HOST:8265"
        )


def _waited_for(ray: Any, wanted: int, say: Callable[[str], None]) -> list[str]:
    """Waits for nodes to join; returns a problem if too few have."""
    deadline, said = time.monotonic() + JOIN_S, -1
    while (there := len(alive(ray))) < wanted:
        if time.monotonic() > deadline:
            return [
                f"cluster: {there} of {wanted} nodes have joined in {JOIN_S:g} s; `ray status` lists them, and the "
                "head's /tmp/ray/session_latest/logs/monitor* says why the others have not (with provider local, "
                "autoscaler v2 skips one machine: set RAY_UP_enable_autoscaler_v2=0 for ray up)"
            ]
        if there != said:
            say(f"{there} of {wanted} nodes have joined; waiting up to {JOIN_S:g} s")
        said = there
        time.sleep(0.5)
    return []


def _described(one: RayNode) -> Node:
    cpus, gpus = one.resources.get("CPU", 0.0), one.resources.get("GPU", 0.0)
    return Node(one.id, one.host, one.ip, one.is_head, cpus, gpus)


def _answers(ray: Any, question: Question) -> list[Node]:
    """All nodes with their answers, the head first."""
    there = sorted(alive(ray), key=lambda node: (not node.is_head, node.host, node.ip, node.id))
    began = time.time()
    answers = ask(ray, there, answer, lambda node: (question, node.id), ANSWER_S)
    return [_answered(_described(node), answers[node.id], began) for node in there]


def _answered(node: Node, said: Answer, began: float) -> Node:
    if said.time is None:
        return replace(node, trouble=f"did not answer within {ANSWER_S:g} s")
    if said.error is not None:
        lines = [line.strip() for line in str(said.error).splitlines() if line.strip()] or [type(said.error).__name__]
        return replace(node, trouble=f"cannot answer: {lines[-1]}")
    at, facts = said.value["time"], {key: value for key, value in said.value.items() if key != "time"}
    return replace(node, clock_s=round(min(0.0, at - began) or max(0.0, at - said.time), 1), **facts)


# ---- on the node


def answer(question: Question, node_id: str) -> dict[str, Any]:
    """What a node reports about itself; called on that node."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides the GPUs from tasks that hold none
    have = prepared(question.sources, question.data_root) if question.sources else set()
    storage, free_gb = _storage_here(question, node_id) if question.storage else ("", None)
    return {
        "time": time.time(),
        "versions": versions(),
        "seen_gpus": len(environment()["gpus"]),
        "storage": storage,
        "free_gb": free_gb,
        "missing": [source.key for source in question.sources if source.key not in have],
    }


def _storage_here(question: Question, node_id: str) -> tuple[str, float | None]:
    """What is wrong with the storage on this node, and its free space; writes a mark for the caller to check."""
    folder = _mark_folder(question)
    try:
        found = (folder / "asked").read_bytes().decode()
        if found != question.nonce:
            return f"has a different {question.storage} than the head", None
        (folder / node_id).write_bytes(question.nonce.encode())
    except FileNotFoundError:
        return f"does not see what the head wrote to {question.storage}: not shared, or not mounted on this node", None
    except Exception as error:  # an object store raises in many ways
        return f"cannot use {question.storage}: {first_line(error)}", None
    return "", _free_gb(folder)


def _free_gb(folder: Place) -> float | None:
    return round(shutil.disk_usage(folder).free / 1e9, 1) if isinstance(folder, Path) else None


# ---- marks in the storage


def _mark_folder(question: Question) -> Any:
    assert question.storage is not None
    return place(question.storage) / f".verify-{question.nonce}"


@contextmanager
def _marked(question: Question) -> Iterator[str]:
    """Writes a mark that every node must see; yields what is wrong if it cannot be written."""
    if question.storage is None:
        yield ""
        return
    folder, trouble = _mark_folder(question), ""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "asked").write_bytes(question.nonce.encode())
    except Exception as error:
        trouble = f"storage: {question.storage} cannot be written from here: {first_line(error)}"
    try:
        yield trouble
    finally:
        with suppress(Exception):
            for mark in folder.iterdir():
                mark.unlink()
            folder.rmdir()


def _seen_from_here(node: Node, question: Question) -> Node:
    """Checks that the mark that the node wrote is visible here."""
    if question.storage is None or node.trouble or node.storage:
        return node
    mark = _mark_folder(question) / node.id
    try:
        same = mark.read_bytes().decode() == question.nonce
    except Exception:
        same = False
    return node if same else replace(node, storage=f"wrote to {question.storage}, but the head does not see the file")


# ---- what is wrong


def problems_of(nodes: Sequence[Node], sources: Sequence[Source] = ()) -> list[str]:
    commands = {source.key: source.command for source in sources}
    return [
        *_version_problems([node for node in nodes if not node.trouble]),
        *(f"{node.label}: {text}" for node in nodes for text in _own_problems(node, commands)),
    ]


def _own_problems(node: Node, commands: dict[str, str]) -> Iterator[str]:
    if node.trouble:
        yield f"{node.trouble}; run `ray status`, and check that disentune is installed for the Ray on this node"
    if node.storage:
        yield f"{node.storage}; every node must see the same storage at the same path"
    if node.gpus > node.seen_gpus:
        yield (
            f"Ray offers {node.gpus:g} GPUs, but torch sees {node.seen_gpus}; install the GPU driver, or a torch built "
            "for this GPU"
        )
    if abs(node.clock_s) > CLOCK_S:
        way = "ahead of" if node.clock_s > 0 else "behind"
        yield f"its clock is {abs(node.clock_s):g} s {way} the head's, at most {CLOCK_S:g} s allowed; start NTP on it"
    if node.runs_trials:
        yield from (f"data set {key} is not prepared; run on this node: {commands[key]}" for key in node.missing)


def _version_problems(nodes: Sequence[Node]) -> Iterator[str]:
    """Compares each node with the most frequent version, or with the first node's, usually the head, if there is a tie.
    torch matters only where trials run."""
    for name in ("python", *SAME, "commit"):
        concerned = [node for node in nodes if node.runs_trials or name != "torch"]
        found = [(node, _comparable(name, node.versions.get(name))) for node in concerned]
        found = [(node, version) for node, version in found if version or name != "commit"]
        if not found:
            continue
        usual = Counter(version for _, version in found).most_common(1)[0][0]
        model = next(node for node, version in found if version == usual)
        for node, version in found:
            if version != usual:
                yield f"{node.label}: has {name} {version}, but {model.name} has {usual}; install the same on all"


def _comparable(name: str, version: str | None) -> str | None:
    """`2.13.0+cpu` and `2.13.0+cu128` count as the same version, built for different machines; so do Python 3.11.2 and
    3.11.9."""
    if version is None or name == "commit":
        return version
    return ".".join(version.split(".")[:2]) if name == "python" else version.partition("+")[0]


def notes_of(nodes: Sequence[Node]) -> list[str]:
    """What is allowed, but may be a mistake."""
    workers = [node for node in nodes if node.runs_trials and not node.is_head]
    notes = []
    if any(node.is_head and node.runs_trials for node in nodes) and workers:
        notes.append("the head runs trials too; start it with --num-cpus=0 to keep it for the driver")
    if not any(node.runs_trials for node in nodes):
        notes.append("no node can run trials now; an autoscaler starts nodes when trials are waiting")
    notes += [
        f"{node.label}: torch sees {node.seen_gpus} GPUs, but Ray offers {node.gpus:g}"
        for node in nodes if node.seen_gpus > node.gpus and not node.is_head
    ]  # fmt: skip
    return notes
