"""Files for `ray up`: Ray's own validator, and checks for what it misses."""

import contextlib
import copy
import io
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from disentune.cluster.check import rules
from disentune.cluster.check.described import BOTH, Cluster, Instruction, Machine, Role
from disentune.cluster.check.reading import Finding, Source, error, warning
from disentune.driver import ray_internals
from disentune.errors import did_you_mean, first_line
from disentune.files.documents import Document

KNOWN = ("aws", "gcp", "local")
COMMANDS: tuple[tuple[str, frozenset[Role], bool], ...] = (
    ("initialization_commands", BOTH, False),
    ("setup_commands", BOTH, False),
    ("head_setup_commands", frozenset(("head",)), False),
    ("worker_setup_commands", frozenset(("worker",)), False),
    ("head_start_ray_commands", frozenset(("head",)), True),
    ("worker_start_ray_commands", frozenset(("worker",)), True),
)
_OPTIONS: tuple[tuple[str, frozenset[Role]], ...] = (
    ("run_options", BOTH), ("head_run_options", frozenset(("head",))), ("worker_run_options", frozenset(("worker",))),
)  # fmt: skip
_IMAGES = ("image", "head_image", "worker_image")
_OTHER_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "string": "a string",
    "object": "a mapping",
    "array": "a list",
}


# ---- Ray's own validator


def validated(document: Document) -> list[Finding]:
    """All errors of Ray's schema and of its own rules, not only the first one."""
    problems: list[Finding] = []
    try:
        prepared = _quietly(_prepared, document.value)
    except Exception as reason:  # Ray raises all kinds of exceptions
        return [error(document.where(("provider",)), f"Ray cannot prepare this file: {first_line(reason)}")]
    for problem in _schema_errors(prepared):
        problems += _worded(document, problem)
    if not problems:
        try:
            _quietly(ray_internals.validate_cluster_file, prepared)
        except Exception as reason:
            problems.append(error(_about(document, reason), f"Ray refuses this file: {first_line(reason)}"))
    return problems


def _about(document: Document, reason: BaseException) -> str:
    """The line of the key that Ray's message names."""
    named = [key for key in document.value if key in str(reason)]
    return document.where((max(named, key=len) if named else "available_node_types",))


def _prepared(config: Any) -> Any:
    return ray_internals.prepared_cluster_file(copy.deepcopy(config))


def _schema_errors(config: Any) -> list[Any]:
    import jsonschema

    return list(jsonschema.Draft7Validator(ray_internals.cluster_file_schema()).iter_errors(config))


def _worded(document: Document, problem: Any) -> Iterator[Finding]:
    path = tuple(problem.absolute_path)
    key = ".".join(map(str, path)) or "the file"
    if problem.validator == "additionalProperties":
        known = problem.schema.get("properties", {})
        for name in [name for name in problem.instance if name not in known]:
            text = f"{key}: unknown key '{name:.60}'.{did_you_mean(str(name), known)}"
            yield error(document.where((*path, name)), text)
        return
    text = problem.message
    if problem.validator == "type":
        text = f"must be {_OTHER_WORDS.get(str(problem.validator_value), problem.validator_value)}"
        if "resources" in path:
            text = f"a machine needs whole numbers of resources, got {problem.instance!r}; only trials can share a GPU"
    yield error(document.where(path), first_line(f"{key}: {text}"))


def _quietly(function: Any, *arguments: Any) -> Any:
    """Silences the warnings and prints of Ray's validation; what matters comes as an exception."""
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return function(*arguments)
    finally:
        logging.disable(logging.NOTSET)


# ---- what the file describes


def described(source: Source, document: Document) -> Cluster:
    value = document.value
    provider = str(_mapping(value, "provider").get("type"))
    cluster = Cluster(source, provider, f"{document.file}:1", Machine("head", f"{document.file}:1", 0, 0), [])
    cluster.instructions = [*_commands(document), *_docker_options(document)]
    cluster.images = [
        Instruction(str(_mapping(value, "docker")[key]), document.where(("docker", key)), BOTH)
        for key in _IMAGES if _mapping(value, "docker").get(key)
    ]  # fmt: skip
    cluster.mounts = {
        remote: (Path(str(local)).expanduser(), document.where(("file_mounts", remote)))
        for remote, local in _mapping(value, "file_mounts").items()
    }
    if provider == "local":
        _add_local_machines(cluster, document)
    else:
        _add_machines(cluster, document)
    return cluster


def _mapping(value: Any, key: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _commands(document: Document) -> Iterator[Instruction]:
    for key, roles, starts in COMMANDS:
        for number, command in enumerate(_items(document.value.get(key))):
            yield Instruction(str(command), document.where((key, number)), roles, starts)
    for name, kind in _mapping(document.value, "available_node_types").items():
        for key in ("initialization_commands", "worker_setup_commands"):
            for number, command in enumerate(_items(kind.get(key) if isinstance(kind, dict) else None)):
                where = document.where(("available_node_types", name, key, number))
                yield Instruction(str(command), where, frozenset(("worker",)))


def _docker_options(document: Document) -> Iterator[Instruction]:
    for key, roles in _OPTIONS:
        for number, option in enumerate(_items(_mapping(document.value, "docker").get(key))):
            yield Instruction(str(option), document.where(("docker", key, number)), roles)


def _add_machines(cluster: Cluster, document: Document) -> None:
    value = document.value
    kinds = _mapping(value, "available_node_types")
    cluster.most = _whole(value.get("max_workers"), 2)
    machines = {name: _machine(document, name, kind, cluster.most) for name, kind in kinds.items()}
    head = value.get("head_node_type")
    cluster.head = machines.pop(head, cluster.head) if isinstance(head, str) else cluster.head
    cluster.workers = list(machines.values())


def _machine(document: Document, name: str, kind: Any, most: int) -> Machine:
    resources = _mapping(kind, "resources")
    return Machine(
        name,
        document.where(("available_node_types", name)),
        _amount(resources.get("CPU")),
        _amount(resources.get("GPU", 0 if resources else None)),
        _whole(kind.get("min_workers") if isinstance(kind, dict) else 0, 0),
        _whole(kind.get("max_workers") if isinstance(kind, dict) else most, most),
        _is_spot(_mapping(kind, "node_config")),
    )


def _is_spot(config: dict[str, Any]) -> bool:
    """Whether the settings of AWS or Google Cloud ask for spot; Ray's own example for Google uses a list."""
    scheduling = config.get("scheduling")
    parts = [part for part in (scheduling if isinstance(scheduling, list) else [scheduling]) if isinstance(part, dict)]
    google = any(part.get("preemptible") or part.get("provisioningModel") == "SPOT" for part in parts)
    return google or _mapping(config, "InstanceMarketOptions").get("MarketType") == "spot"


def _add_local_machines(cluster: Cluster, document: Document) -> None:
    provider = _mapping(document.value, "provider")
    head = cluster.start_of("head")
    cpu, gpu = (_option(cluster, kind, "head") for kind in ("cpus", "gpus"))
    cluster.head = Machine(str(provider.get("head_ip", "head")), head, cpu, gpu)
    count = len(_items(provider.get("worker_ips")))
    cpu, gpu = (_option(cluster, kind, "worker") for kind in ("cpus", "gpus"))
    where = document.where(("provider", "worker_ips"))
    cluster.most = min(count, _whole(document.value.get("max_workers"), count)) or None
    cluster.workers = [Machine("workers", where, cpu, gpu, count, count)]


def _option(cluster: Cluster, kind: str, role: Role) -> float | None:
    found = [float(match[1]) for match, _ in cluster.matches(rf"--num-{kind}[= ](\d+)", role, starts=True)]
    return found[-1] if found else None


def _whole(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _amount(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


# ---- rules for these files only


def own_rules(cluster: Cluster, document: Document) -> Iterator[Finding]:
    yield from _unknown_provider(cluster, document)
    yield from _defaults(cluster, document)
    yield from _mounted_token(cluster)
    yield from _key(document)
    yield from _starts(cluster, document)
    yield from _autoscaler(cluster, document)
    yield from _machines(document)
    yield from _addresses(document)
    yield from _idle(cluster, document)


def _unknown_provider(cluster: Cluster, document: Document) -> Iterator[Finding]:
    if cluster.provider not in KNOWN:
        known = ", ".join(KNOWN)
        yield warning(
            document.where(("provider", "type")), f"provider {cluster.provider!r}: this check knows only {known}"
        )


def _defaults(cluster: Cluster, document: Document) -> Iterator[Finding]:
    """Commands that Ray fills in if a file omits them."""
    if cluster.provider not in ("aws", "gcp"):
        return
    if "setup_commands" not in document.value:
        yield error(
            cluster.top, "no setup_commands: Ray's defaults install a nightly build of Ray; copy them from cluster.yaml"
        )
    if "head_start_ray_commands" not in document.value:
        yield error(
            cluster.top,
            "no head_start_ray_commands: Ray's defaults open the dashboard to the network; copy them from cluster.yaml",
        )


def _mounted_token(cluster: Cluster) -> Iterator[Finding]:
    disabled = all(cluster.says(rules.NO_TOKEN, role) for role in ("head", "worker"))
    if not disabled and not any(rules.TOKEN.fullmatch(remote) for remote in cluster.mounts):
        yield error(
            cluster.top, "`ray up` does not send the token; add ~/.ray/auth_token: ~/.ray/auth_token to file_mounts"
        )


def _key(document: Document) -> Iterator[Finding]:
    for name in ("ssh_private_key", "ssh_public_key"):
        key = _mapping(document.value, "auth").get(name)
        if isinstance(key, str) and rules.PLACEHOLDER not in key and not Path(key).expanduser().exists():
            yield error(document.where(("auth", name)), f"{name}: {key} does not exist on this machine")


def _starts(cluster: Cluster, document: Document) -> Iterator[Finding]:
    """The file's own start commands must start Ray; if it has none, Ray's defaults do."""
    for role, option in (("head", "--head"), ("worker", "--address")):
        key = f"{role}_start_ray_commands"
        wanted = rf"ray start\b[^;&|]*{option}\b"
        if key in document.value and not cluster.says(wanted, role, starts=True):  # type: ignore[arg-type]
            yield error(document.where((key,)), f"{key}: no command runs `ray start ... {option}`; see cluster.yaml")


def _machines(document: Document) -> Iterator[Finding]:
    for name, kind in _mapping(document.value, "available_node_types").items():
        where = ("available_node_types", name)
        for resource in _mapping(kind, "resources"):
            if resource.upper() in ("CPU", "GPU") and resource != resource.upper():
                text = f"{name}: Ray does not treat resource '{resource}' as '{resource.upper()}'; write it in capitals"
                yield error(document.where((*where, "resources", resource)), text)
    if _mapping(document.value, "provider").get("type") == "aws":
        yield from _profiles(document)


def _profiles(document: Document) -> Iterator[Finding]:
    """Ray creates a profile only for the head."""
    for name, kind in _mapping(document.value, "available_node_types").items():
        config = _mapping(kind, "node_config")
        if name != document.value.get("head_node_type") and config and "IamInstanceProfile" not in config:
            where = document.where(("available_node_types", name))
            yield warning(where, f"{name}: without an IamInstanceProfile these machines cannot use s3://")


def _addresses(document: Document) -> Iterator[Finding]:
    """Each machine must be listed only once."""
    provider = _mapping(document.value, "provider")
    seen = {provider.get("head_ip"): "the head's"}
    for number, address in enumerate(_items(provider.get("worker_ips"))):
        if address in seen:
            where = document.where(("provider", "worker_ips", number))
            yield error(where, f"worker_ips: {address} is {seen[address]} address; list each machine only once")
        seen[address] = "another worker's"


def _autoscaler(cluster: Cluster, document: Document) -> Iterator[Finding]:
    starts = [
        (match, where) for match, where in cluster.matches(r"ray start\b[^;&|]*--head[^;&|]*", "head", starts=True)
    ]
    for match, where in starts:
        if "--autoscaling-config" not in match[0]:
            yield error(where, "no --autoscaling-config=~/ray_bootstrap_config.yaml: workers would never start; add it")
    if cluster.provider == "local" and not cluster.says(rules.OLD_AUTOSCALER, "head"):
        text = "Ray's newer autoscaler skips one machine; put RAY_enable_autoscaler_v2=0 before `ray start`"
        yield error(cluster.start_of("head"), text)


def _idle(cluster: Cluster, document: Document) -> Iterator[Finding]:
    if cluster.provider == "local":
        return
    minutes = document.value.get("idle_timeout_minutes")
    if minutes is None:
        yield warning(
            cluster.top,
            "no idle_timeout_minutes: Ray keeps idle machines for 5 minutes; set what you want",
        )
    elif isinstance(minutes, int | float) and minutes > rules.LONGEST_IDLE_MIN:
        where = document.where(("idle_timeout_minutes",))
        yield warning(where, f"you pay for idle machines for {minutes:g} minutes before they are removed; 10 is usual")


def next_command(cluster: Cluster) -> str:
    old = "RAY_UP_enable_autoscaler_v2=0 " if cluster.says(rules.OLD_AUTOSCALER, "head") else ""
    if cluster.provider == "local":  # by default Ray waits 15 minutes for a machine that is off, and does not try again
        return f"{old}AUTOSCALER_NODE_START_WAIT_S=60 ray up -y --no-config-cache {cluster.source.file}"
    return f"{old}ray up -y {cluster.source.file}"
