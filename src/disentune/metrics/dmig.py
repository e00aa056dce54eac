"""DMIG, dependency-aware MIG: Watcharasupat & Lerch, ISMIR 2021: MIG for factors that depend on each other.

Each factor has a code assigned to it. Its gap to the best other code is divided by what is left to know: the entropy of
the factor given the factor of that other code, or the factor's own entropy if that code is assigned to none.
"""

from typing import Any, Literal

import numpy as np
import scipy
from pydantic import Field

from disentune.errors import DataError
from disentune.metrics.information import binned, entropies, mutual_information
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table

ROUNDING = 1e-12
"""Less entropy than this counts as none."""


class Params(Frozen):
    """Rows of the table to use, bins for each code, and how codes are assigned to factors."""

    samples: Count = Field(10_000, ge=1, description="rows of the table to use")
    bins: Count = Field(20, ge=2, le=10_000, description="bins for each code")
    assignment: Literal["matched", "order"] = Field(
        "matched",
        description="matched: one code per factor, with the largest sum of information; order: the first code is for "
        "the first factor, as published for supervised models",
    )


def assigned(information: np.ndarray, assignment: Literal["matched", "order"]) -> np.ndarray:
    """The code of each factor, (k,), from (d, k); -1 for a factor that no code is left for."""
    codes, factors = information.shape
    if assignment == "order" and codes < factors:
        raise DataError(f"assignment 'order' needs a code for each of the {factors} factors, but there are {codes}")
    found = np.full(factors, -1)
    if assignment == "order":
        return np.arange(factors)
    rows, columns = scipy.optimize.linear_sum_assignment(information, maximize=True)
    found[columns] = rows
    return found


def gaps(information: np.ndarray, entropy: np.ndarray, shared: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Gap of each factor's code over what is left to know, (k,), from the information (d, k) of codes about factors,
    the entropy (k,) of factors, what two factors share (k, k), and the code of each factor (k,).

    A factor without a code counts as 0, and so does one that the runner-up's factor determines.
    """
    found = np.zeros(len(entropy))
    for factor, code in enumerate(codes):
        if code < 0:
            continue
        others = np.where(np.arange(len(information)) == code, -np.inf, information[:, factor])
        second = int(others.argmax()) if len(others) > 1 else -1
        rival = np.flatnonzero(codes == second) if second >= 0 else np.zeros(0, int)
        left = entropy[factor] - (shared[factor, rival[0]] if len(rival) else 0)
        gap = information[code, factor] - (others[second] if second >= 0 else 0)
        found[factor] = gap / left if left > ROUNDING else 0
    return found


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """Mean over factors; those with one value are left out; 0 if there are no others."""
    rows = rows_drawn(len(table.codes), params.samples, rng)
    labels = table.factors[rows]
    information = mutual_information(binned(table.codes[rows], params.bins), labels)
    codes, entropy = assigned(information, params.assignment), entropies(labels)
    found = gaps(information, entropy, mutual_information(labels, labels), codes)
    varied = entropy > 0
    return {"dmig": float(found[varied].mean()) if varied.any() else 0.0, "dmig_codes": codes}


METRIC = Metric(
    name="dmig",
    params=Params,
    keys=("dmig",),
    score=score,
    details=("dmig_codes",),
    fast={"samples": 2_000},
)
