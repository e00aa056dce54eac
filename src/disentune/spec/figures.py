"""The options of each kind of figure (`figures:` in a sweep file). The code that draws them is in report/."""

from typing import Annotated, Any, Literal

from pydantic import Field

from disentune.plugin import Frozen

Key = str
"""A key in which trials differ: `framework.beta`, `dataset.name`, `arm`, `seed`."""


class _Figure(Frozen):
    title: str | None = Field(None, description="replaces the title made from the keys")
    only: str | None = Field(None, description="which trials are drawn, as for --only; may also use metrics")


class _Scores(_Figure):
    metric: str | None = Field(None, description="the metric; default: the objective")


class Summary(_Scores):
    """The outcome of every group of trials that differ by seed, and how the score developed."""

    name: Literal["summary"] = "summary"


class Violins(_Scores):
    """Density of a score for each value of `x`, the two values of `split` as halves (Michlo Fig. 6)."""

    name: Literal["violins"] = "violins"
    x: Key | None = Field(None, description="the key on the x axis; default: chosen from the sweep")
    split: Key | None = Field(None, description="a key with two values, one for each half of a violin")


class Trend(_Scores):
    """A score against a swept number: one dot per trial and a smooth trend for each value of `by` (Michlo Fig. 9)."""

    name: Literal["trend"] = "trend"
    x: Key | None = Field(None, description="the key on the x axis; default: chosen from the sweep")
    by: Key | None = Field(None, description="the key shown by colour; default: chosen from the sweep")


class Grouped(_Scores):
    """A score's quartiles and trials for each value of `x`, those of `by` side by side (Michlo Fig. 11: by loss)."""

    name: Literal["grouped"] = "grouped"
    x: Key | None = Field(None, description="the key on the x axis; default: chosen from the sweep")
    by: Key | None = Field(None, description="the key shown by colour; default: chosen from the sweep")


class Strength(_Scores):
    """Mean and spread of a score against the strength of regularisation, a line for each value of `by`."""

    name: Literal["strength"] = "strength"
    x: Key | None = Field(None, description="such as framework.beta; default: the framework's strength")
    by: Key | None = Field(None, description="the key shown by colour; default: chosen from the sweep")


class HeatMap(_Scores):
    """Mean of a score for each pair of values of two swept keys."""

    name: Literal["heat_map"] = "heat_map"
    x: Key | None = Field(None, description="the key on the x axis; default: chosen from the sweep")
    y: Key | None = Field(None, description="the key on the y axis; default: chosen from the sweep")


class Parallel(_Scores):
    """Every trial as a line through the values of its keys, coloured by its score."""

    name: Literal["parallel"] = "parallel"
    keys: list[Key] | None = Field(None, min_length=1, description="the axes; default: every swept key")


class Correlations(_Figure):
    """How metrics rank the trials: Spearman's correlation of each pair (Locatello Fig. 2)."""

    name: Literal["correlations"] = "correlations"
    metrics: list[str] | None = Field(None, min_length=2, description="default: every metric of the run")


class Curves(_Scores):
    """A number over the training steps: mean and spread over the trials that agree in `by`."""

    name: Literal["curves"] = "curves"
    by: Key | None = Field(None, description="the key shown by colour; default: chosen from the sweep")


class Importance(_Scores):
    """How much each swept key, including the seed, changes a forest's prediction of the score, in one arm (fANOVA)."""

    name: Literal["importance"] = "importance"


class Capacity(_Figure):
    """The KL of each factor's latent against the capacity of `annealed_vae`: what is learnt first (Burgess Fig. 4)."""

    name: Literal["capacity"] = "capacity"


class LearningOrder(_Figure):
    """What one latent tells about each factor over the training steps, beside the factor's perceived distance."""

    name: Literal["learning_order"] = "learning_order"


class Scatter(_Figure):
    """One metric against another: a dot for each trial, group means with 95 % intervals, and the Pareto front."""

    name: Literal["scatter"] = "scatter"
    x: str | None = Field(None, description="a metric; default: the first one that is not y")
    y: str | None = Field(None, description="a metric; default: the objective")
    by: Key | None = Field(None, description="the key shown by colour")
    labels: bool | None = Field(None, description="names beside the group means; default: only if there are few")
    label: Key | None = Field(None, description="the key whose values are written beside the means, joined by lines")
    pareto: bool = Field(True, description="marks the groups that no other group beats in both metrics")


class History(_Scores):
    """The score of each suggested point by its number, and the best so far."""

    name: Literal["history"] = "history"


class Rungs(_Figure):
    """How many trials reached each step, and the steps at which a scheduler judged them."""

    name: Literal["rungs"] = "rungs"


class PicturesFigure(_Scores):
    """Pictures of the best and worst trial: reconstructions, latent traversals, distances (Michlo Figs. 4, 7, 10)."""

    name: Literal["pictures"] = "pictures"
    trial: Literal["best", "worst", "both"] = Field("both", description="which trials are shown")


class PlanesFigure(_Scores):
    """Two latents that vary together, for the best and the worst trials (Zietlow Figs. 10 and 11)."""

    name: Literal["planes"] = "planes"
    count: int = Field(4, ge=1, le=8, description="how many of the best and of the worst trials are shown")


class ManipulationFigure(_Scores):
    """Images of a manipulated data set: before, what was changed, and after (Zietlow Fig. 4)."""

    name: Literal["manipulation"] = "manipulation"
    images: int = Field(6, ge=1, le=8, description="how many images are shown")


class Density(_Scores):
    """The aggregate posterior of models with two latents beside the prior: one panel per pair of values of two keys
    (Mathieu Fig. 3)."""

    name: Literal["density"] = "density"
    x: Key | None = Field(None, description="the key along the columns; default: framework.beta if it differs")
    y: Key | None = Field(None, description="the key along the rows; default: framework.alpha if it differs")


AnalysisName = Literal[
    "total_correlation", "agreement", "variance_explained", "transfer", "selection", "downstream",
    "unsupervised_selection",
]  # fmt: skip


class AnalysisFigure(_Figure):
    """An analysis of `disentune analyse`, such as what explains a score (Locatello et al., ICML 2019)."""

    name: Literal["analysis"] = "analysis"
    analysis: AnalysisName = Field("agreement", description="which analysis is shown")
    metrics: list[str] | None = Field(None, min_length=1, description="the scores; default: those of the study")


FIGURES: dict[str, type[Frozen]] = {
    "summary": Summary,
    "violins": Violins,
    "trend": Trend,
    "grouped": Grouped,
    "strength": Strength,
    "heat_map": HeatMap,
    "parallel": Parallel,
    "correlations": Correlations,
    "curves": Curves,
    "capacity": Capacity,
    "learning_order": LearningOrder,
    "importance": Importance,
    "analysis": AnalysisFigure,
    "scatter": Scatter,
    "history": History,
    "rungs": Rungs,
    "pictures": PicturesFigure,
    "planes": PlanesFigure,
    "manipulation": ManipulationFigure,
    "density": Density,
}
Figure = Annotated[
    Summary
    | Violins
    | Trend
    | Grouped
    | Strength
    | HeatMap
    | Parallel
    | Correlations
    | Curves
    | Capacity
    | LearningOrder
    | Importance
    | AnalysisFigure
    | Scatter
    | History
    | Rungs
    | PicturesFigure
    | PlanesFigure
    | ManipulationFigure
    | Density,
    Field(discriminator="name"),
]  # fmt: skip


def metrics_of(figure: Any) -> list[str]:
    """The metrics that a figure names."""
    axes = [figure.x, figure.y] if isinstance(figure, Scatter) else []
    single = filter(None, [getattr(figure, "metric", None), *axes])
    return [*(getattr(figure, "metrics", None) or ()), *single]


def keys_of(figure: Any) -> list[str]:
    """The config keys that a figure names."""
    names = ("by", "label") if isinstance(figure, Scatter) else ("x", "y", "by", "split")
    single = [getattr(figure, name, None) for name in names]
    return [*(getattr(figure, "keys", None) or ()), *filter(None, single)]
