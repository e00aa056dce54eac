"""Every analysis by its name."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from disentune.analysis.correlation import agreement, downstream, unsupervised_selection
from disentune.analysis.selection import selection
from disentune.analysis.total_correlation import total_correlation
from disentune.analysis.transfer import transfer
from disentune.analysis.variance import variance_explained


@dataclass(frozen=True)
class Analysis:
    """`question` is the question it answers; `rows` computes its table from the scores and the chosen metrics."""

    name: str
    question: str
    rows: Callable[[pd.DataFrame, list[str] | None], pd.DataFrame]


_IN_ORDER = (
    Analysis(
        "total_correlation",
        "Does regularisation make codes independent? TC of mean and sampled codes, mean over seeds",
        lambda frame, metrics: total_correlation(frame),
    ),
    Analysis("agreement", "Do metrics agree? Spearman's correlation over the trials of a data set", agreement),
    Analysis(
        "variance_explained",
        "How much of a score do method and strength explain? R2 = 1 - SS_within / SS_total; the rest is the seed's",
        variance_explained,
    ),
    Analysis("transfer", "Do good settings transfer? Spearman's correlation of the settings' mean scores", transfer),
    Analysis(
        "selection",
        "How often does the best setting of one place beat a random model elsewhere? 0.5 is chance",
        selection,
    ),
    Analysis("downstream", "Do disentangled codes help? Accuracies, and their correlation with metrics", downstream),
    Analysis(
        "unsupervised_selection",
        "Can good models be found without labels? Spearman's correlation of label-free numbers with metrics",
        unsupervised_selection,
    ),
)
ANALYSES: dict[str, Analysis] = {analysis.name: analysis for analysis in _IN_ORDER}
