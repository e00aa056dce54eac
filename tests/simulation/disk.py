"""The disk of the simulation. Every write, sync, rename, removal and read of disentune's storage code passes here as
one numbered operation, which may fail, or be the last one that its process makes."""

import builtins
import errno
import os
import pathlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from disentune.files import storage, writing
from disentune.runs import suggest, trial_folder

TEMPORARY = (errno.ETIMEDOUT, errno.ESTALE, errno.EAGAIN, errno.ECONNRESET)


class Killed(BaseException):
    """The process that made an operation is dead; nothing that it still tries has an effect."""


class Failure(OSError):
    """A failure that the simulation injected."""


@dataclass
class Process:
    """A driver or a worker."""

    name: str
    dead: bool = False


@dataclass
class DiskFault:
    """From operation `at` on, `span` operations fail; a kill ends the process in the middle of one."""

    kind: str
    at: int
    span: int = 1
    share: float = 0.5
    """How much of its data a killed write has written."""
    happened: bool = False

    def strikes(self, number: int, what: str) -> bool:
        if not self.at <= number < self.at + self.span:
            return False
        return self.kind != "full disk" or what == "write"

    def error(self, path: object) -> Failure:
        code = errno.ENOSPC if self.kind == "full disk" else TEMPORARY[self.at % len(TEMPORARY)]
        return Failure(code, os.strerror(code), str(path))


@dataclass
class Disk:
    """Counts operations and lets the faults strike."""

    faults: list[DiskFault] = field(default_factory=list)
    count: int = 0
    actor: Process | None = None

    @contextmanager
    def used_by(self, process: Process) -> Iterator[None]:
        before, self.actor = self.actor, process
        try:
            yield
        finally:
            self.actor = before

    def operation(self, what: str, path: object, act: Callable[[], Any], torn: Callable[[float], None] | None = None):
        """Carries out one operation; `torn` does a share of it."""
        if self.actor is None:
            return act()
        if self.actor.dead:
            raise Killed(self.actor.name)
        self.count += 1
        for fault in self.faults:
            if fault.strikes(self.count, what):
                fault.happened = True
                if fault.kind == "kill":
                    self._die(fault, act, torn)
                if torn is not None:
                    torn(fault.share)  # a full disk takes the first bytes
                raise fault.error(path)
        return act()

    def _die(self, fault: DiskFault, act: Callable[[], Any], torn: Callable[[float], None] | None) -> None:
        """Before, after or in the middle of the operation."""
        assert self.actor is not None
        if torn is not None:
            torn(fault.share)
        elif fault.share > 0.5 and hasattr(opened := act(), "close"):
            opened.close()
        self.actor.dead = True
        raise Killed(self.actor.name)

    # what stands in for the operating system

    def open(self, path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if set(mode) & set("wa+x"):
            return _File(self, path, self.operation("open", path, lambda: builtins.open(path, mode, *args, **kwargs)))
        return self.operation("read", path, lambda: builtins.open(path, mode, *args, **kwargs))

    def replace(self, source: Any, target: Any) -> None:
        self.operation("rename", target, lambda: os.replace(source, target))

    def truncate(self, path: Any, size: int) -> None:
        self.operation("truncate", path, lambda: os.truncate(path, size))

    def fsync(self, handle: int) -> None:
        """Costs nothing here: what a crash of the whole machine leaves is another test's subject."""
        self.operation("sync", "", lambda: None)

    @contextmanager
    def mounted(self) -> Iterator[None]:
        """Puts the disk under the modules that touch files, and under removals and new folders."""
        system = _System(self)
        with pytest.MonkeyPatch.context() as patch:
            for module in (writing, trial_folder, suggest, storage):
                patch.setattr(module, "open", self.open, raising=False)
                patch.setattr(module, "os", system)
            for name in ("unlink", "mkdir"):
                patch.setattr(pathlib.Path, name, _passed_on(self, name, getattr(pathlib.Path, name)))
            yield


def _passed_on(disk: Disk, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def method(path: pathlib.Path, *args: Any, **kwargs: Any) -> Any:
        return disk.operation(name, path, lambda: original(path, *args, **kwargs))

    return method


class _System:
    """The module `os` with the operations of a disk."""

    def __init__(self, disk: Disk):
        self.replace, self.truncate, self.fsync = disk.replace, disk.truncate, disk.fsync

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


class _File:
    """A file open for writing."""

    def __init__(self, disk: Disk, path: object, file: Any):
        self._disk, self._path, self._file = disk, path, file

    def write(self, data: bytes) -> int:
        def part(share: float) -> None:
            self._written(data[: int(len(data) * share)])

        return self._disk.operation("write", self._path, lambda: self._written(data), part)

    def _written(self, data: bytes) -> int:
        count = self._file.write(data)
        self._file.flush()  # a killed process loses its buffer; what it had flushed stays
        return count

    def __enter__(self) -> "_File":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
