"""Scores of a user's own arrays, from a file that NumPy writes."""

import time
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from disentune.errors import ConfigError, DataError, Problem, did_you_mean, unknown
from disentune.files import documents
from disentune.metrics import METRICS, Size, scored
from disentune.metrics.table import table_of
from disentune.metrics.udr import Method
from disentune.parameters import Mistake, shown, validated
from disentune.plugin import Metric, Table

ARRAYS = ("codes", "factors", "logvars", "images")
HOW_TO_SAVE = 'np.savez("codes.npz", codes=codes, factors=factors)'
HOW_TO_SAVE_IMAGES = 'np.savez("images.npz", images=images)'
GIVES = {"factors": "factors", "logvars": "logvars", "distance": "images"}
"""The array that provides each of `Metric.needs`; the other needs require a trained model."""
FEW = 100
"""Up to this many rows, every row may have its own value of a factor."""
SLOW = ("downstream",)
"""Metrics that are only computed if they are named."""
UDR = {"udr" if method == "lasso" else f"udr_{method}": method for method in get_args(Method)}
"""Scores that compare trials, by their names on the command line."""


# ---- which metrics


class Asked(NamedTuple):
    """A metric with its parameters: the given ones, and all parameters in the requested size."""

    name: str
    """The name as given; for a user's own metric, its import path."""
    metric: Metric
    given: dict[str, Any]
    size: Size
    params: Any


def asked(names: Sequence[str], sets: Sequence[str], size: Size) -> list[Asked]:
    """Metrics by name, with `dci.trees=histogram` for a parameter; every mistake at once as a ConfigError."""
    problems: list[Problem] = []
    metrics = {name: _metric(name, problems) for name in dict.fromkeys(names)}
    given = _given(sets, list(metrics), problems)
    found = [_asked(name, metric, given[name], size, problems) for name, metric in metrics.items() if metric]
    if problems:
        raise ConfigError("cannot score", problems)
    return found


def _metric(name: str, problems: list[Problem]) -> Metric | None:
    if name in UDR:
        problems.append(Problem("--metrics", f"{name} compares trained models: give a run instead of arrays"))
        return None
    try:
        return METRICS[name]
    except ValueError as error:
        text = str(error) if ":" in name else unknown("metric", name, [*METRICS.names(), *UDR])
        problems.append(Problem("--metrics", text))
        return None


def _given(sets: Sequence[str], names: list[str], problems: list[Problem]) -> dict[str, dict[str, Any]]:
    """Parameters by metric and name."""
    given: dict[str, dict[str, Any]] = {name: {} for name in names}
    for text in sets:
        key, equals, value = text.partition("=")
        name = next((name for name in names if key.startswith(f"{name}.")), key.split(".")[0])
        parameter = key.removeprefix(f"{name}.")
        if not equals or parameter in (key, ""):
            problems.append(Problem(f"--set {text}", "must be metric.parameter=value, for example mig.bins=30"))
        elif name in given:
            given[name][parameter] = documents.parse(value, f"--set {key}").value
        else:
            text = f"'{name}' is not one of the metrics to score.{did_you_mean(name, names)} Metrics to score: "
            listed = ", ".join(names) or f"none; name them with --metrics, for example --metrics {name}"
            problems.append(Problem(f"--set {key}", text + listed))
    return given


def _asked(name: str, metric: Metric, given: dict[str, Any], size: Size, problems: list[Problem]) -> Asked:
    mistakes: list[Mistake] = []
    values = {**metric.fast, **given} if size == "fast" else given
    params = validated(metric.params, values, "", mistakes)
    problems += [Problem(f"--set {name}.{mistake.key}".rstrip("."), shown(mistake)) for mistake in mistakes]
    return Asked(name, metric, given, size, params)


# ---- a user's own arrays


def read_arrays(path: Path) -> tuple[Table, list[str]]:
    """A table from an .npz file, and the names of its arrays. Nothing is unpickled. Raises DataError for a bad file."""
    arrays = _arrays(path)
    _refuse_names(path, arrays)
    try:
        return checked_table(arrays), list(arrays)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def checked_table(arrays: Mapping[str, np.ndarray]) -> Table:
    """A table of arrays by their names in `ARRAYS`. Raises DataError."""
    _check_images(arrays.get("images"))
    table = table_of(**arrays)
    _refuse_index(table.factors)
    return table


def _arrays(path: Path) -> dict[str, np.ndarray]:
    with _opened(path) as file:
        _refuse_names(path, file.files)
        return {name: _array(path, file, name) for name in file.files}


def read_images(path: Path) -> dict[str, np.ndarray]:
    """`images`, and `factors` if there are any, from an .npz file. Nothing is unpickled."""
    known, how = ("images", "factors"), HOW_TO_SAVE_IMAGES
    if path.suffix != ".npz":
        raise ConfigError(f"{path}: must be an .npz file; save it with {how}")
    with _opened(path, how) as file:
        if "images" not in file.files:
            there = ", ".join(file.files)[:200] or "none"
            raise DataError(f"{path}: has no array `images`; save it with {how}. Its arrays: {there}")
        return {name: _array(path, file, name) for name in known if name in file.files}


@contextmanager
def _opened(path: Path, how_to_save: str = HOW_TO_SAVE) -> Iterator[Any]:
    with ExitStack() as stack:
        try:
            if path.exists() and not path.is_file() and not path.is_dir():
                raise DataError(f"{path} must be a file, but is a pipe, a socket or a device")
            if path.is_file() and not zipfile.is_zipfile(path):
                raise DataError(f"{path} is not a complete .npz file; save arrays with {how_to_save}")
            stream = stack.enter_context(path.open("rb"))  # NumPy does not close the file if it fails
            file = stack.enter_context(np.load(stream, allow_pickle=False))
        except DataError:
            raise
        except Exception as error:  # zipfile raises many kinds of errors for damaged files
            raise DataError(f"{path} cannot be read: {_why(error)}; save arrays with {how_to_save}") from None
        yield file


def _array(path: Path, file: Mapping[str, Any], name: str) -> np.ndarray:
    try:
        array = file[name]
    except Exception as error:  # NumPy parses the header as Python, which can raise any error
        raise DataError(f"{path}: {name} cannot be read: {_why(error)}") from None
    if not isinstance(array, np.ndarray):
        raise DataError(f"{path}: {name} must be an array, as np.savez writes it")
    return array


def _why(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    if "allow_pickle" in str(error):
        return "it holds Python objects, which are never loaded; convert it to a numeric dtype"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _refuse_names(path: Path, names: Collection[str]) -> None:
    known = ", ".join(ARRAYS)
    strange = [name for name in names if name not in ARRAYS]
    problems = [Problem(name, f"unknown array.{did_you_mean(name, ARRAYS)} Known: {known}") for name in strange]
    if "codes" not in names:
        problems.append(Problem("codes", f"is required but missing; save it with {HOW_TO_SAVE}"))
    if problems:
        raise ConfigError(f"{path} cannot be scored", problems)


def _refuse_index(labels: np.ndarray) -> None:
    """Refuses a column of row numbers: as a factor with that many values it would be fitted for hours."""
    rows = len(labels)
    for column, largest in enumerate(labels.max(axis=0, initial=0)):
        if rows > FEW and largest + 1 == rows:
            raise DataError(f"factors must have repeated values, but column {column} has {rows} values in {rows} rows; "
                            "omit a column of row numbers")  # fmt: skip


def _check_images(images: np.ndarray | None) -> None:
    if images is None:
        return
    if images.ndim < 2 or images.size == 0:
        raise DataError(f"images must have one row per code, but their shape is {images.shape}")
    if not (np.issubdtype(images.dtype, np.integer) or np.issubdtype(images.dtype, np.floating)):
        raise DataError(f"images must be numbers, but are {images.dtype}")
    if not np.isfinite(images).all():
        raise DataError("images must be finite, but some pixels are not")


def sufficient(arrays: Collection[str]) -> tuple[list[str], dict[str, str]]:
    """The metrics that can be computed from these arrays, and why each other metric is left out."""
    reasons = {metric.name: lacking(metric, arrays) or _slow(metric) for metric in METRICS}
    scorable = [name for name in METRICS.names() if not reasons[name]]
    return scorable, {name: reasons[name] for name in METRICS.names() if reasons[name]}


def lacking(metric: Metric, arrays: Collection[str]) -> str:
    """What a metric needs in addition to these arrays; empty if they suffice."""
    missing = [GIVES.get(need, "a trained model: disentune score RUN") for need in metric.needs]
    missing = [array for array in missing if array not in arrays]
    return f"needs {' and '.join(missing)}" if missing else ""


def _slow(metric: Metric) -> str:
    return f"slow; compute it with --metrics {metric.name}" if metric.name in SLOW else ""


class Outcome(NamedTuple):
    """The result of one metric: numbers and arrays, or the reason why there are none."""

    asked: Asked
    numbers: dict[str, float]
    details: dict[str, Any]
    """Arrays as nested lists."""
    reason: str
    seconds: float


def scores_of_arrays(metrics: Iterable[Asked], table: Table, arrays: Collection[str], seed: int) -> Iterator[Outcome]:
    """Computes one metric after the other; a failure does not stop the others."""
    for one in metrics:
        began = time.perf_counter()
        numbers, details, reason = _tried(one, table, arrays, seed)
        yield Outcome(one, numbers, details, reason, time.perf_counter() - began)


def _tried(one: Asked, table: Table, arrays: Collection[str], seed: int) -> tuple[dict, dict, str]:
    try:
        if reason := lacking(one.metric, arrays):
            raise DataError(reason)
        found = scored(one.metric, table, seed, one.params)
    except DataError as error:
        return {}, {}, str(error).removeprefix(f"{one.metric.name}: ")
    except Exception as error:  # a user's own metric may fail in any way
        return {}, {}, f"{type(error).__name__}: {error}"
    return found.numbers, {key: array.tolist() for key, array in found.details.items()}, ""


def arrays_as_json(
    outcomes: Sequence[Outcome], left_out: Mapping[str, str], rows: int, seed: int, size: Size
) -> dict[str, Any]:
    reasons = {outcome.asked.name: outcome.reason for outcome in outcomes if outcome.reason}
    return {
        "scores": {key: value for outcome in outcomes for key, value in outcome.numbers.items()},
        "details": {key: value for outcome in outcomes for key, value in outcome.details.items()},
        "notes": {**reasons, **left_out},
        "rows": rows,
        "seed": seed,
        "size": size,
        "params": {outcome.asked.name: outcome.asked.params.model_dump() for outcome in outcomes},
    }
