"""Figures of distances: what is drawn is what was computed."""

import numpy as np
import pytest

from disentune.data import load
from disentune.learn.image_distances import look, opened
from disentune.report import canvas
from disentune.report import distances as figures
from disentune.results.inspection import world_asked


def small_look(*sets: str):
    small = ["image_size=12", "square_size=3", "squares=1", *sets]
    return look(opened(world_asked("xysquares", "mse", small).config), count=2)


def panels(drawn) -> list[np.ndarray]:
    (axes,) = drawn.axes
    return [np.asarray(image.get_array()) for image in axes.images]


def labels(drawn, axis: str) -> list[str]:
    (axes,) = drawn.axes
    return [label.get_text().replace("\n", " ") for label in getattr(axes, f"get_{axis}ticklabels")()]


def test_every_world_has_a_row_below_the_ground_truth():
    looks = {"near": small_look("spacing=1", "grid_size=4"), "far": small_look("spacing=3", "grid_size=4")}
    drawn = figures.perceived(looks)
    assert labels(drawn, "y") == ["ground truth", "near", "far"]
    assert labels(drawn, "x") == ["x R", "y R"]
    expected = [np.abs(np.subtract.outer(np.arange(4), np.arange(4)))] * 2
    expected += [along.matrix for found in looks.values() for along in found.factors.values()]
    for panel, matrix in zip(panels(drawn), expected, strict=True):
        np.testing.assert_array_equal(panel, matrix)


def test_worlds_of_other_sizes_get_a_ground_truth_of_their_own():
    drawn = figures.perceived({"four": small_look("spacing=3"), "ten": small_look("spacing=1")})
    assert labels(drawn, "y") == ["ground truth", "four", "ground truth", "ten"]
    assert [len(panel) for panel in panels(drawn)] == [4, 4, 4, 4, 10, 10, 10, 10]


def test_a_factor_that_a_world_lacks_stays_empty():
    drawn = figures.matrices({"one": {"a": np.eye(2)}, "two": {"b": np.ones((3, 3))}})
    places = [image.get_extent() for image in drawn.axes[0].images]
    assert [(int(left), int(top)) for left, _, _, top in places] == [(0, 0), (1, 1)]


def test_traversals_show_one_image_while_a_factor_changes():
    data = load("xysquares", image_size=12, square_size=3, squares=2)
    drawn = figures.traversals(data, "squares")
    (axes,) = drawn.axes
    shown = np.asarray(axes.images[0].get_array())
    assert labels(drawn, "y") == ["x R (4)", "y R (4)", "x G (4)", "y G (4)"]
    assert axes.get_title("left") == "squares"
    side = 12 * (64 // 12)
    first, last = shown[:side, :side, 0], shown[:side, -side:, 0]
    assert first.sum() == last.sum() == 9 * 25 * 255
    assert first.max(axis=0).argmax() == 0
    assert last.max(axis=0)[-1] == 255


def test_points_have_no_traversals():
    assert figures.traversals(load("pinwheel"), "points") is None


def test_distributions_have_a_curve_for_each_factor_and_for_random_pairs():
    found = small_look("spacing=1", "grid_size=4")
    (axes,) = figures.distributions({"near": found}).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["x R", "y R", "random pairs"]
    curve = dict(axes.lines[0].get_xydata()[1:])  # the last share at each distance
    sample = found.factors["x_R"].agreement.sample
    assert len(np.unique(sample.round(12))) == 3
    for distance, share in curve.items():
        assert share == pytest.approx(np.mean(sample <= distance + 1e-12))


def test_many_worlds_make_a_figure_that_can_be_saved():
    found = small_look()
    with canvas.style():
        drawn = figures.perceived({f"world {number} with a rather long name of its own": found for number in range(40)})
        assert canvas.png(drawn).startswith(b"\x89PNG")
    assert len(drawn.axes[0].images) == 2 * figures.MOST_ROWS
