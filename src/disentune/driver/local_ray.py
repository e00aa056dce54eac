"""A Ray of our own on this machine, for one command: started with what a sweep needs of it alone, and ended at once."""

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
"""Before Ray is started again, when a busy machine took too long for its start."""


def start_patiently(ray: Any, meanwhile: Callable[[], None], say: Callable[[str], None]) -> None:
    """As `start`, tried again after a failure that may pass. Unavailable when the last attempt fails, too; ConfigError
    for what no other attempt can change, such as a folder that cannot be written."""
    for wait_s in (*WAITS_S, None):
        before = set(psutil.Process().children(recursive=True))
        try:
            start(ray, meanwhile, say)
            return
        except Exception as error:  # Ray raises plain ones too, when its processes take too long
            _clear(ray, before)
            text = f"a local Ray could not be started ({first_line(error)})"
            if isinstance(error, ValueError | OSError) and not isinstance(error, ConnectionError | TimeoutError):
                raise ConfigError(text) from None
            if wait_s is None:
                raise Unavailable(f"{text}; {len(WAITS_S) + 1} attempts failed: is this machine very busy?") from None
        say(f"{text}; trying again in {wait_s:.0f} s")
        time.sleep(wait_s)


def _clear(ray: Any, before: Collection[psutil.Process]) -> None:
    """What an attempt has left, which may be processes that Ray does not know of yet."""
    with suppress(Exception):  # of a Ray that is half there
        end(ray)
    for process in psutil.Process().children(recursive=True):
        if process not in before:
            with suppress(psutil.NoSuchProcess):
                process.kill()


def start(ray: Any, meanwhile: Callable[[], None], say: Callable[[str], None] = lambda text: None) -> None:
    """`meanwhile` is done while Ray's processes start, which leaves this one idle for seconds."""
    with _deaf_children(), _lean(meanwhile, say):
        # Without "local" Ray would join a cluster that it finds on this machine.
        ray.init("local", log_to_driver=False, logging_level=logging.CRITICAL, include_dashboard=False)


@contextmanager
def _deaf_children() -> Iterator[None]:
    """Processes started here do not hear SIGTERM: sent to a whole process group (by `timeout`, say) it is for the
    driver, who still needs them to end cleanly. Ray does the same for SIGINT."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _lean(meanwhile: Callable[[], None], say: Callable[[str], None]) -> Iterator[None]:
    """The Ray that is started within starts only what a sweep needs, or everything where its parts have changed."""
    try:
        ray_internals.assert_lean_start()
    except RayChanged as error:
        say(f"{error.missing}, which a quick start of a local Ray needs; starting all of Ray instead")
        yield
        meanwhile()
        return
    with ray_internals.lean_start(meanwhile):
        yield


def end(ray: Any) -> None:
    """What Ray has started does not hear the SIGTERM that it would wait for (`_deaf_children`), and keeps nothing that
    is not in the ledger. A raylet's own children would outlive it by a minute."""
    try:
        pids = ray_internals.end_without_waiting()
    except RayChanged:  # Ray takes longer by itself
        pids = []
    if pids is None:  # it has ended already, as on a signal while it starts
        return
    family = _family(pids)
    ray.shutdown()
    for process in family:
        with suppress(psutil.NoSuchProcess):  # also when its number is another's by now
            process.kill()


def _family(pids: list[int]) -> list[psutil.Process]:
    """Processes and all that they have started."""
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            found += [process, *process.children(recursive=True)]
    return found
