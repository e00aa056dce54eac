"""Whether a running cluster is what a sweep needs: every node is asked, and every problem is named at once."""

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

from disentune.driver.joining import joined
from disentune.driver.nodes import Answer, alive, ask
from disentune.driver.nodes import Node as RayNode
from disentune.environment import environment, versions
from disentune.errors import first_line
from disentune.files.storage import Place, place
from disentune.plugin import Source
from disentune.runs.preview import prepared

JOIN_S, ANSWER_S = 60.0, 90.0
"""How long is waited for nodes to join, and for a node's answer: it imports torch first."""
CLOCK_S = 10.0
"""How far a node's clock may be off: it dates what the ledger holds."""
SAME = ("disentune", "ray", "torch")
"""Packages that must be of the same version wherever trials run."""


@dataclass(frozen=True)
class Question:
    """What every node is asked."""

    storage: str | None
    nonce: str
    sources: tuple[Source, ...] = ()
    """Data sets that must be prepared."""
    data_root: str | None = None


@dataclass(frozen=True)
class Node:
    """What Ray says of a node, and what the node says of itself."""

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
    """That torch sees there."""
    storage: str = ""
    """What is wrong with it; empty when all is well, or none was asked for."""
    free_gb: float | None = None
    """None in an object store."""
    missing: list[str] = field(default_factory=list)
    """Keys of data sets that are not prepared there."""
    clock_s: float = 0.0
    """The least by which its clock is off; below 0 when it is late."""

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

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Verdict":
        return cls([Node(**one) for one in content["nodes"]], content["problems"], content["notes"])


def verify(
    address: str = "auto",
    wanted: int | None = None,
    storage: str | None = None,
    sources: Sequence[Source] = (),
    data_root: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> Verdict:
    """Looks at every node of the cluster that this machine is part of; `wanted` is how many there should be.
    ConfigError when there is no cluster."""
    with joined(address) as ray:
        problems = _waited_for(ray, wanted, say) if wanted else []
        question = Question(storage, secrets.token_hex(8), tuple(sources), data_root)
        with _marked(question) as trouble:
            asked = question if not trouble else replace(question, storage=None)
            found = [_seen_from_here(node, asked) for node in _answers(ray, asked)]
    problems += [trouble] if trouble else []
    return Verdict(found, [*problems, *problems_of(found, sources)], notes_of(found))


# ---- Ray


def _waited_for(ray: Any, wanted: int, say: Callable[[str], None]) -> list[str]:
    """A node that has been started may take a while to join."""
    deadline, said = time.monotonic() + JOIN_S, -1
    while (there := len(alive(ray))) < wanted:
        if time.monotonic() > deadline:
            return [
                f"cluster: {there} of {wanted} nodes have joined in {JOIN_S:g} s; `ray status` lists them, and the "
                "head's /tmp/ray/session_latest/logs/monitor* says what became of the others (with provider local, "
                "autoscaler v2 leaves one out: RAY_UP_enable_autoscaler_v2=0 before ray up)"
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
    """The head first."""
    there = sorted(alive(ray), key=lambda node: (not node.is_head, node.host, node.ip, node.id))
    began = time.time()
    answers = ask(ray, there, answer, lambda node: (question, node.id), ANSWER_S)
    return [_answered(_described(node), answers[node.id], began) for node in there]


def _answered(node: Node, said: Answer, began: float) -> Node:
    if said.time is None:
        return replace(node, trouble=f"has not answered for {ANSWER_S:g} s")
    if said.error is not None:
        lines = [line.strip() for line in str(said.error).splitlines() if line.strip()] or [type(said.error).__name__]
        return replace(node, trouble=f"cannot answer: {lines[-1]}")
    at, told = said.value["time"], {key: value for key, value in said.value.items() if key != "time"}
    return replace(node, clock_s=round(min(0.0, at - began) or max(0.0, at - said.time), 1), **told)


# ---- on the node


def answer(question: Question, node_id: str) -> dict[str, Any]:
    """What a node says of itself; run there."""
    os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # Ray hides the GPUs from who holds none
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
    """What is wrong with the storage here, and how much is free in it; leaves a mark for whoever asks."""
    folder = _mark_folder(question)
    try:
        found = (folder / "asked").read_bytes().decode()
        if found != question.nonce:
            return f"has another {question.storage} than the head", None
        (folder / node_id).write_bytes(question.nonce.encode())
    except FileNotFoundError:
        return f"does not see what the head wrote to {question.storage}: it is not shared, or not mounted there", None
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
    """What the nodes must see is there meanwhile; gives what is wrong when it cannot be written."""
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
    """Whether what the node wrote has come here."""
    if question.storage is None or node.trouble or node.storage:
        return node
    mark = _mark_folder(question) / node.id
    try:
        same = mark.read_bytes().decode() == question.nonce
    except Exception:
        same = False
    return node if same else replace(node, storage=f"wrote to {question.storage}, but that is not seen from here")


# ---- what is wrong


def problems_of(nodes: Sequence[Node], sources: Sequence[Source] = ()) -> list[str]:
    commands = {source.key: source.command for source in sources}
    return [
        *_version_problems([node for node in nodes if not node.trouble]),
        *(f"{node.label}: {text}" for node in nodes for text in _own_problems(node, commands)),
    ]


def _own_problems(node: Node, commands: dict[str, str]) -> Iterator[str]:
    if node.trouble:
        yield f"{node.trouble}; look there with `ray status`, and that disentune is installed for its Ray"
    if node.storage:
        yield f"{node.storage}; every node must see the same storage at the same place"
    if node.gpus > node.seen_gpus:
        yield (
            f"Ray offers {node.gpus:g} GPUs, but torch sees {node.seen_gpus}; the driver, or a torch that was built "
            "for this GPU, is missing"
        )
    if abs(node.clock_s) > CLOCK_S:
        way = "ahead of" if node.clock_s > 0 else "behind"
        yield f"its clock is {abs(node.clock_s):g} s {way} the head's, {CLOCK_S:g} s are allowed; start NTP there"
    if node.runs_trials:
        yield from (f"data set {key} is not prepared; run there: {commands[key]}" for key in node.missing)


def _version_problems(nodes: Sequence[Node]) -> Iterator[str]:
    """Each node is compared with what most have, or with the first where none has most: the head, as a rule. torch
    matters only where trials run."""
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
                yield f"{node.label}: has {name} {version}, but {model.name} has {usual}; install the same everywhere"


def _comparable(name: str, version: str | None) -> str | None:
    """`2.13.0+cpu` and `2.13.0+cu128` are one version, built for different machines; Python 3.11.2 and 3.11.9 too."""
    if version is None or name == "commit":
        return version
    return ".".join(version.split(".")[:2]) if name == "python" else version.partition("+")[0]


def notes_of(nodes: Sequence[Node]) -> list[str]:
    """What is allowed, but may not be meant."""
    workers = [node for node in nodes if node.runs_trials and not node.is_head]
    notes = []
    if any(node.is_head and node.runs_trials for node in nodes) and workers:
        notes.append("the head runs trials too; --num-cpus=0 where it is started keeps it for the driver alone")
    if not any(node.runs_trials for node in nodes):
        notes.append("no node runs trials now; an autoscaler starts some once trials wait")
    notes += [
        f"{node.label}: torch sees {node.seen_gpus} GPUs, but Ray offers {node.gpus:g}"
        for node in nodes if node.seen_gpus > node.gpus and not node.is_head
    ]  # fmt: skip
    return notes
