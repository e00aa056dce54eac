"""Progress of a command: the trials of a session, or the items of a long list. Independent of Ray."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import track
from rich.text import Text

from disentune.cli import watching
from disentune.cli.terminal import PLAIN_INTERVAL_S
from disentune.errors import first_line
from disentune.files.storage import shown
from disentune.results.watch import Watcher
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner

T = TypeVar("T")
REDRAW_S = 1.0
LARGEST_SHARE = 0.05
"""Share of the driver's time that may be spent on reading the run, which takes longer with thousands of trials."""


class LiveProgress:
    """Follows a session: a live display on a terminal, else a line every few seconds. It reads the run's folder as
    `status --watch` does, so that both show the same numbers."""

    def __init__(self, console: Console, run: Run):
        self.console, self.where, self.watcher = console, shown(run.path), Watcher(run)
        self.interval_s = REDRAW_S if console.is_terminal else PLAIN_INTERVAL_S
        self.due = -1.0
        self.live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __enter__(self) -> "LiveProgress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, planner: Planner, trial_id: str, news: dict[str, Any]) -> None:
        if "lost" in news:
            self.console.print(f"[yellow]note:[/] {escape(news['lost'])}")
        if news.get("outcome") in ("diverged", "failed"):
            status = planner.trials[trial_id].status
            cause = escape(first_line(status.cause))
            self.console.print(f"[red]{news['outcome']}[/] {trial_id} at step {status.step}: {cause}")
        self.beat()

    def beat(self) -> None:
        """Draws again when it is time."""
        if time.monotonic() >= self.due:
            self._show()

    def is_drawn(self) -> bool:
        return self.live is not None and self.live.is_started

    def _show(self) -> None:
        began = time.monotonic()
        picture = self.watcher.look()
        if self.live:
            self.live.start()
            drawn = watching.view(picture, self.where, self.console)
            again = Text("press Ctrl-C again to stop immediately", "yellow")
            self.live.update(Group(drawn, again) if picture.stopping else drawn, refresh=True)
        else:
            self.console.print(watching.line(picture))
        now = time.monotonic()
        self.due = now + max(self.interval_s, (now - began) / LARGEST_SHARE)


def followed(console: Console, items: Sequence[T], what: str) -> Iterator[T]:
    """Each item in turn, with a bar on a terminal, else a line every few seconds."""
    if console.is_terminal:
        yield from track(items, what, console=console, transient=True)
        return
    said = time.monotonic()
    for count, item in enumerate(items):
        if time.monotonic() - said >= PLAIN_INTERVAL_S:
            said = time.monotonic()
            console.print(f"{what}: {count} of {len(items)} done", markup=False)
        yield item
