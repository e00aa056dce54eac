"""Every state that a file system may leave when the power goes at some point of a recorded run.

A run is recorded as operations on files: create, write, truncate, rename, unlink, mkdir and sync. At each point, what
was not synced may be on the disk or not. Two models say in which combinations:

- ordered, as ext4 with its journal: names change in order, and any sync commits all changes of names before it. Data
  that was not synced may be missing, zeros, or cut off, even if a later rename is on the disk.
- weak: every change of a name, and every write, is on the disk or not independently of the others, unless it or its
  folder was synced.

A sync that fails marks the data as written although it is not, as Linux does: a later sync does not save it.
"""

import builtins
import itertools
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

Model = Literal["ordered", "weak"]
DATA = ("kept", "lost", "zeros", "half")
"""What may have become of data that was not synced."""
MOST_FREE = 4
"""Unsynced operations that are combined in every way in the weak model; older ones are all kept or all lost."""


@dataclass(frozen=True)
class Operation:
    """`name` is relative to the recorded folder; `file` is a number that stays when a file is renamed."""

    kind: Literal["create", "write", "truncate", "rename", "unlink", "mkdir", "sync", "sync folder", "failed sync"]
    name: str
    file: int = 0
    data: bytes = b""
    target: str = ""

    @property
    def is_data(self) -> bool:
        return self.kind in ("write", "truncate")

    @property
    def folder(self) -> str:
        """The folder whose sync makes a change of a name last."""
        return os.path.dirname(self.target or self.name)


State = dict[str, bytes | None]
"""Content by name; None for a folder."""


@dataclass
class Disk:
    """Names and contents."""

    names: dict[str, int] = field(default_factory=dict)
    """The file of each name; -1 for a folder."""
    contents: dict[int, bytes] = field(default_factory=dict)

    def copy(self) -> "Disk":
        return Disk(dict(self.names), dict(self.contents))

    def carry_out(self, one: Operation, data: str = "kept") -> None:
        if one.kind == "create":
            self.names[one.name] = one.file
            self.contents.setdefault(one.file, b"")
        elif one.kind == "mkdir":
            self.names[one.name] = -1
        elif one.kind == "unlink":
            self.names.pop(one.name, None)
        elif one.kind == "rename":
            self.names.pop(one.name, None)
            self.names[one.target] = one.file
        elif one.kind == "truncate" and data != "lost":
            self.contents[one.file] = b""
        elif one.kind == "write" and data != "lost":
            part = {"kept": one.data, "zeros": bytes(len(one.data)), "half": one.data[: len(one.data) // 2]}[data]
            self.contents[one.file] = self.contents.get(one.file, b"") + part

    def state(self) -> State:
        """What can be reached: a file whose folder is missing cannot."""
        found: State = {}
        for name in sorted(self.names):
            folder = os.path.dirname(name)
            if not folder or folder in found:
                number = self.names[name]
                found[name] = None if number < 0 else self.contents.get(number, b"")
        return found


@dataclass
class Recording:
    """The operations of a run below a folder."""

    root: Path
    operations: list[Operation] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def _name(self, path: Any) -> str | None:
        """None for a path elsewhere."""
        path = Path(os.path.abspath(path))
        return path.relative_to(self.root).as_posix() if path.is_relative_to(self.root) and path != self.root else None

    @contextmanager
    def running(self) -> Iterator[None]:
        real_open = builtins.open
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(builtins, "open", self._opener(real_open))
            for name in ("replace", "rename"):
                patch.setattr(os, name, self._renamer(getattr(os, name)))
            patch.setattr(os, "unlink", self._remover(os.unlink))
            patch.setattr(os, "mkdir", self._maker(os.mkdir))
            patch.setattr(os, "fsync", self._sync)
            yield

    def _opener(self, real: Any) -> Any:
        def opened(path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            name = self._name(path) if isinstance(path, str | os.PathLike) and set(mode) & set("wa+x") else None
            if name is None:
                return real(path, mode, *args, **kwargs)
            file = real(path, mode, *args, **kwargs)
            if name not in self.names:
                self.names[name] = next(self.numbers)
                self.operations.append(Operation("create", name, self.names[name]))
            elif "w" in mode:
                self.operations.append(Operation("truncate", name, self.names[name]))
            return _File(self, name, self.names[name], file)

        return opened

    def _renamer(self, real: Any) -> Any:
        def rename(source: Any, target: Any) -> None:
            real(source, target)
            name, new = self._name(source), self._name(target)
            if name is not None and new is not None:
                self.names[new] = self.names.pop(name)
                self.operations.append(Operation("rename", name, self.names[new], target=new))

        return rename

    def _remover(self, real: Any) -> Any:
        def unlink(path: Any, **kwargs: Any) -> None:
            real(path, **kwargs)
            name = self._name(path)
            if name in self.names and not kwargs:
                self.operations.append(Operation("unlink", name, self.names.pop(name)))

        return unlink

    def _maker(self, real: Any) -> Any:
        def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
            real(path, *args, **kwargs)
            if name := self._name(path):
                self.operations.append(Operation("mkdir", name))

        return mkdir

    def sync_fails(self, handle: int) -> None:
        """Instead of a sync of a file."""
        name = self._name(os.readlink(f"/proc/self/fd/{handle}"))
        assert name is not None
        self.operations.append(Operation("failed sync", name, self.names[name]))

    def _sync(self, handle: int) -> None:
        path = os.readlink(f"/proc/self/fd/{handle}")
        if Path(path) == self.root or (os.path.isdir(path) and self._name(path)):
            self.operations.append(Operation("sync folder", self._name(path) or ""))
        elif (name := self._name(path)) in self.names:
            self.operations.append(Operation("sync", name, self.names[name]))


class _File:
    """A file open for writing; every write of ours is at the end."""

    def __init__(self, recording: Recording, name: str, number: int, file: Any):
        self._recording, self._name, self._number, self._file = recording, name, number, file

    def write(self, data: bytes) -> int:
        self._recording.operations.append(Operation("write", self._name, self._number, bytes(data)))
        count: int = self._file.write(data)
        return count

    def truncate(self, size: int | None = None) -> int:
        assert size == 0, "only whole files are emptied in a run without faults"
        self._recording.operations.append(Operation("truncate", self._name, self._number))
        count: int = self._file.truncate(size)
        return count

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def unsynced(operations: list[Operation], model: Model) -> list[int]:
    """The operations that need not be on the disk after the last of these."""
    synced: set[int] = set()
    folders: set[str] = set()
    is_committed, found = False, list[int]()
    for number in reversed(range(len(operations))):
        one = operations[number]
        if one.kind in ("sync", "sync folder"):
            is_committed = True
            synced.add(one.file) if one.kind == "sync" else folders.add(one.name)
        elif one.kind == "failed sync":
            synced.discard(one.file)
        elif one.is_data:
            if one.file not in synced:
                found.append(number)
        elif not (is_committed if model == "ordered" else one.folder in folders):
            found.append(number)
    return found[::-1]


def choices(operations: list[Operation], model: Model) -> Iterator[tuple[set[int], str]]:
    """The operations that did not reach the disk, and what became of the data that did."""
    free = unsynced(operations, model)
    if model == "ordered":
        names = [number for number in free if not operations[number].is_data]
        for count in range(len(names) + 1):
            for data in DATA:
                yield set(names[count:]), data
        return
    older, newer = free[:-MOST_FREE], free[-MOST_FREE:]
    for lost_before in ((), older) if older else ((),):
        for count in range(len(newer) + 1):
            for lost in itertools.combinations(newer, count):
                for data in DATA:
                    yield {*lost_before, *lost}, data


def states(
    operations: list[Operation], model: Model, ends: Collection[int] | None = None
) -> Iterator[tuple[int, State]]:
    """Every different state, with the number of operations before the power went; of all such numbers unless `ends`
    names some."""
    seen: set[int] = set()
    bases = [Disk()]
    for one in operations:
        bases.append(bases[-1].copy())
        bases[-1].carry_out(one)
    for end in range(len(operations) + 1) if ends is None else sorted(ends):
        done = operations[:end]
        free = set(unsynced(done, model))
        first = min(free, default=end)
        for lost, data in choices(done, model):
            disk = bases[first].copy()
            for number in range(first, end):
                if number not in lost:
                    disk.carry_out(done[number], data if number in free else "kept")
            state = disk.state()
            key = hash(tuple(state.items()))
            if key not in seen:
                seen.add(key)
                yield end, state


def written(state: State, folder: Path) -> None:
    """Puts a state on a real disk."""
    folder.mkdir(parents=True)
    for name, content in state.items():
        if content is None:
            (folder / name).mkdir()
        else:
            (folder / name).write_bytes(content)
