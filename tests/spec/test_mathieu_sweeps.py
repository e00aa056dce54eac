"""The sweeps of Mathieu et al., ICML 2019: what its Appendix B and Table 1 say, and grids that are declared as ours."""

from functools import cache
from pathlib import Path

import pytest

from disentune.spec import space

SWEEPS = Path(__file__).parents[2] / "sweeps"
TRIALS = {
    "mathieu/figure2_priors": 1200,
    "mathieu/figure2_student_t": 600,
    "mathieu/figure3_pinwheel": 125,
    "small/figure2_priors": 120,
    "small/figure2_student_t": 60,
}
FULL = ["mathieu/figure2_priors", "mathieu/figure2_student_t"]
DSPRITES = 737_280


@cache
def points(name):
    return space.read(SWEEPS / f"{name}.yaml").points


def trials(name):
    return [point.config for point in points(name)]


def text(name):
    return (SWEEPS / f"{name}.yaml").read_text()


def values(name, *keys):
    """Distinct combinations of dotted keys of the configs."""
    found = set()
    for config in trials(name):
        tree = config.tree()
        found.add(tuple(_below(tree, key.split(".")) for key in keys))
    return found


def _below(tree, path):
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


@pytest.mark.parametrize("name", TRIALS)
def test_there_are_as_many_trials_as_the_header_says(name):
    assert len({config.id for config in trials(name)}) == TRIALS[name]
    assert f"= {TRIALS[name]} trials of" in text(name)


@pytest.mark.parametrize("name", TRIALS)
def test_the_header_says_what_is_not_as_in_the_paper(name):
    said = text(name)
    assert "Deviations:" in said
    assert "ours" in said
    assert values(name, "framework.name", "loss_scale") == {("decomposition_vae", "sum")}


@pytest.mark.parametrize("name", FULL)
def test_the_network_and_loss_of_the_full_sweeps_are_those_of_the_paper(name):
    assert values(name, "dataset.name", "dataset.transform", "model.name", "model.latents", "recon.name") == {
        ("dsprites", "unit", "conv64_mathieu", 10, "bce")
    }
    assert values(name, "training.learning_rate", "training.optimiser.amsgrad") == {(1e-4, True)}
    assert len({config.seed for config in trials(name)}) == 100


def test_gaussian_priors_train_for_20_epochs_of_batches_of_64():
    assert values(FULL[0], "training.steps", "training.batch_size") == {(20 * DSPRITES // 64, 64)}


def test_students_t_trains_for_40_epochs_of_batches_of_256():
    assert values(FULL[1], "training.steps", "training.batch_size") == {(40 * DSPRITES // 256, 256)}
    assert values(FULL[1], "framework.beta") == {(1.0,)}


@pytest.mark.parametrize("name", ["mathieu/figure2_priors", "small/figure2_priors"])
def test_three_priors_are_crossed_with_every_beta_and_seed(name):
    priors = {("isotropic", None), ("anisotropic", False), ("anisotropic", True)}
    assert values(name, "framework.prior.name", "framework.prior.learned") == priors
    betas = {beta for (beta,) in values(name, "framework.beta")}
    seeds = {config.seed for config in trials(name)}
    assert len(priors) * len(betas) * len(seeds) == TRIALS[name]
    assert len(seeds) >= 5


@pytest.mark.parametrize("name", ["mathieu/figure2_student_t", "small/figure2_student_t"])
def test_nu_goes_from_heavy_tails_to_a_gaussian_and_codes_are_scored_before_and_after_the_map(name):
    found = {nu for (nu,) in values(name, "framework.prior.nu")}
    assert {3, 5, 100} <= found
    assert min(found) == 2
    assert {"factor_vae_score", "factor_vae_score_normal"} <= set(trials(name)[0].metric_keys())


def test_the_pinwheel_is_that_of_the_paper():
    name = "mathieu/figure3_pinwheel"
    assert values(name, "dataset.arms", "dataset.points", "dataset.rate", "dataset.transform") == {
        (4, 100, 0.25, "unit")
    }
    assert values(name, "dataset.radial_std", "dataset.tangential_std") == {(0.3, 0.1)}
    assert values(name, "model.name", "model.latents", "model.width") == {("pinwheel_mlp", 2, 100)}
    assert values(name, "framework.prior.name", "framework.prior.scale", "framework.divergence") == {
        ("mixture", 0.03, "inclusive_kl")
    }
    assert values(name, "recon.name", "recon.std") == {("normal", "learned")}


def test_each_of_its_500_epochs_is_one_batch_of_all_400_points():
    name = "mathieu/figure3_pinwheel"
    assert values(name, "training.steps", "training.batch_size", "training.replacement", "training.learning_rate") == {
        (500, 400, False, 1e-3)
    }


def test_its_alphas_and_betas_are_fully_crossed_and_include_the_beta_vae():
    found = values("mathieu/figure3_pinwheel", "framework.alpha", "framework.beta")
    alphas, betas = {alpha for alpha, _ in found}, {beta for _, beta in found}
    assert found == {(alpha, beta) for alpha in alphas for beta in betas}
    assert 0 in alphas
    assert {config.seed for config in trials("mathieu/figure3_pinwheel")} == set(range(5))


def test_the_search_space_can_be_sampled(tmp_path):
    """Beside a sweep that names it."""
    sweep = tmp_path / "try.yaml"
    spaces = SWEEPS.parent / "search_spaces"
    (tmp_path / "search_spaces").symlink_to(spaces)
    sweep.write_text(
        "name: try\nquestion: does it parse?\n"
        "trial:\n  dataset: {name: sprites2d, transform: unit}\n  model: {name: mlp, latents: 4}\n"
        "  recon: {name: bce}\n"
        "  training: {steps: 10, batch_size: 4, learning_rate: 1e-3}\n  evaluation: {metrics: [mig]}\n"
        "  loss_scale: sum\narms:\n  all: {search_space: [mathieu_search]}\n"
        "search: {name: random, points: 3}\nobjective: {metric: mig, mode: max}\n"
    )
    read = space.read(sweep)
    assert read.sweep.question == "does it parse?"
