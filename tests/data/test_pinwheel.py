"""The pinwheel: undone step by step, its coordinates are the Gaussians of the paper's code."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from disentune.data.pinwheel import DATASET, Params
from disentune.learn.training import Training

PINNED = [[0.8300852, -0.8490722], [0.5631844, -0.5325817], [1.0837719, 0.8393306]]
"""Points 0, 1 and 399 of draw 0."""


def opened(**params):
    return DATASET.open(Params(**params))


def points(data):
    """(arms, points, 2), in float64."""
    return data.images(np.arange(len(data))).astype(float).reshape(*data.factor_sizes, 2)


def turned(rows, angles):
    """Row vectors (..., 2) times [[cos, -sin], [sin, cos]]."""
    cos, sin = np.cos(angles), np.sin(angles)
    return np.einsum("...i,ij...->...j", rows, np.array([[cos, -sin], [sin, cos]]))


def test_points_are_float32_in_the_requested_order():
    data = opened()
    order = np.random.default_rng(0).permutation(400)
    assert DATASET.points
    assert DATASET.shape(Params()) == data.shape == (2, 1, 1)
    assert data.images(order).shape == (400, 2, 1, 1)
    assert data.images(order).dtype == np.float32
    np.testing.assert_array_equal(data.images(order), data.images(np.arange(400))[order])
    assert len(np.unique(data.images(order), axis=0)) == 400


def test_factors_are_arm_and_point_without_an_order():
    data = opened()
    assert data.factor_names == data.categorical == ("arm", "point")
    assert data.factor_sizes == DATASET.factor_sizes(Params()) == (4, 100)


def test_straight_arms_turned_back_are_the_two_gaussians():
    cloud = turned(points(opened(rate=0.0, points=10_000)), -2 * np.pi * np.arange(4)[:, None] / 4)
    means, deviations = cloud.mean(axis=1), cloud.std(axis=1)
    np.testing.assert_allclose(means, [[1, 0]] * 4, atol=0.015)  # 5 standard errors of 0.003
    np.testing.assert_allclose(deviations, [[0.3, 0.1]] * 4, rtol=0.035)  # 5 standard errors of 0.7 %
    kurtoses = (((cloud - means[:, None]) / deviations[:, None]) ** 4).mean(axis=1)
    np.testing.assert_allclose(kurtoses, 3, atol=0.3)  # 6 standard errors; a uniform draw has 1.8
    assert abs(np.corrcoef(cloud.reshape(-1, 2).T)[0, 1]) < 0.025  # 5 standard errors


@pytest.mark.parametrize("rate", [0.25, -0.4])
@pytest.mark.parametrize("arms", [4, 5])
def test_arms_bend_by_the_exponential_of_the_first_coordinate(arms, rate):
    angles = 2 * np.pi * np.arange(arms)[:, None] / arms
    straight = turned(points(opened(arms=arms, rate=0.0)), -angles)
    bent = turned(straight, angles + rate * np.exp(straight[..., 0]))
    np.testing.assert_allclose(points(opened(arms=arms, rate=rate)), bent, atol=1e-5)  # float32


def test_without_a_spread_across_every_point_lies_on_a_spiral():
    arm = points(opened(tangential_std=0.0))[0]
    radius = np.hypot(*arm.T)
    angle = np.arctan2(*arm.T[::-1])
    inner = radius < 1.5  # further out the angle wraps around, and only there could the radius be that of -1 + ...
    np.testing.assert_allclose(angle[inner], -0.25 * np.exp(radius[inner]), atol=1e-4)
    assert inner.sum() > 80


def test_draws_are_fixed_for_ever():
    first = opened().images(np.array([0, 1, 399])).reshape(3, 2)
    np.testing.assert_allclose(first, PINNED, atol=1e-6)


def test_another_draw_is_independent():
    straight = {"rate": 0.0, "points": 5000, "arms": 1}
    first, second = (points(opened(**straight, draw=draw)).ravel() for draw in (0, 1))
    for axis in (0, 1):
        assert abs(np.corrcoef(first[axis::2], second[axis::2])[0, 1]) < 0.07  # 5 standard errors


def test_statistics_are_those_of_the_coordinates_over_all_points():
    data = opened(points=7)
    columns = points(data).reshape(-1, 2).T
    for column, mean, std in zip(columns, data.mean, data.std, strict=True):
        centre = sum(column) / 28
        assert mean == pytest.approx(centre, rel=1e-12)
        assert std == pytest.approx((sum((value - centre) ** 2 for value in column) / 27) ** 0.5, rel=1e-12)


def test_a_single_point_can_be_standardised():
    assert opened(arms=1, points=1).std == (1.0, 1.0)


def test_the_papers_network_learns_it(trial_with):
    config = trial_with(
        dataset__name="disentune.data.pinwheel:DATASET", dataset__transform="unit", model__name="pinwheel_mlp",
        model__latents=2, framework__name="beta_vae", framework__beta=0.01, recon__name="normal",
        recon__std="learned", loss_scale="sum", training__steps=40, training__batch_size=400,
        training__learning_rate=0.01, evaluation__metrics=[], evaluation__every=10,
    )  # fmt: skip
    training = Training(config)
    x = training.inputs(np.arange(400))
    torch.testing.assert_close(x, torch.from_numpy(training.data.images(np.arange(400))))
    losses = [progress.row["metrics"]["recon"] for progress in training.run() if progress.row]
    assert losses[0] > 1.5  # nats: a Gaussian around all points has 2.2
    assert losses[-1] < 0


def test_writing_into_points_leaves_the_data_alone():
    data = opened()
    before = data.images(np.array([0])).copy()
    data.images(np.array([0]))[:] = 7
    np.testing.assert_array_equal(data.images(np.array([0])), before)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"arms": 0}, "greater than or equal to 1"),
        ({"draw": -1}, "greater than or equal to 0"),
        ({"radial_std": -0.1}, "greater than or equal to 0"),
        ({"draw": 0.5}, "valid integer"),
    ],
)
def test_wrong_parameters_are_refused(params, message):
    with pytest.raises(ValidationError, match=message):
        Params(**params)
