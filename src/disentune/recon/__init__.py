"""Reconstruction losses, each with the distance between images that it implies."""

from disentune.plugin import Catalogue, Recon
from disentune.recon import bce, laplace, mae, mse, normal, overlap

RECONS = Catalogue(
    "reconstruction loss",
    Recon,
    [bce.RECON, laplace.RECON, mae.RECON, mse.RECON, normal.RECON, overlap.RECON],
)
