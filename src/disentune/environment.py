"""What a run was made with: versions, commit, hardware. Nothing personal: no user, no path, no variable."""

import json
import netrc
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("disentune", "torch", "numpy", "scikit-learn", "scipy", "ray", "optuna", "pandas", "pyarrow")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|_PWD|CREDENTIAL", re.IGNORECASE)
"""In the name of a variable; the path of something that is there is none."""
SHORTEST_SECRET = 8
_LOGIN = re.compile(r"//[^/\s@:]*:[^/\s@]+@")
"""In an address."""


def environment() -> dict[str, Any]:
    """Facts that may explain a difference between two runs."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "gpus": _gpus(),
    }


def versions() -> dict[str, str | None]:
    """What the machines of one cluster must have in common; quick, for it loads nothing."""
    names = {name: _version(name) for name in ("disentune", "ray", "torch")}
    return {"python": platform.python_version(), **names, "commit": _commit()}


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What changed between two environments and can change bits: versions and devices, not the number of cores.

    What an environment does not say counts as unchanged.
    """
    old, new = dict(then.get("packages", {})), dict(now["packages"])
    changed = [f"{name} {old[name]} -> {new.get(name)}" for name in old if old[name] != new.get(name)]
    devices = [key for key in ("python", "cpu", "gpus") if key in then and then[key] != now[key]]
    return changed + [f"{key} {then[key]} -> {now[key]}" for key in devices]


def without_secrets(text: str, variables: Mapping[str, str] = os.environ) -> str:
    """A text that may have come from anywhere, such as an exception's, without the keys and tokens of this process,
    the passwords of ~/.netrc (where `wandb login` keeps its key) and those in addresses."""
    for secret in sorted(_secrets(variables), key=len, reverse=True):
        text = text.replace(secret, "***")
    return _LOGIN.sub("//***@", text)


def _secrets(variables: Mapping[str, str]) -> set[str]:
    """As they are, line by line, and as they stand in a Python or JSON text."""
    values = {value for name, value in variables.items() if _SECRET.search(name) and not _is_path(value)}
    values |= {password for _, _, password in logins(variables).values()}
    spellings = {spelling for value in values for spelling in (value, repr(value)[1:-1], json.dumps(value)[1:-1])}
    lines = {line.strip() for spelling in spellings for line in spelling.splitlines()}
    return {secret for secret in spellings | lines if len(secret) >= SHORTEST_SECRET}


def logins(variables: Mapping[str, str] = os.environ) -> dict[str, tuple[str, str, str]]:
    """User, account and password by host, as netrc has them."""
    try:
        return netrc.netrc(os.path.expanduser(variables.get("NETRC") or "~/.netrc")).hosts
    except (OSError, ValueError, netrc.NetrcParseError):
        return {}


def _is_path(value: str) -> bool:
    return value.startswith(("/", "~")) and os.path.exists(os.path.expanduser(value))


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of our own source when it is a git checkout; marked when files were changed since."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", __file__)  # fails when we are installed inside someone else's checkout
        return git("rev-parse", "HEAD") + (" with changes" if git("status", "--porcelain", "--", str(here)) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _gpus() -> list[str]:
    from disentune import cuda

    return cuda.names()
