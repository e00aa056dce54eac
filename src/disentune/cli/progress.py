"""How far a command is: the trials of a session, or the items of a long list. Knows nothing of Ray."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, track
from rich.table import Table

from disentune.cli.display import assignment
from disentune.cli.terminal import PLAIN_INTERVAL_S
from disentune.errors import first_line
from disentune.results.watch import duration
from disentune.runs.planner import PlannedTrial, Planner
from disentune.spec.config import flattened
from disentune.spec.space import domains

T = TypeVar("T")
REDRAW_S = 0.5


class LiveProgress:
    """Follows a session: a live table on a terminal, else a line every few seconds."""

    def __init__(self, console: Console, objective: str | None, total: int):
        self.console, self.objective, self.total = console, objective, total
        self.steps: dict[str, int] = {}
        self.start: dict[str, int] = {}
        self.ended: set[str] = set()
        self.latest: dict[str, float] = {}
        self.began, self.said, self.drawn = time.monotonic(), 0.0, 0.0
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[eta]}"),
            TimeElapsedColumn(), console=console,
        )  # fmt: skip
        self.task = self.bar.add_task("trials", total=total, eta="")
        self.live = (
            Live(self.bar, console=console, refresh_per_second=2, transient=True) if console.is_terminal else None
        )

    def __enter__(self) -> "LiveProgress":
        if self.live:
            self.live.start()
            self.live.update("starting Ray and its workers ...")
        else:
            self.console.print("starting Ray and its workers ...")
        return self

    def __exit__(self, *error: object) -> None:
        if self.live:
            self.live.stop()

    def __call__(self, planner: Planner, trial_id: str, news: dict[str, Any]) -> None:
        if "lost" in news:
            self.console.print(f"[yellow]note:[/] {escape(news['lost'])}")
        self._take_in(planner.trials[trial_id], news)
        now = time.monotonic()
        if now - self.drawn < REDRAW_S:
            return  # counting thousands of trials takes a while
        self.drawn = now
        if self.live:
            self.live.update(Group(self.bar, self._table(planner)))
        self._update_bar(planner)

    def _take_in(self, trial: PlannedTrial, news: dict[str, Any]) -> None:
        if not self.start:
            self.began = time.monotonic()
        self.start.setdefault(trial.id, trial.status.step)
        if news.get("at_step") is not None:
            self.steps[trial.id] = news["at_step"]
        if trial.history.ended:
            self.ended.add(trial.id)
        for row in news.get("rows", ()):
            if self.objective in row["metrics"]:
                self.latest[trial.id] = row["metrics"][self.objective]
        outcome = news.get("outcome")
        if outcome in ("diverged", "failed"):
            cause = first_line(trial.status.cause)
            self.console.print(f"[red]{outcome}[/] {trial.id} at step {trial.status.step}: {escape(cause)}")

    def _update_bar(self, planner: Planner) -> None:
        done = len(self.ended)
        eta = self._eta(planner)
        self.bar.update(self.task, completed=done, eta=eta)
        now = time.monotonic()
        if self.live is None and now - self.said >= PLAIN_INTERVAL_S:
            self.said = now
            running = sum(trial.active for trial in planner.open)
            self.console.print(
                f"{done}/{self.total} trials ended, {running} running or queued{', ' + eta if eta else ''}"
            )

    def _eta(self, planner: Planner) -> str:
        """By what this session has done of its trials, the begun ones in part."""
        begun = [trial for trial in planner.open if trial.id in self.steps]
        part = sum((self.steps[trial.id] - self.start[trial.id]) / trial.config.training.steps for trial in begun)
        share = (len(self.ended) + part) / max(self.total, 1)
        elapsed = time.monotonic() - self.began
        return f"about {duration(elapsed * (1 - share) / share)} left" if share > 0.01 else ""

    def _table(self, planner: Planner) -> Table:
        table = Table(box=None, pad_edge=False)
        for title in ("running", "arm", "seed", "point", "step", self.objective or ""):
            table.add_column(title)
        running = [trial for trial in planner.trials.values() if trial.active and trial.id in self.steps]
        for trial in running[:12]:
            value = self.latest.get(trial.id)
            table.add_row(
                trial.id, escape("+".join(trial.point.arms)), str(trial.config.seed), escape(_point(planner, trial)),
                f"{self.steps[trial.id]}/{trial.config.training.steps}", "" if value is None else f"{value:.3f}",
            )  # fmt: skip
        return table


def _point(planner: Planner, trial: PlannedTrial) -> str:
    """The values of the keys that its arm searches over."""
    flat = flattened(trial.config.tree()) | trial.overrides
    keys = domains(planner.sweep.arms[trial.point.arms[0]])
    return " ".join(assignment(key, flat[key]) for key in keys)


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
