"""The sweep files of the repository can run, and those of Michlo et al., IJCAI 2023, ask what the paper asked."""

import itertools
import math
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
import torch

from disentune.learn.transforms import inputs
from disentune.spec import space

SWEEPS = Path(__file__).parents[2] / "sweeps"
FILES = [
    path
    for folder in ("", "michlo", "locatello", "mathieu", "small")
    for path in sorted((SWEEPS / folder).glob("*.yaml"))
]
TRIALS = {
    "autoencoder_control": 18,
    "figure04_learnt_distances": 4,
    "figure06_benchmark_grid": 160,
    "figure07_traversals": 2,
    "figure09_spacing": 80,
    "figure10_overlap_distances": 4,
    "figure11_overlap_loss": 40,
    "tuning_lr_beta": 180,
}
LONG = {"figure04_learnt_distances", "figure06_benchmark_grid", "figure07_traversals"}
"""Of 115,200 steps; the others have half of them."""
BENCHMARKS = {"dsprites", "shapes3d", "cars3d", "smallnorb", "xysquares"}
BETAS = {0.000316, 0.001, 0.00316, 0.01, 0.0316, 0.1, 0.316, 1.0}
BOX = {"name": "overlap", "loss": "mse", "kernel": "box", "radius": 31, "alpha": 63**2}


def shown(path):
    return path.relative_to(SWEEPS).with_suffix("").as_posix()


@cache
def read(path):
    return space.read(path)


@cache
def points(name):
    return read(SWEEPS / "michlo" / f"{name}.yaml").points


def trials(name):
    return [point.config for point in points(name)]


def all_trials():
    return [config for name in TRIALS for config in trials(name)]


def header(path):
    """The comment that a file begins with."""
    lines = path.read_text().splitlines()
    return "\n".join(itertools.takewhile(lambda line: line.startswith("#"), lines))


def counted(name, *keys):
    """How many trials have each combination of some values."""
    return Counter(tuple(key(config) for key in keys) for config in trials(name))


def framework(config):
    return config.framework.name


def beta(config):
    return config.framework.params.beta


def latents(config):
    return config.model.params.latents


def dataset(config):
    return config.dataset.name


def loss(config):
    return config.recon.name


def spacing(config):
    return config.dataset.params.spacing


# ---- every file


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_every_sweep_can_run_and_asks_a_question(path):
    assert read(path).sweep.question.endswith("?")


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_the_header_says_question_cost_and_outcome(path):
    for word in ("Question:", "Cost:", "Outcome"):
        assert word in header(path), word


@pytest.mark.parametrize("name", TRIALS)
def test_the_header_of_a_paper_sweep_also_says_its_trials_and_what_is_ours(name):
    said = header(SWEEPS / "michlo" / f"{name}.yaml")
    assert f" {TRIALS[name]} trials of " in said
    assert "\n# Deviations:\n" in said


def test_no_two_sweeps_share_a_name_and_so_a_folder_of_runs():
    names = Counter(read(path).sweep.name for path in FILES)
    assert names.most_common(1)[0][1] == 1, names.most_common(1)


# ---- how many trials


def test_every_sweep_of_the_paper_is_counted_here():
    assert {path.stem for path in (SWEEPS / "michlo").glob("**/*.yaml")} == TRIALS.keys()


@pytest.mark.parametrize("name", TRIALS)
def test_a_sweep_of_the_paper_has_as_many_trials_as_it_says(name):
    assert len(trials(name)) == TRIALS[name]


# ---- what all runs of the paper have in common


@pytest.mark.parametrize("name", TRIALS)
def test_every_trial_trains_as_the_papers_code_does(name):
    """Its network, batches of 256, losses as means; 1e-3 but for the thesis' grid; long or medium."""
    rates = {1e-3, 1e-4} if name == "tuning_lr_beta" else {1e-3}
    assert {config.model.name for config in trials(name)} == {"conv64"}
    assert {config.training.batch_size for config in trials(name)} == {256}
    assert {config.training.learning_rate for config in trials(name)} == rates
    assert {config.training.steps for config in trials(name)} == {115200 if name in LONG else 57600}
    assert {config.loss_scale for config in trials(name)} == {"mean"}


def test_every_trial_sees_images_of_64_pixels_standardised_by_the_published_constants():
    for config in all_trials():
        assert (config.pixels.transform, config.pixels.statistics, config.pixels.noise) == (
            "standardise",
            "published",
            0,
        )
        assert config.setting().shape[1:] == (64, 64)


def test_every_xysquares_trial_standardises_by_a_mean_of_1_64_and_a_deviation_of_the_root_of_1_65():
    """An image has 64 lit pixels of 4096 in each channel: mean 1/64, variance 1/64 * 63/64 * 4096/4095 = 1/65."""
    worlds = {repr(config.dataset.tree()): config for config in all_trials() if dataset(config) == "xysquares"}
    assert len(worlds) == 8  # spacings
    for config in worlds.values():
        params, plugin = config.dataset.params, config.dataset.plugin
        seen = inputs(config.pixels, plugin.open(params), torch.device("cpu"), plugin.published(params))
        assert seen.mean.flatten().tolist() == pytest.approx([1 / 64] * 3)
        assert seen.std.flatten().tolist() == pytest.approx([math.sqrt(1 / 65)] * 3)


def test_every_xysquares_trial_has_three_squares_of_8_pixels_at_8_places_an_axis():
    found = {config.dataset.params for config in all_trials() if dataset(config) == "xysquares"}
    assert {(p.square_size, p.squares, p.rgb, p.places) for p in found} == {(8, 3, True, 8)}


def test_smallnorb_is_the_training_split_alone_as_in_disent():
    found = {config.setting().factor_sizes for config in all_trials() if dataset(config) == "smallnorb"}
    assert found == {(5, 5, 9, 18, 6)}


def test_every_ada_gvae_trial_averages_as_published_and_draws_pairs_by_the_original_law():
    found = [config.framework.params for config in all_trials() if framework(config) == "ada_gvae"]
    assert {(p.averaging, p.pairs.name, p.divergence, p.ratio) for p in found} == {
        ("as_published", "original", "symmetric_kl", 0.5)
    }


@pytest.mark.parametrize("name", TRIALS)
def test_every_trial_is_scored_when_and_as_in_the_papers_code(name):
    """Fast every 2400 steps, DCI and FactorVAE every 7200; all of them in full at the end; posterior means alone."""
    rare = {"dci", "factor_vae_score"}
    for config in trials(name):
        by_size = {size: {m.metric.name: m for m in config.metrics if m.size == size} for size in ("fast", "full")}
        assert by_size["fast"].keys() == by_size["full"].keys() >= rare | {"mig", "sap", "flatness", "distances"}
        assert {m.every for n, m in by_size["fast"].items() if n in rare} == {7200}
        assert {m.every for n, m in by_size["fast"].items() if n not in rare} == {2400}
        assert {m.every for m in by_size["full"].values()} == {0}
        assert {m.codes for m in config.metrics} == {"mean"}
        assert {m["factor_vae_score"].metric.params.threshold for m in by_size.values()} == {0}


# ---- one by one


def test_figure_6_crosses_8_betas_and_2_latent_sizes_for_each_framework_and_data_set():
    wanted = itertools.product(["ada_gvae", "beta_vae"], BENCHMARKS, BETAS, [9, 25])
    assert counted("figure06_benchmark_grid", framework, dataset, beta, latents) == Counter(wanted)


def test_figure_9_has_the_betas_that_its_plot_selects_by_spacing():
    ada = {("ada_gvae", step, 0.001): 5 for step in range(1, 9)}
    plain = {("beta_vae", step, 0.001 if step >= 3 else 0.00316): 5 for step in range(1, 9)}
    assert counted("figure09_spacing", framework, spacing, beta) == ada | plain
    assert {latents(config) for config in trials("figure09_spacing")} == {9}


def test_figure_11_has_5_seeds_of_each_framework_loss_and_beta():
    wanted = itertools.product(["ada_gvae", "beta_vae"], ["mse", "overlap"], [0.0316, 0.0001])
    assert counted("figure11_overlap_loss", framework, loss, beta) == dict.fromkeys(wanted, 5)
    assert {(latents(config), spacing(config)) for config in trials("figure11_overlap_loss")} == {(25, 8)}


@pytest.mark.parametrize("name", ["figure10_overlap_distances", "figure11_overlap_loss", "autoencoder_control"])
def test_the_overlap_loss_is_the_papers_box_weighed_by_the_area_of_its_kernel(name):
    boxes = [config.recon.tree() for config in trials(name) if loss(config) == "overlap"]
    assert boxes
    assert all(box == BOX for box in boxes)


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        ("figure04_learnt_distances", "figure06_benchmark_grid"),
        ("figure07_traversals", "figure06_benchmark_grid"),
        ("figure10_overlap_distances", "figure11_overlap_loss"),
    ],
)
def test_figures_of_models_show_beta_vaes_of_the_grid_that_they_were_probably_drawn_from(part, whole):
    assert {framework(config) for config in trials(part)} == {"beta_vae"}
    assert {config.id for config in trials(part)} <= {config.id for config in trials(whole)}


def test_figure_4_is_of_cars3d_and_figure_7_of_xysquares():
    assert {dataset(config) for config in trials("figure04_learnt_distances")} == {"cars3d"}
    assert counted("figure07_traversals", dataset, latents, beta) == {
        ("xysquares", 9, 0.000316): 1,
        ("xysquares", 25, 0.00316): 1,
    }


def test_the_thesis_crosses_9_betas_and_2_learning_rates_for_each_framework_and_data_set():
    wanted = itertools.product(["ada_gvae", "beta_vae"], BENCHMARKS, BETAS | {0.0001}, [1e-3, 1e-4])

    def rate(config):
        return config.training.learning_rate

    assert counted("tuning_lr_beta", framework, dataset, beta, rate) == Counter(wanted)
    assert {latents(config) for config in trials("tuning_lr_beta")} == {25}


def test_the_two_autoencoder_sweeps_share_squared_error_on_xysquares():
    asked = Counter(arm for point in points("autoencoder_control") for arm in point.arms)
    assert asked == {"datasets": 15, "losses": 6}
    shared = [point.config for point in points("autoencoder_control") if point.arms == ("datasets", "losses")]
    assert [(dataset(config), loss(config), config.seed) for config in shared] == [
        ("xysquares", "mse", seed) for seed in (0, 1, 2)
    ]
    assert {(framework(config), latents(config)) for config in trials("autoencoder_control")} == {("ae", 25)}
