"""Comparing runs, and scoring arrays, in Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from disentune.analysis import runs as run_analysis
from disentune.api.arguments import Location, Strings, arguments
from disentune.api.run import load
from disentune.api.wording import in_python
from disentune.errors import ConfigError, DataError, Problem
from disentune.metrics import Size
from disentune.plugin import Count, Frozen
from disentune.results import tables
from disentune.results.tables import Results

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from disentune.analysis.comparison import Comparison


class _Comparing(Frozen):
    by: str
    metric: str | None
    best: bool
    only: str | None
    storage: Location | None


class _Scoring(Frozen):
    metrics: Strings | None
    size: Size
    seed: Annotated[Count, Field(ge=0)]
    set: Strings


def compare(
    runs: str | Path | Results | Sequence[str | Path | Results],
    by: str,
    metric: str | None = None,
    *,
    baseline: Any = None,
    best: bool = False,
    only: str | None = None,
    storage: str | Path | None = None,
) -> Comparison:
    """Compares the values of a key, such as `framework.name`, `arm` or `run`: differences with 95 % intervals and exact
    tests over seeds, as `disentune compare` does.

    `runs` are loaded runs or what `load` takes. Without `metric` it is the objective of the runs. With `best` each
    value of `by` is compared at its best setting. `.table` is a DataFrame with one row per pair.
    """
    arguments(_Comparing, "cannot compare", by=by, metric=metric, best=best, only=only, storage=storage)
    several = list(runs) if isinstance(runs, Iterable) and not isinstance(runs, str) else [runs]
    if not several:
        raise ConfigError("runs: must name at least one run")
    loaded = [_kept(one if isinstance(one, Results) else load(one, storage=storage), only) for one in several]
    with in_python():
        return run_analysis.compared(loaded, by, metric, baseline, best)


def _kept(results: Results, only: str | None) -> Results:
    with in_python():
        kept = tables.only(results, only)
    if only is not None and not kept.records:
        raise ConfigError(f"only {only}: selects no trial of {results.run.path}")
    return kept


def score(
    codes: np.ndarray | Tensor | str | Path,
    factors: np.ndarray | Tensor | None = None,
    *,
    logvars: np.ndarray | Tensor | None = None,
    images: np.ndarray | Tensor | None = None,
    metrics: Iterable[str] | None = None,
    size: Size = "full",
    seed: int = 0,
    set: Sequence[str] = (),
) -> dict[str, float]:
    """Metrics of a representation, as `disentune score FILE` computes them: `codes` (n, latents) with integer `factors`
    (n, factors), or the path of an .npz file.

    Codes of vectors (n, latents, size) are reduced to their first principal components.

    By default all metrics that the arrays allow. `set` changes parameters: `set=["mig.bins=30"]`. A metric that is
    named and cannot be computed raises a ConfigError with the reason. For the trials of a run use `load(run).score()`.
    """
    from disentune.results import arrays as files

    chosen = arguments(_Scoring, "cannot score", metrics=metrics, size=size, seed=seed, set=set)
    given = {"codes": codes, "factors": factors, "logvars": logvars, "images": images}
    given = {name: value for name, value in given.items() if value is not None}
    with in_python():
        table, there = files.read_arrays(Path(codes)) if isinstance(codes, str | Path) else _table(given)
        names = files.sufficient(there)[0] if metrics is None else list(chosen.metrics)
        asked = files.asked(names, chosen.set, size)
    outcomes = list(files.scores_of_arrays(asked, table, there, seed))
    problems = [Problem(one.asked.name, one.reason) for one in outcomes if one.reason]
    if metrics is not None and problems:
        raise ConfigError("cannot score", problems)
    return {key: value for outcome in outcomes for key, value in outcome.numbers.items()}


def _table(given: dict[str, Any]) -> tuple[Any, list[str]]:
    from disentune.results import arrays as files

    if "codes" not in given:
        raise ConfigError("cannot score: codes must be an array or the path of an .npz file, got None")
    try:
        return files.checked_table({name: _array(name, value) for name, value in given.items()}), list(given)
    except DataError as error:
        raise ConfigError(f"cannot score: {error}") from None


def _array(name: str, value: Any) -> np.ndarray:
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        found = np.asarray(value)
    except ValueError as error:
        raise DataError(f"{name} must be an array ({error})") from None
    if found.dtype.kind not in "biuf":
        raise DataError(f"{name} must be an array of numbers, got {type(value).__name__}")
    return found
