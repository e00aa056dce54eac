"""Answers about a run that stay right as long as no file of the run changes, so that a second look need not read it."""

import gc
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from disentune.files.remembered import remembered
from disentune.runs.ledger import Run

T = TypeVar("T")
YOUNG_OBJECTS = 20_000
SETTLED_S = 2.0
"""Files that changed more recently are read again: clocks of file systems are coarse."""


def steady(run: Run, question: str, about: object, answer: Callable[[], T]) -> T:
    """The answer, which must be plain JSON and depend only on the files of the run, on `about` and on our code."""
    mark = fingerprint(run)
    with _collecting_seldom():
        return answer() if mark is None else remembered(question, json.dumps([mark, about]), answer)


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Reading a large run makes many objects that stay. By default Python looks through them again and again for
    garbage, which takes a fifth of the time."""
    usual = gc.get_threshold()
    gc.set_threshold(YOUNG_OBJECTS, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*usual)


def fingerprint(run: Run) -> str | None:
    """Differs whenever a file of the run was written, moved, added or removed, even if its time was set back. None for
    a run that is running, has just changed, or is in an object store, whose times have only whole seconds."""
    if not isinstance(run.path, Path) or run.is_running():
        return None
    digest, newest = hashlib.sha256(str(run.path.resolve()).encode(errors="replace")), 0
    try:
        for path, found in _files(str(run.path)):
            about = f"{path} {found.st_ino} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns}\n"
            digest.update(about.encode(errors="surrogateescape"))
            newest = max(newest, found.st_ctime_ns)
    except OSError:  # something was removed during the look
        return None
    return digest.hexdigest() if time.time() - newest / 1e9 > SETTLED_S else None


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every entry that is not a folder, in a fixed order; links are not followed."""
    for entry in sorted(os.scandir(folder), key=lambda one: one.name):
        if entry.is_dir(follow_symlinks=False):
            yield from _files(entry.path)
        else:
            yield entry.path, entry.stat(follow_symlinks=False)
