"""One self-contained page of a run: what was asked, what came out, and every trial with the command that repeats it.

Strings of a trial (causes, names, values) are untrusted: everything passes the template's escaping, no script reads
them as anything but text, and the page's own policy forbids every script and style that is not ours.
"""

import base64
import hashlib
import math
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from disentune.environment import cleaner
from disentune.errors import ConfigError, DisentuneError
from disentune.files.storage import Place
from disentune.files.writing import write_atomically
from disentune.report import canvas
from disentune.report.canvas import words
from disentune.report.kind import Kind
from disentune.report.kinds import KINDS
from disentune.report.places import in_words
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import (
    BROKEN,
    FIXED,
    Record,
    Results,
    aggregate,
    at_of,
    config_keys,
    evaluated,
    failures,
    objective_or_default,
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
"""Inches from which a figure takes a whole row of the page, as does one that is higher than wide."""
LONGEST_CAUSE = 140
"""Characters of a cause in the table; the trial's details have all of it."""
MOST_GROUPS = 20
"""Groups that are shown at once; the others fold."""
MISSING = "–"
COLOURS = {canvas.INK: "var(--ink)", canvas.GREY: "var(--grey)", canvas.FAINT: "var(--faint)"}
FIGURE_FILE = re.compile(r"\.?\d{2,}-\w+\.(png|svg)(\.[0-9a-f]{8})?")
"""What an earlier report wrote, also what a killed one left; other files in the folder are the user's."""
STATES = ("done", "running", "pending", "diverged", "failed", "not begun")
CONTROL = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Colours and other signals to a terminal, which logs bring along."""

Say = Callable[[str, int, int], None]


# ---- figures


@dataclass(frozen=True)
class Drawing:
    """One figure of the page, or the reason why it is not there."""

    name: str
    """Of its kind."""
    file: str
    """Without the ending."""
    title: str
    caption: str = ""
    png: bytes = b""
    svg: str = ""
    wide: bool = False
    reason: str = ""


def drawings(scores: RunScores, say: Say = lambda *progress: None) -> list[Drawing]:
    """The sweep's own figures in its order, else those that each kind chooses."""
    asked = scores.results.run.sweep().settings.figures
    specs = [(KINDS.get(spec.name), spec) for spec in asked] if asked is not None else list(_chosen(scores))
    found = []
    for number, (kind, spec) in enumerate(specs, start=1):
        say("drawing figures", number - 1, len(specs))
        found.append(spec if isinstance(spec, Drawing) else _drawing(number, kind, spec, scores))
    say("drawing figures", len(specs), len(specs))
    return found


def _chosen(scores: RunScores) -> Iterator[tuple[Kind, Any]]:
    for kind in KINDS.values():
        try:
            yield from ((kind, spec) for spec in kind.choose(scores))
        except Exception as error:  # one kind's mistake must not cost the page
            yield kind, Drawing(kind.name, "", _named(kind.name), reason=_unexpected(error))


def _drawing(number: int, kind: Kind | None, spec: Any, scores: RunScores) -> Drawing:
    file, title = f"{number:02d}-{spec.name}", spec.title or _named(spec.name)
    try:
        if kind is None:
            raise NothingToDraw("this version cannot draw it")
        return _drawn(file, kind, spec, scores)
    except (NothingToDraw, DisentuneError) as error:
        return Drawing(spec.name, file, title, reason=str(error))
    except Exception as error:  # one figure's mistake must not cost the page
        return Drawing(spec.name, file, title, reason=_unexpected(error))


def _drawn(file: str, kind: Kind, spec: Any, scores: RunScores) -> Drawing:
    with canvas.style(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a sign that the font lacks, a name too long to leave room
        figure = canvas.figure()
        caption = kind.draw(figure, scores.only(spec.only), spec)
        png, svg = canvas.png(figure), canvas.svg(figure)
    width, height = figure.get_size_inches()
    wide = bool(width > WIDE or height > width)
    return Drawing(kind.name, file, spec.title or caption.title, caption.text, png, svg, wide)


def _named(kind: str) -> str:
    return words(kind).capitalize()


def _unexpected(error: Exception) -> str:
    return f"could not be drawn: {type(error).__name__}: {error}"


def inlined(svg: str, prefix: str) -> Markup:
    """An SVG as a part of the page: its ids are its own, neutral colours follow the page's theme, its style sheet
    (which would hold for the whole page) stands in ours."""
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
    """The whole number, which is sorted by."""


@dataclass(frozen=True)
class Column:
    key: str
    title: str
    cells: list[Cell]
    numeric: bool
    extra: bool = False
    """Shown when all numbers are asked for."""


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

    @property
    def link(self) -> str:
        return f"../trials/{quote(self.id)}/"

    @property
    def short_cause(self) -> str:
        first = next(iter(self.cause.splitlines()), "")
        return first if len(first) <= LONGEST_CAUSE else f"{first[: LONGEST_CAUSE - 1]}…"


def trials_of(results: Results, where: str, live: bool) -> list[TrialLine]:
    known = results.run.known_trials(STATUS)
    statuses = {id: folder.status() for id, folder in known.items()}
    return [_trial(record, statuses.get(record.trial_id, Status()), where, live) for record in results.records]


def _trial(record: Record, status: Status, where: str, live: bool) -> TrialLine:
    # a trial that a dead driver left as running waits to be resumed
    state = "pending" if status.state == "running" and not live else status.state
    step = max(status.step, record.last()["step"])
    command = shlex.join(["disentune", "train", f"{where}/trials/{record.trial_id}"])
    repeatable = not any(row.get("overrides") for row in record.rows)
    steps = record.config.get("training", {}).get("steps")
    return TrialLine(record.trial_id, state, step, steps, status.seconds, status.cause, command, repeatable)


def trial_columns(scores: RunScores, trials: Sequence[TrialLine]) -> list[Column]:
    """All but the id: what a trial is, how far it came, and its numbers with the objective first."""
    frame, objective = scores.results.trials, scores.objective
    scored = _scored(scores.results, objective)
    plain, rest = _number_keys(frame, objective_column(objective))
    found = {
        **cells(frame, ["arm", "seed"]),
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
    """The number that counts has a column of its own where it is not the last one."""
    return objective.metric if objective.at == "last" else f"{objective.metric} (best step)"


def best_first(scores: RunScores) -> list[int]:
    """Places of the trials, as `results` ranks them; those without a number last, failed and diverged ones behind."""
    results, objective = scores.results, scores.objective
    sign = -1 if objective.mode == "max" else 1
    found, broken = _scored(results, objective), results.trials["status"].isin(BROKEN)
    steps = [record.step_of(objective.metric) or 0 for record in results.records]
    keys = [rank(sign * value, one.cut, step) for value, one, step in zip(found, results.records, steps, strict=True)]
    return sorted(range(len(keys)), key=lambda i: (broken[i], keys[i]))


def _scored(results: Results, objective: Objective) -> list[float]:
    """Each trial's number that counts; failed and diverged trials have theirs, too."""
    if objective.metric not in results.rows:
        return [math.nan] * len(results.records)
    found: list[float] = values(results, objective.metric, at_of(objective)).tolist()
    return found


def _number_keys(frame: pd.DataFrame, objective: str) -> tuple[list[str], list[str]]:
    """Metrics and the loss; then parts of the loss, sums, maxima and watched numbers, which are many."""
    others = {*FIXED, *config_keys(frame)}
    keys = dict.fromkeys(key for key in frame if key not in others)
    plain = [*(key for key in evaluated(keys) if not key.endswith("_max")), *({"loss"} & set(keys))]
    plain = [key for key in plain if key != objective]
    named = {objective, *plain}
    return plain, [key for key in keys if key not in named]


# ---- facts


def state_of_run(results: Results, trials: Sequence[TrialLine], live: bool) -> dict[str, Any]:
    """`finished` only when every trial that the sweep asks for has ended."""
    counts = Counter(trial.state for trial in trials)
    counts["not begun"] = max(0, _asked_for(results.run) - len(trials))
    waiting = counts["not begun"] + counts["pending"] + counts["running"]
    word = "running now" if live else "stopped" if waiting else "finished"
    broken = counts["failed"] + counts["diverged"]
    shown = {state: counts[state] for state in STATES if counts[state]}
    ends = {"all_broken": bool(broken) and broken == len(trials), "failed": counts["failed"]}
    return {"word": word, "live": live, "waiting": waiting, "total": sum(counts.values()), "counts": shown, **ends}


def _asked_for(run: Run) -> int:
    """Trials of the recorded sweep; 0 where this version cannot read its points."""
    sweep = run.sweep()
    if isinstance(sweep.settings.search, OptunaSearch):
        return len(sweep.arms) * sweep.settings.search.points * len(sweep.seeds)
    try:
        return len(space.steps_of_trials(sweep))
    except (Invalid, DisentuneError):
        return 0


def best_trial(scores: RunScores, trials: Sequence[TrialLine]) -> dict[str, Any] | None:
    """The first in the ranking, of those that did not fail or diverge; None while no trial has a number."""
    try:
        frame = scores.scored(None, ["arm", "seed", *scores.varying]).set_index("trial_id", drop=False)
    except NothingToDraw:
        return None
    ids = [scores.results.records[place].trial_id for place in best_first(scores)]
    row = frame.loc[next(trial_id for trial_id in ids if trial_id in frame.index)]
    keys = ["arm", "seed", *scores.varying]
    shown = [(title, cell(row[key]).text) for title, key in zip(in_words(keys), keys, strict=True)]
    trial = next(trial for trial in trials if trial.id == row["trial_id"])
    return {"trial": trial, "value": cell(float(row["value"])), "keys": [one for one in shown if one[1] != MISSING]}


def groups_of(results: Results, objective: Objective) -> list[Column]:
    """Mean and spread over the trials that differ by seed alone, best first; nothing while there is no number."""
    if objective.metric not in results.rows:
        return []
    table = aggregate(results, None, objective.metric, at_of(objective))
    by = [key for key in table if key in ("arm", *config_keys(table))]
    numbers = [key for key in ("mean", "sd", "n", "min", "max", "failed", "from_step") if key in table]
    return columns(cells(table, [*by, *numbers]))


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
    """What no table shows: of the run's folder, and metrics that could not score."""
    found, trials = failures(results).items(), len(results.records)
    unscored = (f"{name} has no score in {count} of {trials} trials: {reason}" for name, (count, reason) in found)
    return [*results.notes, *unscored]


# ---- the page


@dataclass(frozen=True)
class WrittenPage:
    run: Run
    drawings: list[Drawing]

    @property
    def page(self) -> Place:
        return self.run.report_page

    def figure(self, drawing: Drawing, ending: str) -> Place:
        return self.run.figures_folder / f"{drawing.file}.{ending}"


def write(results: Results, where: str, now: datetime, say: Say = lambda *progress: None) -> WrittenPage:
    """Draws everything and writes it below the run; `where` is the run's folder as the user would type it."""
    scores = RunScores(results, objective_or_default(results))
    report = WrittenPage(results.run, drawings(scores, say))
    text = html(scores, report.drawings, where, now)
    results.run.figures_folder.mkdir(parents=True, exist_ok=True)
    for drawing in report.drawings:
        if not drawing.reason:
            write_atomically(report.figure(drawing, "png"), drawing.png)
            write_atomically(report.figure(drawing, "svg"), drawing.svg.encode())
    write_atomically(report.page, text.encode(errors="backslashreplace"))
    _remove_others(report)
    return report


def _remove_others(report: WrittenPage) -> None:
    """Figures of an earlier report that the new page does not show."""
    kept = {report.figure(one, ending) for one in report.drawings if not one.reason for ending in ("png", "svg")}
    for path in report.run.figures_folder.iterdir():
        if path not in kept and FIGURE_FILE.fullmatch(path.name):
            path.unlink(missing_ok=True)


def html(scores: RunScores, drawn: Sequence[Drawing], where: str, now: datetime) -> str:
    results = scores.results
    live = results.run.is_running()
    trials = trials_of(results, where, live)
    css, script = _source("page.css"), _source("page.js")
    found: str = _template().render(
        css=Markup(css),
        script=Markup(script),
        policy=_policy(css, script),
        name=results.run.name,
        question=results.run.sweep().question,
        state=state_of_run(results, trials, live),
        objective=_objective(scores),
        best=best_trial(scores, trials),
        budget={"time": duration(sum(trial.seconds for trial in trials)), "steps": sum(trial.step for trial in trials)},
        environment=environment_of(results.run),
        made=now,
        report_command=shlex.join(["disentune", "report", where]),
        resume_command=shlex.join(["disentune", "resume", where]),
        retry_command=shlex.join(["disentune", "resume", where, "--retry-failed"]),
        groups=groups_of(results, scores.objective),
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
    """Nothing is loaded, and only our own style and script count. The figures' style attributes need leave."""
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
