"""Answers that follow from our code and a text alone. They are kept in the user's cache, so that later commands answer
without loading the libraries that computed them."""

import functools
import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from disentune.environment import own_source
from disentune.files.storage import cache_folder
from disentune.files.writing import write_atomically

T = TypeVar("T")
MOST_KEPT = 100
"""Answers to one question; the oldest are removed."""


def remembered(question: str, about: str, answer: Callable[[], T]) -> T:
    """The answer, which must be plain JSON, not null, and depend only on `about` and our code. A cache that cannot be
    read or written only costs time."""
    known: T | None = recalled(question, about)
    if known is not None:
        return known
    found = answer()
    keep(question, about, found)
    return found


def recalled(question: str, about: str) -> Any:
    """What was kept last; None if nothing was, or it cannot be read."""
    try:
        return json.loads(_path(question, about).read_bytes())
    except (OSError, RuntimeError, ValueError):
        return None


def keep(question: str, about: str, found: object, most: int = MOST_KEPT) -> None:
    """Keeps plain JSON; of answers to the same question, only the newest."""
    with suppress(OSError, RuntimeError):
        path = _path(question, about)
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_atomically(path, json.dumps(found).encode())
        kept = sorted(path.parent.glob(f"{question}-*.json"), key=lambda one: one.stat().st_mtime)
        for old in kept[:-most]:
            old.unlink(missing_ok=True)


def _path(question: str, about: str) -> Path:
    """Raises RuntimeError without a home folder."""
    key = hashlib.sha256(f"{_code()} {sys.version} {question} {about}".encode()).hexdigest()[:32]
    return cache_folder() / "answers" / f"{question}-{key}.json"


@functools.cache
def _code() -> str:
    return own_source()
