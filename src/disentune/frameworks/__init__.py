"""Frameworks: the losses that papers propose."""

from disentune.plugin import Catalogue, Framework, Modules

FRAMEWORKS = Catalogue(
    "framework",
    Framework,
    Modules[Framework](
        __name__,
        "FRAMEWORK",
        "ada_gvae",
        "ada_ml_vae",
        "ae",
        "annealed_vae",
        "beta_tc_vae",
        "beta_vae",
        "control_vae",
        "decomposition_vae",
        "dip_vae_i",
        "dip_vae_ii",
        "factor_vae",
        "info_vae",
        "manipulator",
        "pcl",
        "slow_vae",
    ),
)
