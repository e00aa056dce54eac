"""Pair laws: how the second image of a weakly supervised pair differs from the first."""

from collections.abc import Callable, Sequence

import numpy as np

PairLaw = Callable[[np.ndarray, Sequence[int], np.random.Generator], np.ndarray]
"""(factors (n, k), sizes of the k factors, rng) -> factors (n, k) of the partners."""


def original(factors: np.ndarray, sizes: Sequence[int], rng: np.random.Generator) -> np.ndarray:
    """Locatello et al., ICML 2020, with an unknown number of changes, as their code draws it.

    One factor, or with equal chance a number uniform on 1 to k - 1, is drawn again; it may get its old value.
    """
    n, k = factors.shape
    many = rng.integers(1, max(k, 2), size=n)
    changes = np.where(rng.random(n) < 0.5, 1, many)
    # Each row is a random order of 0 to k - 1, so its entries below `changes` mark a random subset of that size.
    order = rng.permuted(np.tile(np.arange(k), (n, 1)), axis=1)
    redrawn = rng.integers(0, np.asarray(sizes), size=(n, k))
    return np.where(order < changes[:, None], redrawn, factors)


PAIR_LAWS: dict[str, PairLaw] = {"original": original}
