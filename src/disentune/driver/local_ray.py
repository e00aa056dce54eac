"""A local Ray for one command: started with only the processes that a sweep needs, and ended without waiting."""

import logging
import signal
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import psutil

from disentune.driver import ray_internals
from disentune.driver.ray_internals import RayChanged
from disentune.errors import ConfigError, Unavailable, first_line

WAITS_S = (5.0, 20.0)
"""Pauses between attempts to start Ray, which can time out on a busy machine."""


def start_patiently(ray: Any, meanwhile: Callable[[], None], say: Callable[[str], None]) -> None:
    """Calls `start` and tries again after a failure that may be temporary. Raises Unavailable when the last attempt
    fails too, and ConfigError when another attempt cannot help, for example with a folder that is not writable."""
    for wait_s in (*WAITS_S, None):
        before = set(psutil.Process().children(recursive=True))
        try:
            start(ray, meanwhile, say)
            return
        except Exception as error:  # Ray raises a plain Exception when its processes take too long
            _clear(ray, before)
            text = f"a local Ray could not be started ({first_line(error)})"
            if isinstance(error, ValueError | OSError) and not isinstance(error, ConnectionError | TimeoutError):
                raise ConfigError(text) from None
            if wait_s is None:
                raise Unavailable(f"{text}; {len(WAITS_S) + 1} attempts failed: is this machine very busy?") from None
        say(f"{text}; trying again in {wait_s:.0f} s")
        time.sleep(wait_s)


def _clear(ray: Any, before: Collection[psutil.Process]) -> None:
    """Kills what a failed attempt left behind, including processes that Ray has not registered yet."""
    with suppress(Exception):  # Ray may be only half started
        end(ray)
    for process in psutil.Process().children(recursive=True):
        if process not in before:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def start(ray: Any, meanwhile: Callable[[], None], say: Callable[[str], None] = lambda text: None) -> None:
    """Starts Ray, and calls `meanwhile` while its processes start, when this process would be idle for seconds."""
    with _deaf_children(), _lean(meanwhile, say):
        # Without "local" Ray would join a cluster that it finds on this machine.
        ray.init("local", log_to_driver=False, logging_level=logging.CRITICAL, include_dashboard=False)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started within ignore SIGTERM. A SIGTERM to the whole process group (from `timeout`, for example) is
    meant for the driver, which needs these processes to end cleanly. Ray does the same for SIGINT."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _lean(meanwhile: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """A Ray started within has only the processes that a sweep needs, or all of them if its internals have changed."""
    try:
        ray_internals.assert_lean_start()
    except RayChanged as error:
        say(f"{error.missing}, so a local Ray cannot start the fast way; starting all of its processes")
        yield
        meanwhile()
        return
    with ray_internals.lean_start(meanwhile):
        yield


def end(ray: Any) -> None:
    """Kills Ray's processes: they ignore the SIGTERM that Ray would send and wait for (`_deaf_children`), and
    everything worth keeping is in the ledger. A raylet's own children would outlive the raylet by a minute."""
    try:
        pids = ray_internals.end_without_waiting()
    except RayChanged:  # then Ray ends them itself, which takes longer
        pids = []
    if pids is None:  # Ray has already ended, for example on a signal during its start
        return
    family = _family(pids)
    ray.shutdown()
    for process in family:
        with suppress(psutil.NoSuchProcess):  # also raised when the pid has been reused
            process.kill()


def _family(pids: list[int]) -> list[psutil.Process]:
    """The processes and all their descendants."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found += [process, *process.children(recursive=True)]
    return found
