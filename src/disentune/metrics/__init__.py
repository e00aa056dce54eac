"""Disentanglement metrics: numbers from a table of codes and factors."""

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np
from threadpoolctl import ThreadpoolController

from disentune.errors import ConfigError, DataError
from disentune.maths.randomness import metric_rng
from disentune.metrics.table import table_of
from disentune.parameters import chosen
from disentune.plugin import Catalogue, Metric, Modules, Table

METRICS = Catalogue(
    "metric",
    Metric,
    Modules[Metric](
        __name__,
        "METRIC",
        "active_units",
        "axis_alignment",
        "beta_vae_score",
        "dci",
        "dci_es",
        "dcimig",
        "distances",
        "dmig",
        "downstream",
        "explicitness",
        "factor_importance",
        "factor_information",
        "factor_vae_score",
        "flatness",
        "fos",
        "gaussian_total_correlation",
        "gaussian_wasserstein",
        "hoyer",
        "info_mec",
        "irs",
        "jacobian_orthogonality",
        "jemmig",
        "kl_decomposition",
        "kl_per_factor",
        "kl_per_latent",
        "linearity",
        "mcc",
        "mig",
        "mig_sup",
        "modularity",
        "mutual_information",
        "perceived_distances",
        "posterior_overlap",
        "prior_divergence",
        "prior_log_density",
        "reconstruction",
        "sap",
        "snc",
    ),
)

Size = Literal["full", "fast"]
MODEL = "a trained model"
FROM = {"factors": "factors", "logvars": "logvars", "distance": "images", "reconstruction": MODEL, "gram": MODEL}
"""The source of each thing that a metric may need, for error messages."""


@dataclass(frozen=True)
class MetricScores:
    """The result of a metric: its numbers, and its arrays."""

    numbers: dict[str, float]
    details: dict[str, np.ndarray]
    caution: str = ""
    """Why the numbers must be read with care."""


def score(
    name: str,
    codes: np.ndarray,
    factors: np.ndarray | None = None,
    seed: int = 0,
    *,
    size: Size = "full",
    logvars: np.ndarray | None = None,
    images: np.ndarray | None = None,
    **params: Any,
) -> dict[str, float]:
    """Scores of codes (n, d) against integer factors (n, k); the metric's own draws depend on `seed` and its name.

    Codes of vectors (n, d, m) are reduced first: each of the d vectors to its first principal component.

    `size` chooses the published sizes, or smaller ones for evaluations during training; `params` override single
    parameters. `logvars` (n, d) and `images` (n, ...) are for metrics that need them. Scores that must be read with
    care come with a UserWarning.
    """
    if size not in get_args(Size):
        raise ConfigError(f"size must be one of {', '.join(get_args(Size))}, got {size!r}")
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise ConfigError(f"seed must be a whole number >= 0, got {seed!r}")
    found = scores(name, table_of(codes, factors, logvars, images), int(seed), size, params)
    if found.caution:
        warnings.warn(f"{name}: {found.caution}", stacklevel=2)
    return found.numbers


def scores(name: str, table: Table, seed: int, size: Size, params: Mapping[str, Any]) -> MetricScores:
    """Like `score` for an existing table, and also returns the metric's arrays."""
    metric, checked = chosen(METRICS, name, params)
    if size == "fast":
        checked = metric.params.model_validate({**metric.fast, **params})
    return scored(metric, table, seed, checked)


def scored(metric: Metric, table: Table, seed: int, params: Any) -> MetricScores:
    """Computes on one thread, so that sums do not depend on the number of threads. A DataError names the metric."""
    for need in metric.needs:
        if _lacks(table, need):
            raise DataError(f"{metric.name} needs {FROM[need]}, which this table does not have")
    if len(table.codes) < metric.rows(params):
        raise DataError(f"{metric.name} needs {metric.rows(params)} rows with these params, but has {len(table.codes)}")
    try:
        with _threads().limit(limits=1):
            found = metric.score(table, metric_rng(seed, metric.name), params)
    except DataError as error:
        raise DataError(f"{metric.name}: {error}") from error
    missing = [key for key in (*metric.keys, *metric.details) if key not in found]
    if missing:
        gave = ", ".join(found) or "nothing"
        raise DataError(f"{metric.name}: must return its keys {', '.join(missing)}, but returned {gave}")
    numbers = {key: float(found[key]) for key in metric.keys}
    for key, value in numbers.items():
        if not math.isfinite(value):
            raise DataError(f"{metric.name}: {key} is {value}, which is not a valid score")
    return MetricScores(numbers, {key: np.asarray(found[key]) for key in metric.details}, str(found.get("caution", "")))


def plain_key(key: str) -> str:
    """The key as its metric names it, without what says which images and codes are scored, and how many."""
    for ends in (("_fast",), ("_sampled", "_normal"), ("_inside", "_outside")):
        key = next((key.removesuffix(end) for end in ends if key.endswith(end)), key)
    return key


def best_of(key: str) -> Literal["max", "min"]:
    """Whether large or small numbers are better; large for keys of unknown metrics."""
    plain = plain_key(key)
    likely_first = sorted(METRICS.names(), key=lambda name: not plain.startswith(name))  # each name is an import
    return next((METRICS[name].best for name in likely_first if plain in METRICS[name].keys), "max")


def _lacks(table: Table, need: str) -> bool:
    return table.factors.shape[1] == 0 if need == "factors" else getattr(table, need) is None


@cache
def _threads() -> ThreadpoolController:
    """The thread pools of every library that a metric may use, because libraries loaded later would not be limited.
    Finding them is slow, and loading scikit-learn takes a second, so it is done once, when something is scored."""
    import scipy.linalg  # noqa: F401
    import sklearn.linear_model  # noqa: F401

    return ThreadpoolController()
