"""FactorVAE score: Kim & Mnih, ICML 2018, section 4: whether the code that varies least shows the fixed factor.

With dead codes pruned as in Locatello et al., ICML 2019.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from pydantic import Field

from disentune.metrics.groups import DEVIATIONS, EXCESS, caution, drawable, groups, halves
from disentune.metrics.table import rows_drawn
from disentune.plugin import Count, Frozen, Metric, Table

SPREAD = 0.25
"""The score of noise varies between tables by this / factors * sqrt(members / rows to test on), as measured.

The variance of a code among the m rows of one value has a relative error of sqrt(2 / m), and a vote, the variance of
`members` draws, one of sqrt(2 / members). A factor averages over its values, and m times their number is all rows.
"""


class Params(Frozen):
    """Votes to learn from and to score, rows of a vote, rows for the global variance, smallest deviation of a code."""

    train: Count = Field(10_000, ge=1, description="votes to learn from")
    test: Count = Field(5_000, ge=1, description="votes to score")
    members: Count = Field(64, ge=2, description="rows of each vote")
    samples: Count = Field(10_000, ge=2, description="rows for the variance of each code over all factors")
    threshold: float = Field(0.05, ge=0, description="codes with a smaller standard deviation are ignored")


def active(codes: np.ndarray, threshold: float) -> np.ndarray:
    """Which codes (n, d) vote, (d,): those whose standard deviation reaches the threshold. A constant never votes."""
    found: np.ndarray = (codes.std(axis=0, ddof=1) >= threshold) & (np.ptp(codes, axis=0) > 0)
    return found


def votes(
    encoded: Callable[[np.ndarray], np.ndarray],
    variance: np.ndarray,
    drawn: Iterable[tuple[np.ndarray, np.ndarray]],
) -> tuple[np.ndarray, np.ndarray]:
    """For each group, the fixed factor and the code that varies least relative to its global variance (d,); both
    (m,)."""
    found = [(factor, (encoded(rows).var(axis=1, ddof=1) / variance).argmin(axis=1)) for factor, rows in drawn]
    factors, winners = zip(*found, strict=True)
    return np.concatenate(factors), np.concatenate(winners)


def majority(factors: np.ndarray, winners: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The factor that each code most often voted for, (d,); the first in case of a tie. `shape` is (k, d)."""
    cells = np.ravel_multi_index((factors, winners), shape)
    found: np.ndarray = np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).argmax(axis=0)
    return found


def agreement(said: np.ndarray, factors: np.ndarray, winners: np.ndarray) -> float:
    """Share of votes (m,) that agree with the factor of their code (d,)."""
    return float(np.mean(said[winners] == factors))


def rows_needed(factors: int, members: int) -> int:
    """Rows that a table needs so that noise scores no more than chance; half of them are used for testing."""
    return math.ceil(2 * members * (DEVIATIONS * SPREAD / (EXCESS * factors)) ** 2) if factors > 1 else 0


def score(table: Table, rng: np.random.Generator, params: Params) -> dict[str, Any]:
    """0 without an active code. A value that only one row has shows no variance and is not drawn."""
    fixed = drawable(table.factors)
    note = caution(table.factors, rows_needed(len(fixed), params.members))
    sample = table.codes[rows_drawn(len(table.codes), params.samples, rng)]
    live = active(sample, params.threshold)
    if not live.any():
        return {"factor_vae_score": 0.0, "factor_vae_score_train": 0.0, "factor_vae_score_active": live}
    variance = sample[:, live].var(axis=0, ddof=1)
    train, test = (
        votes(lambda rows: table.encoded(rows, rng)[..., live], variance, groups(half, count, params.members, rng))
        for half, count in zip(halves(table.factors, fixed, rng), (params.train, params.test), strict=True)
    )
    said = majority(*train, (table.factors.shape[1], len(variance)))
    numbers = {"factor_vae_score": agreement(said, *test), "factor_vae_score_train": agreement(said, *train)}
    return {**numbers, "factor_vae_score_active": live, "caution": note}


METRIC = Metric(
    name="factor_vae_score",
    params=Params,
    keys=("factor_vae_score", "factor_vae_score_train"),
    score=score,
    details=("factor_vae_score_active",),
    fast={"train": 700, "test": 350, "samples": 1_000},
)
