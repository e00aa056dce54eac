"""What a person sees: the plan, progress while a sweep runs, and tables. Knows nothing of Ray."""

import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import pandas as pd
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, track
from rich.table import Table
from rich.text import Text

from disentune.cli.terminal import PLAIN_INTERVAL_S
from disentune.environment import without_secrets
from disentune.results.tables import BROKEN
from disentune.results.watch import MOST_TROUBLES, Picture, Seen, Trouble, duration, first_line, status_path
from disentune.runs.planner import Planner, Trial
from disentune.runs.preview import Cost, Plan
from disentune.runs.trial_folder import Status, TrialFolder
from disentune.spec.config import flattened
from disentune.spec.space import domains

T = TypeVar("T")
REDRAW_S = 0.5


def clock(seconds: float) -> str:
    """`0:45`, `3:20`, `2:05:00`: as `duration`, where there is little room."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def size(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


# ---- the plan


def show_plan(
    console: Console,
    plan: Plan,
    cost: Cost,
    where: str,
    slots: int | None,
    orders: Mapping[str, str] | None = None,
) -> None:
    """`orders`: how well the loss of each arm orders the factors, before anything is trained."""
    console.print(f"[bold]{escape(plan.sweep)}[/]: {plan.trials} trials in {escape(where)}")
    table = Table(box=None, pad_edge=False)
    table.add_column("arm")
    table.add_column("trials", justify="right")
    if orders:
        table.add_column("order (disentune inspect)")
    for arm, trials in plan.arms.items():
        table.add_row(escape(arm), str(trials), *([escape(orders[arm])] if orders else []))
    console.print(table)
    steps = sorted(plan.continuing.values())
    resumed = f" (from step {steps[0]} to {steps[-1]})" if steps else ""
    console.print(f"{plan.done} done, {len(plan.continuing)} continue{resumed}, {plan.new} new; "
                  f"checkpoints take about {size(cost.disk)}")  # fmt: skip
    if cost.seconds is not None:
        wall = f", about {duration(cost.seconds / slots)} on {slots} slots" if slots else ""
        console.print(f"about {duration(cost.seconds)} of one slot{wall} (by a probe of each arm)")
    for warning in plan.warnings:
        console.print(f"[yellow]note:[/] {escape(warning)}")


# ---- the state of a run


MOST_LISTED = 500
"""Trials that are listed one by one; of more those that are not done come first."""


def show_status(
    console: Console, where: str, live: bool, trials: Sequence[tuple[TrialFolder, Status, int]], picture: Picture
) -> None:
    counts = ", ".join(f"{count} {state}" for state, count in picture.states.items()) or "no trials yet"
    console.print(f"{where}: {'running now' if live else 'not running'}; {counts}", markup=False)
    table = Table(box=None, pad_edge=False)
    for title in ("trial", "state", "step", "time", "arm", "cause"):
        table.add_column(title, justify="right" if title in ("step", "time") else "left")
    for folder, status, steps in _listed(trials):
        state = _state_now(status, live)
        cause, arms = plain(first_line(status.cause)), "+".join(folder.arms())
        table.add_row(folder.id, state, f"{status.step}/{steps}", duration(status.seconds), escape(arms), escape(cause))
    if trials:
        console.print(table)
    if (more := len(trials) - MOST_LISTED) > 0:
        console.print(f"and {more} more, all of them with: disentune status {shlex.quote(where)} --json", markup=False)
    if picture.best:
        console.print(_best_line(picture, picture.best))
    for trouble in picture.troubles:
        console.print(_trouble_lines(trouble, where))
    for note in picture.notes[:MOST_TROUBLES]:
        console.print(_text(f"note: {plain(note)}", "yellow"))


def _listed(trials: Sequence[tuple[TrialFolder, Status, int]]) -> Sequence[tuple[TrialFolder, Status, int]]:
    if len(trials) <= MOST_LISTED:
        return trials
    return sorted(trials, key=lambda trial: trial[1].state == "done")[:MOST_LISTED]


def _state_now(status: Status, live: bool) -> str:
    """A trial that a dead driver left as running waits to be resumed."""
    return "pending" if status.state == "running" and not live else status.state


def plain(text: str) -> str:
    """Without the keys, the colours and other commands to a terminal that an error's text may hold."""
    return "".join(char for char in Text.from_ansi(without_secrets(text)).plain if char.isprintable())


# ---- watching a run

STYLES = {"done": "green", "running": "cyan", "pending": "dim", "diverged": "yellow", "failed": "red"}
GLYPHS = {"done": "█", "running": "▒", "pending": "·", "diverged": "~", "failed": "x"}
ASCII_GLYPHS = {**GLYPHS, "done": "#", "running": "=", "pending": "."}
BAR_WIDTH = 60


def watch(console: Console, pictures: Iterable[Picture], where: str) -> None:
    """Draws each picture in the place of the one before; without a terminal a line each, and the last one whole."""
    if not console.is_terminal or console.is_dumb_terminal:
        _watch_in_lines(console, pictures, where)
        return
    with Live(console=console, auto_refresh=False) as live:
        for picture in pictures:
            live.update(view(picture, where, console), refresh=True)


def _watch_in_lines(console: Console, pictures: Iterable[Picture], where: str) -> None:
    known: set[str] | None = None
    for picture in pictures:
        broken = {trial.id: trial for trial in picture.trials if trial.state in BROKEN}
        for trial_id in sorted(broken.keys() - (broken.keys() if known is None else known)):
            console.print(_trouble_lines(Trouble(broken[trial_id], 1), where))
        known = set(broken)
        console.print(line(picture) if picture.live else view(picture, where, console))


def line(picture: Picture) -> Text:
    """A picture in one line."""
    counts = ", ".join(f"{count} {state}" for state, count in picture.states.items())
    best = f"best {picture.objective.metric} {number(picture.best.value)}" if picture.best else ""
    parts = [f"{picture.ended}/{_expected(picture)} trials ended", counts, _pace(picture), best]
    return _text("; ".join(part for part in parts if part))


def view(picture: Picture, where: str, console: Console) -> Group:
    """A picture that fits the console's height as far as running trials decide it."""
    parts: list[RenderableType] = [_headline(picture, where)]
    if picture.expected:
        parts += [_bar(picture, console), _legend(picture, console)]
    if pace := _pace(picture):
        parts.append(_text(pace))
    if picture.best:
        parts.append(_best_line(picture, picture.best))
    troubles = picture.troubles
    below: list[RenderableType] = [
        _trouble_lines(trouble, where, whole=not picture.live) for trouble in troubles[:MOST_TROUBLES]
    ]
    if len(troubles) > MOST_TROUBLES:
        below.append(_text(f"and {len(troubles) - MOST_TROUBLES} other causes", "dim"))
    below += [_text(f"note: {plain(note)}", "yellow") for note in picture.notes[:MOST_TROUBLES]]
    below += _last_words(picture, where)
    if picture.running:
        used = sum(len(console.render_lines(part)) for part in (*parts, *below))
        parts += [Text(), *_running(picture, max(3, console.height - used - 5))]
    if below:
        parts += [Text(), *below]
    return Group(*parts)


def _text(text: str, style: str = "") -> Text:
    """Wrapped even where the console does not wrap: a live display cuts off what is too long."""
    return Text(text, style, no_wrap=False, overflow="fold")


def _expected(picture: Picture) -> str:
    return f"at most {picture.expected}" if picture.at_most else str(picture.expected)


def _headline(picture: Picture, where: str) -> Text:
    text = _text(where, "bold")
    if picture.gone:
        return text.append(": is gone", "not bold")
    if picture.stopping:
        return text.append(": stopping, trials write their checkpoints and end", "not bold")
    if not picture.live:
        return text.append(": not running", "not bold")
    for_ = f" for {duration(picture.session_s)}" if picture.session_s is not None else ""
    starting = "" if picture.trials else "; no trials yet, the driver is starting"
    return text.append(f": running{for_}{starting}", "not bold")


def _glyphs(console: Console) -> Mapping[str, str]:
    return ASCII_GLYPHS if console.options.ascii_only else GLYPHS


def _bar(picture: Picture, console: Console) -> Text:
    percent = 100 * picture.ended // picture.expected  # rounded down: 100 is the end
    ended = f"  {picture.ended}/{_expected(picture)} ended, {percent}%"
    width = max(10, min(BAR_WIDTH, console.width - len(ended)))
    cells, glyphs = shares(picture.states, width), _glyphs(console)
    text = _text("")
    for state, count in cells.items():
        text.append(glyphs[state] * count, STYLES[state])
    return text.append(ended)


def shares(counts: Mapping[str, int], width: int) -> dict[str, int]:
    """`width` cells in proportion to counts, and at least one each, for one failure among a thousand must be seen."""
    total = sum(counts.values())
    cells = {name: max(1, count * width // total) for name, count in counts.items()}
    largest = max(counts, key=counts.__getitem__)
    cells[largest] += width - sum(cells.values())
    return cells


def _legend(picture: Picture, console: Console) -> Text:
    glyphs, text = _glyphs(console), _text("")
    for state, count in picture.states.items():
        text.append(f"{glyphs[state]} {count} {state}   ", STYLES[state])
    text.rstrip()
    return text


def _pace(picture: Picture) -> str:
    speed = f"{picture.speed:,.0f} steps/s" if picture.speed is not None and picture.speed >= 10 else ""
    speed = speed or (f"{picture.speed:.2g} steps/s" if picture.speed else "")
    ended = f"{picture.ended_an_hour:,.3g} trials/h" if picture.ended_an_hour else ""
    left = f"about {duration(picture.left_s)} left" if picture.left_s is not None else ""
    return ", ".join(part for part in (speed, ended, left) if part)


def _best_line(picture: Picture, best: Seen) -> Text:
    which = "best last value of" if picture.objective.at == "last" else "best"
    text = _text(f"{which} {picture.objective.metric} ").append(number(best.value), "bold")
    so_far = "" if best.ended else f", {best.state} at step {best.step}/{best.steps}"
    return text.append(f"  {best.id}  {plain(_described(best))}{so_far}")


def _described(trial: Seen) -> str:
    return ", ".join([f"arm {'+'.join(trial.arms)}", f"seed {trial.seed}", *_assignments(trial)])


def _assignments(trial: Seen) -> list[str]:
    return [_assignment(key, value) for key, value in trial.point.items()]


def _running(picture: Picture, most: int) -> list[RenderableType]:
    table = Table(box=None, pad_edge=False)
    titles = {"running": "left", "step": "right", "time": "right", picture.objective.metric: "right", "arm": "left",
              "seed": "right", "point": "left"}  # fmt: skip
    for title, justify in titles.items():  # on a narrow terminal the point alone gives way
        table.add_column(Text(title), justify=justify, no_wrap=title != "point")  # type: ignore[arg-type]
    for trial in picture.running[:most]:
        cells = [trial.id, f"{trial.step}/{trial.steps}", clock(trial.seconds), number(trial.latest),
                 "+".join(trial.arms), str(trial.seed), " ".join(_assignments(trial))]  # fmt: skip
        table.add_row(*(Text(plain(cell), no_wrap=True, overflow="ellipsis") for cell in cells))
    more = len(picture.running) - most
    return [table, *([_text(f"and {more} more running", "dim")] if more > 0 else [])]


def _trouble_lines(trouble: Trouble, where: str, whole: bool = True) -> Group:
    """What happened, on one line unless it is to be whole, and below it the file to read."""
    trial = trouble.trial
    text = Text(no_wrap=not whole, overflow="fold" if whole else "ellipsis").append(trial.state, STYLES[trial.state])
    others = f" and {trouble.count - 1} more" if trouble.count > 1 else ""
    text.append(f" {trial.id}{others} at step {trial.step}: {plain(first_line(trial.cause))}")
    return Group(text, _text(f"  {shlex.quote(status_path(where, trial.id))}", "dim"))


def _last_words(picture: Picture, where: str) -> list[Text]:
    """What to do about a run that no driver holds."""
    here = shlex.quote(where)
    if picture.live or picture.gone:
        return []
    if not picture.finished:
        return [_text(f"not running; go on with: disentune resume {here}")]
    more = picture.expected - len(picture.trials)
    asks = f"; the search may ask for up to {more} more: disentune resume {here}" if more > 0 else ""
    return [_text(f"all {len(picture.trials)} trials have ended{asks}"), _text(f"next: disentune results {here}")]


# ---- progress


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

    def __exit__(self, *error: Any) -> None:
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

    def _take_in(self, trial: Trial, news: dict[str, Any]) -> None:
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
            cause = trial.status.cause.splitlines()[0] if trial.status.cause else ""
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


def _point(planner: Planner, trial: Trial) -> str:
    """The values of the keys that its arm searches over."""
    flat = flattened(trial.config.tree()) | trial.overrides
    keys = domains(planner.sweep.arms[trial.point.arms[0]])
    return " ".join(_assignment(key, flat[key]) for key in keys)


def _assignment(key: str, value: Any) -> str:
    """`beta=0.01`, or the bare name of a plug-in."""
    last = key.split(".")[-1]
    return number(value) if last == "name" else f"{last}={number(value)}"


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


# ---- scores


def score_lines(name: str, numbers: Mapping[str, float], reason: str, seconds: float, widths: tuple[int, int]) -> str:
    """A line for each number of a metric, or its reason for having none; `widths` are of the names and the keys."""
    first, second = widths
    if not numbers:
        return f"{name:<{first}}  {reason}"
    lines = [f"{name:<{first}}  {key:<{second}}  {number(value):>10}" for key, value in numbers.items()]
    return "\n".join([f"{lines[0]}  {seconds:>7.2f} s", *(" " * first + line[first:] for line in lines[1:])])


# ---- tables


def number(value: Any) -> str:
    """Short for people; files and --json have every digit."""
    if isinstance(value, float):
        return "" if value != value else f"{value:.4g}"
    return "" if value is None or value is pd.NA else str(value)


def titles(columns: Sequence[str]) -> list[str]:
    """Dotted keys without their section where nothing is lost: `prior.nu` for `framework.prior.nu`."""
    short = [column if column.endswith(".name") and column.count(".") == 1 else column.split(".", 1)[-1]
             for column in columns]  # fmt: skip
    return [one if short.count(one) == 1 else column for one, column in zip(short, columns, strict=True)]


def frame_table(frame: pd.DataFrame, columns: Sequence[str] | None = None, most: int | None = None) -> Table:
    """All columns, or those named; all rows, or the first."""
    columns, table = list(frame.columns) if columns is None else columns, Table(box=None, pad_edge=False)
    for column, title in zip(columns, titles(columns), strict=True):
        numeric = pd.api.types.is_numeric_dtype(frame[column])
        table.add_column(escape(title), justify="right" if numeric else "left", overflow="fold")
    for values in frame[list(columns)].head(most if most is not None else len(frame)).itertuples(index=False):
        table.add_row(*(escape(number(value)) for value in values))
    return table
