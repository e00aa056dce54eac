"""Distances between images that differ in one factor: by the factor's values, by the reconstruction loss (the perceived
distance), and at each level of a trained model. Michlo et al., IJCAI 2023, sections 4 to 6.

A line is the paper's traversal: all images that differ only in one factor, in the order of its values. Distances
between images are means over pixels; those between values are L1. Nothing is trained here.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from torch import Tensor, nn

from disentune.data.factors import FactorGrid, FactorTable, factors_of, full_grid
from disentune.errors import DataError
from disentune.learn.evaluation import Trained
from disentune.learn.transforms import Inputs, inputs
from disentune.maths.gaussian import symmetric_kl
from disentune.maths.randomness import stream
from disentune.metrics.distances import pearson, spearman
from disentune.plugin import Posterior
from disentune.spec.config import Named, TrialConfig

LINES = 64
"""Default number of lines per factor, through random images."""
GROUPS, GROUP = 64, 32
"""Size of groups of random images that are all compared with each other: 32 as in the published procedure, so that one
pair in 32 is an image with itself."""
COMPARED = 2**19
"""Numbers on each side of the pairs compared at a time, so that they stay in the cache: 2 MB."""
AT_A_TIME = 2**24
"""Numbers in the images held at a time: 64 MB."""
LEVELS = ("x", "z", "kl", "x_recon")
"""Levels of a trained model, Figs. 4 and 10: images by the loss, codes (L2 of means), posteriors (symmetric KL, mean
over latents), decoded means by the loss."""

Say = Callable[[str, int, int], None]
"""Called with the current activity, the number of finished items and the total."""


def _silent(what: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class World:
    """Images and the loss that compares them, on which perceived distances depend."""

    images: Inputs
    recon: Named

    @property
    def known(self) -> FactorGrid | FactorTable:
        """The factors of the images."""
        return factors_of(self.images.data)

    @property
    def grid(self) -> FactorGrid:
        """DataError where images do not fill it."""
        return full_grid(self.known, "a line along one factor")


def opened(config: TrialConfig) -> World:
    """The world of a trial; its data set must be prepared."""
    dataset = config.dataset
    data = dataset.plugin.open(dataset.params)
    published = dataset.plugin.published(dataset.params)
    return World(inputs(config.pixels, data, torch.device("cpu"), published), config.recon)


# ---- which images


def lines(grid: FactorGrid, factor: int, count: int | None, rng: np.random.Generator) -> np.ndarray:
    """Lines through `count` random images, (count, size); without a count, every line."""
    if count is None:
        return grid.every_line(factor)
    return grid.around(rng.integers(len(grid), size=count), factor)


def groups(images: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Groups of random ones of so many images, (count, 32)."""
    return rng.integers(images, size=(count, GROUP))


# ---- their distances


@torch.no_grad()
def perceived(world: World, indices: np.ndarray, say: Say = _silent, what: str = "") -> np.ndarray:
    """The loss between each two images of a line or group, (l, v) -> float64 (l, v, v), a mean over pixels.

    A loss may be asymmetric, and nonzero between equal images: the first image is the output, the second the target.
    """
    found, size = [], indices.shape[1]
    whole = max(1, AT_A_TIME // (size * prod(world.images.data.shape)))
    for start in range(0, len(indices), whole):
        some = indices[start : start + whole]
        x = world.images(some.ravel()).double()  # so that equal distances are equal
        found.append(_mirrored(_compared(world.recon, x, _pairs(size, len(some)).to(x.device)), size))
        say(what, start + len(some), len(indices))
    return np.concatenate(found)


@torch.no_grad()
def learnt(trained: Trained, indices: np.ndarray) -> np.ndarray:
    """Distances at each of `LEVELS`, (l, v) -> float64 (4, l, v, v). Each image is encoded and decoded once,
    however many pairs contain it. Raises DataError if the model's output is not finite."""
    size = indices.shape[1]
    with undisturbed(trained.model):
        x = trained.images(indices.ravel())
        q = finite_codes(trained, x, indices.ravel())
        x_recon = decoded(trained, q.mean)
    pairs = _pairs(size, len(indices)).to(x.device)
    one, other = (doubled(Posterior(q.mean[rows], q.logvar[rows])) for rows in pairs)
    z, kl = torch.linalg.vector_norm(one.mean - other.mean, dim=1), symmetric_kl(one, other).mean(dim=1)
    by_level = _compared(trained.recon, x, pairs), z, kl, _compared(trained.recon, x_recon, pairs)
    return np.stack([_mirrored(found, size) for found in by_level])


def _pairs(size: int, count: int) -> Tensor:
    """(2, count * m): each two members of a line, including each with itself."""
    upper = np.stack(np.triu_indices(size))
    starts = size * np.arange(count)
    return torch.from_numpy((upper[:, None, :] + starts[:, None]).reshape(2, -1))


def _compared(recon: Named, images: Tensor, pairs: Tensor) -> Tensor:
    """float64 (m,)."""
    pixels = images[0].numel()
    pieces = pairs.split(max(1, COMPARED // pixels), dim=1)
    found = (recon.plugin.distance(*(images.index_select(0, rows) for rows in piece), recon.params) for piece in pieces)
    return torch.cat([distances.double() for distances in found]) / pixels


def _mirrored(found: Tensor, size: int) -> np.ndarray:
    """Full matrices (l, v, v) from concatenated upper triangles with diagonals."""
    first, second = np.triu_indices(size)
    triangles = found.cpu().numpy().reshape(-1, len(first))
    matrices = np.empty((len(triangles), size, size))
    matrices[:, first, second] = matrices[:, second, first] = triangles
    return matrices


# ---- a trained model, which is not changed


@contextmanager
def undisturbed(model: nn.Module) -> Iterator[None]:
    """Sets evaluation mode and restores the previous mode; also restores global generators that the model may use."""
    was, devices = model.training, {parameter.device for parameter in model.parameters()}
    model.eval()
    try:
        with torch.random.fork_rng(devices=[device for device in devices if device.type == "cuda"]):
            yield
    finally:
        model.train(was)


def finite_codes(trained: Trained, x: Tensor, indices: np.ndarray | None) -> Posterior:
    """Of images of the data set by their indices, or of other images."""
    q = trained.encode(x, indices)
    if not (_is_finite(q.mean) and _is_finite(q.logvar)):
        raise DataError("the encoder's codes are not finite")
    return q


def decoded(trained: Trained, z: Tensor) -> Tensor:
    """Images in the units of the network's inputs, (n, c, h, w)."""
    if not len(z):
        return torch.empty(0, *trained.images.data.shape)
    images: Tensor = trained.recon.plugin.to_image(trained.model.decode(z), trained.recon.params)
    if not _is_finite(images):
        raise DataError("the decoder's images are not finite")
    return images


def _is_finite(numbers: Tensor) -> bool:
    """Checks in one pass: a NaN is both the minimum and the maximum."""
    return all(extreme.isfinite() for extreme in numbers.aminmax())


def doubled(q: Posterior) -> Posterior:
    """Distances in float64, because a posterior far from others overflows float32."""
    return Posterior(q.mean.double(), q.logvar.double())


# ---- how well they order the ground truth


@dataclass(frozen=True, eq=False)
class Agreement:
    """Agreement of distances with those of the factors' values."""

    pearson: float | None
    spearman: float | None
    """Both over all pairs of a line or group, including an image with itself: the published convention, by which
    equally distant images still correlate, because the distance to itself is 0. None if no factor is known."""
    mean_distance: float
    sd_distance: float
    """Both over pairs of two different images, as in Table A1. The factor with the largest mean is learnt first."""
    sample: np.ndarray
    """These distances, (m,)."""

    def numbers(self) -> dict[str, float | None]:
        return {
            "pearson": self.pearson,
            "spearman": self.spearman,
            "mean_distance": self.mean_distance,
            "sd_distance": self.sd_distance,
        }


def agreement(truth: np.ndarray | None, found: np.ndarray) -> Agreement:
    """Agreement of matrices (l, v, v) with the true ones, of the same shape or one for all; None if unknown."""
    two = _of_two(found).ravel()
    spread = 0.0 if _all_equal(two) else float(two.std())
    if truth is None:
        return Agreement(None, None, float(two.mean()), spread, two)
    truth = np.broadcast_to(truth, found.shape)
    return Agreement(pearson(truth, found), spearman(truth, found), float(two.mean()), spread, two)


def _all_equal(distances: np.ndarray) -> bool:
    """Whether all distances are equal up to the rounding of sums."""
    return bool(np.ptp(distances) <= 1e-12 * np.abs(distances).max())


def steps_apart(values: np.ndarray) -> np.ndarray:
    """L1 of one factor's values, (v,) -> (v, v)."""
    found: np.ndarray = np.abs(np.subtract.outer(values, values)).astype(np.float64)
    return found


@dataclass(frozen=True, eq=False)
class Along:
    """Perceived distances along one factor."""

    name: str
    matrix: np.ndarray
    """(v, v), the mean over lines: a panel of Figs. 3 and 8."""
    agreement: Agreement
    ordered: bool
    """Whether its values have an order."""
    line_orders: np.ndarray
    """(l,), the order of each line by itself; empty if there is no order."""
    nearest: float
    farthest: float
    """The smallest and the largest excess distance of two values on any line."""

    @property
    def excess(self) -> np.ndarray:
        """The matrix minus the loss between equal images, which is not 0 for some losses."""
        return _excess(self.matrix)

    @property
    def profile(self) -> np.ndarray:
        """Mean distance of values 1, 2, ... steps apart, (v - 1,)."""
        return np.array([np.diag(self.excess, step).mean() for step in range(1, len(self.matrix))])

    @property
    def has_order(self) -> bool:
        return _can_have_order(self.ordered, self.matrix)

    @property
    def order(self) -> float | None:
        """(r - r0) / (1 - r0), where r is Pearson's correlation of perceived distances with steps between values, over
        the pairs of all lines pooled, including an image with itself, and r0 is r for equal distances.

        It is 1 only if distances are the same linear function of the steps on every line, 0 if all pairs are equally
        far apart, and it can be negative. Lines that are each exactly proportional give less than 1 if their scales
        differ; `line_order` does not. None for values without an order, fewer than three values, or equal images.
        """
        if not self.has_order or self.agreement.pearson is None:
            return None
        return _rescaled(self.agreement.pearson, self.agreement.sample, len(self.matrix))

    @property
    def line_order(self) -> float | None:
        """The same number for each line by itself, averaged over lines; a line with equal distances counts as 0."""
        return float(self.line_orders.mean()) if self.has_order else None


def along_lines(name: str, found: np.ndarray, ordered: bool) -> Along:
    """Summarises the matrices of a factor's lines, (l, v, v)."""
    steps, matrix = steps_apart(np.arange(found.shape[-1])), found.mean(axis=0)
    orders = [_line_order(steps, line) for line in found] if _can_have_order(ordered, matrix) else []
    pairs = _of_two(_excess(found))
    return Along(
        name, matrix, agreement(steps, found), ordered, np.array(orders), float(pairs.min()), float(pairs.max())
    )


def _can_have_order(ordered: bool, matrix: np.ndarray) -> bool:
    return ordered and len(matrix) >= 3 and not _all_equal(matrix)


def _line_order(steps: np.ndarray, line: np.ndarray) -> float:
    return _rescaled(pearson(steps, line), _of_two(line), len(steps))


def _rescaled(correlation: float, pairs: np.ndarray, values: int) -> float:
    """Rescales a correlation, from 0 if all pairs of two values are equally far apart to 1."""
    if _all_equal(pairs):
        return 0.0
    steps = steps_apart(np.arange(values))
    floor = pearson(steps, steps > 0)
    return (correlation - floor) / (1 - floor)


def _excess(found: np.ndarray) -> np.ndarray:
    """Matrices (..., v, v) minus the mean of both images' distances to themselves."""
    own = np.diagonal(found, axis1=-2, axis2=-1)
    result: np.ndarray = found - (own[..., :, None] + own[..., None, :]) / 2
    return result


def _of_two(found: np.ndarray) -> np.ndarray:
    """The distances of two different values in matrices (..., v, v), (..., m)."""
    first, second = np.triu_indices(found.shape[-1], k=1)
    return found[..., first, second]


@dataclass(frozen=True, eq=False)
class Look:
    """A world's perceived distances."""

    factors: dict[str, Along]
    """The factors that have two or more values."""
    anywhere: Agreement
    """Agreement over pairs of random images, with L1 over all factors."""

    @property
    def order(self) -> float | None:
        """Mean of `Along.order` over the factors that have one; negative orders count as 0."""
        return _mean([along.order for along in self.factors.values()])

    @property
    def line_order(self) -> float | None:
        """Mean of `Along.line_order`, likewise."""
        return _mean([along.line_order for along in self.factors.values()])


def look(world: World, count: int | None = LINES, seed: int = 0, say: Say = _silent) -> Look:
    """Measures `count` lines of each factor, or all; the choice depends only on the seed and the data set. If images do
    not fill the grid of their factors, there are no lines, only random images."""
    sizes = world.known.sizes if isinstance(world.known, FactorGrid) else ()
    varied = [factor for factor, size in enumerate(sizes) if size > 1]
    found = [_along(world, factor, count, seed, say) for factor in varied]
    return Look({along.name: along for along in found}, _anywhere(world, count, stream(seed, "distances"), say))


def _along(world: World, factor: int, count: int | None, seed: int, say: Say) -> Along:
    grid, name = world.grid, world.grid.names[factor]
    found = perceived(world, lines(grid, factor, count, stream(seed, f"distances/{name}")), say, name)
    return along_lines(name, found, name not in world.images.data.categorical)


def _mean(orders: list[float | None]) -> float | None:
    known = [max(0.0, order) for order in orders if order is not None]
    return float(np.mean(known)) if known else None


def _anywhere(world: World, count: int | None, rng: np.random.Generator, say: Say) -> Agreement:
    members = groups(len(world.known), GROUPS if count is None else min(GROUPS, max(1, count)), rng)
    found = perceived(world, members, say, "random images")
    if not world.known.names:
        return agreement(None, found)
    values = world.known.factors(members.ravel()).reshape(*members.shape, -1)
    truth = np.abs(values[:, :, None] - values[:, None]).sum(axis=-1).astype(np.float64)
    return agreement(truth, found)


def levels(
    trained: Trained, count: int | None, seed: int = 0
) -> Iterator[tuple[str, dict[str, np.ndarray], dict[str, Agreement]]]:
    """For each factor: its name, and at each level of the model the mean matrix (v, v) and the agreement."""
    grid = trained.grid
    for factor, (name, size) in enumerate(zip(grid.names, grid.sizes, strict=True)):
        if size > 1:
            indices, truth = lines(grid, factor, count, stream(seed, f"distances/{name}")), steps_apart(np.arange(size))
            found = dict(zip(LEVELS, learnt(trained, indices), strict=True))
            means = {level: matrices.mean(axis=0) for level, matrices in found.items()}
            yield (
                name,
                {"factors": truth, **means},
                {key: agreement(truth, matrices) for key, matrices in found.items()},
            )
