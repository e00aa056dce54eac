"""The rows of a run as tables: reading, aggregating, ranking, writing. Uses only rows and the ledger."""

import html
import math
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from disentune.errors import ConfigError, counted_trials, unknown
from disentune.files.storage import Place, RemotePath, place, shown
from disentune.files.writing import write_atomically
from disentune.metrics import best_of
from disentune.plugin import FIXED
from disentune.results.ranking import BROKEN, At, Mode, evaluated, is_loss, rank
from disentune.runs import scores
from disentune.runs.ledger import Run, find_run
from disentune.runs.rows import Flaw, broken_rows_note, first_gap, missing_rows_note, with_end
from disentune.runs.trial_folder import CONFIG, END, ROWS, STATUS, TrialFolder, is_cut, reached
from disentune.spec.config import SECTIONS, flattened
from disentune.spec.selection import select
from disentune.spec.settings import Objective

MIN_STEP = "min_step"
STEPS_NOTE = (
    f"{MIN_STEP}: the earliest step among the group's values. Groups with stopped or unfinished trials rank below "
    "groups whose trials trained to the end."
)
"""Explains the order of a table that has this column."""
SEEDS = "seeds"
SEEDS_NOTE = (
    f"{SEEDS}: different seeds among the group's trials. A group with several trials of one seed has no 95 % interval, "
    "because such trials do not repeat each other."
)
"""Explains a table that has this column."""


@dataclass(frozen=True)
class Record:
    """One trial from the ledger; its rows also have the running maximum of each evaluated metric."""

    trial_id: str
    arms: tuple[str, ...]
    status: str
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    cut: bool = False
    """Whether it trained less than a finished trial: a scheduler stopped it early, or it has not ended."""
    gap: int | None = None
    """The first step whose row was written but is now missing."""
    flaw: Flaw | None = None
    """The first damaged line of its rows; only the rows before it are here."""

    def last(self) -> dict[str, Any]:
        """Its last row, with the last value of each metric, which may come from an earlier row."""
        latest = {key: value for row in self.rows for key, value in row["metrics"].items()}
        return {**(self.rows[-1] if self.rows else {"step": 0}), "metrics": latest}

    def step_of(self, metric: str) -> int | None:
        """The step of the last value of a metric."""
        return next((row["step"] for row in reversed(self.rows) if metric in row["metrics"]), None)


@dataclass(frozen=True, repr=False)
class Results:
    """A run's trials, sorted by id, and their tables."""

    run: Run
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    """Notes about the run's folder for readers of the tables."""

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row per trial and step."""
        return _frame(self.records, lambda record: record.rows)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial: its last step, and the last value of each metric."""
        return _frame(self.records, lambda record: [record.last()])

    @cached_property
    def metrics(self) -> dict[str, None]:
        """The columns of `rows` and `trials` with losses and metrics, in order."""
        others = {*FIXED, *config_keys(self.rows)}
        return dict.fromkeys(key for key in self.rows if key not in others)

    @cached_property
    def objective(self) -> Objective | None:
        """The objective of the run's sweep."""
        return self.run.sweep().settings.objective

    def __repr__(self) -> str:
        states = Counter(record.status for record in self.records)
        counts = ", ".join(f"{count} {state}" for state, count in states.items())
        rows = sum(len(record.rows) for record in self.records)
        count = counted_trials(len(self.records))
        return f"Results({shown(self.run.path)!r}: {count} ({counts or 'none'}), {rows} rows)"

    def _repr_html_(self) -> str:
        """For notebooks: the same line, and the table that is printed at the end of a run."""
        line = f"<p>{html.escape(repr(self))}</p>"
        if self.rows.empty:
            return line
        objective = objective_or_default(self)
        metric, at = html.escape(objective.metric), at_of(objective)
        table = aggregate(self, None, objective.metric, at)
        text = table.to_html(index=False, max_rows=20, float_format="{:.4g}".format)
        return f"{line}<p>{metric}, {at} value of each trial{over_seeds(table)}:</p>{text}"


def load(run: str | Place, only: Iterable[str] | None = None) -> Results:
    """A run by its folder, `sweep/run` or sweep's name; `only` keeps the trials of these ids."""
    return read(find_run(str(run)), only)


def read(run: Run, only: Iterable[str] | None = None, scored: bool = True) -> Results:
    """The trials of a run, or those of `only`; with the scores that `disentune score` stored, unless `scored` is
    False."""
    kept = None if only is None else set(only)
    seen = run.seen(CONFIG, STATUS, ROWS, END)
    folders = [folder for folder in seen.trials() if kept is None or folder.id in kept]
    found = [_record(folder) for folder in folders]
    later, outdated = scores.current(run, folders) if scored else ({}, [])
    records = tuple(_with_scores(found, later))
    return Results(run, records, (*seen.notes(), *_gap_notes(run, records), *outdated))


def _with_scores(records: Sequence[Record], kept: Mapping[str, scores.Kept]) -> Iterator[Record]:
    """Records with the scores that `disentune score` computed later, added to the rows of the same steps, and with
    running maxima. If the sweep evaluates the same metric, the later score is in `<metric>_scored`."""
    own = {key for record in records for row in record.rows for key in row["metrics"]} if kept else set()
    for record in records:
        rows, maxima = {row["step"]: row for row in record.rows}, Maxima()
        for step, numbers in kept.get(record.trial_id, ()):
            named = {f"{key}_scored" if key in own else key: value for key, value in numbers.items()}
            rows[step] = with_end(rows.get(step, {"step": step, "metrics": {}}), {"metrics": named})
        yield replace(record, rows=[maxima.taken_in(rows[step]) for step in sorted(rows)])


def only(results: Results, expression: str | None) -> Results:
    """The trials that match an expression, as for --only; metrics in it mean their last values."""
    if expression is None:
        return results
    selection = select(expression, results.metrics)
    kept = (r for r in results.records if selection({**r.config, "arm": r.arms}, r.last()["metrics"]))
    return replace(results, records=tuple(kept))


def _gap_notes(run: Run, records: Sequence[Record]) -> list[str]:
    flaws = {record.trial_id: record.flaw for record in records if record.flaw}
    gaps = {record.trial_id: record.gap for record in records if record.gap is not None and not record.flaw}
    notes = [missing_rows_note(gaps)] if gaps else []
    notes += [broken_rows_note(flaws)] if flaws else []
    command = shlex.join(["disentune", "resume", shown(run.path)])
    return [f"{note}, so numbers are missing; compute them again with: {command}" for note in notes]


def _record(folder: TrialFolder) -> Record:
    """A record with its rows as written."""
    tree, arms = folder.tree_and_arms()
    status = folder.status()  # read before the rows, because a worker writes rows first
    rows, flaw = folder.rows_and_flaw()
    gap = first_gap(tree, reached(status), (row["step"] for row in rows), flaw)
    if gap is not None and isinstance(
        folder.path, RemotePath
    ):  # files of a snapshot may have been read at different moments
        gap = TrialFolder(place(str(folder.path))).sound().gap
    return Record(folder.id, arms, status.state, tree, folder.rows_to_end(rows), is_cut(status), gap, flaw)


class Maxima:
    """The running maximum of each evaluated metric, from its first number on."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}

    def taken_in(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, with `<metric>_max` over all rows up to this one. Metrics of older versions whose name is that of a
        column are left out in favour of the column."""
        metrics = {key: value for key, value in row["metrics"].items() if not _is_column(key)}
        for key in evaluated(metrics):
            value, name = _number(metrics[key]), f"{key}_max"
            self.largest[name] = max(self.largest.get(name, math.nan), value, key=_nan_lowest)
        return {**row, "metrics": {**metrics, **self.largest}}


@cache
def _is_column(key: str) -> bool:
    """Whether a table already has a column of this name."""
    return key in FIXED or _is_config_key(key)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _nan_lowest(value: float) -> tuple[bool, float]:
    return (False, 0.0) if math.isnan(value) else (True, value)


# ---- tables


def _frame(records: Iterable[Record], rows_of: Callable[[Record], list[dict[str, Any]]]) -> pd.DataFrame:
    """Builds each column once as a whole, so that the time grows only with the number of cells."""
    records = list(records)
    rows = [rows_of(record) for record in records]
    counts = np.array([len(some) for some in rows], dtype=int)
    fixed = {
        "trial_id": [record.trial_id for record in records],
        "arm": [
            "+".join(sorted(record.arms)) for record in records
        ],  # not in the order in which a growing sweep added them
        "status": [record.status for record in records],
        "seed": [record.config["seed"] for record in records],
    }
    columns: dict[str, Any] = {key: _typed(values).repeat(counts) for key, values in fixed.items()}
    every = [row for some in rows for row in some]
    columns["step"] = np.array([row["step"] for row in every], dtype="int64")
    return pd.DataFrame(columns | _config_columns(records, rows, counts) | _metric_columns(records, every))


def _config_columns(records: list[Record], rows: list[list[Any]], counts: np.ndarray) -> dict[str, Any]:
    flats = [flattened(record.config) for record in records]
    changed = {key for some in rows for row in some for key in row.get("overrides", ())}
    columns = {}
    for key in _config_keys(flats, changed):
        values = [flat.get(key) for flat in flats]
        if key in changed:
            pairs = zip(values, rows, strict=True)
            columns[key] = _typed([row.get("overrides", {}).get(key, value) for value, some in pairs for row in some])
        else:
            columns[key] = _typed(values).repeat(counts)
    return columns


def _config_keys(flats: list[dict[str, Any]], changed: Iterable[str]) -> list[str]:
    """Sections in their canonical order, the keys of a section in the order of the trials."""
    keys = dict.fromkeys([key for flat in flats for key in flat] + sorted(changed))
    keys.pop("seed", None)
    return sorted(keys, key=lambda key: SECTIONS.index(key.split(".")[0]))


def _metric_columns(records: list[Record], rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    keys = dict.fromkeys(key for record in records for row in record.rows for key in row["metrics"])
    return {key: np.array([_number(row["metrics"].get(key)) for row in rows], dtype=float) for key in keys}


def _typed(values: list[Any]) -> Any:
    """An array of the narrowest type that fits the values; null and absent both count as missing."""
    kinds = {type(value) if not _is_huge(value) else str for value in values if value is not None}
    complete = None not in values
    if kinds == {bool}:
        return pd.array(values, dtype="bool" if complete else "boolean")
    if kinds == {int}:
        return pd.array(values, dtype="int64" if complete else "Int64")
    if kinds <= {int, float}:
        return np.array([_number(value) for value in values], dtype=float)
    return pd.Series(_texts(values)).array


def _is_huge(value: Any) -> bool:
    """Whether a whole number is too large for a numeric column."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _texts(values: list[Any]) -> list[str | None]:
    """A list shown by the names in it, unless two different lists would look the same."""
    short = [value if value is None else _text(value, False) for value in values]
    full = [value if value is None else _text(value, True) for value in values]
    return short if len(set(short)) == len(set(full)) else full


def _text(value: Any, full: bool) -> str:
    if isinstance(value, list):
        return ", ".join(_text(item, full) for item in value)
    if not isinstance(value, Mapping):
        return str(value)
    params = ", ".join(f"{key}={item}" for key, item in value.items() if key != "name") if full else ""
    return f"{value.get('name', '')}({params})" if params else str(value.get("name", ""))


# ---- what other programs read


def as_json(results: Results) -> list[dict[str, Any]]:
    """One plain object per trial; numbers that JSON cannot represent become null."""
    return [_trial_json(record) for record in results.records]


def _trial_json(record: Record) -> dict[str, Any]:
    last = record.last()
    return {
        "trial_id": record.trial_id,
        "status": record.status,
        "step": last["step"],
        "seed": record.config["seed"],
        "config": record.config,
        "metrics": {key: _finite(value) for key, value in last["metrics"].items()},
    }


def _finite(value: Any) -> Any:
    return value if value is not None and math.isfinite(value) else None


def as_parquet(results: Results) -> bytes:
    """The rows as a Parquet file. Equal tables give equal bytes: no pandas metadata, no index."""
    return parquet_of(pa.Table.from_pandas(results.rows, preserve_index=False))


def parquet_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table.replace_schema_metadata(None), sink, compression="zstd", compression_level=3)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def write_parquet(results: Results) -> Place:
    """Writes the rows to one file in the run."""
    write_atomically(results.run.parquet_path, as_parquet(results))
    return results.run.parquet_path


# ---- comparing trials


def config_keys(frame: pd.DataFrame) -> list[str]:
    """Columns of the config; `recon` by itself is a loss, `recon.name` a key."""
    return [key for key in frame.columns if _is_config_key(key)]


def _is_config_key(key: str) -> bool:
    return key == "loss_scale" or ("." in key and key.split(".")[0] in SECTIONS)


def titles(keys: Sequence[str], short: Callable[[str], str], whole: Callable[[str], str] = str) -> list[str]:
    """The short name of each key, or the whole key if two short names would be equal."""
    found = [short(key) for key in keys]
    return [title if found.count(title) == 1 else whole(key) for key, title in zip(keys, found, strict=True)]


def short_title(key: str) -> str:
    """The name of a key in tables, figures and pages: without its section, `spacing` for `dataset.spacing`. The name of
    a plug-in keeps its section, because `recon` is a loss and `recon.name` a choice."""
    return key if key.endswith(".name") and key.count(".") == 1 else key.split(".", 1)[-1]


def varying_keys(frame: pd.DataFrame) -> list[str]:
    """Config keys that differ between trials, without the seed. A parameter does not count as varying only because
    other plug-ins lack it: then the plug-in's name varies."""
    varies = {key: frame[key].nunique() > 1 for key in config_keys(frame)}
    some_missing = {key for key in varies if frame[key].isna().any() and frame[key].notna().any()}
    return [key for key in varies if varies[key] or (key in some_missing and not varies.get(_name_key(key), False))]


def _name_key(key: str) -> str:
    return f"{key.split('.')[0]}.name"


def aggregate(results: Results, by: list[str] | None, metric: str, at: At = "last") -> pd.DataFrame:
    """n, mean, sd (of a sample), min and max of a metric in each group of trials, best mean first.

    Without `by`, a group is an arm and a value of each config key that varies, so that its trials differ by seed.
    Trials that failed or diverged, or have no number, are not counted in `n`; `failed` is their number, and `stopped`
    is how many of the `n` a scheduler stopped early. If some group has several trials of one seed, `seeds` is how many
    different seeds each group has: only trials that differ by seed alone are repetitions. If the values come from
    different steps, `min_step` is the earliest in each group, and groups with less training rank below the others: see
    `_best_first`.
    """
    by, trials = _group_keys(results, by), results.trials
    broken = trials["status"].isin(BROKEN)
    counted = np.where(broken, np.nan, values(results, metric, at))
    steps = value_steps(results, metric).mask(np.isnan(counted))
    stopped = (trials["status"] == "stopped") & ~np.isnan(counted)
    frame = trials[by].assign(value=counted, broken=broken, step_of_value=steps, cut=_cut(results) & ~np.isnan(counted),
                                stopped=stopped, seed_of_value=trials["seed"].mask(np.isnan(counted)))  # fmt: skip
    groups = frame.groupby(by, dropna=False)
    table = groups["value"].agg(n="count", mean="mean", sd="std", min="min", max="max").reset_index()
    seeds = groups["seed_of_value"].nunique().to_numpy()
    if (seeds < table["n"]).any():
        table[SEEDS] = seeds
    if stopped.any():
        table["stopped"] = groups["stopped"].sum().to_numpy()
    if broken.any():
        table["failed"] = groups["broken"].sum().to_numpy()
    earliest, any_cut = groups["step_of_value"].min(), groups["cut"].any()
    if steps.nunique() > 1:
        table[MIN_STEP] = earliest.array
    return _best_first(table, "mean", mode_of(results, metric), any_cut.array, earliest.array)


def over_seeds(table: pd.DataFrame) -> str:
    """`, over seeds` for a table whose groups have one trial per seed."""
    return "" if SEEDS in table else ", over seeds"


def told_arm(frame: pd.DataFrame) -> list[str]:
    """The column of the arm, if a table for people needs one: a single arm tells nothing."""
    return ["arm"] if frame["arm"].nunique() > 1 else []


def value_steps(results: Results, metric: str) -> pd.Series:
    """The step of each trial's last value of a metric; missing if it has none."""
    return pd.Series([record.step_of(metric) for record in results.records], results.trials.index, dtype="Int64")


def steps_in_words(results: Results, metric: str) -> str:
    """The steps of the trials' last values: `, step 250` or `, steps 100 to 600`."""
    steps = value_steps(results, metric).mask(results.trials["status"].isin(BROKEN)).dropna()
    if steps.empty:
        return ""
    first, last = steps.min(), steps.max()
    return f", step {first}" if first == last else f", steps {first} to {last}"


def _cut(results: Results) -> np.ndarray:
    return np.array([record.cut for record in results.records], dtype=bool)


def _group_keys(results: Results, by: list[str] | None) -> list[str]:
    by = ["arm", *varying_keys(results.trials)] if by is None else by
    _refuse_unknown("key", by, [*FIXED, *config_keys(results.trials)])
    return by


def overview(results: Results, by: list[str] | None, metric: str, at: At = "last") -> pd.DataFrame:
    """The mean of every other evaluated metric in the groups of `aggregate`, which are the columns 1, 2, ..."""
    by, trials = _group_keys(results, by), results.trials
    broken = trials["status"].isin(BROKEN)
    keys = [key for key in evaluated(results.metrics) if key != metric and not key.endswith("_max")]
    numbers = {key: np.where(broken, np.nan, values(results, key, at)) for key in (metric, *keys)}
    frame = pd.concat([trials[by], pd.DataFrame(numbers, index=trials.index)], axis=1)
    means = frame.groupby(by, dropna=False)[list(numbers)].mean()
    order = aggregate(results, by, metric, at)[by]
    ranked = order.merge(means.reset_index(), on=by, how="left")[keys].dropna(axis=1, how="all")
    table = ranked.T.set_axis([str(rank + 1) for rank in range(len(ranked))], axis=1)
    return table.reset_index(names="metric")


def failures(results: Results) -> dict[str, tuple[int, str]]:
    """Metrics that failed in the last row that should have them: in how many trials, and the first reason."""
    notes = [note for record in results.records if (note := _last_notes(record))]
    names = dict.fromkeys(name for note in notes for name in note)
    reasons = {name: [note[name] for note in notes if name in note] for name in names}
    return {name: (len(found), found[0]) for name, found in reasons.items()}


def _last_notes(record: Record) -> dict[str, str]:
    """The reason for each metric whose last evaluation failed."""
    notes: dict[str, str] = {}
    for row in record.rows:
        notes = {name: text for name, text in notes.items() if name not in row.get("scored", {})} | row.get("notes", {})
    return notes


def values(results: Results, metric: str, at: At = "last") -> np.ndarray:
    """A metric of each trial: its last value, or its extreme over all rows. NaN if no row has it."""
    source = results.trials if at == "last" else results.rows
    if metric not in source and results.objective and metric == results.objective.metric:
        return np.full(len(results.trials), np.nan)
    if metric not in results.metrics:
        raise ConfigError(unknown("metric", metric, results.metrics))
    if at == "last":
        last: np.ndarray = source[metric].to_numpy()
        return last
    extremes = source.groupby("trial_id")[metric].agg(at)
    found: np.ndarray = extremes.reindex(results.trials["trial_id"]).to_numpy()
    return found


def mode_of(results: Results, metric: str) -> Mode:
    """The mode of the objective; otherwise small losses are best, and each metric declares its own."""
    if results.objective and results.objective.metric == metric:
        return results.objective.mode
    return "min" if is_loss(metric, results.rows.columns) else best_of(metric)


def objective_or_default(results: Results) -> Objective:
    """The sweep's objective; by default the first metric that its trials evaluate, or else the loss."""
    if results.objective:
        return results.objective
    chosen = next(iter(evaluated(results.metrics)), "loss")
    return Objective(metric=chosen, mode=mode_of(results, chosen))


def at_of(objective: Objective, metric: str | None = None) -> At:
    """Which row of a trial counts for the objective; for another metric, the last."""
    is_other = metric is not None and metric != objective.metric
    return "last" if is_other or objective.at == "last" else objective.mode


def ranked(results: Results, metric: str, mode: Mode, at: At = "last") -> pd.DataFrame:
    """The trials, best first; trials without a number last."""
    frame = results.trials.assign(**{metric: values(results, metric, at)})
    return _best_first(frame, metric, mode, _cut(results), value_steps(results, metric).array)


def _best_first(frame: pd.DataFrame, column: str, mode: Mode, cut: Any, steps: Any) -> pd.DataFrame:
    """Ranks at equal budgets: trials that trained to the end come first, then those with fewer steps; within equal
    steps the best comes first. Trials without a number are last."""
    sign = -1 if mode == "max" else 1
    lines = zip(frame[column], cut, steps, strict=True)
    keys = [rank(sign * value, short, 0 if pd.isna(step) else step) for value, short, step in lines]
    return frame.iloc[sorted(range(len(frame)), key=keys.__getitem__)].reset_index(drop=True)


def _refuse_unknown(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise ConfigError(unknown(kind, name, known))
