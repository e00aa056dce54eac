"""The file with the token that opens a cluster: anyone who can read the file can run code on every node."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path


def token_path() -> Path | None:
    """Where Ray finds its token on this machine; None if the token is in a variable, or if none is used."""
    if os.environ.get("RAY_AUTH_TOKEN") or os.environ.get("RAY_AUTH_MODE") == "disabled":
        return None
    return Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or "~/.ray/auth_token").expanduser()


def is_readable_by_others(path: Path) -> bool:
    try:
        return bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    except OSError:
        return False


def warning_about(path: Path) -> str:
    return f"{path} holds the token of your clusters, and other users can read it; run: chmod 600 {path}"


def token_notes() -> Iterator[str]:
    path = token_path()
    if path is not None and is_readable_by_others(path):
        yield warning_about(path)
