"""Reconstruction losses, each with the distance between images that it implies."""

from disentune.plugin import Catalogue, Modules, Recon

RECONS = Catalogue(
    "reconstruction loss",
    Recon,
    Modules[Recon](
        __name__,
        "RECON",
        "bce",
        "laplace",
        "mae",
        "mse",
        "normal",
        "overlap",
    ),
)
