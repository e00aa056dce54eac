"""One self-contained page of a run: the question, the results, and every trial with the command that repeats it.

Strings of a trial (causes, names, values) are untrusted: the template escapes everything, scripts treat them only as
text, and the page's content security policy forbids every other script and style.
"""

import base64
import hashlib
import math
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from disentune.analysis.statistics import INTERVAL, intervals
from disentune.environment import cleaner
from disentune.errors import ConfigError, DisentuneError
from disentune.files.storage import Place
from disentune.files.writing import write_atomically
from disentune.report import SHARED_STYLE, canvas
from disentune.report.canvas import words
from disentune.report.differences import differences
from disentune.report.kind import Kind
from disentune.report.kinds import KINDS
from disentune.report.places import in_words
from disentune.report.scores import NothingToDraw, RunScores
from disentune.report.sources import Source, source_of
from disentune.results.points import point_numbers
from disentune.results.tables import (
    BROKEN,
    FIXED,
    MIN_STEP,
    SEEDS,
    SEEDS_NOTE,
    STEPS_NOTE,
    Record,
    Results,
    aggregate,
    at_of,
    config_keys,
    evaluated,
    failures,
    objective_or_default,
    overview,
    rank,
    values,
    varying_keys,
)
from disentune.results.watch import duration
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import STATUS, Status
from disentune.spec import space
from disentune.spec.config import Invalid
from disentune.spec.settings import Objective, OptunaSearch

HERE = Path(__file__).parent
WIDE = 1.3 * canvas.WIDTH
"""A figure at least this many inches wide takes a whole row of the page; so does one that is higher than wide."""
LONGEST_CAUSE = 140
"""Maximum number of characters of a cause in the table; the trial's details have the full text."""
MOST_GROUPS = 20
"""Number of groups shown initially; the others are folded."""
MOST_OTHERS = 2
"""Number of other metrics in the table of groups."""
MISSING = "–"
COLOURS = {
    canvas.INK: "var(--ink)",
    canvas.GREY: "var(--grey)",
    canvas.FAINT: "var(--faint)",
    **{colour: f"var(--c{i})" for i, colour in enumerate(canvas.PALETTE)},
}
"""Lighter colours for the dark theme, so that dots and thin lines stay visible."""
FIGURE_FILE = re.compile(r"\.?\d{2,}-\w+\.(png|svg)(\.[0-9a-f]{8})?")
"""Files written by an earlier report, even if it was killed; other files in the folder are the user's."""
STATES = ("done", "stopped", "running", "pending", "diverged", "failed", "not begun")
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Terminal control codes, such as colours, which logs may contain."""

Say = Callable[[str, int, int], None]


# ---- figures


@dataclass(frozen=True)
class Drawing:
    """One figure of the page, or the reason why it is missing."""

    name: str
    """The question of its kind."""
    file: str
    """File name without the suffix."""
    title: str
    question: str = ""
    caption: str = ""
    png: bytes = b""
    svg: str = ""
    wide: bool = False
    reason: str = ""


def drawings(scores: RunScores, asked: Sequence[Any] | None, say: Say = lambda *progress: None) -> list[Drawing]:
    """The requested figures, in order; by default those that each kind chooses."""
    specs = [(KINDS.get(spec.name), spec) for spec in asked] if asked is not None else list(_chosen(scores))
    found = []
    for number, (kind, spec) in enumerate(specs, start=1):
        say("drawing figures", number - 1, len(specs))
        found.append(spec if isinstance(spec, Drawing) else _drawing(number, kind, spec, scores))
    say("drawing figures", len(specs), len(specs))
    return _in_columns(found)


def _in_columns(drawn: list[Drawing]) -> list[Drawing]:
    """Avoids a gap in two columns: the last of an odd number of narrow figures takes a whole row."""
    narrow = [place for place, one in enumerate(drawn) if not one.wide]
    last = narrow[-1] if len(narrow) % 2 else None
    return [replace(one, wide=True) if place == last else one for place, one in enumerate(drawn)]


def _chosen(scores: RunScores) -> Iterator[tuple[Kind, Any]]:
    for kind in KINDS.values():
        try:
            yield from ((kind, spec) for spec in kind.choose(scores))
        except Exception as error:  # a bug in one kind must not prevent the page
            yield kind, Drawing(kind.name, "", _named(kind.name), reason=_unexpected(error))


def _drawing(number: int, kind: Kind | None, spec: Any, scores: RunScores) -> Drawing:
    file, title = f"{number:02d}-{spec.name}", spec.title or _named(spec.name)
    try:
        if kind is None:
            raise NothingToDraw("this version cannot draw it")
        return _drawn(file, kind, spec, scores)
    except (NothingToDraw, DisentuneError) as error:
        return Drawing(spec.name, file, title, reason=str(error))
    except Exception as error:  # a bug in one figure must not prevent the page
        return Drawing(spec.name, file, title, reason=_unexpected(error))


def _drawn(file: str, kind: Kind, spec: Any, scores: RunScores) -> Drawing:
    with canvas.style(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a character that the font lacks, a name that is too long
        figure = canvas.figure()
        kept = scores.only(spec.only)
        caption = kind.draw(figure, kept, spec)
        png, svg = canvas.png(figure), canvas.svg(figure)
    width, height = figure.get_size_inches()
    wide = bool(width > WIDE or height > width)
    text, question = f"{caption.text} {_discarded(scores, kept, spec.only)}".strip(), caption.question or kind.question
    return Drawing(kind.name, file, spec.title or caption.title, question, text, png, svg, wide)


def _discarded(scores: RunScores, kept: RunScores, only: str | None) -> str:
    every, left = len(scores.results.records), len(kept.results.records)
    return "" if only is None else f"Only trials with {only}; {every - left} of {every} are excluded."


def _named(kind: str) -> str:
    return words(kind).capitalize()


def _unexpected(error: Exception) -> str:
    return f"could not be drawn: {type(error).__name__}: {error}"


def inlined(svg: str, prefix: str) -> Markup:
    """An SVG as part of the page: its ids are unique, its colours follow the page's theme, and its style sheet, which
    would apply to the whole page, is merged into ours."""
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
    for colour, variable in COLOURS.items():
        svg = re.sub(colour, variable, svg, flags=re.IGNORECASE)
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-labelledby="{prefix}-title" ', 1))


# ---- tables


@dataclass(frozen=True)
class Cell:
    text: str
    order: str = ""
    """The full number, used for sorting."""


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    cells: list[Cell]
    numeric: bool
    extra: bool = False
    """Shown only if all numbers are requested."""


def cell(value: Any) -> Cell:
    if value is None or pd.isna(value):
        return Cell(MISSING)
    if isinstance(value, bool):
        return Cell("true" if value else "false")
    if isinstance(value, int | float):
        return Cell(f"{value:.4g}" if isinstance(value, float) else str(value), _in_javascript(value))
    return Cell(str(value))


def _in_javascript(value: float) -> str:
    return repr(value).replace("inf", "Infinity")


def cells(frame: pd.DataFrame, keys: Iterable[str]) -> dict[str, list[Cell]]:
    return {key: [cell(value) for value in frame[key].tolist()] for key in keys}


def columns(found: Mapping[str, list[Cell]], extra: Iterable[str] = ()) -> list[Column]:
    extra = set(extra)
    return [
        Column(key, title, found[key], _is_numeric(found[key]), key in extra)
        for key, title in zip(found, in_words(list(found)), strict=True)
    ]


def _is_numeric(found: Iterable[Cell]) -> bool:
    return all(one.order for one in found if one.text != MISSING)


# ---- trials


@dataclass(frozen=True)
class TrialLine:
    """A trial's own facts; its numbers are in the columns."""

    id: str
    state: str
    step: int
    steps: Any
    seconds: float
    cause: str
    command: str
    repeatable: bool
    has_log: bool
    """Whether an attempt of a trial that ended badly left a traceback."""

    @property
    def link(self) -> str:
        return f"../trials/{quote(self.id)}/"

    @property
    def short_cause(self) -> str:
        first = next(iter(self.cause.splitlines()), "")
        return first if len(first) <= LONGEST_CAUSE else f"{first[: LONGEST_CAUSE - 1]}…"


@dataclass(frozen=True)
class Look:
    """The states of a run and its trials at one moment."""

    live: bool
    trials: list[TrialLine]


def looked_at(results: Results, where: str) -> Look:
    live = results.run.is_running()  # before the trials, so that the last statuses of a driver are read
    return Look(live, trials_of(results, where, live))


def trials_of(results: Results, where: str, live: bool) -> list[TrialLine]:
    known = results.run.known_trials(STATUS)
    statuses = {id: folder.status() for id, folder in known.items()}
    logged = {id for id, status in statuses.items() if status.state in BROKEN and known[id].errors_path.exists()}
    return [
        _trial(record, statuses.get(record.trial_id, Status()), where, live, record.trial_id in logged)
        for record in results.records
    ]


def _trial(record: Record, status: Status, where: str, live: bool, has_log: bool) -> TrialLine:
    # a trial that a dead driver left as running is waiting to be resumed
    state = "pending" if status.state == "running" and not live else status.state
    step = max(status.step, record.last()["step"])
    command = shlex.join(["disentune", "train", f"{where}/trials/{record.trial_id}"])
    repeatable = not any(row.get("overrides") for row in record.rows)
    steps = record.config.get("training", {}).get("steps")
    return TrialLine(record.trial_id, state, step, steps, status.seconds, status.cause, command, repeatable, has_log)


def trial_columns(scores: RunScores, trials: Sequence[TrialLine]) -> list[Column]:
    """All columns except the id: config, progress, and numbers with the objective first."""
    frame, objective = scores.results.trials, scores.objective
    scored = _scored(scores.results, objective)
    plain, rest = _number_keys(frame, objective_column(objective))
    numbers = point_numbers(scores.results)
    points = {"point": [cell(numbers.get(trial.id)) for trial in trials]} if numbers else {}
    found = {
        **cells(frame, ["arm", "seed"] if frame["arm"].nunique() > 1 else ["seed"]),
        **points,
        "status": [Cell(trial.state) for trial in trials],
        "step": [Cell(f"{trial.step}/{trial.steps}", str(trial.step)) for trial in trials],
        "time": [Cell(duration(trial.seconds), repr(trial.seconds)) for trial in trials],
        **cells(frame, varying_keys(frame)),
        objective_column(objective): [cell(value) for value in scored],
        **cells(frame, [*plain, *rest]),
        "cause": [Cell(trial.short_cause or MISSING) for trial in trials],
    }
    return columns(found, rest)


def objective_column(objective: Objective) -> str:
    """The objective has its own column if it is not the last value."""
    return objective.metric if objective.at == "last" else f"{objective.metric} (best step)"


def best_first(scores: RunScores) -> list[int]:
    """Ranks of the trials as in `results`; then trials without a number, then failed and diverged ones."""
    results, objective = scores.results, scores.objective
    sign = -1 if objective.mode == "max" else 1
    found, broken = _scored(results, objective), results.trials["status"].isin(BROKEN)
    steps = [record.step_of(objective.metric) or 0 for record in results.records]
    keys = [rank(sign * value, one.cut, step) for value, one, step in zip(found, results.records, steps, strict=True)]
    return sorted(range(len(keys)), key=lambda i: (broken[i], keys[i]))


def _scored(results: Results, objective: Objective) -> list[float]:
    """Each trial's value of the objective, including failed and diverged trials."""
    if objective.metric not in results.rows:
        return [math.nan] * len(results.records)
    found: list[float] = values(results, objective.metric, at_of(objective)).tolist()
    return found


def _number_keys(frame: pd.DataFrame, objective: str) -> tuple[list[str], list[str]]:
    """Metrics and the loss; then the many parts of the loss, sums, maxima and watched numbers."""
    others = {*FIXED, *config_keys(frame)}
    keys = dict.fromkeys(key for key in frame if key not in others)
    plain = [*(key for key in evaluated(keys) if not key.endswith("_max")), *({"loss"} & set(keys))]
    plain = [key for key in plain if key != objective]
    named = {objective, *plain}
    return plain, [key for key in keys if key not in named]


# ---- facts


def state_of_run(results: Results, trials: Sequence[TrialLine], live: bool) -> dict[str, Any]:
    """`finished` only if every trial of the sweep has ended."""
    counts = Counter(trial.state for trial in trials)
    counts["not begun"] = max(0, _asked_for(results.run) - len(trials))
    waiting = counts["not begun"] + counts["pending"] + counts["running"]
    word = "running now" if live else "interrupted" if waiting else "finished"
    broken = counts["failed"] + counts["diverged"]
    shown = {state: counts[state] for state in STATES if counts[state]}
    ends = {"all_broken": bool(broken) and broken == len(trials), "failed": counts["failed"]}
    return {"word": word, "live": live, "waiting": waiting, "total": sum(counts.values()), "counts": shown, **ends}


def _asked_for(run: Run) -> int:
    """Number of trials of the recorded sweep; 0 if this version cannot read its points."""
    sweep = run.sweep()
    if isinstance(sweep.settings.search, OptunaSearch):
        return len(sweep.arms) * sweep.settings.search.points * len(sweep.seeds)
    try:
        return len(space.steps_of_trials(sweep))
    except (Invalid, DisentuneError):
        return 0


def budget_of(run: Run, trials: Sequence[TrialLine]) -> dict[str, Any]:
    """What the trials have taken; `percent` of the steps that the sweep asks for, where trials that have not begun are
    taken to need as many steps as the others."""
    done = sum(trial.step for trial in trials)
    ends = [trial.steps if isinstance(trial.steps, int) else trial.step for trial in trials]
    waits = [trial.state in ("pending", "running") for trial in trials]
    left = sum(max(0, end - trial.step) for trial, end, is_open in zip(trials, ends, waits, strict=True) if is_open)
    left += sum(ends) // max(1, len(ends)) * max(0, _asked_for(run) - len(trials))
    share = done / (done + left) if done else 0.0
    return {"time": duration(sum(trial.seconds for trial in trials)), "steps": done, "percent": int(100 * share)}


def best_trial(scores: RunScores, trials: Sequence[TrialLine]) -> dict[str, Any] | None:
    """The best trial that did not fail or diverge; None if no trial has a number."""
    try:
        frame = scores.scored(None, ["arm", "seed", *scores.asked]).set_index("trial_id", drop=False)
    except NothingToDraw:
        return None
    ids = [scores.results.records[place].trial_id for place in best_first(scores)]
    row = frame.loc[next(trial_id for trial_id in ids if trial_id in frame.index)]
    keys = [*(["arm"] if scores.trials["arm"].nunique() > 1 else []), "seed", *scores.asked]
    shown = [(title, cell(row[key]).text) for title, key in zip(in_words(keys), keys, strict=True)]
    trial = next(trial for trial in trials if trial.id == row["trial_id"])
    return {"trial": trial, "value": cell(float(row["value"])), "keys": [one for one in shown if one[1] != MISSING]}


def groups_of(results: Results, objective: Objective) -> list[Column]:
    """Mean and spread over the trials that differ only by seed, best first; empty if there are no numbers."""
    if objective.metric not in results.rows:
        return []
    table = aggregate(results, None, objective.metric, at_of(objective))
    by = [key for key in table if key in ("arm", *config_keys(table))]
    if table["arm"].nunique() < 2:
        by = [key for key in by if key != "arm"]
    table[INTERVAL] = [text or None for text in intervals(table)]
    spread = (INTERVAL, "sd", "n", "min", "max") if table["n"].max() > 1 else ("n",)  # of one trial there is none
    numbers = [key for key in ("mean", *spread, SEEDS, "stopped", "failed", MIN_STEP) if key in table]
    return columns({**cells(table, [*by, *numbers]), **_other_means(results, objective)})


def _groups_note(results: Results, objective: Objective) -> str:
    """Explains the order of groups whose trials have had different budgets, and groups with trials of equal seeds."""
    if objective.metric not in results.rows:
        return ""
    table = aggregate(results, None, objective.metric, at_of(objective))
    notes = {MIN_STEP: STEPS_NOTE.replace(MIN_STEP, words(MIN_STEP)), SEEDS: SEEDS_NOTE}
    return " ".join(note for column, note in notes.items() if column in table)


def _other_means(results: Results, objective: Objective) -> dict[str, list[Cell]]:
    """The means of the first other metrics, in the order of the groups."""
    table = overview(results, None, objective.metric, at_of(objective)).set_index("metric").head(MOST_OTHERS)
    return {f"{words(metric)} (mean)": [cell(value) for value in means] for metric, *means in table.itertuples()}


def differences_of(results: Results, objective: Objective) -> dict[str, Any] | None:
    """Pairs of values of one key as columns; None if nothing can be compared."""
    found = differences(results, objective)
    if found is None:
        return None
    kept = [key for key in found.table if found.table[key].any()]  # with two seeds there is no p, for example
    return {"by": words(found.by), "columns": columns(cells(found.table, kept)), "notes": found.notes}


def environment_of(run: Run) -> dict[str, str]:
    try:
        recorded = run.environment()
    except ConfigError as error:
        return {"unreadable": str(error)}
    packages = recorded.get("packages")
    versions = {name: version for name, version in packages.items() if version} if isinstance(packages, dict) else {}
    gpus = recorded.get("gpus")
    return {
        key: text for key, text in {
            "commit": _text(recorded.get("commit")),
            "processor": _text(recorded.get("cpu")),
            "cores": _text(recorded.get("cores")),
            "GPUs": ", ".join(map(str, gpus)) if isinstance(gpus, list) else _text(gpus),
            "system": _text(recorded.get("system")),
            "Python": _text(recorded.get("python")),
            "packages": ", ".join(f"{name} {version}" for name, version in versions.items()),
        }.items() if text
    }  # fmt: skip


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def notes_of(results: Results) -> list[str]:
    """What no table shows: notes on the run's folder, and metrics that could not be computed."""
    found, trials = failures(results).items(), len(results.records)
    unscored = (f"{name} has no score in {count} of {trials} trials: {reason}" for name, (count, reason) in found)
    return [*results.notes, *unscored]


# ---- the page


@dataclass(frozen=True)
class WrittenPage:
    run: Run
    drawings: list[Drawing]
    source: Source

    @property
    def page(self) -> Place:
        return self.run.report_page

    def figure(self, drawing: Drawing, ending: str) -> Place:
        return self.run.figures_folder / f"{drawing.file}.{ending}"


def write(
    results: Results, where: str, now: datetime, say: Say = lambda *progress: None, source: Source | None = None
) -> WrittenPage:
    """Draws everything and writes it to the run; `where` is the run's folder as the user would type it."""
    look = looked_at(
        results, where
    )  # before the figures, which take a while, so that tables and states are of one time
    scores = RunScores(results, objective_or_default(results))
    source = source or source_of(results.run)
    report = WrittenPage(results.run, drawings(scores, source.figures, say), source)
    text = html(scores, report.drawings, where, now, look)
    results.run.figures_folder.mkdir(parents=True, exist_ok=True)
    for drawing in report.drawings:
        if not drawing.reason:
            write_atomically(report.figure(drawing, "png"), drawing.png)
            write_atomically(report.figure(drawing, "svg"), drawing.svg.encode())
    write_atomically(report.page, text.encode(errors="backslashreplace"))
    _remove_others(report)
    return report


def _remove_others(report: WrittenPage) -> None:
    """Removes figures of an earlier report that the new page does not show."""
    kept = {report.figure(one, ending) for one in report.drawings if not one.reason for ending in ("png", "svg")}
    for path in report.run.figures_folder.iterdir():
        if path not in kept and FIGURE_FILE.fullmatch(path.name):
            path.unlink(missing_ok=True)


def html(scores: RunScores, drawn: Sequence[Drawing], where: str, now: datetime, look: Look) -> str:
    results, trials = scores.results, look.trials
    css, script = SHARED_STYLE.read_text(encoding="utf-8") + _source("page.css"), _source("page.js")
    found: str = _template().render(
        css=Markup(css),
        script=Markup(script),
        policy=_policy(css, script),
        name=results.run.name,
        question=results.run.sweep().question,
        state=state_of_run(results, trials, look.live),
        objective=_objective(scores),
        best=best_trial(scores, trials),
        budget=budget_of(results.run, trials),
        environment=environment_of(results.run),
        made=now,
        report_command=shlex.join(["disentune", "report", where]),
        resume_command=shlex.join(["disentune", "resume", where]),
        retry_command=shlex.join(["disentune", "resume", where, "--retry-failed"]),
        groups=groups_of(results, scores.objective),
        differences=differences_of(results, scores.objective),
        groups_note=_groups_note(results, scores.objective),
        most_groups=MOST_GROUPS,
        notes=notes_of(results),
        figures=drawn,
        inlined=inlined,
        trials=trials,
        columns=trial_columns(scores, trials),
        order=best_first(scores),
    )
    return found


def _objective(scores: RunScores) -> dict[str, str]:
    at = "at the last step" if scores.objective.at == "last" else "at its best step"
    order = "descending" if scores.objective.mode == "max" else "ascending"
    return {"title": words(scores.objective.metric), "better": scores.better(None), "at": at, "order": order,
            "column": objective_column(scores.objective)}  # fmt: skip


def _source(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _policy(css: str, script: str) -> str:
    """A policy that loads nothing and allows only our own style and script. Figures need their style attributes."""
    return (
        f"default-src 'none'; img-src data:; style-src '{_hash(css)}'; style-src-attr 'unsafe-inline'; "
        f"script-src '{_hash(script)}'; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _template() -> Any:
    environment = Environment(
        loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined,
        finalize=partial(_readable, cleaner()), trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    return environment.get_template("template.html")


def _readable(clean: Callable[[str], str], value: Any) -> Any:
    return CONTROL.sub("", clean(value)) if type(value) is str else value
