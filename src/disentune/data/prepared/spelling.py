"""Parameters as the options of the command that prepares their array."""

import json
import shlex
from collections.abc import Collection
from functools import partial
from typing import Any

from disentune.errors import ConfigError
from disentune.files import documents
from disentune.plugin import Frozen


def options(params: Frozen, without: Collection[str] = ()) -> str:
    """All parameters that are not the default, so that the command is complete."""
    chosen = params.model_dump(exclude_defaults=True, exclude=set(without))
    return " ".join(f"--set {shlex.quote(f'{key}={_spelled(value)}')}" for key, value in chosen.items())


def _spelled(value: Any) -> str:
    """The simplest YAML text for a value, as read by --set."""
    compact = partial(json.dumps, value, separators=(",", ":"))
    texts = [value] if isinstance(value, str) else []
    texts += [compact(ensure_ascii=False), compact()]  # JSON escapes cover control characters, but not emoji
    return next((text for text in texts if _means(text, value)), texts[-1])


def _means(text: str, value: Any) -> bool:
    try:
        return bool(documents.parse(text, "").value == value)
    except ConfigError:
        return False
