"""KubeRay's files: RayCluster and RayJob.

No installable package contains KubeRay's schema, so this module checks only what our rules need and frequent mistakes.
`kubectl apply --dry-run=server` checks a file against the real schema.
"""

from collections.abc import Iterator
from typing import Any

from disentune.cluster.check import rules
from disentune.cluster.check.described import BOTH, Cluster, Instruction, Machine, Role
from disentune.cluster.check.reading import Finding, Source, error, warning
from disentune.errors import unknown
from disentune.files.documents import Document, Path_

KINDS = ("RayCluster", "RayJob")
CONTAINERS = ("containers", "initContainers")
SPOT = ("gke-spot", "gke-preemptible", "capacitytype", "capacity-type", "scalesetpriority")
"""Parts of the node labels with which Kubernetes services mark spot machines."""
REPLICAS = {"replicas": 0, "minReplicas": 0, "maxReplicas": 2**31 - 1}
"""KubeRay's defaults."""


def is_ours(document: Document) -> bool:
    """Whether a document is for KubeRay, even if its kind is unknown here."""
    value = document.value
    return isinstance(value, dict) and (
        value.get("kind") in KINDS or str(value.get("apiVersion")).startswith("ray.io/")
    )


def validated(document: Document) -> Iterator[Finding]:
    kind = document.value.get("kind")
    if kind not in KINDS:
        yield error(document.where(("kind",)), unknown("kind", str(kind), KINDS))
        return
    if document.value.get("apiVersion") != "ray.io/v1":
        yield error(document.where(("apiVersion",)), f"apiVersion: must be ray.io/v1 for a {kind}")
    if not isinstance(_at(document.value, ("metadata", "name")), str):
        yield error(document.where(("metadata",)), f"metadata.name: a {kind} needs a name")
    spec = _cluster_path(document)
    if kind == "RayCluster" or _at(document.value, spec) is not None:
        yield from _shape(document, spec)


def _shape(document: Document, path: Path_) -> Iterator[Finding]:
    """Required keys, and values that often have the wrong type."""
    workers = _at(document.value, (*path, "workerGroupSpecs"))
    if not _mapping(document.value, (*path, "headGroupSpec")):
        yield error(document.where(path), f"{_key(path)}.headGroupSpec: is missing or not a mapping")
    if workers is not None and not isinstance(workers, list):
        where = (*path, "workerGroupSpecs")
        yield error(document.where(where), f"{_key(where)}: must be a list of groups")
    for place in _groups(document, path):
        if group := _mapping(document.value, place):
            yield from _group_shape(document, place, group)


def _group_shape(document: Document, place: Path_, group: dict[str, Any]) -> Iterator[Finding]:
    if place[-1] != "headGroupSpec" and not group.get("groupName"):
        yield error(document.where(place), f"{_key(place)}.groupName: is missing")
    if not _items(group, ("template", "spec", "containers")):
        yield error(document.where(place), f"{_key(place)}.template.spec.containers: is missing or empty")
    for name in REPLICAS:
        if name in group and type(group[name]) is not int:
            where = (*place, name)
            yield error(document.where(where), f"{_key(where)}: must be a whole number, got {group[name]!r}")
    for name, value in _mapping(group, ("rayStartParams",)).items():
        if not isinstance(value, str):
            where = (*place, "rayStartParams", name)
            yield error(document.where(where), f'{_key(where)}: must be a string; write {name}: "{value}"')


def _key(path: Path_) -> str:
    return ".".join(map(str, path))


# ---- what the file describes


def described(source: Source, document: Document) -> Cluster | None:
    """The cluster of a document; None for a job that runs on another cluster."""
    path = _cluster_path(document)
    if document.value.get("kind") not in KINDS or not _mapping(document.value, path):
        return None
    head, *places = _groups(document, path)
    cluster = Cluster(
        source,
        "kuberay",
        document.where(path),
        _machine(document, head, "head"),
        [_machine(document, place, str(_at(document.value, (*place, "groupName")))) for place in places],
        [*_auth(document, path), *_pod(document, head, "head")],
    )
    for place in places:
        cluster.instructions += _pod(document, place, "worker")
    cluster.images = [one for place in (head, *places) for one in _images(document, place)]
    return cluster


def _cluster_path(document: Document) -> Path_:
    return ("spec",) if document.value.get("kind") == "RayCluster" else ("spec", "rayClusterSpec")


def _at(value: Any, path: Path_) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _mapping(value: Any, path: Path_) -> dict[str, Any]:
    found = _at(value, path)
    return found if isinstance(found, dict) else {}


def _items(value: Any, path: Path_) -> list[dict[str, Any]]:
    """The items of a list, with an empty mapping for each item that is not a mapping."""
    found = _at(value, path)
    return [one if isinstance(one, dict) else {} for one in found] if isinstance(found, list) else []


def _groups(document: Document, path: Path_) -> list[Path_]:
    """The paths of the head and of each group of workers."""
    workers = (*path, "workerGroupSpecs")
    return [(*path, "headGroupSpec"), *((*workers, i) for i in range(len(_items(document.value, workers))))]


def _machine(document: Document, place: Path_, name: str) -> Machine:
    group = _mapping(document.value, place)
    pod = _mapping(group, ("template", "spec"))
    limits = {**_first(pod, "requests"), **_first(pod, "limits")}
    params = _mapping(group, ("rayStartParams",))
    cpu = _quantity(params.get("num-cpus", limits.get("cpu")))
    gpus = [value for key, value in limits.items() if key.endswith("/gpu")]
    gpu = _quantity(params.get("num-gpus", gpus[0] if gpus else 0))
    labels = str(pod.get("nodeSelector")).lower()
    least, most = (
        value if isinstance(value := group.get(name), int) else REPLICAS[name]
        for name in ("minReplicas", "maxReplicas")
    )
    where = document.where((*place, "rayStartParams") if name == "head" else (*place, "groupName"))
    return Machine(name, where, cpu, gpu, least, most, _is_spot(labels))


def _first(pod: Any, kind: str) -> dict[str, Any]:
    return _mapping(pod, ("containers", 0, "resources", kind))


def _is_spot(labels: str) -> bool:
    return any(name in labels for name in SPOT) and ("spot" in labels or "preemptible" in labels)


def _quantity(value: Any) -> float | None:
    """`8`, `"8"` and `"7500m"`."""
    text = str(value)
    try:
        return float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    except ValueError:
        return None


def _auth(document: Document, path: Path_) -> Iterator[Instruction]:
    mode = _at(document.value, (*path, "authOptions", "mode"))
    if mode:
        yield Instruction(f"RAY_AUTH_MODE={mode}", document.where((*path, "authOptions")), BOTH)


def _pod(document: Document, place: Path_, role: Role) -> Iterator[Instruction]:
    """Settings, commands and volumes of a pod's containers, as text for the patterns of the rules."""
    roles: frozenset[Role] = frozenset((role,))
    pod = (*place, "template", "spec")
    own = {volume.get("name") for volume in _items(document.value, (*pod, "volumes")) if "emptyDir" in volume}
    for kind in CONTAINERS:
        for i, container in enumerate(_items(document.value, (*pod, kind))):
            here = (*pod, kind, i)
            for j, one in enumerate(_items(container, ("env",))):
                yield Instruction(f"{one.get('name')}={one.get('value', '')}", document.where((*here, "env", j)), roles)
            for key in ("command", "args", "lifecycle"):
                if container.get(key):
                    yield Instruction(_words(container[key]), document.where((*here, key)), roles)
            for j, mount in enumerate(_items(container, ("volumeMounts",))):
                if mount.get("name") not in own:
                    yield Instruction(
                        f"volume at {mount.get('mountPath')}", document.where((*here, "volumeMounts", j)), roles
                    )


def _words(value: Any) -> str:
    if isinstance(value, dict):
        value = list(value.values())
    return " ".join(_words(one) for one in value) if isinstance(value, list) else str(value)


def _images(document: Document, place: Path_) -> Iterator[Instruction]:
    for i, container in enumerate(_items(document.value, (*place, "template", "spec", "containers"))):
        where = document.where((*place, "template", "spec", "containers", i, "image"))
        yield Instruction(str(container.get("image")), where, BOTH)


# ---- rules for these files only


def own_rules(cluster: Cluster | None, document: Document) -> Iterator[Finding]:
    if document.value.get("kind") == "RayJob":
        yield from _job(document)
    if cluster is None:
        return
    path = _cluster_path(document)
    spec = _mapping(document.value, path)
    yield from _version(document, path, spec)
    yield from _group_rules(cluster)
    yield from _written_secrets(document, path)
    if not spec.get("enableInTreeAutoscaling"):
        text = "enableInTreeAutoscaling is not true: the number of workers stays fixed at `replicas`"
        yield warning(document.where(path), text)


def _version(document: Document, path: Path_, spec: dict[str, Any]) -> Iterator[Finding]:
    given = spec.get("rayVersion")
    where = document.where((*path, "rayVersion"))
    if given is None:
        yield error(where, f"rayVersion is missing; write rayVersion: {rules.here('ray')}")
    elif given != rules.here("ray"):
        yield error(where, f"rayVersion is {given}, but this machine has {rules.here('ray')}; they must be the same")


def _group_rules(cluster: Cluster) -> Iterator[Finding]:
    names = [kind.name for kind in cluster.workers]
    for number, kind in enumerate(cluster.workers):
        if kind.least > kind.most:
            yield error(kind.where, f"{kind.name}: minReplicas {kind.least} is above maxReplicas {kind.most}")
        if kind.name in names[:number]:
            yield error(kind.where, f"groupName {kind.name} is used twice; give each group its own name")
        if kind.gpu is not None and kind.gpu != int(kind.gpu):
            yield error(
                kind.where,
                f"{kind.name}: a pod needs whole GPUs, got {kind.gpu:g}; only trials can share a GPU",
            )


def _job(document: Document) -> Iterator[Finding]:
    spec = _mapping(document.value, ("spec",))
    if not spec.get("entrypoint"):
        yield error(document.where(("spec",)), "a RayJob needs an entrypoint")
    if not spec.get("rayClusterSpec") and not spec.get("clusterSelector"):
        yield error(document.where(("spec",)), "a RayJob needs clusterSelector or rayClusterSpec")
    if spec.get("clusterSelector") and spec.get("shutdownAfterJobFinishes"):
        text = "KubeRay does not shut down a cluster chosen by clusterSelector; remove shutdownAfterJobFinishes"
        yield error(document.where(("spec", "shutdownAfterJobFinishes")), text)
    entry = str(spec.get("entrypoint") or "")
    if "disentune" in entry and "supervisor" not in entry:
        how = "python -m disentune.cluster.supervisor -- run SWEEP --address auto"
        text = f"nothing restarts a crashed driver; write: {how}"
        yield warning(document.where(("spec", "entrypoint")), text)


def _written_secrets(document: Document, path: Path_) -> Iterator[Finding]:
    """`{name: WANDB_API_KEY, value: ...}`, which a pattern over single lines can miss."""
    pods = [(*group, "template", "spec", kind) for group in _groups(document, path) for kind in CONTAINERS]
    places = [(*pod, i) for pod in pods for i in range(len(_items(document.value, pod)))]
    for place in (*places, (*path, "autoscalerOptions")):
        for j, one in enumerate(_items(document.value, (*place, "env"))):
            if rules.is_secret_name(str(one.get("name"))) and one.get("value"):
                text = f"{one['name']} is in plain text; read it from a Secret (valueFrom), and replace the exposed key"
                yield error(document.where((*place, "env", j)), text)
