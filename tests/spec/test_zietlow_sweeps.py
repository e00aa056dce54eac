"""The experiments of Zietlow et al., ICML 2021, as the paper and its Table 2 configure them."""

from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from disentune.results.donors import check, params_of
from disentune.spec import space
from disentune.spec.selection import select

FOLDER = Path(__file__).parents[2] / "sweeps" / "zietlow"
STRENGTHS = {"beta_vae": "beta", "beta_tc_vae": "beta", "factor_vae": "gamma", "slow_vae": "beta"}
TABLE_2 = {
    "dsprites": {"beta_vae": 8, "beta_tc_vae": 6, "factor_vae": 35, "slow_vae": 1},
    "shapes3d": {"beta_vae": 32, "beta_tc_vae": 32, "factor_vae": 7, "slow_vae": 1},
}
EPSILON = {"dsprites": 0.1, "shapes3d": 0.175}
FACTORS = {"dsprites": 5, "shapes3d": 6}
DONORS = {"dsprites": 1, "shapes3d": 4}
METHODS = ("beta_vae", "factor_vae", "beta_tc_vae", "slow_vae", "pcl")
STUDIES = ["study_dsprites", "study_shapes3d", "line_search_shapes3d", "small_study"]
both = pytest.mark.parametrize("name", TABLE_2)


@cache
def sweep(file):
    return space.read(FOLDER / f"{file}.yaml")


def trials(file):
    return [point.config for point in sweep(file).points]


def condition(config):
    if config.dataset.name == "manipulated":
        return "manipulated"
    return "noise" if config.pixels.noise else "original"


def strength(config):
    return getattr(config.framework.params, STRENGTHS[config.framework.name])


@both
def test_it_has_every_method_condition_and_seed_once(name):
    found = Counter((one.framework.name, condition(one), one.seed) for one in trials(f"study_{name}"))
    cells = {(method, kind) for method in METHODS for kind in ("original", "manipulated", "noise")} | {
        ("ae", "original")
    }
    assert set(found) == {(*cell, seed) for cell in cells for seed in range(10)}
    assert len(trials(f"study_{name}")) == len({one.id for one in trials(f"study_{name}")}) == 160
    assert "= 160 trials" in (FOLDER / f"study_{name}.yaml").read_text()


@both
def test_strengths_are_those_of_table_2(name):
    found = {one.framework.name: strength(one) for one in trials(f"study_{name}") if one.framework.name in STRENGTHS}
    assert found == TABLE_2[name]
    (beta,) = {one.framework.params.beta for one in trials(f"donors_{name}")}
    assert beta == TABLE_2[name]["beta_vae"]


@both
def test_there_are_as_many_latents_as_factors(name):
    latents = {one.model.params.latents for file in ("study", "donors") for one in trials(f"{file}_{name}")}
    assert latents == {FACTORS[name]}
    assert {len(one.setting().factor_sizes) for one in trials(f"study_{name}")} == {FACTORS[name]}


@both
def test_changes_and_noise_have_the_papers_epsilon_and_donors(name):
    noises = {one.pixels.noise for one in trials(f"study_{name}") if condition(one) == "noise"}
    manipulated = [params_of(one.tree()) for one in trials(f"study_{name}") if condition(one) == "manipulated"]
    assert noises == {EPSILON[name]} == {params.epsilon for params in manipulated}
    assert {(one.best, one.worst, one.metric) for one in manipulated} == {(DONORS[name], DONORS[name], "mig")}
    assert {(one.learning_rate, one.decoder_batches, one.samples) for one in manipulated} == {(1e-4, 3, 5)}


@both
def test_networks_losses_and_scores_are_those_of_disentanglement_lib(name):
    for one in trials(f"study_{name}"):
        assert (one.model.name, one.recon.name, one.loss_scale) == ("conv64_locatello", "bce", "sum")
        assert one.training.steps == (150_000 if one.framework.name == "factor_vae" else 300_000)
        assert {"mig", "dci_disentanglement", "factor_vae_score", "sap", "active_units"} <= set(one.metric_keys())


def test_the_line_search_scales_the_strengths_of_table_2():
    found = {
        (one.framework.name, strength(one) / TABLE_2["shapes3d"][one.framework.name], condition(one), one.seed)
        for one in trials("line_search_shapes3d")
    }
    scales = (0.25, 0.5, 1, 2, 4)
    kinds = ("original", "manipulated")
    assert found == {(m, s, k, seed) for m in STRENGTHS for s in scales for k in kinds for seed in range(10)}
    assert len(trials("line_search_shapes3d")) == 400
    assert "= 400 trials" in (FOLDER / "line_search_shapes3d.yaml").read_text()


def test_figures_of_the_line_search_leave_out_trials_that_prune_a_factor():
    figures = sweep("line_search_shapes3d").sweep.settings.figures
    assert len(figures) == 16
    for figure in figures:
        chosen, method = select(figure.only), figure.only.split("'")[1]
        assert chosen({"framework": {"name": method}, "active_units": 6.0})
        assert not chosen({"framework": {"name": method}, "active_units": 5.0})


@pytest.mark.parametrize("file", STUDIES)
def test_every_study_can_get_its_donors(file):
    donors = {"small_study": "small_donors"}.get(file, f"donors_{file.split('_')[-1]}")
    planned = {"donors": trials(donors)}
    for config in trials(file):
        check(config.tree(), planned)
    assert any(condition(config) == "manipulated" for config in trials(file))


def test_the_small_study_has_every_method_and_condition_with_five_seeds_or_more():
    found = Counter((one.framework.name, condition(one)) for one in trials("small_study"))
    assert {method for method, _ in found} == {*METHODS, "ae"}
    assert min(found.values()) >= 5
    assert {kind for method, kind in found if method != "ae"} == {"original", "manipulated", "noise"}
