"""The rows of a run as tables: read, aggregate, rank, write. Knows only rows and the ledger."""

import math
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from disentune.errors import ConfigError, unknown
from disentune.files.storage import Place, RemotePath, place, shown
from disentune.files.writing import write_atomically
from disentune.metrics import best_of
from disentune.plugin import FIXED
from disentune.runs.ledger import Run, find_run
from disentune.runs.rows import missing_row, missing_rows_note
from disentune.runs.trial_folder import CONFIG, END, ROWS, STATUS, TrialFolder, is_cut, reached
from disentune.spec.config import SECTIONS, WATCHED, flattened
from disentune.spec.settings import Objective

BROKEN = ("failed", "diverged")
Mode = Literal["max", "min"]
At = Literal["last", "max", "min"]


@dataclass(frozen=True)
class Record:
    """One trial as the ledger has it; its rows also have the running maximum of each evaluated metric."""

    trial_id: str
    arms: tuple[str, ...]
    status: str
    config: dict[str, Any]
    rows: list[dict[str, Any]]
    cut: bool = False
    """Whether a scheduler stopped it early, or it is still under way: it has had less training than a trial that is
    done."""
    gap: int | None = None
    """The first step whose row was written and is missing now."""

    def last(self) -> dict[str, Any]:
        """Its last row, with the last value of each metric, which an earlier row may hold."""
        latest = {key: value for row in self.rows for key, value in row["metrics"].items()}
        return {**(self.rows[-1] if self.rows else {"step": 0}), "metrics": latest}

    def step_of(self, metric: str) -> int | None:
        """The step of the last value of a metric."""
        return next((row["step"] for row in reversed(self.rows) if metric in row["metrics"]), None)


@dataclass(frozen=True)
class Results:
    """A run's trials, sorted by id, and their tables."""

    run: Run
    records: tuple[Record, ...]
    notes: tuple[str, ...] = ()
    """What a reader of the tables has to know of the run's folder."""

    @cached_property
    def rows(self) -> pd.DataFrame:
        """One row for each trial and step."""
        return _frame(self.records, lambda record: record.rows)

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row for each trial: its last step, and the last value of each metric."""
        return _frame(self.records, lambda record: [record.last()])

    @cached_property
    def metrics(self) -> dict[str, None]:
        """The columns of `rows` and `trials` that hold losses and metrics, in order."""
        others = {*FIXED, *config_keys(self.rows)}
        return dict.fromkeys(key for key in self.rows if key not in others)

    @cached_property
    def objective(self) -> Objective | None:
        """What the run's sweep asks for."""
        return self.run.sweep().settings.objective


def load(run: str | Place, only: Iterable[str] | None = None) -> Results:
    """A run by its folder, `sweep/run` or sweep's name; `only` keeps the trials of these ids."""
    return read(find_run(str(run)), only)


def read(run: Run, only: Iterable[str] | None = None) -> Results:
    kept = None if only is None else set(only)
    seen = run.seen(CONFIG, STATUS, ROWS, END)
    folders = [folder for folder in seen.trials() if kept is None or folder.id in kept]
    records = tuple(_record(folder) for folder in folders)
    return Results(run, records, (*seen.notes(), *_gap_notes(run, records)))


def _gap_notes(run: Run, records: Iterable[Record]) -> list[str]:
    gaps = {record.trial_id: record.gap for record in records if record.gap is not None}
    if not gaps:
        return []
    command = shlex.join(["disentune", "resume", shown(run.path)])
    return [f"{missing_rows_note(gaps)}, so numbers are missing; compute them again with: {command}"]


def _record(folder: TrialFolder) -> Record:
    maxima, (tree, arms) = Maxima(), folder.tree_and_arms()
    status = folder.status()  # before the rows, which a worker writes first
    rows = folder.rows()
    gap = missing_row(tree, reached(status), (row["step"] for row in rows))
    if gap is not None and isinstance(folder.path, RemotePath):  # a view's files may be of different moments
        gap = TrialFolder(place(str(folder.path))).sound().gap
    rows = [maxima.taken_in(row) for row in folder.rows_to_end(rows)]
    return Record(folder.id, arms, status.state, tree, rows, is_cut(status), gap)


class Maxima:
    """The largest value so far of each evaluated metric, from its first number on."""

    def __init__(self) -> None:
        self.largest: dict[str, float] = {}

    def taken_in(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, with `<metric>_max` of all rows up to this one. Metrics that an older version let be called like a
        column are left out: the column counts."""
        metrics = {key: value for key, value in row["metrics"].items() if not _is_column(key)}
        for key in evaluated(metrics):
            value, name = _number(metrics[key]), f"{key}_max"
            self.largest[name] = max(self.largest.get(name, math.nan), value, key=_nan_lowest)
        return {**row, "metrics": {**metrics, **self.largest}}


@cache
def _is_column(key: str) -> bool:
    """Whether a table has something else under this name."""
    return key in FIXED or _is_config_key(key)


def evaluated(metrics: Collection[str]) -> list[str]:
    """The keys of metrics. Each loss stands in a row twice, as `kl` and `kl_sum`; watched numbers say so."""
    return [key for key in metrics if not _is_loss(key, metrics)]


def _is_loss(key: str, metrics: Collection[str]) -> bool:
    twin = key.removesuffix("_sum") if key.endswith("_sum") else f"{key}_sum"
    return key in ("loss", "recon") or key.startswith(WATCHED) or twin in metrics


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _nan_lowest(value: float) -> tuple[bool, float]:
    return (False, 0.0) if math.isnan(value) else (True, value)


# ---- tables


def _frame(records: Iterable[Record], rows_of: Callable[[Record], list[dict[str, Any]]]) -> pd.DataFrame:
    """Columns are made whole, each once, so that the time grows with the number of cells alone."""
    records = list(records)
    rows = [rows_of(record) for record in records]
    counts = np.array([len(some) for some in rows], dtype=int)
    fixed = {
        "trial_id": [record.trial_id for record in records],
        "arm": ["+".join(sorted(record.arms)) for record in records],  # not as a growing sweep added them
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
    """Sections in their canonical order, the keys of a section as the trials bring them."""
    keys = dict.fromkeys([key for flat in flats for key in flat] + sorted(changed))
    keys.pop("seed", None)
    return sorted(keys, key=lambda key: SECTIONS.index(key.split(".")[0]))


def _metric_columns(records: list[Record], rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    keys = dict.fromkeys(key for record in records for row in record.rows for key in row["metrics"])
    return {key: np.array([_number(row["metrics"].get(key)) for row in rows], dtype=float) for key in keys}


def _typed(values: list[Any]) -> Any:
    """An array of the narrowest type that holds the values; null and absent are both missing."""
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
    """A whole number that no column of numbers holds."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _texts(values: list[Any]) -> list[str | None]:
    """A list as the names in it, unless two different lists would read the same."""
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
    """One plain object a trial; a number that JSON cannot write is null."""
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


def write_parquet(results: Results) -> Place:
    """The rows as one file beside the ledger. Equal tables give equal bytes: no metadata of pandas, no index."""
    table = pa.Table.from_pandas(results.rows, preserve_index=False).replace_schema_metadata(None)
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(table, sink, compression="zstd", compression_level=3)
    write_atomically(results.run.parquet_path, sink.getvalue().to_pybytes())
    return results.run.parquet_path


# ---- comparing trials


def config_keys(frame: pd.DataFrame) -> list[str]:
    """Columns of the config; `recon` alone is a loss, `recon.name` a key."""
    return [key for key in frame.columns if _is_config_key(key)]


def _is_config_key(key: str) -> bool:
    return key == "loss_scale" or ("." in key and key.split(".")[0] in SECTIONS)


def titles(keys: Sequence[str], short: Callable[[str], str], whole: Callable[[str], str] = str) -> list[str]:
    """Each key as `short` gives it; as `whole` does where two would read alike."""
    found = [short(key) for key in keys]
    return [title if found.count(title) == 1 else whole(key) for key, title in zip(keys, found, strict=True)]


def varying_keys(frame: pd.DataFrame) -> list[str]:
    """Config keys that differ between trials, seed left out. A parameter that only some plug-ins have does not
    count for being absent elsewhere: there the plug-in's name varies."""
    varies = {key: frame[key].nunique() > 1 for key in config_keys(frame)}
    some_missing = {key for key in varies if frame[key].isna().any() and frame[key].notna().any()}
    return [key for key in varies if varies[key] or (key in some_missing and not varies.get(_name_key(key), False))]


def _name_key(key: str) -> str:
    return f"{key.split('.')[0]}.name"


def aggregate(results: Results, by: list[str] | None, metric: str, at: At = "last") -> pd.DataFrame:
    """n, mean, sd (of a sample), min and max of a metric in each group of trials, best mean first.

    Without `by`, a group is an arm and a value of each config key that varies, so that its trials differ by seed.
    Trials that failed or diverged, or have no number, are in no count; `failed` says how many there are. When the
    values are of different steps (some trials were stopped early, say), `from_step` is the earliest in each group, and
    groups with less training than others rank below them: see `_best_first`.
    """
    by, trials = _group_keys(results, by), results.trials
    broken = trials["status"].isin(BROKEN)
    counted = np.where(broken, np.nan, values(results, metric, at))
    steps = value_steps(results, metric).mask(np.isnan(counted))
    frame = trials[by].assign(value=counted, broken=broken, step_of_value=steps, cut=_cut(results))
    groups = frame.groupby(by, dropna=False)
    table = groups["value"].agg(n="count", mean="mean", sd="std", min="min", max="max").reset_index()
    if broken.any():
        table["failed"] = groups["broken"].sum().to_numpy()
    earliest, any_cut = groups["step_of_value"].min(), groups["cut"].any()
    if steps.nunique() > 1:
        table["from_step"] = earliest.array
    return _best_first(table, "mean", mode_of(results, metric), any_cut.array, earliest.array)


def value_steps(results: Results, metric: str) -> pd.Series:
    """The step of each trial's last value of a metric; missing where it has none."""
    return pd.Series([record.step_of(metric) for record in results.records], results.trials.index, dtype="Int64")


def steps_in_words(results: Results, metric: str) -> str:
    """At which steps the trials have their last values: `, step 250` or `, steps 100 to 600`."""
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
    """Metrics without a score in the last row that was to have one: in how many trials, and the first reason."""
    notes = [note for record in results.records if (note := _last_notes(record))]
    names = dict.fromkeys(name for note in notes for name in note)
    reasons = {name: [note[name] for note in notes if name in note] for name in names}
    return {name: (len(found), found[0]) for name, found in reasons.items()}


def _last_notes(record: Record) -> dict[str, str]:
    """Why each metric failed whose last evaluation did."""
    notes: dict[str, str] = {}
    for row in record.rows:
        notes = {name: text for name, text in notes.items() if name not in row.get("scored", {})} | row.get("notes", {})
    return notes


def values(results: Results, metric: str, at: At = "last") -> np.ndarray:
    """A metric of each trial: its last value, or its extreme over all rows. NaN while no row has the objective."""
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
    """The objective's own mode; else losses are best small, and metrics as they say."""
    if results.objective and results.objective.metric == metric:
        return results.objective.mode
    return "min" if _is_loss(metric, results.rows.columns) else best_of(metric)


def objective_or_default(results: Results) -> Objective:
    """The sweep's objective; without one the first metric that its trials evaluate, or else the loss."""
    if results.objective:
        return results.objective
    chosen = next(iter(evaluated(results.metrics)), "loss")
    return Objective(metric=chosen, mode=mode_of(results, chosen))


def at_of(objective: Objective) -> At:
    """Which of a trial's rows counts for an objective."""
    return "last" if objective.at == "last" else objective.mode


def ranked(results: Results, metric: str, mode: Mode, at: At = "last") -> pd.DataFrame:
    """The trials, best first; those without a number last."""
    frame = results.trials.assign(**{metric: values(results, metric, at)})
    return _best_first(frame, metric, mode, _cut(results), value_steps(results, metric).array)


def _best_first(frame: pd.DataFrame, column: str, mode: Mode, cut: Any, steps: Any) -> pd.DataFrame:
    """Ranked at equal budgets: what was trained to its end comes first, then what has had fewer steps, and of equal
    steps the best. Without a number last."""
    sign = -1 if mode == "max" else 1
    lines = zip(frame[column], cut, steps, strict=True)
    keys = [rank(sign * value, short, 0 if pd.isna(step) else step) for value, short, step in lines]
    return frame.iloc[sorted(range(len(frame)), key=keys.__getitem__)].reset_index(drop=True)


def rank(value: float, cut: bool, step: int) -> tuple[bool, bool, int, float]:
    """A key to sort trials by, best first, when small values are good; `cut` and `step` as for `Record`."""
    missing = math.isnan(value)
    return missing, cut, -step if cut else 0, 0.0 if missing else value


def _refuse_unknown(kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    known = list(known)
    for name in names:
        if name not in known:
            raise ConfigError(unknown(kind, name, known))
