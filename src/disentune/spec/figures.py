"""What a sweep file may ask to see (`figures:`): each figure's choices. How they are drawn is in report/."""

from typing import Annotated, Any, Literal

from pydantic import Field

from disentune.plugin import Frozen

Key = str
"""A key that trials differ in: `framework.beta`, `dataset.name`, `arm`, `seed`."""


class _Figure(Frozen):
    title: str | None = Field(None, description="instead of the one that is made from the keys")
    only: str | None = Field(None, description="the trials that are drawn, as for --only")


class _Scores(_Figure):
    metric: str | None = Field(None, description="the objective when not given")


class Violins(_Scores):
    """Density of a score for each value of `x`, the two values of `split` as the two halves (Michlo Fig. 6)."""

    name: Literal["violins"] = "violins"
    x: Key | None = None
    split: Key | None = None


class Trend(_Scores):
    """A score against a swept number: a dot a trial and a smooth trend for each value of `by` (Michlo Fig. 9)."""

    name: Literal["trend"] = "trend"
    x: Key | None = None
    by: Key | None = None


class Grouped(_Scores):
    """A score's quartiles and trials for each value of `x`, those of `by` side by side (Michlo Fig. 11: by loss)."""

    name: Literal["grouped"] = "grouped"
    x: Key | None = None
    by: Key | None = None


class Strength(_Scores):
    """Mean and spread of a score against the strength of regularisation, a line for each value of `by`."""

    name: Literal["strength"] = "strength"
    x: Key | None = Field(None, description="framework.beta or such; the framework's strength when not given")
    by: Key | None = None


class HeatMap(_Scores):
    """Mean of a score for each pair of values of two swept keys."""

    name: Literal["heat_map"] = "heat_map"
    x: Key | None = None
    y: Key | None = None


class Parallel(_Scores):
    """Every trial as a line through the values of its keys, coloured by its score."""

    name: Literal["parallel"] = "parallel"
    keys: list[Key] | None = Field(None, min_length=1)


class Correlations(_Figure):
    """How metrics rank the trials: Spearman's correlation of each pair (Locatello Fig. 2)."""

    name: Literal["correlations"] = "correlations"
    metrics: list[str] | None = Field(None, min_length=2)


class Curves(_Scores):
    """A number over the training steps: mean and spread over the trials that agree in `by`."""

    name: Literal["curves"] = "curves"
    by: Key | None = None


class Importance(_Scores):
    """How much of a score's variance each swept key explains, the seed among them (Optuna's fANOVA)."""

    name: Literal["importance"] = "importance"


class PicturesFigure(_Scores):
    """What the best and the worst trial see: reconstructions, latent traversals, distances (Michlo Figs. 4, 7, 10)."""

    name: Literal["pictures"] = "pictures"
    trial: Literal["best", "worst", "both"] = "both"


FIGURES: dict[str, type[Frozen]] = {
    "violins": Violins,
    "trend": Trend,
    "grouped": Grouped,
    "strength": Strength,
    "heat_map": HeatMap,
    "parallel": Parallel,
    "correlations": Correlations,
    "curves": Curves,
    "importance": Importance,
    "pictures": PicturesFigure,
}
Figure = Annotated[
    Violins
    | Trend
    | Grouped
    | Strength
    | HeatMap
    | Parallel
    | Correlations
    | Curves
    | Importance
    | PicturesFigure,
    Field(discriminator="name"),
]  # fmt: skip


def metrics_of(figure: Any) -> list[str]:
    """The numbers that it names."""
    return [*(getattr(figure, "metrics", None) or ()), *filter(None, [getattr(figure, "metric", None)])]


def keys_of(figure: Any) -> list[str]:
    """The keys that it names."""
    single = [getattr(figure, name, None) for name in ("x", "y", "by", "split")]
    return [*(getattr(figure, "keys", None) or ()), *filter(None, single)]
