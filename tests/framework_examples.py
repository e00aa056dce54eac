"""Parameters with which the conformance suite runs each framework; at least one set for each."""

from typing import Any

DONORS = [
    {"role": role, "trial": f"{number:016x}", "weights": f"{number:064x}"}
    for number, role in enumerate(("best", "worst", "best", "worst"))
]
EXAMPLES: dict[str, list[dict[str, Any]]] = {
    "ada_gvae": [
        {"beta": 0.7},
        {"beta": 0.7, "ratio": 0.2, "divergence": "kl", "pairs": "uniform_k"},
        {"beta": 0.7, "averaging": "as_published", "pairs": {"name": "fixed_k", "k": 2}},
    ],
    "ada_ml_vae": [{"beta": 0.7}, {"beta": 0.7, "ratio": 0.2, "divergence": "kl", "pairs": "laplace"}],
    "ae": [{}],
    "annealed_vae": [{"c_max": 4, "gamma": 5, "ramp": 100}],
    "beta_tc_vae": [
        {"beta": 3},
        {"beta": 3, "estimator": "mss"},
        {"beta": 3, "estimator": "mss", "alpha": 0.5, "gamma": 2},
    ],
    "beta_vae": [{"beta": 0.7}],
    "bio_ae": [{}, {"negativity": 0.5, "activity": 2}],
    "control_vae": [{"kl_target": 2}, {"kl_target": 0.5, "ki": 0.01, "anti_windup": "released", "beta_max": 3}],
    "decomposition_vae": [
        {"beta": 0.7, "alpha": 0.5},
        {"beta": 0.7, "alpha": 0.5, "prior": {"name": "isotropic", "scale": 2}, "divergence": "mmd_imq"},
        {"beta": 0.7, "prior": "anisotropic"},
        {"beta": 0.7, "alpha": 0.5, "prior": {"name": "anisotropic", "learned": True}},
        {"beta": 0.7, "alpha": 0.5, "prior": {"name": "anisotropic", "learned": True}, "divergence": "mmd_imq"},
        {"beta": 0.7, "alpha": 0.5, "prior": {"name": "student_t", "nu": 5}},
        {"beta": 0.7, "alpha": 5, "prior": {"name": "spike_and_slab", "share": 0.8}, "divergence": "mmd_imq"},
    ],
    "dip_vae_i": [{"lambda_od": 2}, {"lambda_od": 2, "lambda_d": 3}],
    "dip_vae_ii": [{"lambda_od": 2}, {"lambda_od": 2, "lambda_d": 3}],
    "factor_vae": [
        {"gamma": 3, "width": 8, "depth": 2},
        {"gamma": 3, "width": 8, "depth": 2, "permuted": "same_batch"},
    ],
    "hfs_vae": [
        {"gamma": 0.01},
        {"beta": 0, "gamma": 3, "delta": 2, "latent_pairs": 2},
        {"gamma": 0.03, "delta": 0.5, "latent_pairs": None, "scale": "as_released"},
    ],
    "info_vae": [{"alpha": 0.3, "lambda_z": 5}, {"alpha": -0.5, "lambda_z": 5, "kernel": "imq"}],
    "ivae": [{"labels": ["x_G"], "width": 6}, {"labels": ["x_G", "x_R"], "width": 6, "depth": 1}],
    "manipulator": [
        {"donors": DONORS, "epsilon": 0.2, "decoder_batches": 1, "samples": 2, "helper_learning_rate": 1e-2},
        # a game: with faster decoders the loss would fall and then rise again
        {"donors": DONORS[:2], "epsilon": 1.0, "decoder_batches": 1, "samples": 1, "helper_learning_rate": 1e-5},
    ],
    "pcl": [{}, {"features": "raw", "pairs": {"name": "laplace", "rate": 2.0}}],
    "qlae": [{"values": 4, "quantisation": 0.5, "commitment": 0.2}, {"codebook": "shared"}, {"learned": False}],
    "slow_vae": [{}, {"beta": 0.7, "gamma": 2, "rate": 3, "directions": "as_published", "pairs": "original"}],
    "tripod": [
        {"multi_information": 1e-2, "hessian": 1e-2},
        {
            "multi_information": 0.5,
            "hessian": 1e-4,
            "values": 4,
            "bandwidth": "same",
            "perturbations": 3,
            "normalised": "as_released",
        },
    ],
}

FALLS: dict[str, str] = {"annealed_vae": "recon", "control_vae": "recon", "factor_vae": "recon", "qlae": "recon"}
"""What training must bring down where that is not the whole `loss`, because the loss itself changes with the step, or
because codes run away from the values they can take, as those of `qlae` do without weight decay."""
UNENCODED = {"manipulator"}
"""Frameworks that only train the decoder."""
UNDECODED = {"pcl"}
"""Frameworks without a reconstruction: the decoder learns nothing."""
NOISELESS = {"ae", "bio_ae", "qlae"}
"""Frameworks that draw nothing."""
CASES = [(name, number) for name, sets in EXAMPLES.items() for number in range(len(sets))]
