"""Reconstruction losses, each also the distance between images that it implies."""

from disentune.plugin import Catalogue, Recon
from disentune.recon import bce, mse, overlap

RECONS = Catalogue("reconstruction loss", Recon, [bce.RECON, mse.RECON, overlap.RECON])
