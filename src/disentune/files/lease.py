"""Who holds a run in an object store, which has no locks: an object that its holder renews.

A lease is stale when it has not changed for `VALID_S` as seen by whoever waits, or by the store's own clock; so the
clocks of two machines need not agree. One that was given back is free at once.
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
from disentune.files.storage import RemotePath, clock_offset, read_if_there

VALID_S, RENEW_S = 45.0, 10.0
LOOK_S, SETTLE_S = 1.0, 2.0
"""How often a waiter looks, and how long a new holder waits to see whether another took it at the same moment."""

Said = Callable[[str], None]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)  # noqa: T201


def _end_process(text: str) -> None:
    """At once: whatever this process would still write is another's now. The ledger needs no farewell."""
    _say(text)
    os._exit(2)


# ---- looking


def content(data: bytes | None) -> dict[str, Any]:
    """Empty for what is no lease."""
    try:
        found = json.loads(data or b"")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def holder(data: bytes | None) -> str:
    found = content(data)
    return f"by process {found['pid']} on {found['host']}" if {"pid", "host"} <= found.keys() else "by another process"


def is_held(path: RemotePath) -> bool:
    """Whether it is there, was not given back, and was renewed of late: by the store's clock, if it tells that."""
    return _is_taken(read_if_there(path)) and _age_s(path, clock_offset(path.scheme) or 0.0) <= VALID_S


def _is_taken(data: bytes | None) -> bool:
    return data is not None and not content(data).get("released")


def _is_stale(path: RemotePath) -> bool:
    """By the store's clock alone; where that is not known, a waiter must watch."""
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
    """Takes the lease, renews it in a thread until the block ends, and gives it back; yields the session's token.

    `what` says what cannot be done while another holds it. A live holder is waited for `patience_s`, then it is a
    ConfigError; a dead one's lease is waited out. `lost` is called, from the thread, when another holds it after all.
    """
    _wait(path, what, patience_s, say)
    lease = _Lease(path, what, lost)
    lease.write()
    time.sleep(SETTLE_S)
    if not lease.is_ours():
        raise ConfigError(f"{what} {holder(read_if_there(path))}, which began at the same moment; leave it to that one")
    thread = threading.Thread(target=lease.renew, name="lease", daemon=True)
    thread.start()
    try:
        yield lease.session
    finally:
        lease.give_back()
        thread.join()


def _wait(path: RemotePath, what: str, patience_s: float, say: Said) -> None:
    """Until nobody holds it. Whoever renews it lives; whoever does not for long enough is dead."""
    began = time.monotonic()
    seen, since = read_if_there(path), began
    if not _is_taken(seen) or _is_stale(path):
        return
    say(f"{what} {holder(seen)}; waiting up to {VALID_S:.0f} s to see whether that one is alive")
    while time.monotonic() - since <= VALID_S:
        time.sleep(LOOK_S)
        now = read_if_there(path)
        if not _is_taken(now):
            return
        if now != seen:
            if time.monotonic() - began >= patience_s:
                raise ConfigError(f"{what} {holder(now)}; wait for it or stop it")
            seen, since = now, time.monotonic()


class _Lease:
    def __init__(self, path: RemotePath, what: str, lost: Said):
        self.path, self.what, self.lost = path, what, lost
        self.session = secrets.token_hex(8)
        self.began, self.beats = time.time(), 0
        self.ended, self.writing = threading.Event(), threading.Lock()

    def write(self, released: bool = False) -> None:
        self.beats += 1
        about = {"session": self.session, "pid": os.getpid(), "host": socket.gethostname(), "began": self.began}
        self.path.write_bytes(json.dumps({**about, "beats": self.beats, "released": released}).encode())

    def is_ours(self) -> bool:
        return content(read_if_there(self.path)).get("session") == self.session

    def renew(self) -> None:
        """A store that does not answer is asked again: only another holder ends it."""
        while not self.ended.wait(RENEW_S):
            with suppress(OSError), self.writing:
                if self.ended.is_set():
                    return
                if not self.is_ours():
                    break
                self.write()
        else:
            return
        now = None
        with suppress(OSError):
            now = read_if_there(self.path)
        self.lost(f"{self.what} {holder(now)} now: this process was away for too long and ends, nothing is lost")

    def give_back(self) -> None:
        self.ended.set()
        with suppress(OSError), self.writing:
            if self.is_ours():
                self.write(released=True)
