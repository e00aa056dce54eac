"""Frameworks: the losses that papers propose."""

from disentune.frameworks import (
    ada_gvae,
    ada_ml_vae,
    ae,
    annealed_vae,
    beta_tc_vae,
    beta_vae,
    control_vae,
    decomposition_vae,
    dip_vae_i,
    dip_vae_ii,
    factor_vae,
    info_vae,
    manipulator,
    pcl,
    slow_vae,
)
from disentune.plugin import Catalogue, Framework

FRAMEWORKS = Catalogue(
    "framework",
    Framework,
    [
        ada_gvae.FRAMEWORK,
        ada_ml_vae.FRAMEWORK,
        ae.FRAMEWORK,
        annealed_vae.FRAMEWORK,
        beta_tc_vae.FRAMEWORK,
        beta_vae.FRAMEWORK,
        control_vae.FRAMEWORK,
        decomposition_vae.FRAMEWORK,
        dip_vae_i.FRAMEWORK,
        dip_vae_ii.FRAMEWORK,
        factor_vae.FRAMEWORK,
        info_vae.FRAMEWORK,
        manipulator.FRAMEWORK,
        pcl.FRAMEWORK,
        slow_vae.FRAMEWORK,
    ],
)
