"""Learns the kernel of the overlap loss from a data set, without training any model: the future work of Michlo et al.,
IJCAI 2023, section 8. The kernel maximises the order that `disentune inspect` measures.

The kernel is separable and symmetric. Its weights are at least 0 and sum to 1 on each axis, as those of a box and of a
Gaussian do, so that kernels of equal alpha compare by their shape alone. Everything is in float64 and deterministic.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from disentune.errors import DataError
from disentune.learn.image_distances import Say, World, lines, steps_apart
from disentune.maths.randomness import stream

LINES = 16
"""Default number of lines per factor to learn from."""
STEPS = 200
"""Updates of the weights; by then the order changes in its fourth digit at most (tests/learn/test_kernels.py)."""
RATE = 0.1
"""Learning rate of Adam on the logarithms of the weights."""


def _silent(what: str, done: int, total: int) -> None:
    pass


@dataclass(frozen=True)
class Learned:
    taps: list[float]
    """Weights of a pixel 0, 1, ..., radius away on one axis; the weights of all pixels sum to 1."""
    before: float
    """Mean over factors of the order under a box of the same radius, on the lines that the kernel was learned from."""
    after: float


def learned(
    world: World, radius: int, alpha: float, count: int = LINES, seed: int = 0, steps: int = STEPS, say: Say = _silent
) -> Learned:
    """The kernel of squared error that orders the factors of a data set best, of those that the search visits. It
    starts from the box of this radius, so on the lines it has seen the result is never worse than the box."""
    seen = _seen(world, count, seed)
    logits = torch.zeros(radius + 1, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.Adam([logits], lr=RATE)
    best, best_taps, before = -np.inf, logits, 0.0
    for step in range(steps + 1):
        say("learning a kernel", step, steps + 1)
        taps = normalised(logits)
        order = torch.stack([_order(images, taps, alpha) for images in seen]).mean()
        if step == 0:
            before = order.item()
        if order.item() > best:
            best, best_taps = order.item(), taps.detach()
        optimiser.zero_grad()
        (-order).backward()
        optimiser.step()
    return Learned(best_taps.tolist(), before, best)


def normalised(logits: Tensor) -> Tensor:
    """Weights of one side, (r + 1,): positive, and 1 in sum when each but the first counts twice."""
    weights = logits.exp()
    found: Tensor = weights / (2 * weights.sum() - weights[0])
    return found


def _seen(world: World, count: int, seed: int) -> list[Tensor]:
    """Images of the lines of each factor that can have an order, (l, v, c, h, w). DataError if there is none."""
    grid, categorical = world.grid, world.images.data.categorical
    found = []
    for factor, (name, size) in enumerate(zip(grid.names, grid.sizes, strict=True)):
        if size >= 3 and name not in categorical:
            indices = lines(grid, factor, count, stream(seed, f"distances/{name}"))
            images = world.images(indices.ravel()).double()
            found.append(images.reshape(*indices.shape, *images.shape[1:]))
    found = [images for images in found if (images != images[:, :1]).any()]
    if not found:
        raise DataError("no factor has three or more ordered values that look different, so no kernel can be learned")
    return found


def _order(images: Tensor, taps: Tensor, alpha: float) -> Tensor:
    """`image_distances.Along.order` of squared error with this kernel, differentiable: Pearson's correlation of all
    distances with the steps between values, rescaled to be 0 if all pairs are equally far apart."""
    size = images.shape[1]
    rows, columns = (_blur(side, taps) for side in images.shape[-2:])
    distances = _squared(images) + alpha * _squared(rows @ images @ columns)
    steps = torch.from_numpy(steps_apart(np.arange(size)))
    floor = _correlation((steps > 0).double(), steps)
    return (_correlation(distances, steps.expand_as(distances)) - floor) / (1 - floor)


def _blur(size: int, taps: Tensor) -> Tensor:
    """One axis of the blur, (size, size); zeros beyond the border."""
    apart = torch.from_numpy(steps_apart(np.arange(size))).long()
    found: Tensor = taps[apart.clamp(max=len(taps) - 1)] * (apart < len(taps))
    return found


def _squared(images: Tensor) -> Tensor:
    """Squared distances between all images of each line, (l, v, c, h, w) -> (l, v, v)."""
    flat = images.flatten(start_dim=2)
    products = flat @ flat.mT
    own = products.diagonal(dim1=1, dim2=2)
    return own[:, :, None] + own[:, None, :] - 2 * products


def _correlation(a: Tensor, b: Tensor) -> Tensor:
    a, b = a.flatten() - a.mean(), b.flatten() - b.mean()
    found: Tensor = (a @ b) / (a.norm() * b.norm())
    return found
