"""What figures are drawn from: the trials of a run with their values. Knows only rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from disentune.results.tables import BROKEN, At, Results, evaluated, mode_of, values, varying_keys
from disentune.spec.selection import select
from disentune.spec.settings import Objective


class NothingToDraw(Exception):
    """Says why, for people: a figure that was asked for is replaced by this sentence."""


@dataclass(frozen=True)
class RunScores:
    """A run as figures see it. `objective` is the number that figures show unless they name another."""

    results: Results
    objective: Objective

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row a trial that did not fail or diverge: `trial_id`, `arm`, `seed`, `status`, `step`, config keys."""
        trials = self.results.trials
        return trials[~trials["status"].isin(BROKEN)]

    @cached_property
    def metrics(self) -> list[str]:
        """Evaluated metrics that some trial has a number of, without running maxima; in the order of the rows."""
        found = evaluated(self.results.metrics)
        return [key for key in found if not key.endswith("_max") and self.results.rows[key].notna().any()]

    @cached_property
    def varying(self) -> list[str]:
        """Config keys that differ between the trials; the seed is not among them."""
        return varying_keys(self.trials)

    @property
    def numbers(self) -> list[str]:
        """Those of `varying` that have numbers alone."""
        return [key for key in self.varying if self.is_number(key)]

    @property
    def names(self) -> list[str]:
        return [key for key in self.varying if not self.is_number(key)]

    def is_number(self, key: str) -> bool:
        column = self.trials[key]
        return is_numeric_dtype(column) and not is_bool_dtype(column)

    def scored(self, metric: str | None, keys: Sequence[str] = ()) -> pd.DataFrame:
        """Trials that have a number: `trial_id`, the keys, and `value`. NothingToDraw when none has."""
        metric = metric or self.objective.metric
        at: At = "last" if self.objective.at == "last" else self._mode(metric)
        known = metric in self.results.rows
        found = pd.Series(values(self.results, metric, at) if known else np.nan, index=self.results.trials.index)
        columns = list(dict.fromkeys(["trial_id", *keys]))
        frame = self.trials[columns].assign(value=found.reindex(self.trials.index))
        frame = frame[np.isfinite(frame["value"])]
        if frame.empty:
            raise NothingToDraw(f"no trial has reported {metric} yet")
        return frame.reset_index(drop=True)

    def _mode(self, metric: str) -> Any:
        return self.objective.mode if metric == self.objective.metric else mode_of(self.results, metric)

    def better(self, metric: str | None) -> str:
        """For the label of an axis."""
        metric = metric or self.objective.metric
        return "higher is better" if self._mode(metric) == "max" else "lower is better"

    def order(self, key: str, present: Sequence[Any]) -> list[Any]:
        """Values of a key as they stand on an axis: arms as in the sweep's file, else sorted."""
        found = set(present)
        written = [arm for arm in self.results.run.sweep().arms if arm in found] if key == "arm" else []
        return written + sorted(found - set(written), key=lambda value: (isinstance(value, str), value))

    def only(self, expression: str | None) -> "RunScores":
        """The trials for which an expression holds, as for --only."""
        if expression is None:
            return self
        selection = select(expression)
        kept = tuple(r for r in self.results.records if selection({**r.config, "arm": r.arms}))
        if not kept:
            raise NothingToDraw(f"no trial is selected by only: {expression}")
        return replace(self, results=Results(self.results.run, kept))
