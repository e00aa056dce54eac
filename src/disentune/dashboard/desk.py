"""What the server knows of each run. Threads follow the runs that somebody looks at, so that no answer has to wait."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from disentune.dashboard.feed import Feed, complaint
from disentune.dashboard.shelf import Shelf
from disentune.errors import ConfigError, DisentuneError
from disentune.results.listing import Listed, changed_at, newest
from disentune.results.tables import Results, read
from disentune.results.watch import Snapshot, Watcher, stamp
from disentune.runs.ledger import Run
from disentune.spec.settings import Objective, Settings

ROWS_EVERY_S, STATE_EVERY_S, LIST_EVERY_S = 0.7, 2.0, 3.0
SHARE, MOST_TIMES = 4.0, 8.0
"""A read is repeated after this many times the time that it took, at most after this many of its usual pauses: the
first read of a large run takes far longer than the later ones."""
UNSEEN_S = 60.0
"""Seconds after which a run that no page shows is no longer followed."""


class Followed:
    """One run: its lines (`feed`) and its state by the estimator of `status` (`picture`)."""

    def __init__(self, name: str, run: Run):
        self.name, self.run, self.feed = name, run, Feed(run)
        self.watcher = Watcher(run)
        self.picture: Snapshot | None = None
        self.trouble = ""
        """Why the storage could not be read the last time; empty if it could."""
        self.question = ""
        self.asked_at = time.monotonic()
        self.threads: list[Thread] = []
        self.closed = Event()
        self.look_lock, self.start_lock = Lock(), Lock()
        self.results: tuple[int, Results] | None = None
        self.results_lock = Lock()

    # looking

    def look_at_rows(self) -> None:
        try:
            self.feed.look()
            self.trouble = "" if self.run.exists() else f"{self.name} no longer exists; showing what was last read"
        except (OSError, ConfigError) as error:
            self.trouble = f"the storage does not answer ({complaint(error)}); showing what was last read"

    def look_at_state(self) -> None:
        """Never raises: a file that cannot be read becomes a note of the picture. A run that has vanished keeps its
        trials."""
        with self.look_lock:
            now = self.watcher.look()
            kept = replace(self.picture, time=now.time, gone=True, live=False) if now.gone and self.picture else now
            self.picture = kept
        self._read_sweep()
        self.feed.set_context(self.watcher.asked.settings, self.picture.live)

    def _read_sweep(self) -> None:
        with suppress(DisentuneError, OSError):
            self.question = self.run.sweep().question or ""

    @property
    def is_wanted(self) -> bool:
        return not self.closed.is_set() and time.monotonic() - self.asked_at < UNSEEN_S

    def wanted(self) -> "Followed":
        """Follows the run from now on, for a while."""
        self.asked_at = time.monotonic()
        with self.start_lock:
            if not any(thread.is_alive() for thread in self.threads):
                self._start()
        return self

    def _start(self) -> None:
        self._know_settings()
        ready = Event()
        wait_s = 0.0 if isinstance(self.run.path, Path) else self.run.poll_s
        self.threads = [
            Thread(target=self._repeat, args=(self.look_at_rows, max(ROWS_EVERY_S, wait_s), ready), daemon=True),
            Thread(target=self._repeat, args=(self._state_after(ready), max(STATE_EVERY_S, wait_s)), daemon=True),
        ]
        for thread in self.threads:
            thread.start()

    def _know_settings(self) -> None:
        """Reads the statuses before the first lines are shown, so that the states of the lines are right."""
        with suppress(DisentuneError, OSError):
            if self.picture is None:
                self.feed.set_context(self.run.sweep().settings, self.run.is_running())

    def _state_after(self, ready: Event) -> Callable[[], None]:
        """Waits for the lines: two threads that read thousands of files slow each other down."""

        def look() -> None:
            ready.wait()
            self.look_at_state()

        return look

    def _repeat(self, look: Callable[[], None], every_s: float, ready: Event | None = None) -> None:
        while self.is_wanted:
            began = time.monotonic()
            look()
            if ready is not None:
                ready.set()
            self.closed.wait(pause(every_s, time.monotonic() - began))
        if ready is not None:
            ready.set()

    def close(self) -> None:
        """Returns once no thread follows the run."""
        self.closed.set()
        for thread in self.threads:
            thread.join()

    # what the page asks

    @property
    def settings(self) -> Settings:
        return self.feed.settings

    @property
    def objective(self) -> Objective | None:
        if self.picture is not None and self.watcher.asked.readable:
            return self.picture.objective
        found: Objective | None = self.settings.objective
        return found

    def loaded(self) -> Results:
        """Every row as the tables and figures need it, read again when there is anything new. ConfigError when the run
        has a damaged file."""
        with self.results_lock:
            version = self.feed.version
            if self.results is None or self.results[0] != version:
                self.results = (version, read(self.run))
            return self.results[1]


class Desk:
    """All runs of a shelf."""

    def __init__(self, shelf: Shelf):
        self.shelf = shelf
        self.followed: dict[str, Followed] = {}
        self.seen: dict[str, Any] = {}
        """What a run that nobody drives looked like when it was last read."""
        self.listed: dict[str, Listed] = {}
        self.trouble = ""
        self.asked_at = time.monotonic()
        self.lock, self.start_lock = Lock(), Lock()
        self.thread: Thread | None = None
        self.closed = Event()

    def run(self, name: str) -> Followed:
        """The desk of a run. Raises Unknown or Forbidden as the shelf does; known runs stay known in an outage."""
        if name not in self.followed:
            self._follow(name)
        return self.followed[name].wanted()

    def _follow(self, name: str) -> Followed:
        run = self.shelf.run(name)
        with self.lock:
            return self.followed.setdefault(name, Followed(name, run))

    def close(self) -> None:
        """Returns once nothing is being read."""
        self.closed.set()
        if self.thread is not None:
            self.thread.join()
        for followed in self.followed.values():
            followed.close()

    # the list

    def runs(self) -> Mapping[str, Listed]:
        """What is known now; the list is kept up to date from the first call on."""
        self.asked_at = time.monotonic()
        with self.start_lock:
            if self.thread is None or not self.thread.is_alive():
                self._list()
                self.thread = Thread(target=self._keep_listing, daemon=True)
                self.thread.start()
        return self.listed

    def _keep_listing(self) -> None:
        while self._is_wanted:
            began = time.monotonic()
            for name in self._newest_first():
                self._let_first_lines_pass()
                if self._is_wanted:
                    self._survey(name)
            self.closed.wait(pause(LIST_EVERY_S, time.monotonic() - began))
            if self._is_wanted:
                self._list()

    @property
    def _is_wanted(self) -> bool:
        return not self.closed.is_set() and time.monotonic() - self.asked_at < UNSEEN_S

    def _let_first_lines_pass(self) -> None:
        """Waits while a run is being opened, which is more urgent than the list."""
        while any(one.is_wanted and one.threads and not one.feed.looks for one in [*self.followed.values()]):
            if self.closed.wait(0.1):
                return

    def _list(self) -> None:
        """Reads only names and ages, which is fast."""
        try:
            names = self.shelf.names()
            self.trouble = ""
        except (OSError, ConfigError) as error:
            self.trouble = f"the storage does not answer ({complaint(error)}); showing what was last read"
            return
        self.listed = {name: self.listed.get(name) or self._first_glance(name) for name in names}

    def _first_glance(self, name: str) -> Listed:
        run, live, changed = self.shelf.known[name], False, 0.0
        with suppress(OSError):
            live, changed = run.is_running(), changed_at(run)
        return Listed(name, live, changed, None)

    def _newest_first(self) -> list[str]:
        return sorted(self.listed, key=lambda name: (not self.listed[name].live, -self.listed[name].changed))

    def _survey(self, name: str) -> None:
        try:
            followed = self._follow(name)
            run = followed.run
            now = (run.is_running(), stamp(run.sweep_path), stamp(run.trials_folder), changed_at(run))
            if now[0] or self.seen.get(name) != now:
                if not followed.is_wanted or followed.picture is None:
                    followed.look_at_state()
                self.seen[name] = now
            picture = followed.picture
            live = picture.live if picture else now[0]
            self.listed[name] = Listed(name, live, newest(now[3], picture), picture)
        except (OSError, DisentuneError) as error:
            before = self.listed.get(name) or Listed(name, False, 0.0, None)
            self.listed[name] = Listed(name, False, before.changed, None, complaint(error))


def pause(every_s: float, took_s: float) -> float:
    """Seconds until the next read, so that reading leaves most of a core to the training."""
    return min(max(every_s, SHARE * took_s), MOST_TIMES * every_s)
