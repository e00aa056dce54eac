"""A lease on a run in an object store, which has no locks: an object that its holder renews.

A lease is stale when it has not changed for `VALID_S`, by the store's own clock or as seen by the waiting process,
because the clocks of two machines may differ. A released lease is free immediately.

Every write has a condition: the lease must still be the one that was read. So exactly one of several processes gets a
free lease. In a store without conditional writes, the process that wrote last holds the lease.
"""

import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from disentune.errors import ConfigError
from disentune.files import conditional
from disentune.files.conditional import Unsupported
from disentune.files.storage import RemotePath, clock_offset, read_if_there

VALID_S, RENEW_S = 45.0, 10.0
LOOK_S, SETTLE_S = 1.0, 2.0
"""How often a waiting process looks; and how long a new holder waits, in a store without conditional writes, to see
whether another process took the lease at the same moment."""

Said = Callable[[str], None]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _end_process(text: str) -> None:
    """Ends immediately: another process now owns what this one would write. The ledger needs no clean-up."""
    _say(text)
    os._exit(2)


# ---- looking


def content(data: bytes | None) -> dict[str, Any]:
    """The fields of a lease; empty if the data is not a lease."""
    try:
        found = json.loads(data or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def holder(data: bytes | None) -> str:
    found = content(data)
    return f"by process {found['pid']} on {found['host']}" if {"pid", "host"} <= found.keys() else "by another process"


def is_held(path: RemotePath) -> bool:
    """Whether the lease exists, was not released, and was renewed recently, by the store's clock if that is known."""
    return _is_taken(read_if_there(path)) and _age_s(path, clock_offset(path.scheme) or 0.0) <= VALID_S


def _is_taken(data: bytes | None) -> bool:
    return data is not None and not content(data).get("released")


def _is_stale(path: RemotePath) -> bool:
    """Whether the lease is stale by the store's clock; if the clock is unknown, a process has to wait and see."""
    offset = clock_offset(path.scheme)
    return offset is not None and _age_s(path, offset) > VALID_S


def _age_s(path: RemotePath, offset_s: float) -> float:
    try:
        return time.time() + offset_s - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


# ---- holding


@contextmanager
def held(
    path: RemotePath, what: str, patience_s: float = 0.0, say: Said = _say, lost: Said = _end_process
) -> Iterator[str]:
    """Takes the lease, renews it in a thread until the block ends, and releases it; yields the session's token.

    `what` says what cannot be done while another process holds the lease. Waits `patience_s` for a live holder, then
    raises ConfigError; waits until a dead holder's lease is stale. `lost` is called, from the thread, if another
    process holds the lease after all.
    """
    free = _wait(path, what, patience_s, say)
    lease = _Lease(path, what, say, lost)
    if not lease.take(free):
        raise ConfigError(f"{what} {holder(lease.seen)}, which started at the same moment; wait for it or stop it")
    thread = threading.Thread(target=lease.renew, name="lease", daemon=True)
    thread.start()
    try:
        yield lease.session
    finally:
        lease.give_back()
        thread.join()


def _wait(path: RemotePath, what: str, patience_s: float, say: Said) -> bytes | None:
    """Waits until nobody holds the lease and returns its content then. A holder that renews the lease is alive; one
    that has not renewed it for `VALID_S` is dead."""
    began = time.monotonic()
    seen, since = read_if_there(path), began
    if not _is_taken(seen) or _is_stale(path):
        return seen
    say(f"{what} {holder(seen)}; waiting up to {VALID_S:.0f} s to see whether that process is alive")
    while time.monotonic() - since <= VALID_S:
        time.sleep(LOOK_S)
        now = read_if_there(path)
        if not _is_taken(now):
            return now
        if now != seen:
            if time.monotonic() - began >= patience_s:
                raise ConfigError(f"{what} {holder(now)}; wait for it or stop it")
            seen, since = now, time.monotonic()
    return seen


class _Lease:
    def __init__(self, path: RemotePath, what: str, say: Said, lost: Said):
        self.path, self.what, self.say, self.lost = path, what, say, lost
        self.session = secrets.token_hex(8)
        self.began, self.beats = time.time(), 0
        self.seen: bytes | None = None
        self.version: str | None = None
        """The version of our last write; None if writes have no condition."""
        self.ended, self.writing = threading.Event(), threading.Lock()

    def take(self, free: bytes | None) -> bool:
        """Takes the lease; returns whether that worked. `free` is its content when nobody held it."""
        try:
            return self._take_if_still(free)
        except Unsupported as reason:
            self._give_up_conditions(reason)
        self.path.write_bytes(self._next())
        time.sleep(SETTLE_S)
        return self._is_ours()

    def _take_if_still(self, free: bytes | None) -> bool:
        try:
            self.seen, self.version = conditional.read(self.path)
        except OSError as error:  # pyarrow has just reached the store
            raise Unsupported(error.strerror) from error
        data = self._next()
        if self.seen != free or not self._replace(data):
            return False
        if not conditional.is_enforced(self.path, data):
            raise Unsupported("conditions are ignored")
        return True

    def _give_up_conditions(self, reason: Unsupported) -> None:
        self.version = None
        self.say(
            f"{self.path}: this store has no conditional writes ({reason}); waiting {SETTLE_S:g} s instead to detect "
            "a process that starts at the same moment"
        )

    def _next(self, released: bool = False) -> bytes:
        self.beats += 1
        about = {"session": self.session, "pid": os.getpid(), "host": socket.gethostname(), "began": self.began}
        return json.dumps({**about, "beats": self.beats, "released": released}).encode()

    def _write(self, released: bool = False) -> bool:
        """Renews or releases the lease; returns whether it was still ours."""
        data = self._next(released)
        if self.version is not None:
            try:
                return self._replace(data)
            except Unsupported as reason:
                self._give_up_conditions(reason)
        if not self._is_ours():
            return False
        self.path.write_bytes(data)
        return True

    def _replace(self, data: bytes) -> bool:
        """Replaces the lease; tries again if our own earlier write, whose answer was lost, came in between."""
        while True:
            self.seen, version = conditional.write(self.path, data, self.version or "")
            if content(self.seen).get("session") != self.session:
                return False
            self.version = version
            if self.seen == data:
                return True

    def _is_ours(self) -> bool:
        self.seen = read_if_there(self.path)
        return content(self.seen).get("session") == self.session

    def renew(self) -> None:
        """Renews until the end; a store that does not answer is asked again, and only another holder ends this."""
        while not self.ended.wait(RENEW_S):
            with suppress(OSError), self.writing:
                if self.ended.is_set():
                    return
                if not self._write():
                    break
        else:
            return
        self.lost(
            f"{self.what} {holder(self.seen)} now: this process lost contact for too long and ends; nothing is lost"
        )

    def give_back(self) -> None:
        self.ended.set()
        with suppress(OSError), self.writing:
            self._write(released=True)
