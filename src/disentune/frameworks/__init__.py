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
        "bio_ae",
        "control_vae",
        "decomposition_vae",
        "dip_vae_i",
        "dip_vae_ii",
        "factor_vae",
        "hfs_vae",
        "info_vae",
        "ivae",
        "manipulator",
        "pcl",
        "qlae",
        "slow_vae",
        "tripod",
    ),
)
