"""JSON files of a run: what damages one is named with what to do, and some are sealed by a checksum."""

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from disentune.errors import ConfigError, Unavailable
from disentune.files.storage import TRANSIENT, Place, read_bytes
from disentune.files.writing import write_atomically


def parsed(data: bytes) -> Any:
    """JSON. Half a character, as an exception may hold it, is spelled out: no file, table or terminal takes it."""
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
    """A JSON file of the ledger; a damaged one is an error that says what to do. A missing one is too, unless there is
    a default."""
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
        raise ConfigError(f"{path} is damaged (it must hold {wanted}); {remedy}")
    return content


def checksum(content: Any) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    return {**content, "checksum": checksum(content)}


def broken_seal(content: Mapping[str, Any], known: Collection[str]) -> str:
    """Why a sealed mapping is not as it was written; empty when it is."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    if strange := sorted(rest.keys() - set(known)):
        return f"it has a key {strange[0]!r:.60}"
    return "" if content.get("checksum") == checksum(rest) else "its checksum is wrong"


def unsealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """What was sealed. Raises ValueError when it is not as it was written."""
    rest = {key: value for key, value in content.items() if key != "checksum"}
    if content.get("checksum") != checksum(rest):
        raise ValueError("its checksum is wrong")
    return rest
