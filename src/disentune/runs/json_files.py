"""JSON files of a run; some have a checksum, and an error about a damaged file says what to do."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from disentune.errors import ConfigError, Unavailable
from disentune.files.storage import TRANSIENT, Place, read_bytes
from disentune.files.writing import write_atomically


def parsed(data: bytes) -> Any:
    """JSON text. A lone surrogate, which an exception's text may contain, is escaped because it cannot be encoded."""
    content = json.loads(data)
    return _spelled(content) if b"\\ud" in data.lower() else content


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, list):
        return [_spelled(item) for item in value]
    return {_spelled(key): _spelled(item) for key, item in value.items()} if isinstance(value, dict) else value


def is_whole(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def is_number(value: Any) -> bool:
    return type(value) is float or (type(value) is int and -(2**63) <= value < 2**63)


def write_json(path: Place, value: Any) -> None:
    write_atomically(path, (json.dumps(value, indent=1) + "\n").encode())


def read_json(path: Place, remedy: str, kinds: tuple[type, ...] = (dict,), default: Any = None) -> Any:
    """The content of a JSON file of the ledger. A damaged file raises an error that says what to do, and so does a
    missing one unless there is a default."""
    try:
        content = parsed(read_bytes(path))
    except FileNotFoundError as error:
        if default is not None:
            return default
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except OSError as error:
        kind = Unavailable if error.errno in TRANSIENT else ConfigError
        raise kind(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is damaged ({error}); {remedy}") from None
    if not isinstance(content, kinds):
        wanted = "a list" if kinds == (list,) else "a mapping"
        raise ConfigError(f"{path} is damaged (it must contain {wanted}); {remedy}")
    return content


def checksum(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    return {**content, "checksum": checksum(content)}


def broken_seal(content: Mapping[str, Any], known: Collection[str]) -> str:
    """Why a sealed mapping is damaged; empty if it is intact."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    if strange := sorted(rest.keys() - set(known)):
        return f"it has an unknown key {strange[0]!r:.60}"
    return "" if content.get("checksum") == checksum(rest) else "its checksum is wrong"


def unsealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """The sealed content. Raises ValueError if it is damaged."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    if content.get("checksum") != checksum(rest):
        raise ValueError("its checksum is wrong")
    return rest
