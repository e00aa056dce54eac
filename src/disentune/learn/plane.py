"""What a model of two latents, or of points in the plane, shows: data, codes and reconstructions, as plain arrays.

The density of all codes together, q(z) = mean of q(z|x), is computed from the posteriors when it is looked at, on the
points of the square that Mathieu et al., ICML 2019, draw in their Fig. 3.
"""

from dataclasses import dataclass, fields

import numpy as np
import torch

from disentune.errors import DataError
from disentune.learn.evaluation import Trained, code_law
from disentune.learn.image_distances import decoded, finite_codes
from disentune.maths.randomness import stream
from disentune.metrics.aggregate import STANDARD_NORMAL

SIDE, REACH = 300, 2.0
"""Points along each side of the square from -2 to 2 on which densities are drawn."""
MOST = 1000
"""Points that are shown; all when there are fewer."""
NARROWEST = -60.0
"""The smallest log-variance; a narrower posterior lies between the points anyway."""


@dataclass(frozen=True, eq=False)
class Plane:
    """`points` and `decoded` are empty when the data are images; `means`, `logvars` and `prior` when the model has not
    two latents."""

    labels: np.ndarray
    """(n,) int64: the first factor's value, by which points are coloured."""
    points: np.ndarray
    """(n, 2) float32 or (0, 2): the data."""
    decoded: np.ndarray
    """(n, 2) float32 or (0, 2): the decoded means of their posteriors."""
    means: np.ndarray
    """(n, 2) float32 or (0, 2)."""
    logvars: np.ndarray
    """(n, 2) float32 or (0, 2)."""
    prior: np.ndarray
    """(300, 300) float16 or (0, 0): density, the first latent along the second axis."""

    def __len__(self) -> int:
        return len(self.labels)


NAMES = [field.name for field in fields(Plane)]
NOTHING = np.empty((0, 2), np.float32)


def empty() -> Plane:
    """The plane of a model and a data set neither of which is two-dimensional."""
    return Plane(np.empty(0, np.int64), NOTHING, NOTHING, NOTHING, NOTHING, np.empty((0, 0), np.float16))


def axis() -> np.ndarray:
    """(300,)"""
    return np.linspace(-REACH, REACH, SIDE)


# ---- drawing


def drawn(trained: Trained, seed: int) -> Plane:
    """Empty when neither the data nor the codes lie in a plane. DataError when the model gives no finite numbers."""
    flat, two = _is_plane_of_points(trained), trained.model.latents == 2
    if not flat and not two:
        return empty()
    size = len(trained.grid)
    chosen = np.sort(stream(seed, "pictures/plane").choice(size, min(MOST, size), replace=False))
    x = trained.images(chosen)
    q = finite_codes(trained, x, chosen)
    means, logvars = (part.float().cpu().numpy() if two else NOTHING for part in (q.mean, q.logvar))
    return Plane(
        labels=trained.grid.factors(chosen)[:, 0],
        points=_coordinates(trained, x) if flat else NOTHING,
        decoded=_coordinates(trained, decoded(trained, q.mean)) if flat else NOTHING,
        means=means,
        logvars=logvars,
        prior=prior_density(trained) if two else empty().prior,
    )


def _is_plane_of_points(trained: Trained) -> bool:
    data = trained.images.data
    return np.prod(data.shape) == 2 and data.images(np.arange(1)).dtype != np.uint8


def _coordinates(trained: Trained, x: torch.Tensor) -> np.ndarray:
    """The points in the data's own units, with the transform undone."""
    plain = x.to(trained.images.mean) * trained.images.std + trained.images.mean
    return plain.flatten(1).float().cpu().numpy()


def prior_density(trained: Trained) -> np.ndarray:
    across, up = np.meshgrid(axis(), axis())
    points = np.stack([across.ravel(), up.ravel()], axis=1)
    device = next(trained.model.parameters()).device
    law = STANDARD_NORMAL if trained.prior is None else code_law(trained.prior, device)
    logs = law.log_density(points)
    densities = np.exp(np.minimum(logs, np.log(np.finfo(np.float16).max)))
    found: np.ndarray = densities.reshape(SIDE, SIDE).astype(np.float16)
    return found


def aggregate_density(plane: Plane) -> np.ndarray:
    """q(z) on the square, float64 (300, 300), the first latent along the second axis.

    Posteriors are products of two normals, so their mean on a grid is one product of matrices.
    """
    across, up = (_normals(plane.means[:, latent], plane.logvars[:, latent]) for latent in (0, 1))
    found: np.ndarray = up.T @ across / len(plane.means)
    return found


def _normals(means: np.ndarray, logvars: np.ndarray) -> np.ndarray:
    """(n, 300)"""
    logvars = np.maximum(logvars.astype(np.float64), NARROWEST)[:, None]
    squares = (axis() - means.astype(np.float64)[:, None]) ** 2 * np.exp(-logvars)
    found: np.ndarray = np.exp(-(squares + logvars + np.log(2 * np.pi)) / 2)
    return found


# ---- from files


def refuse_misshapen(plane: Plane) -> None:
    """DataError when arrays cannot be those of one plane: files come from a folder that others may write to."""
    n = len(plane.labels)
    pairs = (plane.points, plane.decoded), (plane.means, plane.logvars)
    sound = (
        n <= MOST
        and plane.labels.shape == (n,)
        and plane.labels.dtype.kind == "i"
        and all(
            a.shape == b.shape and a.shape in {(n, 2), (0, 2)} and a.dtype == b.dtype == np.float32 for a, b in pairs
        )
        and plane.prior.shape == ((SIDE, SIDE) if len(plane.means) else (0, 0))
        and plane.prior.dtype == np.float16
        and all(np.isfinite(array).all() for array in (*pairs[0], *pairs[1], plane.prior))
    )
    if not sound:
        raise DataError("the arrays of its plane do not fit together")
