"""Tables that every metric is tried on, and what the suite must know of each metric."""

import numpy as np

SIZES = (4, 3, 5)

ARTIFICIAL_SCALE = {"gaussian_wasserstein", "active_units", "kl_per_latent", "reconstruction"}
"""Metrics that change when all codes are multiplied by a number."""
CENTRED = {"hoyer"}
"""Metrics that change when a number is added to all codes."""
UNBOUNDED = {
    "gaussian_total_correlation",
    "gaussian_wasserstein",
    "mutual_information",
    "active_units",
    "downstream",
    "kl_per_latent",
    "reconstruction",
}
"""Metrics that are not between -1 and 1."""


MOVED = {"downstream": 0.06}
"""How far shift and scale of codes move a score, beyond rounding: a regression on ten rows feels its penalty."""
SMALLER = {
    "downstream": {"train": 150, "test": 100},
    "beta_vae_score": {"members": 4},
    "factor_vae_score": {"members": 4},
}
"""Params for tables of a few hundred rows."""


def factors_of(repeats=8, sizes=SIZES, seed=0):
    """Every combination, `repeats` times, in random order."""
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*map(np.arange, sizes), indexing="ij")], axis=1)
    return np.random.default_rng(seed).permutation(np.tile(grid, (repeats, 1)))


def noisy(factors):
    """Codes that mix factors a little, no two values equal."""
    rng = np.random.default_rng(1)
    k = factors.shape[1]
    return factors @ (np.eye(k) + 0.3 * rng.random((k, k))) + 0.2 * rng.normal(size=factors.shape)


def logvars_of(codes):
    """Some latents that are sure, some that are not."""
    return np.linspace(-4, -0.05, codes.shape[1]) + 0.01 * np.random.default_rng(2).random(codes.shape)


def images_of(factors):
    """Four pixels that show the factors."""
    return factors @ np.random.default_rng(3).integers(1, 9, size=(factors.shape[1], 4))
