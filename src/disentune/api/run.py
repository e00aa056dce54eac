"""A run in Python: its tables, its best trial, its figures, and its trials."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from disentune.api.arguments import Location, Strings, arguments
from disentune.api.trial import Trial
from disentune.api.wording import in_python
from disentune.errors import ConfigError, unknown
from disentune.files.earlier import VARIABLE
from disentune.files.storage import DEFAULT_STORAGE
from disentune.metrics import Size
from disentune.plugin import Frozen
from disentune.results import tables
from disentune.results.tables import BROKEN, Results
from disentune.results.trials import record_of
from disentune.runs.ledger import find_run

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from disentune.report.scores import RunScores


class _Loading(Frozen):
    run: Location
    trust: bool
    storage: Location | None


class _Scoring(Frozen):
    metrics: Annotated[Strings, Field(min_length=1)]
    by: Strings | None
    size: Size
    set: Strings


class _Ranking(Frozen):
    metric: str | None


def load(run: str | Path, trust: bool = False, storage: str | Path | None = None) -> RunResults:
    """A run by its folder, `sweep/run` or the sweep's name.

    `trust` permits `.trial(...).model` and `.dataset` to import code that the run names: your own plug-ins. Reading
    tables and drawing figures never does. `storage` is where to look for the run; default: DISENTUNE_STORAGE, or the
    folder `runs`.
    """
    given = arguments(_Loading, "the run cannot be loaded", run=run, trust=trust, storage=storage)
    with in_python():
        found = tables.read(find_run(given.run, given.storage or os.environ.get(VARIABLE) or DEFAULT_STORAGE))
    return RunResults(found.run, found.records, found.notes, trust)


@dataclass(frozen=True, repr=False)
class RunResults(Results):
    """A run: `.rows` is a DataFrame with one row per trial and report, `.trials` one with one row per trial."""

    trust: bool = False
    """Whether code that the run names may be imported."""

    def trial(self, trial_id: str) -> Trial:
        """The trial of this id; its first characters are enough if no other id begins with them."""
        if not isinstance(trial_id, str) or not trial_id:
            raise ConfigError(f"trial: must be the id of a trial as a string, got {trial_id!r:.100}")
        return Trial(self.run, record_of(self, trial_id), self.trust)

    def best(self, metric: str | None = None) -> Trial:
        """The best trial, as `disentune results` ranks them: by default by the objective of the sweep.

        Failed and diverged trials do not count, and trials that trained to the end come first.
        """
        arguments(_Ranking, "no trial can be chosen", metric=metric)
        with in_python():
            objective = tables.objective_or_default(self)
            metric = objective.metric if metric is None else metric
            at = tables.at_of(objective, metric)
            if self.rows.empty:
                raise ConfigError("no trial of this run has reported a number yet")
            frame = tables.ranked(self, metric, tables.mode_of(self, metric), at)
        sound = frame[~frame["status"].isin(BROKEN) & frame[metric].notna()]
        if sound.empty:
            raise ConfigError(f"no trial has reported {metric} yet")
        return self.trial(sound["trial_id"].iloc[0])

    def figure(self, kind: str, **settings: Any) -> Figure:
        """A figure of the report as a matplotlib Figure: `figure("heat_map", x="framework.beta", y="dataset.spacing")`.

        The kinds and their settings are those of `figures:` in a sweep file. Without settings it is the first figure of
        this kind that the report would choose.
        """
        from disentune.report.kinds import KINDS
        from disentune.report.scores import RunScores

        with in_python():
            if not isinstance(kind, str) or kind not in KINDS:
                raise ConfigError(unknown("figure", f"{kind!s:.100}", KINDS))
            scores = RunScores(self, tables.objective_or_default(self))
            spec = _spec(kind, settings) if settings else next(iter(KINDS[kind].choose(scores)), None)
            return _drawn(scores, _spec(kind, {}) if spec is None else spec)

    def score(
        self,
        metrics: Sequence[str] = ("udr",),
        *,
        by: Sequence[str] | None = None,
        size: Size = "full",
        set: Sequence[str] = (),
    ) -> pd.DataFrame:
        """Metrics of the finished trials from their last checkpoints, as `disentune score RUN` computes and stores
        them; `set` changes parameters: `set=["mig.bins=30"]`."""
        from disentune.results import arrays, rescore
        from disentune.results.trained import assert_trusted

        given = arguments(_Scoring, "cannot score", metrics=metrics, by=by, size=size, set=set)
        for record in self.records:
            assert_trusted(self.run.trial(record.trial_id), self.trust)
        names = list(dict.fromkeys(given.metrics))
        compared = [name for name in names if name in arrays.UDR]
        with in_python():
            asked = arrays.asked([name for name in names if name not in arrays.UDR], given.set, size)
            found = rescore.scores_of_run(self.run, asked, compared, given.by)
            rescore.keep_scores(self.run, found, asked, compared, given.by, size)
        return found.frame


def _spec(kind: str, settings: dict[str, Any]) -> Any:
    from disentune.spec.figures import FIGURES

    return arguments(FIGURES[kind], f"figure {kind} cannot be drawn", **{"name": kind, **settings})


def _drawn(scores: RunScores, spec: Any) -> Figure:
    """Raises ConfigError with the reason if there is nothing to draw."""
    from disentune.api.figure import empty
    from disentune.report import canvas
    from disentune.report.kinds import KINDS
    from disentune.report.scores import NothingToDraw

    with canvas.style(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a character that the font lacks, a name that is too long
        figure = empty()
        try:
            KINDS[spec.name].draw(figure, scores.only(spec.only), spec)
        except NothingToDraw as reason:
            raise ConfigError(f"figure {spec.name}: {reason}") from None
    return figure
