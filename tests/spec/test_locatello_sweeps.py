"""The study of Locatello et al., ICML 2019, as their `unsupervised_study_v1` configures it."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from disentune.spec import space

SWEEPS = Path(__file__).parents[2] / "sweeps"
DATASETS = {
    "dsprites", "color_dsprites", "noisy_dsprites", "scream_dsprites", "smallnorb", "cars3d", "shapes3d",
}  # fmt: skip
STRENGTHS = {
    "beta_vae": ("beta", [1, 2, 4, 6, 8, 16]),
    "factor_vae": ("gamma", [10, 20, 30, 40, 50, 100]),
    "dip_vae_i": ("lambda_od", [1, 2, 5, 10, 20, 50]),
    "dip_vae_ii": ("lambda_od", [1, 2, 5, 10, 20, 50]),
    "beta_tc_vae": ("beta", [1, 2, 4, 6, 8, 10]),
    "annealed_vae": ("c_max", [5, 10, 25, 50, 75, 100]),
}
PATH = SWEEPS / "locatello" / "unsupervised_study.yaml"
SMALL = SWEEPS / "small" / "unsupervised_study.yaml"


@cache
def trials(path=PATH):
    return [point.config for point in space.read(path).points]


def strength(config):
    return float(getattr(config.framework.params, STRENGTHS[config.framework.name][0]))


def test_it_has_every_data_set_method_strength_and_seed_once():
    found = Counter((one.dataset.name, one.framework.name, strength(one), one.seed) for one in trials())
    assert set(found) == {
        (dataset, method, float(value), seed)
        for dataset in DATASETS
        for method, (_, values) in STRENGTHS.items()
        for value in values
        for seed in range(50)
    }
    assert len(trials()) == len({one.id for one in trials()}) == 12_600
    assert "= 12,600 trials" in PATH.read_text()


def test_factor_vae_makes_half_the_updates_because_its_two_optimisers_share_a_counter():
    steps = {(one.framework.name == "factor_vae", one.training.steps) for one in trials()}
    assert steps == {(True, 150_000), (False, 300_000)}


def test_batches_learning_rates_network_and_loss_are_theirs():
    common = {(one.training.batch_size, one.training.learning_rate, one.loss_scale, one.recon.name) for one in trials()}
    assert common == {(64, 1e-4, "sum", "bce")}
    assert {(one.model.name, one.model.params.latents) for one in trials()} == {("conv64_locatello", 10)}
    assert {one.dataset.plugin.shape(one.dataset.params)[1:] for one in trials()} == {(64, 64)}


def test_the_fixed_parameters_of_each_method_are_theirs():
    params = {one.framework.name: one.framework.params for one in trials()}
    discriminator = params["factor_vae"]
    assert (discriminator.depth, discriminator.width, discriminator.helper_learning_rate) == (6, 1000, 1e-4)
    assert discriminator.permuted == "same_batch"
    assert (params["annealed_vae"].gamma, params["annealed_vae"].ramp) == (1000, 100_000)
    assert params["dip_vae_i"].lambda_d is None  # 10 times lambda_od
    assert params["dip_vae_ii"].lambda_d is None  # lambda_od


def test_all_nine_evaluations_score_both_representations():
    """Ours have other names: theirs of two learners is one metric, and two of theirs are several here."""
    nine = {
        "beta_vae_score", "dci", "downstream", "factor_vae_score", "mig", "modularity", "explicitness", "sap",
        "gaussian_total_correlation", "gaussian_wasserstein", "mutual_information",
    }  # fmt: skip
    scored = {(one.metric.name, one.codes, one.size) for one in trials()[0].metrics}
    assert {(name, codes, "full") for name in nine for codes in ("mean", "sampled")} <= scored
    assert "downstream_gbt_10000_sampled" in {key for one in trials()[0].metrics for key in one.keys}


def test_scores_have_the_published_sizes():
    sizes = {one.metric.name: one.metric.params for one in trials()[0].metrics}
    assert (sizes["beta_vae_score"].train, sizes["beta_vae_score"].test, sizes["beta_vae_score"].members) == (
        10_000, 5_000, 64,
    )  # fmt: skip
    assert (sizes["factor_vae_score"].train, sizes["factor_vae_score"].threshold) == (10_000, 0.05)
    assert (sizes["mig"].samples, sizes["mig"].bins) == (10_000, 20)
    assert not sizes["sap"].continuous


def test_the_instance_of_smallnorb_is_not_a_factor():
    sizes = {one.setting().factor_sizes for one in trials() if one.dataset.name == "smallnorb"}
    assert sizes == {(5, 9, 18, 6)}


@pytest.mark.parametrize(("what", "fewest"), [("dataset", 3), ("framework", 6), ("strength", 4), ("seed", 5)])
def test_the_small_study_asks_the_same_questions(what, fewest):
    if what == "strength":
        counted = Counter(name for name, _ in {(one.framework.name, strength(one)) for one in trials(SMALL)})
        assert min(counted.values()) >= fewest
    else:
        values = {one.seed if what == "seed" else getattr(one, what).name for one in trials(SMALL)}
        assert len(values) >= fewest
