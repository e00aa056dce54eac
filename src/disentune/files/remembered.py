"""Answers that follow from our code and a text alone. They are kept in the user's cache, so that later commands answer
without loading the libraries that computed them."""

import functools
import hashlib
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from disentune.environment import own_source
from disentune.files.storage import cache_folder
from disentune.files.writing import write_atomically

T = TypeVar("T")
MOST_KEPT = 100
"""Answers to one question; the oldest are removed."""


def remembered(question: str, about: str, answer: Callable[[], T]) -> T:
    """The answer, which must be plain JSON and depend only on `about` and our code. A cache that cannot be read or
    written only costs time."""
    key = hashlib.sha256(f"{_code()} {sys.version} {question} {about}".encode()).hexdigest()[:32]
    try:
        path = cache_folder() / "answers" / f"{question}-{key}.json"
    except (OSError, RuntimeError):  # there is no home folder
        return answer()
    try:
        known: T = json.loads(path.read_bytes())
        return known
    except (OSError, ValueError):
        found = answer()
    with suppress(OSError):
        _keep(path, found)
    return found


@functools.cache
def _code() -> str:
    return own_source()


def _keep(path: Path, found: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, json.dumps(found).encode())
    kept = sorted(path.parent.glob(f"{path.name.partition('-')[0]}-*.json"), key=lambda one: one.stat().st_mtime)
    for old in kept[:-MOST_KEPT]:
        old.unlink(missing_ok=True)
