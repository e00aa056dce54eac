"""InfoMEC: Hsu et al., NeurIPS 2023 (QLAE): modularity, compactness and explicitness from normalised information.

Modularity: codes prefer one factor. Compactness: factors prefer one code. Explicitness: what a linear probe on all
codes learns. As published, modularity and compactness of pure noise are anywhere up to 1, because they are ratios of
tiny estimates. So a code counts as active only if it shares more information with a factor than shuffled tables do,
and a factor of which no active code has information counts as 0.
"""

import warnings
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import Field

from disentune.metrics.information import entropies, equal_counts, mutual_information
from disentune.metrics.neighbours import nearest_information
from disentune.metrics.table import rows_drawn
from disentune.metrics.udr import standardised
from disentune.plugin import Count, Frozen, Metric, Table

KEYS = ("info_mec_modularity", "info_mec_compactness", "info_mec_explicitness", "info_mec_active")
GUARD_BINS = 20
"""Bins with equal numbers of rows, in which continuous codes are compared with shuffled ones."""
NEARLY_EQUAL = 1e-9
"""Values of a discrete code that differ by less than this share of its range are equal, up to rounding."""
SMALLEST = 1e-6
"""Deviation of the root of an information below which it counts as constant, up to rounding."""


class Params(Frozen):
    """Rows of the table to use, how codes are treated, and which of them are active."""

    samples: Count = Field(10_000, ge=2, description="rows of the table to use")
    kind: Literal["auto", "continuous", "discrete"] = Field(
        "auto",
        description="of codes; discrete: quantised, information from frequencies; continuous: from nearest neighbours; "
        "auto: discrete if the framework says so, or if the values of every code occur twice on average",
    )
    shuffles: Count = Field(
        99, ge=0, description="shuffled tables that information must exceed; 0: no guard against noise, as published"
    )
    least_range: float = Field(
        0.05, ge=0, lt=1, description="codes with a smaller share of the largest range are not active, if continuous"
    )
    neighbours: Count = Field(10, ge=1, description="nearest neighbours for continuous codes")
    iterations: Count = Field(100, ge=1, description="iterations of the linear probe")


# ---- modularity and compactness


def preference(information: np.ndarray) -> np.ndarray:
    """How much each row of (d, k) prefers one column, (d,): 1 if the others have nothing, 0 if all are equal.

    A row without information counts as 0; with a single column, every other row counts as 1.
    """
    total, width = information.sum(axis=1), information.shape[1]
    share = np.where(total > 0, information.max(axis=1) / np.where(total > 0, total, 1), 1 / width)
    found: np.ndarray = (share - 1 / width) / (1 - 1 / width) if width > 1 else (total > 0).astype(float)
    return found


def informative(bins: np.ndarray, labels: np.ndarray, shuffles: int, rng: np.random.Generator) -> np.ndarray:
    """Which codes (n, d) share information with which factors (n, k), (d, k), beyond chance.

    The table and its shuffled copies are treated alike: the root of each information is measured in deviations from its
    mean over all of them. A number counts if it exceeds every number of every shuffled table, so noise has any in at
    most one table of `shuffles` + 1, whatever the number of codes and factors.
    """
    orders = [np.arange(len(labels)), *(rng.permutation(len(labels)) for _ in range(shuffles))]
    roots = np.sqrt(np.maximum([mutual_information(bins, labels[order]) for order in orders], 0))
    unit = (roots - roots.mean(axis=0)) / np.maximum(roots.std(axis=0), SMALLEST)
    found: np.ndarray = unit[0] > unit[1:].max()
    return found


def active(codes: np.ndarray, discrete: bool, least_range: float) -> np.ndarray:
    """Which codes (n, d) are active as published, (d,), by their range."""
    half = np.ptp(codes / 2, axis=0)  # the whole range of the largest numbers is not one
    found: np.ndarray = half > (0 if discrete else half.max() * least_range)
    return found


# ---- explicitness


def explicitness(codes: np.ndarray, factors: np.ndarray, discrete: bool, iterations: int) -> float:
    """Mean over factors (n, k) of the share of the log loss that codes (n, d) save a linear probe.

    As published, the probe is fitted and scored on the same rows, and weighs all values of a factor equally, so that it
    loses log(values) without codes.
    """
    from sklearn.preprocessing import OneHotEncoder

    inputs = OneHotEncoder().fit_transform(codes) if discrete else standardised(codes)
    saved = [1 - _log_loss(inputs, labels, iterations) / np.log(labels.max() + 1) for labels in factors.T]
    return float(np.mean(saved))


def _log_loss(inputs: Any, labels: np.ndarray, iterations: int) -> float:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The number of unique classes", category=UserWarning)
        probe = LogisticRegression(C=np.inf, class_weight="balanced", max_iter=iterations).fit(inputs, labels)
    return float(log_loss(labels, probe.predict_proba(inputs)))


# ---- the score


class Shared(NamedTuple):
    """What codes share with factors that have two or more values."""

    information: np.ndarray
    """(d, k): mutual information over the factor's entropy."""
    told: np.ndarray
    """(d, k): whether it is more than chance."""


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """Factors with one value are left out; 0 if there are no others, or if no code is active."""
    rows = rows_drawn(len(table.codes), params.samples, rng)
    codes, factors = table.codes[rows], table.factors[rows]
    varied = np.ptp(factors, axis=0) > 0
    every, live = np.zeros((codes.shape[1], factors.shape[1])), np.zeros(codes.shape[1], bool)
    if not varied.any():
        return {**dict.fromkeys(KEYS, 0.0), "info_mec_information": every, "info_mec_kept": live}
    labels, values = ranked(factors[:, varied]), ranked(codes)
    repeats = table.discrete or bool((values < len(codes) // 2).all())
    discrete = params.kind == "discrete" or (params.kind == "auto" and repeats)
    shared = _shared(values if discrete else codes, labels, discrete, params, rng)
    every[:, varied] = shared.information
    live = active(codes, discrete, params.least_range) & shared.told.any(axis=1)
    numbers = (
        *_modularity_and_compactness(shared.information[live], shared.told[live]),
        explicitness(values if discrete else codes, labels, discrete, params.iterations),
        live.sum(),
    )
    return {**dict(zip(KEYS, numbers, strict=True)), "info_mec_information": every, "info_mec_kept": live}


def _shared(codes: np.ndarray, labels: np.ndarray, discrete: bool, params: Params, rng: np.random.Generator) -> Shared:
    """`codes` are those of nearest neighbours, or the numbers of discrete values."""
    if discrete:
        bins, found = codes, mutual_information(codes, labels)
    else:
        bins = np.stack([equal_counts(code, GUARD_BINS) for code in codes.T], axis=1)
        found = nearest_information(codes, labels, params.neighbours, rng)
    told = informative(bins, labels, params.shuffles, rng) if params.shuffles else np.ones(found.shape, bool)
    return Shared(found / entropies(labels), told)


def _modularity_and_compactness(information: np.ndarray, told: np.ndarray) -> tuple[float, float]:
    """Of the active codes, (d, k)."""
    if not len(information):
        return 0.0, 0.0
    compact = preference(information.T) * told.any(axis=0)
    return float(preference(information).mean()), float(compact.mean())


def ranked(columns: np.ndarray) -> np.ndarray:
    """The rank of each value among the different values of its column, from 0, (n, d)."""
    return np.stack([_ranked(column) for column in columns.T], axis=1)


def _ranked(column: np.ndarray) -> np.ndarray:
    order = np.argsort(column)
    gaps = np.diff(column[order], prepend=column[order[0]])
    ranks = np.empty(len(column), np.int64)
    ranks[order] = np.cumsum(gaps > NEARLY_EQUAL * np.ptp(column))
    return ranks


METRIC = Metric(
    name="info_mec",
    params=Params,
    keys=KEYS,
    score=score,
    details=("info_mec_information", "info_mec_kept"),
    fast={"samples": 2_000},
)
