"""Laws of sampling: how often each combination of factors is drawn in training, and which are held out of it.

A law gives every combination a weight; a held-out set gives some the weight 0. Combinations with a weight above 0 are
`inside`, the others `outside`. Other factors than those a law names stay uniform and independent.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, TypeAdapter

from disentune.errors import DataError, unknown
from disentune.maths.expressions import axes, evaluated, place
from disentune.maths.thick_line import blurred_line
from disentune.plugin import Count, Frozen, spelled_out

Factors = Mapping[str, np.ndarray]
"""`axes` of all factors."""
Two = Annotated[list[str], Field(min_length=2, max_length=2)]


def _axis(factors: Factors, name: str) -> np.ndarray:
    """The indices of a factor's values; ValueError if it is unknown or has a single value."""
    if name not in factors:
        raise ValueError(unknown("factor", name, factors))
    if factors[name].size < 2:
        raise ValueError(f"factor '{name}' has one value, so no law can change how often it is drawn")
    return factors[name]


def _different(names: Sequence[str]) -> None:
    if len(set(names)) < len(names):
        raise ValueError(f"factors must be different, got {', '.join(names)}")


def _near(first: np.ndarray, second: np.ndarray, sigma: float) -> np.ndarray:
    found: np.ndarray = np.exp(-((first - second) ** 2) / (2 * sigma**2))
    return found


# ---- laws


class Correlated(Frozen):
    """Traeuble et al., ICML 2021, as written: exp(-(a - b)^2 / (2 sigma^2)) of two factors scaled to [0, 1].

    With `inverse`, a small value of one goes with a large value of the other.
    """

    name: Literal["correlated"] = "correlated"
    factors: Two = Field(description="the two correlated factors")
    sigma: float = Field(gt=0, description="width of the band of likely combinations; small is strongly correlated")
    inverse: bool = Field(False, description="correlate the factors negatively")

    def weights(self, factors: Factors) -> np.ndarray:
        _different(self.factors)
        first, second = (place(_axis(factors, name)) for name in self.factors)
        return _near(first, 1 - second if self.inverse else second, self.sigma)


class AsReleased(Frozen):
    """Traeuble et al., ICML 2021, as their code draws it: a thick line that is blurred, with exact zeros far from it.

    It is not the law of the paper: at width 0.4 two factors correlate by .63 to .79, where `correlated` with sigma 0.4
    has .41 to .47. From width 1 on all combinations are equally likely.
    """

    name: Literal["as_released"] = "as_released"
    factors: Two = Field(description="the two correlated factors, in the order of the data set")
    width: float = Field(gt=0, description="thickness of the line, as a share of the shorter factor")

    def weights(self, factors: Factors) -> np.ndarray:
        _different(self.factors)
        first, second = (_axis(factors, name) for name in self.factors)
        if self.width >= 1:
            return np.ones(np.broadcast_shapes(first.shape, second.shape))
        line: np.ndarray = blurred_line(first.size, second.size, self.width).astype(np.float64)
        found: np.ndarray = line[first, second]
        return found


class Confounded(Frozen):
    """Roth et al., ICLR 2023: one factor is correlated with each of the others, by the law `correlated`."""

    name: Literal["confounded"] = "confounded"
    factor: str = Field(description="the factor that all others depend on")
    sigma: float = Field(gt=0, description="width of the band of likely combinations; small is strongly correlated")

    def weights(self, factors: Factors) -> np.ndarray:
        own = place(_axis(factors, self.factor))
        others = [place(axis) for name, axis in factors.items() if name != self.factor and axis.size > 1]
        return _product(_near(own, other, self.sigma) for other in others)


class Weighted(Frozen):
    """A formula gives every combination its weight: `1 + 9 * (shape == 1)`, `exp(-abs(x - y) / 0.1)`."""

    name: Literal["weighted"] = "weighted"
    weight: str = Field(
        description="formula of the factors, as places from 0.0 to 1.0; beside a whole number a factor is its index"
    )

    def weights(self, factors: Factors) -> np.ndarray:
        found: np.ndarray = evaluated(self.weight, factors).astype(np.float64)
        return found


class Joint(Frozen):
    """A table of two factors: one row per value of the first, one column per value of the second."""

    name: Literal["joint"] = "joint"
    factors: Two = Field(description="the factors of the table's rows and columns")
    table: list[list[float]] = Field(description="weights >= 0; their sum does not matter")

    def weights(self, factors: Factors) -> np.ndarray:
        _different(self.factors)
        first, second = (_axis(factors, name) for name in self.factors)
        lengths = {len(row) for row in self.table}
        if len(self.table) != first.size or lengths != {second.size}:
            raise ValueError(
                f"table must have {first.size} rows, the values of {self.factors[0]}, of {second.size} weights, the "
                f"values of {self.factors[1]}, got {len(self.table)} rows of {', '.join(map(str, sorted(lengths)))}"
            )
        found: np.ndarray = np.array(self.table, np.float64)[first, second]
        return found


Single = Annotated[Correlated | AsReleased | Confounded | Weighted | Joint, Field(discriminator="name")]


class Product(Frozen):
    """Several laws at once: their weights are multiplied."""

    name: Literal["product"] = "product"
    laws: list[Single] = Field(min_length=1, description="the laws, each a mapping with its name")

    def weights(self, factors: Factors) -> np.ndarray:
        return _product(law.weights(factors) for law in self.laws)


def _product(parts: Any) -> np.ndarray:
    found = np.ones(())
    for part in parts:
        found = found * part
    return found


Law = Annotated[Correlated | AsReleased | Confounded | Weighted | Joint | Product, Field(discriminator="name")]
"""A law by name, with its own parameters."""


# ---- held-out sets


class Where(Frozen):
    """The combinations for which a formula is true, as in Montero et al., ICLR 2021."""

    name: Literal["where"] = "where"
    formula: str = Field(description="true for what is held out: shape == 1 and colour >= 0.5")

    def mask(self, factors: Factors) -> np.ndarray:
        found = evaluated(self.formula, factors)
        if found.dtype != bool:
            raise ValueError(f"'{self.formula}' is neither true nor false; compare it, for example: colour >= 0.5")
        return found


def _listed(names: Sequence[str] | None, factors: Factors, least: int) -> list[np.ndarray]:
    """The axes of the listed factors; by default of all with at least so many values."""
    chosen = [name for name, axis in factors.items() if axis.size >= least] if names is None else names
    _different(chosen)
    for name in chosen:
        if _axis(factors, name).size < least:
            raise ValueError(f"factor '{name}' has {factors[name].size} values, but this split needs {least} or more")
    return [factors[name] for name in chosen]


def _upper(axis: np.ndarray, share: float) -> np.ndarray:
    """Which values are in the upper share of a factor: at least one, and not all."""
    count = max(math.floor(share * axis.size), 1)
    return axis >= axis.size - count


def _any(parts: Sequence[np.ndarray]) -> np.ndarray:
    found = np.zeros((), bool)
    for part in parts:
        found = found | part
    return found


INDEPENDENT = 1e-9
"""Factors with less mutual information, in nats, count as independent."""
Names = Annotated[list[str], Field(min_length=1)] | None
Share = Annotated[float, Field(gt=0, lt=1)]


class Interpolation(Frozen):
    """Every second value of each listed factor is held out, never its first or last (the idea of Schott et al., 2022).

    The published files hold out other values, which no code states.
    """

    name: Literal["interpolation"] = "interpolation"
    factors: Names = Field(None, description="null: every factor with three or more values")

    def mask(self, factors: Factors) -> np.ndarray:
        chosen = _listed(self.factors, factors, 3)
        return _any([(axis % 2 == 1) & (axis < axis.size - 1) for axis in chosen])


class Extrapolation(Frozen):
    """The upper share of the values of each listed factor is held out (the idea of Schott et al., 2022)."""

    name: Literal["extrapolation"] = "extrapolation"
    factors: Names = Field(None, description="null: every factor with two or more values")
    share: Share = Field(0.5, description="share of each factor's values that is held out")

    def mask(self, factors: Factors) -> np.ndarray:
        return _any([_upper(axis, self.share) for axis in _listed(self.factors, factors, 2)])


class Composition(Frozen):
    """Held out is where two or more of the listed factors have values of their upper share, so that training has every
    value but not every combination (the idea of Schott et al., 2022)."""

    name: Literal["composition"] = "composition"
    factors: Names = Field(None, description="two or more; null: every factor with two or more values")
    share: Share = Field(0.5, description="share of each factor's values that is not combined")

    def mask(self, factors: Factors) -> np.ndarray:
        chosen = _listed(self.factors, factors, 2)
        if len(chosen) < 2:
            raise ValueError("composition holds out combinations of two factors, so it needs two or more factors")
        upper = [_upper(axis, self.share) for axis in chosen]
        return _any([one & other for one, other in itertools.combinations(upper, 2)])


class AtRandom(Frozen):
    """A random share of all combinations is held out: the same ones in every trial with this `split_seed`."""

    name: Literal["random"] = "random"
    share: Share = Field(description="share of the combinations that is held out")
    split_seed: Count = Field(0, ge=0, description="draws which ones")

    def mask(self, factors: Factors) -> np.ndarray:
        shape = np.broadcast_shapes(*(axis.shape for axis in factors.values()))
        ranks = np.random.default_rng(self.split_seed).permutation(math.prod(shape))
        return (ranks < round(self.share * math.prod(shape))).reshape(shape)


def _as_where(value: Any) -> Any:
    """A bare name of a split, or a formula."""
    if isinstance(value, str) and value not in ("interpolation", "extrapolation", "composition", "random"):
        return {"name": "where", "formula": value}
    return spelled_out(value)


Split = Where | Interpolation | Extrapolation | Composition | AtRandom
HeldOut = Annotated[
    Split, Field(discriminator="name"), BeforeValidator(_as_where, json_schema_input_type=str | Split)
]  # fmt: skip
"""A formula, or a split by name."""


# ---- both together


@dataclass(frozen=True, eq=False)
class Sampling:
    """How often each image of a full grid is drawn."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    spread: np.ndarray
    """Weights that broadcast to the grid, so that a law of two factors is small; their largest is 1."""

    @cached_property
    def count(self) -> int:
        """Number of images that may be drawn."""
        return int(np.count_nonzero(self.spread)) * (math.prod(self.sizes) // self.spread.size)

    @cached_property
    def is_even(self) -> bool:
        """Whether all images that may be drawn are equally likely."""
        return bool(np.isin(self.spread, (0, 1)).all())

    @cached_property
    def weights(self) -> np.ndarray:
        """(n,) float64, in the order of the grid."""
        return np.broadcast_to(self.spread, self.sizes).ravel()

    @cached_property
    def inside(self) -> np.ndarray:
        """Indices of the images that may be drawn."""
        return np.flatnonzero(self.weights)

    @cached_property
    def outside(self) -> np.ndarray:
        """Indices of the images that are never drawn."""
        return np.flatnonzero(self.weights == 0)

    @cached_property
    def _cumulated(self) -> np.ndarray:
        found: np.ndarray = np.cumsum(self.weights[self.inside])
        found /= found[-1]
        return found

    def draw(self, rng: np.random.Generator, size: int, replacement: bool = True) -> np.ndarray:
        """Indices (size,), independent of each other; without replacement, distinct ones of a law that is even."""
        if not replacement:
            places = rng.choice(self.count, size=size, replace=False)
        elif self.is_even:
            places = rng.integers(self.count, size=size)
        else:
            places = np.searchsorted(self._cumulated, rng.random(size), side="right")
        found: np.ndarray = self.inside[places]
        return found

    def accepts(self, indices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Whether each proposed image (n,) is kept: with a probability in proportion to its weight."""
        weights = self.weights[indices]
        found: np.ndarray = weights > 0 if self.is_even else rng.random(len(indices)) < weights
        return found

    def table(self, first: int, second: int) -> np.ndarray:
        """Probabilities of two factors together, by their positions: one row per value of the first."""
        others = tuple(axis for axis in range(len(self.sizes)) if axis not in (first, second))
        found = np.broadcast_to(self.spread.sum(axis=others), [self.sizes[axis] for axis in sorted((first, second))])
        table: np.ndarray = (found if first < second else found.T) / found.sum()
        return table

    @cached_property
    def dependences(self) -> dict[tuple[str, str], tuple[float, float]]:
        """Of each two factors that depend on each other: the correlation of their indices, and their mutual
        information in nats; the most dependent first."""
        pairs = itertools.combinations([place for place, size in enumerate(self.sizes) if size > 1], 2)
        found = {(self.names[a], self.names[b]): dependence(self.table(a, b)) for a, b in pairs}
        strong = {pair: numbers for pair, numbers in found.items() if numbers[1] > INDEPENDENT}
        return dict(sorted(strong.items(), key=lambda item: -item[1][1]))


def dependence(table: np.ndarray) -> tuple[float, float]:
    """Correlation of the indices and mutual information in nats, from probabilities; 0 correlation of a constant."""
    rows, columns = table.sum(axis=1), table.sum(axis=0)
    first, second = (np.arange(len(one)) - np.arange(len(one)) @ one for one in (rows, columns))
    scale = math.sqrt((rows @ first**2) * (columns @ second**2))
    ratio = np.divide(table, np.outer(rows, columns), out=np.ones_like(table), where=table > 0)
    return float(first @ table @ second / scale) if scale else 0.0, float((table * np.log(ratio)).sum())


_LAW: TypeAdapter[Any] = TypeAdapter(Law)
_HELD_OUT: TypeAdapter[Any] = TypeAdapter(HeldOut)


def sampling(law: Any, held_out: Any, names: tuple[str, ...], sizes: tuple[int, ...]) -> Sampling:
    """Of a full grid of factors. Raises ValueError, naming the key, if the two cannot be used with these factors."""
    texts = tuple("" if one is None else json.dumps(one.model_dump(), sort_keys=True) for one in (law, held_out))
    return _sampling(texts, names, sizes)


@lru_cache(maxsize=8)
def _sampling(texts: tuple[str, ...], names: tuple[str, ...], sizes: tuple[int, ...]) -> Sampling:
    """Remembered, because the points of a sweep share few laws and a large grid takes a moment."""
    factors, (law, held_out) = axes(names, sizes), texts
    weights = np.ones((1,) * len(sizes))
    if law:
        weights = weights * _law_weights(_LAW.validate_json(law), factors)
    if not weights.any():
        raise LawError("law", "gives every combination of factors the weight 0, so nothing is left to train on")
    if held_out:
        mask = _held_out_mask(_HELD_OUT.validate_json(held_out), factors)
        if not mask.any():
            raise LawError("held_out", f"holds out nothing: no combination of {', '.join(names)} fits it")
        weights = np.where(mask, 0.0, weights)
        if not weights.any():
            raise LawError("held_out", "holds out every combination of factors" + (" that the law draws" * bool(law))
                           + ", so nothing is left to train on")  # fmt: skip
    return Sampling(names, sizes, weights / weights.max())


class LawError(ValueError):
    """A law that cannot be used with some factors, and the key that says so."""

    def __init__(self, key: str, text: str):
        super().__init__(text)
        self.key = key


def _law_weights(law: Any, factors: Factors) -> np.ndarray:
    try:
        found: np.ndarray = law.weights(factors)
    except ValueError as error:
        raise LawError("law", str(error)) from None
    if not (np.isfinite(found).all() and (found >= 0).all()):
        wrong = found[~(np.isfinite(found) & (found >= 0))].ravel()[0]
        raise LawError("law", f"weights must be finite and >= 0, but it gives a combination the weight {wrong:g}")
    return found


def _held_out_mask(held_out: Any, factors: Factors) -> np.ndarray:
    try:
        found: np.ndarray = held_out.mask(factors)
    except ValueError as error:
        raise LawError("held_out", str(error)) from None
    return found


# ---- pairs

ROUNDS, PROPOSALS = 100, 10_000
"""Proposals for each partner, one after the other, and how many are compared at once where none of these was kept."""


def partners(
    law: Any, indices: np.ndarray, drawn: Sampling, ordered: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """A partner for each image (n,): one that the pair law proposes, kept with a probability in proportion to its
    weight, else proposed again. So its law is that of the pairs times the weights.

    The partner of an image whose neighbours are all unlikely is chosen among many proposals by their weights, which
    follows the same law to within one part in thousands. DataError if no partner is found.
    """

    def proposals(images: np.ndarray) -> np.ndarray:
        factors = np.stack(np.unravel_index(images, drawn.sizes), axis=-1)
        found: np.ndarray = np.ravel_multi_index(tuple(law.draw(factors, drawn.sizes, ordered, rng).T), drawn.sizes)
        return found

    found, left = np.empty(len(indices), np.int64), np.arange(len(indices))
    for _ in range(ROUNDS):
        proposed = proposals(indices[left])
        kept = drawn.accepts(proposed, rng)
        found[left[kept]] = proposed[kept]
        left = left[~kept]
        if not len(left):
            break
    for row in left:
        proposed = proposals(np.repeat(indices[row], PROPOSALS))
        cumulated = np.cumsum(drawn.weights[proposed])
        if cumulated[-1] == 0:
            raise DataError(_without_partner(law, indices[row], drawn))
        found[row] = proposed[np.searchsorted(cumulated, rng.random() * cumulated[-1], side="right")]
    return found


def _without_partner(law: Any, index: int, drawn: Sampling) -> str:
    values = zip(drawn.names, np.unravel_index(index, drawn.sizes), strict=True)
    image = ", ".join(f"{name} {value}" for name, value in values)
    return (
        f"'{law.name}' finds no partner for the image with {image}: dataset.law and dataset.held_out allow none; use "
        "another pair law or hold out less"
    )


TRIED = 256
"""Images for which partners are drawn before anything is spent."""


def try_partners(law: Any, drawn: Sampling) -> None:
    """Raises ValueError if a pair law finds no partner for some of a few images."""
    try:
        failure = _failure(law, drawn)
    except TypeError:  # a user's own law may have parameters that cannot be remembered
        failure = _failure.__wrapped__(law, drawn)
    if failure:
        raise ValueError(failure)


@lru_cache(maxsize=64)
def _failure(law: Any, drawn: Sampling) -> str:
    rng = np.random.default_rng(0)
    try:
        partners(law, drawn.draw(rng, TRIED), drawn, np.ones(len(drawn.sizes), bool), rng)
    except DataError as error:
        return str(error)
    return ""
