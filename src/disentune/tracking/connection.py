"""Whether and where a run is streamed to W&B, from the sweep's settings and the environment. Does not import wandb."""

import configparser
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from disentune.environment import logins
from disentune.errors import ConfigError
from disentune.files.storage import without_password
from disentune.spec.settings import Wandb

DEFAULT_URL = "https://api.wandb.ai"
ANSWER_S = 10.0
HOW_TO_LOG_IN = "set WANDB_API_KEY, or run: wandb login"


@dataclass(frozen=True)
class Connection:
    """Where the W&B runs of a sweep are; holds no key."""

    online: bool
    url: str
    project: str
    entity: str | None
    group: str
    tags: tuple[str, ...]
    best_checkpoint: bool
    reason: str = ""
    """Why it is offline, if nobody asked for that."""

    @property
    def place(self) -> str:
        """Names the server and project in a trial's record of what has arrived; without any password in the address."""
        host = urlsplit(self.url)._replace(netloc=urlsplit(self.url).netloc.rpartition("@")[2]).geturl()
        return f"{host} {self.entity or ''}/{self.project}" if self.online else "offline"

    def line(self, run: str) -> str:
        """The line that is printed at the start."""
        where = f"project {self.entity + '/' if self.entity else ''}{self.project}, group {self.group}"
        if self.online:
            return f"W&B: online, {where}"
        return f"W&B: offline{f' ({self.reason})' if self.reason else ''}, {where}; send it with: disentune sync {run}"


def connection(
    wandb: Wandb | None, sweep: str, run: str, environment: Mapping[str, str] = os.environ
) -> Connection | None:
    """None if nothing is tracked. Raises ConfigError when `mode: online` has no key."""
    mode = _mode(wandb, environment)
    if wandb is None or mode == "disabled":
        return None
    url = base_url(environment)
    has_key = api_key(url, environment) is not None
    if mode == "online" and not has_key:
        where = without_password(url)
        raise ConfigError(f"sending to W&B needs a key for {where}, and none is configured; {HOW_TO_LOG_IN}")
    return Connection(
        online=has_key and mode != "offline",
        url=url,
        project=wandb.project or sweep,
        entity=wandb.entity,
        group=wandb.group or run,
        tags=tuple(wandb.tags),
        best_checkpoint=wandb.best_checkpoint,
        reason=f"no key; {HOW_TO_LOG_IN}" if mode == "auto" and not has_key else "",
    )


def _mode(wandb: Wandb | None, environment: Mapping[str, str]) -> str:
    """The sweep's mode; for `auto`, WANDB_MODE, as in every W&B program."""
    said = wandb.mode if wandb is not None else "disabled"
    wish = environment.get("WANDB_MODE", "").lower()
    if said == "auto" and wish in ("online", "offline", "disabled"):
        return wish
    return "disabled" if said == "auto" and wish == "dryrun" else said


def base_url(environment: Mapping[str, str] = os.environ) -> str:
    """The server: WANDB_BASE_URL, or what `wandb login --host` wrote to W&B's own settings."""
    folder = Path(environment.get("WANDB_CONFIG_DIR") or Path.home() / ".config" / "wandb")
    settings = configparser.ConfigParser(interpolation=None)
    try:
        settings.read(folder / "settings")
    except (configparser.Error, ValueError):
        settings.clear()
    written = settings.get("default", "base_url", fallback="") or settings.get("client", "base_url", fallback="")
    return (environment.get("WANDB_BASE_URL") or written or DEFAULT_URL).rstrip("/")


def api_key(url: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """From the environment or netrc, nowhere else."""
    if environment.get("WANDB_API_KEY"):
        return environment["WANDB_API_KEY"]
    known = logins(environment)
    entry = known.get(urlsplit(url).netloc) or known.get("default")
    return entry[2] if entry else None


def trouble(connection: Connection, environment: Mapping[str, str] = os.environ) -> str:
    """Why the server does not accept runs, found with a small query; empty if it answers."""
    where = without_password(connection.url)
    try:
        answer = _asked_who_i_am(connection, environment)
    except requests.RequestException as error:
        return f"W&B does not answer at {where} ({type(error).__name__})"
    if answer.status_code in (401, 403):
        return f"W&B at {where} refuses the key ({answer.status_code}); {HOW_TO_LOG_IN}"
    if not answer.ok:
        return f"W&B at {where} answers {answer.status_code} {answer.reason}"
    return ""


def own_entity(connection: Connection, environment: Mapping[str, str] = os.environ) -> str:
    """The user or team that the key belongs to. Raises what requests raises."""
    answer = _asked_who_i_am(connection, environment)
    answer.raise_for_status()
    found: str = answer.json()["data"]["viewer"]["entity"]
    return found


def _asked_who_i_am(connection: Connection, environment: Mapping[str, str]) -> requests.Response:
    query = "query Viewer { viewer { id entity } }"
    question: dict[str, Any] = {"query": query, "operationName": "Viewer", "variables": {}}
    key = api_key(connection.url, environment) or ""
    return requests.post(f"{connection.url}/graphql", json=question, auth=("api", key), timeout=ANSWER_S)
