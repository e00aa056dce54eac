"""Pair laws: how the second image of a pair differs from the first.

Each law has `draw(factors (n, k), sizes of the k factors, which of them are ordered (k,), rng) -> factors (n, k) of
the partners`, and `check(sizes)`, which raises ValueError if the law cannot be used with such factors. A law whose
`needs_grid` is False takes any other image as a partner, so it also works for data without factors.
"""

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from disentune.plugin import Count, Frozen, spelled_out


def movable(sizes: Sequence[int]) -> np.ndarray:
    """Positions of the factors with two or more values."""
    return np.flatnonzero(np.asarray(sizes) > 1)


def _require_movable(sizes: Sequence[int]) -> None:
    if not len(movable(sizes)):
        raise ValueError(f"no factor has two or more values, so no partner can differ; the sizes are {tuple(sizes)}")


def _subsets(counts: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Random subsets of k items, of the given sizes (n,), as a mask (n, k).

    Each row is a random order of 0 to k - 1, so its entries below a number mark a random subset of that size.
    """
    return rng.permuted(np.tile(np.arange(k), (len(counts), 1)), axis=1) < counts[:, None]


def _moved(factors: np.ndarray, sizes: Sequence[int], counts: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Partners with `counts` (n,) distinct factors changed, each uniformly to one of its other values."""
    free = movable(sizes)
    own, size = factors[:, free], np.asarray(sizes)[free]
    others = (own + rng.integers(1, size, size=own.shape)) % size
    partners = factors.copy()
    partners[:, free] = np.where(_subsets(counts, len(free), rng), others, own)
    return partners


class Original(Frozen):
    """Locatello et al., ICML 2020, with an unknown number of changes, as their code draws it.

    One factor, or with equal probability a number of factors uniform on 1 to k - 1, is drawn again; it may keep its
    value.
    """

    name: Literal["original"] = "original"

    def check(self, sizes: Sequence[int]) -> None:
        _require_movable(sizes)

    def draw(
        self, factors: np.ndarray, sizes: Sequence[int], ordered: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        n, k = factors.shape
        many = rng.integers(1, max(k, 2), size=n)
        changes = np.where(rng.random(n) < 0.5, 1, many)
        redrawn_factors = _subsets(changes, k, rng)
        redrawn = rng.integers(0, np.asarray(sizes), size=(n, k))
        return np.where(redrawn_factors, redrawn, factors)


class UniformK(Frozen):
    """`uniform` of Klindt et al., ICLR 2021: some factors, never all, change uniformly to another value.

    Their number is uniform on 1 to k - 1, of the k factors with two or more values; a single such factor always
    changes.
    """

    name: Literal["uniform_k"] = "uniform_k"

    def check(self, sizes: Sequence[int]) -> None:
        _require_movable(sizes)

    def draw(
        self, factors: np.ndarray, sizes: Sequence[int], ordered: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        self.check(sizes)
        counts = rng.integers(1, max(len(movable(sizes)), 2), size=len(factors))
        return _moved(factors, sizes, counts, rng)


class FixedK(Frozen):
    """Exactly k factors change uniformly to another value (Klindt et al., ICLR 2021, `uniform` with a given k)."""

    name: Literal["fixed_k"] = "fixed_k"
    k: Count = Field(ge=1, description="how many factors differ")

    def check(self, sizes: Sequence[int]) -> None:
        free = len(movable(sizes))
        if self.k > free:
            raise ValueError(f"k must be <= {free}, the number of factors with two values or more, got {self.k}")

    def draw(
        self, factors: np.ndarray, sizes: Sequence[int], ordered: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        self.check(sizes)
        return _moved(factors, sizes, np.full(len(factors), self.k), rng)


class Laplace(Frozen):
    """`laplace` of Klindt et al., ICLR 2021: small moves are common, large ones rare, and at least one happens.

    Every ordered factor is drawn from a Laplace density around its index, of scale log(size) / rate, on its valid
    indices; other factors do not change. If nothing changed, one ordered factor, chosen uniformly, is drawn from the
    same density without its old value. Factors do not wrap around, not even orientations.
    """

    name: Literal["laplace"] = "laplace"
    rate: float = Field(1.0, gt=0, description="inverse scale; a larger rate gives smaller changes")

    def check(self, sizes: Sequence[int]) -> None:
        _require_movable(sizes)

    def draw(
        self, factors: np.ndarray, sizes: Sequence[int], ordered: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        free = movable(sizes)
        free = free[ordered[free]]
        if not len(free):
            raise ValueError("pairs: 'laplace' changes only ordered factors, and none here has two or more values")
        partners = factors.copy()
        for factor in free:
            partners[:, factor] = self._near(factors[:, factor], sizes[factor], rng)
        still = (partners == factors).all(axis=1)
        forced = np.where(still, rng.choice(free, size=len(factors)), -1)
        for factor in free:
            rows = forced == factor
            partners[rows, factor] = self._near(factors[rows, factor], sizes[factor], rng, nearest=1)
        return partners

    def _near(self, values: np.ndarray, size: int, rng: np.random.Generator, nearest: int = 0) -> np.ndarray:
        """One draw around each value (n,), at least `nearest` away from it, by inverting the cumulative density."""
        distances = np.abs(np.arange(size) - values[:, None])
        # Measured from the nearest, whose weight is then 1, so that not all weights underflow to 0 at a large rate.
        weights = np.exp(-np.abs(distances - nearest) * self.rate / np.log(size))
        cumulated = np.cumsum(np.where(distances < nearest, 0, weights), axis=1)
        found: np.ndarray = (cumulated <= rng.random((len(values), 1)) * cumulated[:, -1:]).sum(axis=1)
        return found


class Independent(Frozen):
    """Another image of the data set, drawn like the first: a second batch."""

    name: Literal["independent"] = "independent"
    needs_grid: ClassVar[bool] = False

    def check(self, sizes: Sequence[int]) -> None:
        """Accepts any factors."""

    def draw(
        self, factors: np.ndarray, sizes: Sequence[int], ordered: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        return rng.integers(0, np.asarray(sizes), size=factors.shape)


Pairs = Annotated[Original | UniformK | FixedK | Laplace, Field(discriminator="name"), BeforeValidator(spelled_out)]
"""The laws that a weakly supervised framework can use, given only by name if nothing else is required."""
