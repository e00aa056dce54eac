"""Trials that have ended, as an earlier command read them: while their files stay as they were, no later command reads
them again. Of a large run that is running, only the trials that have changed are then read."""

import os
import time
from collections.abc import Mapping
from typing import TypedDict

from disentune.files.remembered import keep, recalled
from disentune.results.steady import SETTLED_S
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import CONFIG, END, ROWS, STATUS, TrialFolder

QUESTION = "trials"
FILES = (CONFIG, STATUS, ROWS, END)
FEW = 100
"""A run of fewer trials is read as quickly."""
MOST_RUNS = 10

Mark = list[int] | None
"""Inode, size, and times of content and inode of a file, which differ whenever it was written; None without a file."""


class Entry(TypedDict):
    """An ended trial; `seen` and `status` have the fields of the records of these names."""

    marks: list[Mark]
    steps: int
    status: dict[str, object]
    seen: dict[str, object]


def marks_of(folder: TrialFolder) -> list[Mark]:
    return [_mark(f"{folder.path}/{name}") for name in FILES]


def _mark(path: str) -> Mark:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def is_settled(marks: list[Mark]) -> bool:
    """Whether another change would be noticed: clocks of file systems are coarse."""
    newest = max((mark[-1] for mark in marks if mark), default=0)
    return time.time() - newest / 1e9 > SETTLED_S


def kept(run: Run, about: str) -> Mapping[str, Entry]:
    """By trial; `about` is what the entries depend on besides the files."""
    return recalled(QUESTION, _about(run, about)) or {}


def keep_ended(run: Run, about: str, entries: Mapping[str, Entry]) -> None:
    keep(QUESTION, _about(run, about), entries, MOST_RUNS)


def _about(run: Run, about: str) -> str:
    return f"{run.path} {about}"
