"""Versions, commit and hardware of a run; nothing personal: no user name, path or environment variable."""

import base64
import hashlib
import json
import netrc
import os
import platform
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

OWN = Path(__file__).parent
PACKAGES = ("disentune", "torch", "numpy", "scikit-learn", "scipy", "ray", "optuna", "pandas", "pyarrow")
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|PASSWD|_PWD|CREDENTIAL", re.IGNORECASE)
"""Parts of the name of a variable that holds a secret. The path of an existing file does not count as a secret."""
SHORTEST_SECRET = 8
_NUMBER = re.compile(r"[+-]?[0-9._]{1,24}([eE][+-]?[0-9]{1,3})?")
"""Not a secret, whatever the name of the variable: MAX_TOKENS=0.391938."""
_WORDS = {
    "anonymous", "automatic", "available", "development", "disabled", "external", "internal", "keychain", "localhost",
    "optional", "password", "production", "readonly", "required", "undefined", "unlimited", "username",
}  # fmt: skip
"""Not secrets either. Shorter words such as true and none need no entry: they are too short to be a secret."""
_LOGIN = re.compile(r"//[^/\s@:]*:[^/\s@]+@")
"""A login in a URL."""


def environment() -> dict[str, Any]:
    """Facts that may explain a difference between two runs."""
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
        "source": own_source(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "gpus": _gpus(),
    }


def own_source() -> str:
    """A hash of every module of this package, by name and content."""
    files = sorted(OWN.rglob("*.py"))
    return short_hash(b"".join(f"{file.relative_to(OWN)} {short_hash(file.read_bytes())}\n".encode() for file in files))


def short_hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:12]


def versions() -> dict[str, str | None]:
    """What all machines of a cluster must have in common; fast because it imports nothing heavy."""
    names = {name: _version(name) for name in ("disentune", "ray", "torch")}
    return {"python": platform.python_version(), **names, "commit": _commit()}


def differences(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Differences between two environments that can change results: versions, devices and code, not the number of
    cores.

    A fact that an environment does not record counts as unchanged.
    """
    old, new = dict(then.get("packages", {})), dict(now["packages"])
    changed = [f"{name} {old[name]} -> {new.get(name)}" for name in old if old[name] != new.get(name)]
    devices = [key for key in ("python", "cpu", "gpus") if key in then and then[key] != now[key]]
    changed += [f"{key} {then[key]} -> {now[key]}" for key in devices]
    return changed + _other_code(then, now) + _other_plugins(then.get("plugins", {}), now.get("plugins", {}))


def _other_code(then: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Compares the commits if both are known; a commit that changed no source file does not count as a change."""
    if then.get("source") and then["source"] == now.get("source"):
        return []
    for key in ("commit", "source"):
        old, new = then.get(key), now.get(key)
        if old and new and old != new:
            return [f"disentune's code {_short(old)} -> {_short(new)}"]
    return []


def _short(commit: str) -> str:
    number, space, changes = commit.partition(" ")
    return f"{number[:12]}{space}{changes}"


def _other_plugins(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    changed = [name for name in then if name in now and then[name] != now[name]]
    return [f"source of {name} {then[name]} -> {now[name]}" for name in changed]


_TELLING = ("python", "packages", "source", "cpu", "gpus", "plugins")


def is_another(then: dict[str, Any], now: dict[str, Any]) -> bool:
    """Whether a session in `now` needs a record of its own: it differs from `then`, or records facts that `then`
    lacks."""
    return any(then.get(key) != now.get(key) for key in _TELLING)


def without_secrets(text: str, variables: Mapping[str, str] = os.environ) -> str:
    """A text that may have come from anywhere, such as an exception's, without the keys and tokens of this process,
    the passwords of ~/.netrc (where `wandb login` keeps its key) and those in addresses."""
    return cleaner(variables)(text)


def cleaner(variables: Mapping[str, str] = os.environ) -> Callable[[str], str]:
    """`without_secrets` for many texts; reads the environment variables once."""
    return partial(_cleaned, _known(secrets(variables)))


def secrets(variables: Mapping[str, str] = os.environ) -> frozenset[str]:
    """The keys, tokens and passwords that must not be shown."""
    values = {value for name, value in variables.items() if _SECRET.search(name) and not _is_path(value)}
    return frozenset(values | {password for _, _, password in logins(variables).values()})


def cleaned_values(value: Any, clean: Callable[[str], str] | None = None) -> Any:
    """Plain values with secrets removed from every string, including keys; numbers are unchanged."""
    clean = clean or cleaner()
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {cleaned_values(key, clean): cleaned_values(below, clean) for key, below in value.items()}
    return [cleaned_values(below, clean) for below in value] if isinstance(value, list | tuple) else value


class _Known(NamedTuple):
    """Secrets in every encoding, longest first; `quoted` matches those with percent-encoded characters."""

    spellings: tuple[str, ...]
    quoted: re.Pattern[str] | None


def _cleaned(known: _Known, text: str) -> str:
    for spelling in known.spellings:
        text = text.replace(spelling, "***")
    if known.quoted and ("%" in text or "+" in text):
        text = known.quoted.sub("***", text)
    return _LOGIN.sub("//***@", text)


@lru_cache(maxsize=8)
def _known(values: frozenset[str]) -> _Known:
    """Each secret, whole and line by line: verbatim, escaped for Python or JSON, in base64, and percent-encoded."""
    parts = {part for value in values for part in (value, *map(str.strip, value.splitlines()))}
    found = {spelling for part in parts if _is_secret(part) for spelling in _spellings(part)}
    longest_first = sorted(found, key=lambda spelling: (-len(spelling), spelling))
    quotable = [pattern for spelling in longest_first if (pattern := _quoted(spelling)) != re.escape(spelling)]
    return _Known(tuple(longest_first), re.compile("|".join(quotable)) if quotable else None)


def _is_secret(value: str) -> bool:
    return len(value) >= SHORTEST_SECRET and not _NUMBER.fullmatch(value) and value.lower() not in _WORDS


def _spellings(secret: str) -> Iterator[str]:
    yield from (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    for core in _in_base64(secret.encode(errors="surrogateescape")):
        yield from (core, core.translate(str.maketrans("+/", "-_")))


def _in_base64(secret: bytes) -> Iterator[str]:
    """The part shared by the base64 of every text that contains the secret, for each offset within three bytes."""
    for offset in range(3):
        text = base64.b64encode(bytes(offset) + secret).decode()
        yield text[-(-8 * offset // 6) : 8 * (offset + len(secret)) // 6]


def _quoted(secret: str) -> str:
    """A pattern that matches the secret whichever of its characters are percent-encoded."""
    return "".join(map(_quoted_character, secret))


def _quoted_character(character: str) -> str:
    if character.isascii() and (character.isalnum() or character in "-._"):
        return re.escape(character)  # never encoded
    code = "".join(f"%{byte:02x}" for byte in character.encode(errors="surrogateescape"))
    return f"(?:{re.escape(character)}{'|[+]' if character == ' ' else ''}|(?i:{code}))"


def logins(variables: Mapping[str, str] = os.environ) -> dict[str, tuple[str, str, str]]:
    """The entries of netrc: user, account and password by host."""
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
    """The commit of our source if it is a git checkout, marked if files have changed since."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", "-C", str(OWN), *arguments], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        git(
            "ls-files", "--error-unmatch", __file__
        )  # fails if disentune is installed inside another project's checkout
        return git("rev-parse", "HEAD") + (" with changes" if git("status", "--porcelain", "--", str(OWN)) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "")


def _gpus() -> list[str]:
    import torch  # slow to import, and only needed here

    return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
