"""The input of figures: the trials of a run with their values. Uses only rows."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from disentune.report.design import Design, design_of, is_number
from disentune.results.ranking import BROKEN, At, evaluated
from disentune.results.tables import Results, mode_of, only, values, varying_keys
from disentune.spec.settings import Objective


class NothingToDraw(Exception):
    """Why a figure cannot be drawn; the page shows this sentence instead."""


def _measure(metric: str) -> str:
    """A metric without the suffixes of its sizes, of the codes that it scored, and of a later score."""
    return re.sub("(_scored|_fast|_sampled|_normal)+$", "", metric)


@dataclass(frozen=True)
class RunScores:
    """A run, prepared for figures. `objective` is the metric that figures show unless they name another."""

    results: Results
    objective: Objective

    @cached_property
    def trials(self) -> pd.DataFrame:
        """One row per trial that did not fail or diverge: `trial_id`, `arm`, `seed`, `status`, `step`, config keys, and
        `cut`, whether the trial trained less than one that ended by itself."""
        trials = self.results.trials.assign(cut=[record.cut for record in self.results.records])
        return trials[~trials["status"].isin(BROKEN)]

    @cached_property
    def design(self) -> Design:
        """The design over all trials, including those without a number yet."""
        return design_of(self.trials, self.varying)

    def scored_design(self, metric: str | None) -> Design:
        """The design over the trials that have a number."""
        return self.design.of(self.scored(metric)["trial_id"])

    @cached_property
    def metrics(self) -> list[str]:
        """Evaluated metrics for which some trial has a number, without running maxima, in the order of the rows."""
        found = evaluated(self.results.metrics)
        return [key for key in found if not key.endswith("_max") and self.results.rows[key].notna().any()]

    def compared_with(self, metric: str) -> list[str]:
        """The metrics that measure something else, so without `mig_fast` and `mig_scored` for `mig`."""
        return [key for key in self.metrics if _measure(key) != _measure(metric)]

    @cached_property
    def varying(self) -> list[str]:
        """Config keys that differ between trials, without the seed."""
        return varying_keys(self.trials)

    @property
    def asked(self) -> list[str]:
        """Config keys that differ between all trials, also where those that failed are the only ones that differ."""
        return varying_keys(self.results.trials)

    @property
    def numbers(self) -> list[str]:
        """The keys of `varying` whose values are all numbers."""
        return [key for key in self.varying if self.is_number(key)]

    @property
    def names(self) -> list[str]:
        return [key for key in self.varying if not self.is_number(key)]

    def is_number(self, key: str) -> bool:
        return is_number(self.trials[key])

    def scored(self, metric: str | None, keys: Sequence[str] = ()) -> pd.DataFrame:
        """Trials that have a number: `trial_id`, the keys, and `value`. Raises NothingToDraw if there are none."""
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
        """Text for the label of an axis."""
        metric = metric or self.objective.metric
        return "higher is better" if self._mode(metric) == "max" else "lower is better"

    def order(self, key: str, present: Sequence[Any]) -> list[Any]:
        """Values of a key in the order of an axis: arms as in the sweep file, others sorted."""
        found = set(present)
        written = [arm for arm in self.results.run.sweep().arms if arm in found] if key == "arm" else []
        return written + sorted(found - set(written), key=lambda value: (isinstance(value, str), value))

    def of(self, ids: Collection[str]) -> "RunScores":
        """These trials."""
        return replace(
            self, results=replace(self.results, records=tuple(r for r in self.results.records if r.trial_id in ids))
        )

    def only(self, expression: str | None) -> "RunScores":
        """The trials that match an expression, as for --only."""
        kept = only(self.results, expression)
        if expression is not None and not kept.records:
            raise NothingToDraw(f"only: {expression} selects no trial")
        return replace(self, results=kept)
