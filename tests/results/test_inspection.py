"""From a sweep to its worlds, and from distances to what is said of them."""

import numpy as np
import pytest

from disentune.errors import ConfigError
from disentune.learn.image_distances import Along, Look, along_lines, look, opened, steps_apart
from disentune.results import inspection
from disentune.results.inspection import grade, reason, sentence, word_for, world_asked, worlds_of
from disentune.spec import space

SWEEP = """
trial:
  dataset: {{name: xysquares, image_size: 12, square_size: 3}}
  model: {{name: linear, latents: 2}}
  framework: {{name: beta_vae, beta: {{grid: [1, 4]}}}}
  training: {{steps: 2, batch_size: 2, learning_rate: 1e-3}}
  loss_scale: sum
  recon: {{name: mse}}
arms: {arms}
seeds: 2
{rest}
"""


def sweep(tmp_path, arms: str, rest: str = ""):
    path = tmp_path / "asked.yaml"
    path.write_text(SWEEP.format(arms=arms, rest=rest))
    return space.read(path)


def along(*profile: float, scales: tuple[float, ...] = (1.0,)) -> Along:
    """A factor whose distances depend on the steps alone, along lines of these scales."""
    matrix = np.array([0.0, *profile])[steps_apart(np.arange(len(profile) + 1)).astype(int)]
    return along_lines("f", np.multiply.outer(scales, matrix), True)


# ---- worlds


def test_each_data_set_and_loss_is_listed_once_with_all_its_arms(tmp_path):
    arms = """
  a: {dataset.spacing: {grid: [1, 3]}}
  b: {dataset.spacing: 3, training.steps: 3}
  c: {dataset.spacing: 3, recon: {name: overlap, radius: 5, alpha: {grid: [1, 2.5]}}}
"""
    found = [(seen.title, seen.arms) for seen in worlds_of(sweep(tmp_path, arms))]
    assert found == [
        ("xysquares, spacing 1, mse", ("a",)),
        ("xysquares, spacing 3, mse", ("a", "b")),
        ("xysquares, spacing 3, overlap, alpha 1", ("c",)),
        ("xysquares, spacing 3, overlap, alpha 2.5", ("c",)),
    ]


def test_of_a_search_the_ends_of_its_domains_are_looked_at(tmp_path):
    arms = "{a: {recon: {name: overlap, radius: 5, alpha: {log_uniform: [1, 100]}}}}"
    rest = "search: {name: optuna, points: 3}\nobjective: {metric: loss, mode: min}"
    alphas = [seen.config.recon.params.alpha for seen in worlds_of(sweep(tmp_path, arms, rest))]
    assert alphas == [1.0, 100.0]


def test_bare_keys_find_the_section_that_has_them():
    seen = world_asked("xysquares", "overlap", ["spacing=4", "radius=7", "recon.alpha=3", "dataset.grid_size=5"])
    assert (seen.config.dataset.params.spacing, seen.config.dataset.params.grid_size) == (4, 5)
    assert (seen.config.recon.params.radius, seen.config.recon.params.alpha) == (7, 3.0)
    assert seen.config.pixels.transform == "unit"
    assert world_asked("xysquares", "mse", ["transform=standardise"]).config.pixels.transform == "standardise"


def test_the_overlap_loss_has_the_papers_box_by_default():
    params = world_asked("xysquares", "overlap", []).config.recon.params
    assert (params.kernel, params.radius, params.alpha) == ("box", 31, 63.0**2)
    small = world_asked("xysquares", "overlap", ["image_size=24", "square_size=4"]).config.recon.params
    assert (small.radius, small.alpha) == (11, 23.0**2)


@pytest.mark.parametrize(
    ("dataset", "recon", "sets", "text"),
    [
        ("xysquare", "mse", [], "dataset.name  unknown data set 'xysquare'. Did you mean 'xysquares'?"),
        ("xysquares", "mce", [], "recon.name  unknown reconstruction loss 'mce'. Did you mean"),
        ("xysquares", "mse", ["spacng=1"], "dataset.spacng  unknown key. Did you mean 'spacing'?"),
        ("xysquares", "overlap", ["radius=64"], "recon.name  radius must be 1 to 63"),
        ("xysquares", "mse", ["model.latents=3"], "--set model.latents: must be a key of the data set or the loss"),
        ("xysquares", "mse", ["spacing"], "--set spacing: must be key=value, for example --set spacing=4"),
        ("xysquares", "bce", ["transform=standardise"], "recon.name  'bce' needs targets in [0, 1]"),
    ],
)
def test_what_cannot_be_inspected_is_reported_by_key(dataset, recon, sets, text):
    with pytest.raises(ConfigError) as caught:
        world_asked(dataset, recon, sets)
    assert text in str(caught.value)


def test_data_that_is_not_prepared_comes_with_the_command(monkeypatch, tmp_path):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    seen = [world_asked("dsprites", "mse", []), world_asked("xysquares", "mse", [])]
    assert inspection.missing_data(seen, None) == {"dsprites": "disentune data prepare dsprites"}


# ---- the order in words


@pytest.mark.parametrize(
    ("spacing", "word"),
    [(1, "high"), (2, "high"), (3, "high"), (4, "middle"), (6, "middle"), (7, "low"), (8, "low")],
)
def test_the_grade_falls_with_the_spacing(spacing, word):
    seen = world_asked("xysquares", "mse", [f"spacing={spacing}", "grid_size=8"])
    assert grade(look(opened(seen.config), count=1)).word == word


@pytest.mark.slow
def test_the_overlap_loss_gives_the_adversarial_squares_a_high_order():
    seen = world_asked("xysquares", "overlap", ["spacing=8"])
    assert grade(look(opened(seen.config), count=8)).word == "high"


def test_the_grade_of_the_adversarial_squares_comes_with_a_fact_of_their_distances():
    seen = world_asked("xysquares", "mse", ["spacing=8"])
    found = grade(look(opened(seen.config), count=1))
    assert found.reasons == [
        "x_R, y_R, x_G, y_G, x_B, y_B: all pairs of values are equally far apart under this loss (to within 2%)"
    ]


@pytest.mark.parametrize(
    ("profile", "text"),
    [
        ([5, 5, 5, 5], "all pairs of values are equally far apart under this loss (to within 2%)"),
        ([4, 5, 5, 5, 5], "the mean distance stays within 2% of its maximum from 2 of 5 steps on"),
        ([9, 9.5, 9, 8], "the first and the last value are closer to each other, on average, than neighbours"),
        ([1, 4, 5, 3, 2], "the mean distance is largest at 3 of 5 steps and smaller at 5"),
        ([6, 7, 8, 9], "neighbours are on average 86% as far apart as two values in general"),
    ],
)
def test_reasons_tell_the_shape_of_the_distances(profile, text):
    assert reason(along(*profile)) == text


def test_pairs_are_called_equally_far_only_when_they_are_on_all_lines_together():
    assert (
        reason(along(5, 5, 5, scales=(1, 2))) == "the mean distance is the same at every number of steps (to within 2%)"
    )


def test_mean_distances_that_hide_unequal_pairs_are_not_called_equal_pairs():
    """Neighbours 1 and 3 apart, values two steps apart 2 apart: the mean is 2 at one step and at two."""
    matrix = np.array([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]])
    assert reason(along_lines("f", matrix[None], True)).startswith("the mean distance is the same")


def test_lines_that_are_each_ordered_are_not_blamed_on_their_shape():
    seen = along(1, 2, 3, scales=(0.05, 0.1, 1, 3))
    assert (seen.order < inspection.LOW, seen.line_order) == (True, pytest.approx(1.0))
    assert reason(seen).startswith("single lines have a higher order on average")


def test_a_little_difference_between_lines_does_not_hide_the_shape():
    seen = along(6, 7, 8, 9, scales=(1, 1.01))
    assert seen.line_order > seen.order
    assert reason(seen).startswith("neighbours are on average 86%")


@pytest.mark.parametrize(
    ("order", "word"), [(None, "unknown"), (-1.0, "low"), (0.249, "low"), (0.25, "middle"), (0.6, "high")]
)
def test_words_begin_at_their_bounds(order, word):
    assert word_for(order) == word


def test_the_sentence_has_the_word_and_the_number():
    assert (sentence(0.0), sentence(0.42), sentence(0.97)) == (
        "low order (0.00)",
        "middle order (0.42)",
        "high order (0.97)",
    )
    assert sentence(None).startswith("no order: ")


def test_a_factor_that_falls_short_is_named_beside_one_that_does_not():
    found = grade(Look({"good": along(1, 2, 3), "flat": along(1, 1, 1)}, along(1, 2).agreement))
    assert (found.word, len(found.reasons)) == ("middle", 1)
    assert found.reasons[0].startswith("flat: ")
