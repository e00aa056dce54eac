"""The display of a run's state: a table of its trials, and the picture that `status --watch` draws."""

import shlex
from collections.abc import Iterable, Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from disentune.cli.display import assignment, clock, number, plain
from disentune.errors import first_line
from disentune.results.ranking import BROKEN
from disentune.results.watch import MOST_TROUBLES, Seen, Snapshot, Trouble, duration, trouble_path
from disentune.runs.trial_folder import FINISHED, Status, TrialFolder

MOST_LISTED = 500
"""Maximum number of listed trials; if there are more, unfinished ones come first."""


def show_status(
    console: Console, where: str, live: bool, trials: Sequence[tuple[TrialFolder, Status, int]], picture: Snapshot
) -> None:
    counts = ", ".join(f"{count} {state}" for state, count in picture.states.items()) or "no trials yet"
    console.print(f"{where}: {'running now' if live else 'not running'}{_selected(picture)}; {counts}", markup=False)
    if pace := _pace(picture):
        console.print(pace, markup=False)
    table = Table(box=None, pad_edge=False)
    arms = {trial.id: "+".join(trial.arms) for trial in picture.trials}
    told = ["arm"] if len(set(arms.values())) > 1 else []  # a single arm tells nothing
    for title in ("trial", "state", "step", "time", *told, "cause"):
        table.add_column(title, justify="right" if title in ("step", "time") else "left")
    for folder, status, steps in _listed(trials):
        cells = [folder.id, _state_now(status, live), f"{status.step}/{steps}", duration(status.seconds)]
        cells += [escape(plain(arms.get(folder.id, "")))] if told else []
        table.add_row(*cells, escape(plain(first_line(status.cause))))
    if trials:
        console.print(table)
    if (more := len(trials) - MOST_LISTED) > 0:
        console.print(f"and {more} more; list all with: disentune status {shlex.quote(where)} --json", markup=False)
    if picture.best:
        console.print(_best_line(picture, picture.best))
    for trouble in picture.troubles:
        console.print(_trouble_lines(trouble, where))
    for note in picture.notes[:MOST_TROUBLES]:
        console.print(_text(f"note: {plain(note)}", "yellow"))


def _listed(trials: Sequence[tuple[TrialFolder, Status, int]]) -> Sequence[tuple[TrialFolder, Status, int]]:
    if len(trials) <= MOST_LISTED:
        return trials
    return sorted(trials, key=lambda trial: trial[1].state in FINISHED)[:MOST_LISTED]


def _state_now(status: Status, live: bool) -> str:
    """A trial that a dead driver left in state running is shown as waiting to be resumed."""
    return "pending" if status.state == "running" and not live else status.state


# ---- watching a run

STYLES = {"done": "green", "stopped": "blue", "running": "cyan", "pending": "dim", "diverged": "yellow",
          "failed": "red"}  # fmt: skip
GLYPHS = {"done": "█", "stopped": "▄", "running": "▒", "pending": "·", "diverged": "~", "failed": "x"}
ASCII_GLYPHS = {**GLYPHS, "done": "#", "stopped": "-", "running": "=", "pending": "."}
BAR_WIDTH = 60


def watch(console: Console, pictures: Iterable[Snapshot], where: str) -> None:
    """Draws each picture over the previous one; without a terminal, prints one line for each and the last one in
    full."""
    if not console.is_terminal or console.is_dumb_terminal:
        _watch_in_lines(console, pictures, where)
        return
    with Live(console=console, auto_refresh=False) as live:
        for picture in pictures:
            live.update(view(picture, where, console), refresh=True)


def _watch_in_lines(console: Console, pictures: Iterable[Snapshot], where: str) -> None:
    known: set[str] | None = None
    for picture in pictures:
        broken = {trial.id: trial for trial in picture.trials if trial.state in BROKEN}
        for trial_id in sorted(broken.keys() - (broken.keys() if known is None else known)):
            console.print(_trouble_lines(Trouble(broken[trial_id], 1), where))
        known = set(broken)
        console.print(line(picture) if picture.live else view(picture, where, console))


def line(picture: Snapshot) -> Text:
    """A picture in one line."""
    counts = ", ".join(f"{count} {state}" for state, count in picture.states.items())
    best = f"best {picture.objective.metric} {number(picture.best.value)}" if picture.best else ""
    parts = [f"{picture.ended}/{_expected(picture)} trials ended{_selected(picture)}", counts, _pace(picture), best]
    return _text("; ".join(part for part in parts if part))


def view(picture: Snapshot, where: str, console: Console) -> Group:
    """A picture that fits the console's height by listing fewer running trials."""
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
    """Wraps even if the console does not, because a live display cuts off long lines."""
    return Text(text, style, no_wrap=False, overflow="fold")


def _selected(picture: Snapshot) -> str:
    """The options by which this session runs only part of the sweep."""
    return f" ({plain(picture.selection.flags)})" if picture.selection else ""


def _expected(picture: Snapshot) -> str:
    return f"at most {picture.expected}" if picture.at_most else str(picture.expected)


def _headline(picture: Snapshot, where: str) -> Text:
    text = _text(where, "bold")
    if picture.gone:
        return text.append(": was deleted", "not bold")
    if picture.stopping:
        return text.append(": stopping, trials write their checkpoints and end", "not bold")
    if not picture.live:
        return text.append(": not running", "not bold")
    for_ = f" for {duration(picture.session_s)}" if picture.session_s is not None else ""
    starting = "" if picture.trials else "; no trials yet, the driver is starting"
    return text.append(f": running{for_}{_selected(picture)}{starting}", "not bold")


def _glyphs(console: Console) -> Mapping[str, str]:
    return ASCII_GLYPHS if console.options.ascii_only else GLYPHS


def _bar(picture: Snapshot, console: Console) -> Text:
    whole = picture.ended == picture.expected
    percent = 100 if whole else min(99, int(100 * picture.share))  # rounded down: 100 is the end
    ended = f"  {picture.ended}/{_expected(picture)} ended, {percent}% of steps"
    width = max(10, min(BAR_WIDTH, console.width - len(ended)))
    cells, glyphs = shares(picture.states, width), _glyphs(console)
    text = _text("")
    for state, count in cells.items():
        text.append(glyphs[state] * count, STYLES[state])
    return text.append(ended)


def shares(counts: Mapping[str, int], width: int) -> dict[str, int]:
    """`width` cells in proportion to counts, at least one each, so that one failure in a thousand is visible."""
    total = sum(counts.values())
    cells = {name: max(1, count * width // total) for name, count in counts.items()}
    largest = max(counts, key=counts.__getitem__)
    cells[largest] += width - sum(cells.values())
    return cells


def _legend(picture: Snapshot, console: Console) -> Text:
    glyphs, text = _glyphs(console), _text("")
    for state, count in picture.states.items():
        text.append(f"{glyphs[state]} {count} {state}   ", STYLES[state])
    text.rstrip()
    return text


def _pace(picture: Snapshot) -> str:
    speed = f"{picture.speed:,.0f} steps/s" if picture.speed is not None and picture.speed >= 10 else ""
    speed = speed or (f"{picture.speed:.2g} steps/s" if picture.speed else "")
    ended = f"{picture.ended_an_hour:,.3g} trials/h" if picture.ended_an_hour else ""
    known = picture.left_s is not None and not picture.stopping
    left = f"about {duration(picture.left_s or 0)} left" if known else ""
    return ", ".join(part for part in (speed, ended, left) if part)


def _best_line(picture: Snapshot, best: Seen) -> Text:
    which = " (last value)" if picture.objective.at == "last" else ""
    text = _text(f"best {picture.objective.metric}{which} ").append(number(best.value), "bold")
    so_far = "" if best.ended else f", {best.state} at step {best.step}/{best.steps}"
    return text.append(f"  {best.id}  {plain(_described(best))}{so_far}")


def _described(trial: Seen) -> str:
    return ", ".join([f"arm {'+'.join(trial.arms)}", f"seed {trial.seed}", *_assignments(trial)])


def _assignments(trial: Seen) -> list[str]:
    return [assignment(key, value) for key, value in trial.point.items()]


def _running(picture: Snapshot, most: int) -> list[RenderableType]:
    table = Table(box=None, pad_edge=False)
    titles = {"running": "left", "step": "right", "time": "right", picture.objective.metric: "right", "arm": "left",
              "seed": "right", "point": "left"}  # fmt: skip
    for title, justify in titles.items():  # on a narrow terminal only this column shrinks
        table.add_column(Text(title), justify=justify, no_wrap=title != "point")  # type: ignore[arg-type]
    for trial in picture.running[:most]:
        cells = [trial.id, f"{trial.step}/{trial.steps}", clock(trial.seconds), number(trial.latest),
                 "+".join(trial.arms), str(trial.seed), " ".join(_assignments(trial))]  # fmt: skip
        table.add_row(*(Text(plain(cell), no_wrap=True, overflow="ellipsis") for cell in cells))
    more = len(picture.running) - most
    return [table, *([_text(f"and {more} more running", "dim")] if more > 0 else [])]


def _trouble_lines(trouble: Trouble, where: str, whole: bool = True) -> Group:
    """What happened, on one line unless `whole`, and below it the file to read."""
    trial = trouble.trial
    text = Text(no_wrap=not whole, overflow="fold" if whole else "ellipsis").append(trial.state, STYLES[trial.state])
    others = f" and {trouble.count - 1} more" if trouble.count > 1 else ""
    text.append(f" {trial.id}{others} at step {trial.step}: {plain(first_line(trial.cause))}")
    return Group(text, _text(f"  {shlex.quote(trouble_path(where, trial.id))}", "dim"))


def _last_words(picture: Snapshot, where: str) -> list[Text]:
    """What to do next with a run that is not running."""
    here = shlex.quote(where)
    if picture.live or picture.gone:
        return []
    if not picture.finished:
        return [_text(f"not running; continue with: disentune resume {here}")]
    more = picture.expected - len(picture.trials)
    asks = f"; the search may suggest up to {more} more: disentune resume {here}" if more > 0 else ""
    retry = [f"next: disentune resume {here} --retry-failed"] if picture.states.get("failed") else []
    ended = "the only trial has" if len(picture.trials) == 1 else f"all {len(picture.trials)} trials have"
    texts = [f"{ended} ended{asks}", f"next: disentune results {here}", *retry]
    return [_text(text) for text in texts]
