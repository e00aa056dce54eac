"""HFS: the Hausdorff distance by four loops, its gradients by hand, and the beta-VAE that is left without it."""

from itertools import combinations

import numpy as np
import pytest
import torch

from disentune.frameworks import beta_vae
from disentune.frameworks.hfs_vae import Params, chosen_pairs, loss, narrowness, support_distance

DIAGONAL = [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]
GRID = [[i, j] for i in (0.0, 1.0, 2.0) for j in (0.0, 1.0, 2.0)]
TRIANGLE = [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
ROOT = 2**-0.5
TURNED = [[ROOT * (i - j), ROOT * (i + j)] for i, j in GRID]


def codes(rows):
    return torch.tensor(rows, dtype=torch.float64, requires_grad=True)


def slow(z, pairs):
    """Sum over pairs of the largest, over combinations, of the smallest squared distance to a code."""
    total = 0.0
    for i, j in pairs:
        total += max(min((a[i] - c[i]) ** 2 + (b[j] - c[j]) ** 2 for c in z) for a in z for b in z)
    return total


ONE_PAIR = np.array([[0, 1]])


@pytest.mark.parametrize(
    ("rows", "distance"),
    [(DIAGONAL, 2), (GRID, 0), (TRIANGLE, 1), (TURNED, 1), ([[2 * a for a in row] for row in DIAGONAL], 8),
     ([[0, 0], [0, 1], [1, 0], [1, 1]], 0)],
)  # fmt: skip
def test_distances_of_known_codes(rows, distance):
    assert support_distance(codes(rows), ONE_PAIR).item() == pytest.approx(distance, abs=1e-12)


def test_three_equal_latents_have_three_pairs():
    z = codes([[value] * 3 for value in (0.0, 1.0, 2.0)])
    assert support_distance(z, chosen_pairs(3, None, np.random.default_rng(0))).item() == 6


@pytest.mark.parametrize(
    ("rows", "gradient"),
    [(DIAGONAL, [[0, -2], [-2, 2], [2, 0]]), (TRIANGLE, [[0, 0], [0, -2], [0, 2]])],
)
def test_gradients_of_known_codes_are_those_of_the_released_code(rows, gradient):
    """Both the combination and its nearest code move; the first of equals is that of the released code."""
    z = codes(rows)
    support_distance(z, ONE_PAIR).backward()
    assert z.grad.tolist() == gradient


@pytest.mark.parametrize("seed", range(5))
def test_the_distance_is_that_of_four_loops(seed):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(9, 4))
    pairs = np.array([*combinations(range(4), 2)])
    ours = support_distance(torch.from_numpy(z), pairs)
    assert ours.item() == pytest.approx(slow(z.tolist(), pairs))


def test_gradients_agree_with_finite_differences():
    z = torch.from_numpy(np.random.default_rng(0).normal(size=(7, 3))).requires_grad_()
    pairs = np.array([*combinations(range(3), 2)])
    assert torch.autograd.gradcheck(lambda z: support_distance(z, pairs), z)


def test_pairs_are_distinct_and_as_many_as_asked_for():
    rng = np.random.default_rng(0)
    some = chosen_pairs(10, 25, rng)
    assert len({tuple(pair) for pair in some}) == 25
    assert (some[:, 0] < some[:, 1]).all()
    assert len(chosen_pairs(4, 25, rng)) == len(chosen_pairs(4, None, rng)) == 6


def test_every_pair_is_drawn_equally_often():
    rng = np.random.default_rng(0)
    counts = np.zeros((5, 5))
    for _ in range(2000):
        for i, j in chosen_pairs(5, 3, rng):
            counts[i, j] += 1
    found = counts[np.triu_indices(5, 1)]
    # 600 expected of each; the deviation of a count is 21
    assert abs(found - 600).max() < 100


def test_the_scale_of_the_released_code_is_taken_over_the_wrong_axis():
    z = codes([[0, 0.2], [1, 0.4], [2, 0.6]])
    assert narrowness(z, "over_batch").item() == pytest.approx(0.800, abs=1e-4)
    assert narrowness(z, "as_released").item() == pytest.approx(1.444, abs=5e-4)


def test_without_its_terms_it_is_the_beta_vae(model, batch, step):
    ours = loss(model, batch, Params(beta=3, gamma=0), step())
    theirs = beta_vae.loss(model, batch, beta_vae.Params(beta=3), step())
    assert torch.equal(ours.recon, theirs.recon)
    assert torch.equal(ours.latent, theirs.latent)


def test_its_loss_is_its_equation(model, batch, step):
    ours = loss(model, batch, Params(beta=2, gamma=0.5, delta=0.3, latent_pairs=None), step())
    z = model.encode(batch.x).mean.detach().numpy()
    distance = slow(z.tolist(), [*combinations(range(4), 2)])
    narrow = np.maximum(0, 1 - np.sqrt(z.var(axis=0, ddof=1) + 1e-6)).sum()
    expected = 2 * ours.parts["kl"].item() + 0.5 * distance + 0.3 * narrow
    assert ours.latent.item() == pytest.approx(expected)
    assert ours.watch["support_distance"].item() == pytest.approx(distance)
