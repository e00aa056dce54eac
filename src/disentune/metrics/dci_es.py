"""DCI-ES: Eastwood et al., ICLR 2023: DCI with random forests, how soon they learn, and the size of the code.

Explicitness is high if probes of little capacity (depth of the forest) do as well as those of much. A probe that never
learns anything is as good at every depth, so its explicitness would be 1: a factor that no forest predicts better than
a constant guess does, by three standard errors, counts as 0. Read explicitness beside informativeness only.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field, field_validator

from disentune.errors import DataError
from disentune.metrics import forests
from disentune.metrics.dci import completeness, disentanglement
from disentune.metrics.table import split
from disentune.plugin import Count, Frozen, Metric, Table, Whole

KEYS = (
    "dci_es_disentanglement",
    "dci_es_completeness",
    "dci_es_informativeness",
    "dci_es_explicitness",
    "dci_es_size",
)
DEPTHS = (1, 2, 3, 4, 8, 10, 12, 14, 16, 18, 20, 32)
ERRORS = 3
"""Standard errors by which the best forest must be better than a constant guess."""


class Params(Frozen):
    """Rows to fit and to test on (a table with fewer than both is split 2 : 1), and the forests."""

    train: Count = Field(10_000, ge=2, description="rows to fit on; a smaller table is split 2 : 1")
    test: Count = Field(5_000, ge=1, description="rows to test on")
    trees: Count = Field(100, ge=1, description="trees of each forest")
    depths: list[Count] = Field(
        list(DEPTHS), min_length=2, description="largest depths of the forests: the axis of capacity, in growing order"
    )
    ordered: list[Whole] = Field(
        [],
        description="positions, from 0, of the factors with ordered values, which are scored by R² instead of accuracy",
    )

    @field_validator("depths")
    @classmethod
    def _growing(cls, depths: list[int]) -> list[int]:
        if depths[0] < 1 or any(later <= earlier for earlier, later in pairwise(depths)):
            raise ValueError(f"must be growing whole numbers >= 1, but are {depths}")
        return depths


# ---- explicitness


def explicitness(losses: np.ndarray, capacities: Sequence[float], guess: float) -> float:
    """1 - 2 (area between the curve of losses and its minimum) / (range of capacities * loss of a constant guess).

    A loss is replaced by the smallest one of any capacity up to it. 1: the least capacity does as well as the most; 0:
    the loss falls evenly; negative: it only falls at the end.
    """
    lowest = np.minimum.accumulate(losses)
    area = np.trapezoid(lowest - lowest[-1], capacities)
    return float(1 - 2 * area / ((capacities[-1] - capacities[0]) * guess))


class Probed(NamedTuple):
    """The forests of one factor."""

    losses: np.ndarray
    """(depths,): 1 - accuracy, or 1 - R²."""
    guess: float
    """The loss of a constant guess as published: (values - 1) / values, or 1."""
    learned: bool
    """Whether the best forest is better than a constant guess."""
    forest: Any


def probed(codes: np.ndarray, values: np.ndarray, train: np.ndarray, test: np.ndarray, params: Params,
           ordered: bool, seed: int) -> Probed:  # fmt: skip
    """The forests that predict one factor (n,), from its values or labels."""
    forest = forests.grown(codes[train], values[train], params.depths[-1], params.trees, ordered, seed)
    told, true = forests.predictions(forest, codes[test], params.depths), values[test]
    if ordered:
        errors, constant, scale = (told - true) ** 2, (values[train].mean() - true) ** 2, true.var() or 1.0
    else:
        labels, counts = np.unique(values[train], return_counts=True)
        errors, constant, scale = (told != true) * 1.0, (labels[counts.argmax()] != true) * 1.0, 1.0
    losses = errors.mean(axis=1) / scale
    better = constant - errors[losses.argmin()]
    learned = bool(better.mean() > ERRORS * better.std() / np.sqrt(len(better)))
    return Probed(losses, 1.0 if ordered else 1 - 1 / len(np.unique(values)), learned, forest)


# ---- the score


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """D, C and I are those of the depth with the best informativeness.

    Factors with one value are left out; 0 if there are no others.
    """
    factors = table.factors.shape[1]
    for column in params.ordered:
        if not 0 <= column < factors:
            raise DataError(f"ordered: factor {column} does not exist; the table has factors 0 to {factors - 1}")
    train, test = split(len(table.codes), params.train, params.test, rng)
    found = {}
    for column in np.flatnonzero(np.ptp(table.factors, axis=0) > 0).tolist():
        ordered, seed = column in params.ordered, int(rng.integers(2**31))
        values = table.values[:, column] if ordered else table.factors[:, column]
        found[column] = probed(table.codes, values, train, test, params, ordered, seed)
    if not found:
        return {**dict.fromkeys(KEYS, 0.0), "dci_es_losses": np.zeros((0, len(params.depths)))}
    unlearned = [str(column) for column, one in found.items() if not one.learned]
    return {**_numbers(list(found.values()), params, table.codes.shape[1]), "caution": _caution(unlearned)}


def _caution(unlearned: Sequence[str]) -> str:
    if not unlearned:
        return ""
    which = f"factor {unlearned[0]}" if len(unlearned) == 1 else f"factors {', '.join(unlearned)}"
    return f"no forest predicts {which} (counted from 0) better than a constant guess, so its explicitness counts as 0"


def _numbers(found: list[Probed], params: Params, codes: int) -> dict[str, Any]:
    losses = np.stack([one.losses for one in found])
    best = int(losses.mean(axis=0).argmin())
    importance = np.stack([forests.importance(one.forest, params.depths[best]) for one in found], axis=1)
    explicit = [explicitness(one.losses, params.depths, one.guess) if one.learned else 0.0 for one in found]
    numbers = (
        disentanglement(importance),
        completeness(importance),
        float(1 - losses[:, best].mean()),
        float(np.mean(explicit)),
        len(found) / codes,
    )
    return {**dict(zip(KEYS, numbers, strict=True)), "dci_es_losses": losses}


METRIC = Metric(
    name="dci_es",
    params=Params,
    keys=KEYS,
    score=score,
    details=("dci_es_losses",),
    fast={"train": 1_000, "test": 500, "trees": 20},
)
