"""Tables that every metric is tried on, and what the suite must know of each metric."""

from dataclasses import replace

import numpy as np

SIZES = (4, 3, 5)

ARTIFICIAL_SCALE = {
    "fos",
    "gaussian_wasserstein",
    "active_units",
    "kl_per_latent",
    "kl_per_factor",
    "kl_decomposition",
    "posterior_overlap",
    "reconstruction",
    "prior_divergence",
    "prior_log_density",
}
"""Metrics that change when all codes are multiplied by a number."""
CENTRED = {"hoyer"}
"""Metrics that change when a number is added to all codes."""
UNBOUNDED = {
    "dci_es",
    "dmig",
    "fos",
    "info_mec",
    "gaussian_total_correlation",
    "gaussian_wasserstein",
    "mutual_information",
    "active_units",
    "downstream",
    "kl_per_latent",
    "kl_per_factor",
    "factor_importance",
    "reconstruction",
    "jacobian_orthogonality",
    "kl_decomposition",
    "prior_divergence",
    "prior_log_density",
}
"""Metrics that are not between -1 and 1."""


MOVED = {"downstream": 0.06}
"""How far shift and scale of codes move a score, beyond rounding: a regression on ten rows feels its penalty."""
DRAWN = {"dci_es": 0.1, "kl_decomposition": 0.25, "posterior_overlap": 0.1, "prior_divergence": 1.0}
"""How far a score moves with its own draws: 480 codes of three latents, whose log-densities have a deviation of 1.2.
Those of `prior_divergence` (13 nats) have a deviation of 24, as most draws from the prior lie far from all codes: two
means of 10,000 draws differ by 0.35 (one deviation). `test_prior_divergence.py` states the same without draws. The
twenty trees of `dci_es` draw the codes that a split may use."""
SMALLER = {
    "dci_es": {"trees": 20, "depths": [1, 4, 16]},
    "prior_divergence": {"draws": 10_000},
    "prior_log_density": {"draws": 400},
    "downstream": {"train": 150, "test": 100},
    "beta_vae_score": {"members": 4},
    "factor_vae_score": {"members": 4},
    "jacobian_orthogonality": {"threshold": 1.0},
}
"""Params for tables of a few hundred rows, or of enough draws."""


GRID = np.tile(np.stack([axis.ravel() for axis in np.meshgrid(*map(np.arange, SIZES), indexing="ij")], axis=1), (10, 1))
"""600 rows: every combination, ten times. Scores of the codes below were computed once with the released code, or
without any of ours."""


def known_codes():
    """Codes of `GRID` whose scores can be worked out."""
    first, second, third = GRID.T
    return {
        "exact": GRID,
        "twice": np.hstack([GRID, GRID]),
        "merged": np.stack([3 * first + second, third], axis=1),
        "merged and constant": np.stack([3 * first + second, third, np.zeros_like(first)], axis=1),
        "turned": np.stack([first + second, first - second, third], axis=1),
        "halved": np.stack([first // 2, second, third], axis=1),
    }


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


def with_decoder(table):
    """The table with what only a trained model has. Codes that vary together also move the image together."""

    def gram(rows):
        scale = np.abs(table.codes).max() or 1.0
        covariance = np.cov(table.codes.T / scale, ddof=0).reshape(table.codes.shape[1], -1)
        return np.tile(covariance, (len(rows), 1, 1))

    return replace(table, reconstruction=lambda rows: (table.codes[rows] ** 2).sum(axis=1), gram=gram)
