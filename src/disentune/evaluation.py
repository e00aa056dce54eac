"""From a trained encoder to scores: every image is encoded once, into one table that all metrics draw from."""

from dataclasses import dataclass

import numpy as np
import torch

from disentune.config import TrialConfig
from disentune.data.factors import FactorGrid
from disentune.errors import DataError
from disentune.metrics import metric_rng
from disentune.plugin import AutoEncoder, FactorImages
from disentune.randomness import stream
from disentune.transforms import Transform

CHUNK = 512


@dataclass(frozen=True)
class Table:
    """Codes of a sample of images: means and logvars (n, d), factors (n, k)."""

    means: np.ndarray
    logvars: np.ndarray
    factors: np.ndarray


def table_indices(config: TrialConfig, size: int) -> np.ndarray:
    """Which images a trial evaluates: all of a small data set, else the same seeded sample at every evaluation."""
    if size <= config.evaluation.table:
        return np.arange(size)
    return np.sort(stream(config.seed, "evaluation").choice(size, config.evaluation.table, replace=False))


@torch.no_grad()
def encoded(model: AutoEncoder, data: FactorImages, transform: Transform, indices: np.ndarray) -> Table:
    model.eval()
    posteriors = [model.encode(transform(data.images(chunk))) for chunk in _chunks(indices)]
    model.train()
    return Table(
        means=torch.cat([q.mean for q in posteriors]).cpu().numpy(),
        logvars=torch.cat([q.logvar for q in posteriors]).cpu().numpy(),
        factors=FactorGrid(data.factor_names, data.factor_sizes).factors(indices),
    )


def _chunks(indices: np.ndarray) -> list[np.ndarray]:
    return np.array_split(indices, max(1, -(-len(indices) // CHUNK)))


def scores(config: TrialConfig, table: Table) -> tuple[dict[str, float], dict[str, str]]:
    """Every metric of the trial, and why a metric has no value (its keys are then NaN)."""
    numbers: dict[str, float] = {}
    notes: dict[str, str] = {}
    for name, params, plugin in ((metric.name, metric.params, metric.plugin) for metric in config.metrics):
        try:
            numbers |= plugin.score(table.means, table.factors, metric_rng(config.seed, name), params)
        except DataError as error:
            numbers |= dict.fromkeys(plugin.keys, float("nan"))
            notes[name] = str(error)
    return numbers, notes
