"""Rules for any cluster that runs our sweeps. Each rule yields its findings, and no rule stops another."""

import os
import re
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from disentune.cluster.check.described import Cluster, Instruction, Machine, Role
from disentune.cluster.check.reading import Finding, error, warning
from disentune.cluster.token import is_readable_by_others, warning_about
from disentune.errors import ConfigError
from disentune.files.storage import place

TOKEN = re.compile(r"(~|/root|/home/[^/]+)/\.ray/auth_token")
PLACEHOLDER = "CHANGE_ME"
STORAGE = r"DISENTUNE_STORAGE=['\"]?([^\s'\";]+)"
LONGEST_IDLE_MIN = 60
OLD_AUTOSCALER = r"RAY_enable_autoscaler_v2=0\b"
SCORER = r"RAY_AUTOSCALER_UTILIZATION_SCORER=disentune\.cluster\.fallback\.score"
_INSTALL = re.compile(r"pip3?\s+install\s+([^\n;&|]*)")
_NIGHTLY = re.compile(r"ray-wheels/(latest|master)|\.dev0\b|\bnightly\b|\s--pre\b")
_ELSEWHERE = re.compile(r"\bray ?@|ray-project/ray\b|(^|/)ray-\d[^/]*\.whl")
_REQUIREMENT = re.compile(r"(ray|torch|disentune)(\[[\w,-]*\])?(.*)")
_PYTHON = r"(?:--python[= ](?:c?python)?|venv -p (?:c?python)?|\bpython=?=?)(3\.\d+)"
_RAY_IMAGE = re.compile(r"rayproject/ray(?:-ml|-llm)?(?::([\w.-]+))?")


def here(package: str) -> str:
    """The version installed on this machine, without the build (2.13.0+cpu); empty if not installed."""
    try:
        return version(package).split("+")[0]
    except PackageNotFoundError:
        return ""


def python_here() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


# ---- what the text must not contain


def placeholders(cluster: Cluster) -> Iterator[Finding]:
    for where, line in cluster.source.uncommented():
        if PLACEHOLDER in line:
            yield error(where, f"replace {PLACEHOLDER} with your own value")


_NAMES = r"\w*(?:api_key|access_key|session_token|auth_token|(?:hf|github|gh)_token|password|passwd)"
_VALUE = r"['\"]?([^\s'\"$;,}~/.<*&{(][^\s'\";,}]{6,})"
SECRETS = (
    (rf"(?i)\b({_NAMES})\b['\"]?(?:\s*[=:]\s*(?:!!\w+ )?|\s+){_VALUE}", 2),
    (rf"(?i)\b(wandb login(?: --\w+)*)\s+{_VALUE}", 2),
    (rf"(?i)\b({_NAMES})\b['\"]?\s*:\s*[*&]([^\s'\";,}}]{{7,}})", 2),
    (r"\bcurl\b[^\n]*\s-(?:u|-user)[ =]([^\s:]+:\S+)", 1),
    (r"[?&](?:sig|token|key)=([^\s'\";&]{7,})", 1),
    (r"\b((?:AKIA|ASIA)[A-Z0-9]{12,})\b", 1),
    (r"-----BEGIN [A-Z ]*(PRIVATE KEY)-----", 1),
    (r"\w+://([^\s/@]{7,})@", 1),
)  # fmt: skip
"""Patterns, and the group that holds the secret."""
_KEPT_HOW = "use a file mount of ~/.netrc, an instance profile or a Kubernetes Secret"


def secrets(cluster: Cluster) -> Iterator[Finding]:
    """Finds keys and passwords, also in comments, because files are shared."""
    for number, line in enumerate(cluster.source.text.splitlines(), 1):
        if secret_values(line):
            where = f"{cluster.source.file}:{number}"
            yield error(where, f"a key or password is in plain text; {_KEPT_HOW}, and replace the exposed one")


def _values(pattern: str, group: int, text: str) -> list[str]:
    found = [match[group] for match in re.finditer(pattern, text)]
    return [value for value in found if PLACEHOLDER not in value]


def is_secret_name(name: str) -> bool:
    return re.fullmatch(r"(?i).*(_API_KEY|_SECRET_ACCESS_KEY|_SESSION_TOKEN|RAY_AUTH_TOKEN|PASSWORD)", name) is not None


def secret_values(text: str) -> list[str]:
    """The secrets in a text, which no message may repeat."""
    return [value for pattern, group in SECRETS for value in _values(pattern, group, text)]


# ---- versions


def versions(cluster: Cluster) -> Iterator[Finding]:
    for one in cluster.instructions:
        for install in _INSTALL.finditer(one.shell()):
            where = cluster.source.line_of(install[0].split("\n")[0], one.where)
            yield from _installed(cluster, install[1], where)
    for match, where in cluster.matches(_PYTHON):
        if match[1] != python_here():
            yield error(
                where, f"Python {match[1]}, but {python_here()} on this machine; Ray needs the same on every node"
            )
    for image in cluster.images:
        yield from _image(image)


def _installed(cluster: Cluster, arguments: str, where: str) -> Iterator[Finding]:
    if _NIGHTLY.search(f" {arguments}"):
        yield error(where, f"installs a nightly or pre-release build; pin this machine's version: ray=={here('ray')}")
        return
    if _ELSEWHERE.search(arguments):
        yield error(where, f"installs a Ray of unknown version; pin this machine's version: ray=={here('ray')}")
        return
    words = arguments.replace("'", "").replace('"', "").split()
    constraints = _constraints(words)
    for path in constraints:
        yield from _constrained(cluster, path, where)
    if not constraints and any(word.rstrip("/").endswith("disentune") for word in _packages(arguments)):
        yield warning(where, "installs disentune without --constraint: its dependencies may be newer than tested")
    for word in words:
        match = _REQUIREMENT.fullmatch(word)
        if match and match[3].startswith("=="):
            yield from _compared(match[1], match[3][2:], where)
        elif match and not (constraints and not match[3]):
            yield error(
                where,
                f"installs {match[1]} without an exact version; pin this machine's: {match[1]}=={here(match[1])}",
            )


def _packages(arguments: str) -> list[str]:
    """The packages to install, without constraints and other options."""
    words = arguments.split()
    after = {i + 1 for i, word in enumerate(words) if word in ("-c", "--constraint", "--constraints", "--python")}
    return [word for i, word in enumerate(words) if i not in after and not word.startswith("-")]


def _constraints(words: list[str]) -> list[str]:
    after = [words[i + 1] for i, word in enumerate(words[:-1]) if word in ("-c", "--constraint", "--constraints")]
    return after + [word.partition("=")[2] for word in words if word.startswith("--constraint=")]


def _compared(package: str, pinned: str, where: str) -> Iterator[Finding]:
    if pinned.split("+")[0] != here(package):
        yield error(where, f"{package} {pinned}, but this machine has {here(package)}; they must be the same")


def _constrained(cluster: Cluster, remote: str, used: str) -> Iterator[Finding]:
    """Checks the pins of a constraints file."""
    local, where = cluster.mounts.get(remote, (None, ""))
    if cluster.mounts and not is_sent(cluster, remote):
        yield error(used, f"{remote} is used but not sent; add it to file_mounts")
    for line in local.read_text().splitlines() if local is not None and local.is_file() else ():
        package, _, pinned = line.partition("==")
        if package in ("ray", "torch"):
            yield from _compared(package, pinned.strip(), where)


def _image(image: Instruction) -> Iterator[Finding]:
    match = _RAY_IMAGE.search(image.text)
    if match is None:
        return
    release, *rest = (match[1] or "latest").split("-")
    wanted = f"rayproject/ray:{here('ray')}-py{python_here().replace('.', '')}"
    python = next((f"3.{part[3:]}" for part in rest if part.startswith("py3")), None)
    if release != here("ray"):
        yield error(
            image.where,
            f"the image has Ray {release}, this machine {here('ray')}; use {wanted} or {wanted}-gpu",
        )
    elif python != python_here():
        yield error(
            image.where,
            f"the image has Python {python or 'of unknown version'}, this machine {python_here()}; use {wanted}",
        )


def is_sent(cluster: Cluster, remote: str) -> bool:
    """Whether a path on the nodes is a file mount, or below one."""
    return any(remote == mount or remote.startswith(f"{mount.rstrip('/')}/") for mount in cluster.mounts)


def installs(cluster: Cluster) -> Iterator[Finding]:
    """Something must install our package on the nodes, from complete sources."""
    own_image = any(_RAY_IMAGE.search(image.text) is None for image in cluster.images)
    installed = {word: where for match, where in cluster.matches(_INSTALL.pattern) for word in _packages(match[1])}
    if not own_image and not any("disentune" in word for word in installed):
        how = (
            "use an image built from cluster/Dockerfile"
            if cluster.provider == "kuberay"
            else "see setup_commands in cluster.yaml"
        )
        text = f"nothing installs disentune on the nodes; {how}"
        yield warning(cluster.top, text) if cluster.provider == "local" else error(cluster.top, text)
    for folder, where in installed.items():
        if folder.startswith("~/") and folder.rstrip("/").endswith("disentune"):
            missing = [
                part for part in ("pyproject.toml", "src") if not is_sent(cluster, f"{folder.rstrip('/')}/{part}")
            ]
            yield from (
                error(where, f"{folder}/{part} is needed but not sent; add it to file_mounts") for part in missing
            )


# ---- who may use the cluster


TOKEN_MODE, NO_TOKEN = r"RAY_AUTH_MODE=['\"]?token\b", r"RAY_AUTH_MODE=['\"]?disabled\b"


def token(cluster: Cluster) -> Iterator[Finding]:
    for role in ("head", "worker"):
        other = {"head": "worker", "worker": "head"}[role]
        if cluster.says(NO_TOKEN, role) and not cluster.says(NO_TOKEN, other):  # type: ignore[arg-type]
            yield error(
                cluster.start_of(role),
                f"the {other} requires a token, but the {role} does not use one",
            )
        elif cluster.says(NO_TOKEN, role):
            yield warning(
                cluster.start_of(role),
                f"RAY_AUTH_MODE=disabled: anyone who can reach the {role} can run code on it",
            )
        elif not cluster.says(TOKEN_MODE, role):
            how = "authOptions: {mode: token}" if cluster.provider == "kuberay" else "export that variable"
            text = f"the {role} does not set RAY_AUTH_MODE=token; nodes with and without it cannot connect; {how}"
            yield error(cluster.start_of(role), text)


def dashboard(cluster: Cluster) -> Iterator[Finding]:
    if cluster.provider == "kuberay":
        return
    for _, where in cluster.matches(r"--dashboard-host[= ]['\"]?(0\.0\.0\.0|::)", "head"):
        text = (
            "the dashboard would be open to the whole network; write --dashboard-host=127.0.0.1 and use `ray dashboard`"
        )
        yield error(where, text)


# ---- where results go


def storage(cluster: Cluster) -> Iterator[Finding]:
    if not cluster.says(STORAGE, "head"):
        yield warning(cluster.top, "DISENTUNE_STORAGE is not set, so every command needs --storage")
    for match, where in cluster.matches(STORAGE):
        yield from _shared(cluster, match[1], where)


def _shared(cluster: Cluster, text: str, where: str) -> Iterator[Finding]:
    if PLACEHOLDER in text:
        return
    try:
        found = place(text)
    except ConfigError as reason:
        yield error(where, str(reason).replace("--storage", "DISENTUNE_STORAGE"))
        return
    if isinstance(found, Path):
        yield from _shared_folder(cluster, text, where)


def _shared_folder(cluster: Cluster, place: str, where: str) -> Iterator[Finding]:
    if not place.startswith(("/", "~", "$")):
        yield error(where, f"{place} is relative to the folder that a command runs in; write an absolute path")
    elif cluster.provider == "local":
        if place.startswith(("/tmp", "~", "$HOME", "/home", "/root")):
            yield warning(
                where, f"{place} is usually a separate folder on each machine; all machines must see the same one (NFS)"
            )
    elif not _is_mounted(cluster, place):
        text = (
            f"{place} is on one machine's disk and is lost with it; use s3://... or gs://..., or mount a shared folder"
        )
        yield error(where, text)


def _is_mounted(cluster: Cluster, place: str) -> bool:
    """Whether a shared folder is mounted there, on the head and on the workers."""
    folders = {str(folder) for folder in [Path(place), *Path(place).parents[:-1]]}
    roles: tuple[Role, ...] = ("head", "worker")
    return all(
        any(folders & set(match[0].split()) for match, _ in cluster.matches(r"\bmount\b[^\n;&]*|volume at \S+", role))
        for role in roles
    )


# ---- machines and what they cost


def head(cluster: Cluster) -> Iterator[Finding]:
    kind = cluster.head
    if kind.spot:
        yield error(kind.where, "the head is a spot machine, and the driver dies with it; use an on-demand machine")
    trials = [f"{what} {amount:g}" for what, amount in (("CPU", kind.cpu), ("GPU", kind.gpu)) if amount]
    if kind.cpu is None or trials:
        what = f"the head offers {' and '.join(trials)}" if trials else "the head offers all its CPUs"
        how = _HEAD_HOW.get(cluster.provider, "resources: {CPU: 0, GPU: 0} prevents that")
        text = f"{what} to trials, which can bring it and the driver down; {how}"
        yield warning(kind.where, text) if cluster.provider == "local" else error(kind.where, text)


_HEAD_HOW = {
    "local": "--num-cpus=0 --num-gpus=0 in its `ray start` prevents that",
    "kuberay": 'rayStartParams: {num-cpus: "0", num-gpus: "0"} prevents that',
}


def spot(cluster: Cluster) -> Iterator[Finding]:
    kinds = [kind for kind in cluster.workers if kind.spot and kind.most]
    if not kinds:
        return
    if not cluster.says(r"disentune\.cluster\.preemption", "worker"):
        text = "no worker watches for the pre-emption notice; add `nohup python -m disentune.cluster.preemption ... &`"
        yield warning(cluster.start_of("worker"), text)
    for kind in kinds:
        yield from _fallback(cluster, kind)


def _fallback(cluster: Cluster, kind: Machine) -> Iterator[Finding]:
    others = [one for one in cluster.workers if not one.spot and one.most and (one.gpu or 0) >= (kind.gpu or 0)]
    if not others:
        yield warning(
            kind.where, f"{kind.name}: the sweep waits when no spot machine is available; add an on-demand type as well"
        )
    elif cluster.provider == "aws" and not (cluster.says(OLD_AUTOSCALER, "head") and cluster.says(SCORER, "head")):
        text = (
            f"{kind.name}: Ray keeps asking for spot machines and never uses {others[0].name} unless its start has "
            "RAY_enable_autoscaler_v2=0 RAY_AUTOSCALER_UTILIZATION_SCORER=disentune.cluster.fallback.score"
        )
        yield warning(cluster.start_of("head"), text)


def costs(cluster: Cluster) -> Iterator[Finding]:
    if cluster.most == 0:
        yield error(cluster.top, "max_workers: 0 means that no worker ever starts; raise it")
    for kind in cluster.workers:
        if kind.gpu and kind.least and cluster.provider != "local":
            yield warning(
                kind.where,
                f"{kind.name}: {kind.least} GPU machine(s) are always on, even when idle; set the minimum to 0?",
            )


def health(cluster: Cluster) -> Iterator[Finding]:
    if not cluster.says(r"RAY_health_check_\w+", "head"):
        text = "Ray gives up a silent node after 65 s; RAY_health_check_failure_threshold=3 on the head makes that 39 s"
        yield warning(cluster.start_of("head"), text)


def files(cluster: Cluster) -> Iterator[Finding]:
    """Files to send must exist on this machine. The token has a message of its own."""
    for remote, (local, where) in cluster.mounts.items():
        if TOKEN.fullmatch(remote) and is_readable_by_others(local):
            yield warning(where, warning_about(local))
        if local.exists() or PLACEHOLDER in str(local):
            continue
        if TOKEN.fullmatch(remote):
            yield error(
                where, f"{local} does not exist; create it: (umask 077; ray get-auth-token --generate > /dev/null)"
            )
        else:
            yield error(where, f"{local} does not exist (relative to {os.getcwd()}; run `ray up` from there too)")


RULES: tuple[Callable[[Cluster], Iterator[Finding]], ...] = (
    placeholders, secrets, versions, installs, token, dashboard, storage, head, spot, costs, health, files,
)  # fmt: skip
