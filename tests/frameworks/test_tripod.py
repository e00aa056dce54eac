"""Tripod: each of its three parts by loops or closed forms, and the autoencoder that is left without two of them."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from disentune.frameworks import ae
from disentune.frameworks.tripod import Params, code, directions, interaction, loss, multi_information, quantised
from disentune.plugin import Posterior

PARAMS = Params(multi_information=0.1, hessian=0.2)

# ---- quantisation


def test_codes_of_five_numbers_are_those_computed_by_hand():
    """12 values; z = 0 lies between two of them and goes to the sixth place."""
    z = torch.tensor([-3, -0.5, 0, 0.1, 2], dtype=torch.float64, requires_grad=True)
    found = quantised(z.tanh(), 12)
    np.testing.assert_allclose(found.detach(), [-1, -5 / 11, 1 / 11, 1 / 11, 1], atol=1e-12)
    found.sum().backward()
    np.testing.assert_allclose(z.grad, [0.0099, 0.7864, 1, 0.9901, 0.0707], atol=5e-5)


@pytest.mark.parametrize("values", [2, 3, 12])
def test_there_are_as_many_values_as_asked_for(values):
    found = quantised(torch.linspace(-1, 1, 1001).double(), values)
    np.testing.assert_allclose(found.unique(), np.linspace(-1, 1, values), atol=1e-12)


# ---- multi-information

SQUARE = torch.tensor([[-1, -1], [-1, 1], [1, -1], [1, 1]], dtype=torch.float64)
LINE = torch.tensor([[-1, -1], [-1, -1], [1, 1], [1, 1]], dtype=torch.float64)


@pytest.mark.parametrize(
    ("codes", "released", "same"), [(SQUARE, 0.29015, 0.0), (LINE, 0.90313, 0.61299)], ids=["square", "line"]
)
def test_dependence_of_four_codes(codes, released, same):
    deviations = codes.std(dim=0, correction=0)
    assert multi_information(codes, deviations, "as_released").item() == pytest.approx(released, abs=6e-6)
    assert multi_information(codes, deviations, "same").item() == pytest.approx(same, abs=6e-6)


@pytest.mark.parametrize("bandwidth", ["as_released", "same"])
def test_dependence_is_that_of_scipys_densities(bandwidth):
    codes = np.random.default_rng(0).normal(size=(9, 3))
    deviations = codes.std(axis=0)
    narrow = (4 / 5) ** (1 / 7) * 9 ** (-1 / 7)
    wide = 1.0 if bandwidth == "as_released" else narrow
    total = 0.0
    for row in codes:
        joint = np.mean([np.prod(stats.norm.pdf(row, other, narrow * deviations)) for other in codes])
        marginals = [np.mean(stats.norm.pdf(row[d], codes[:, d], wide * deviations[d])) for d in range(3)]
        total += (math.log(joint) - sum(map(math.log, marginals))) / len(codes)
    found = multi_information(torch.from_numpy(codes), torch.from_numpy(deviations), bandwidth)
    assert found.item() == pytest.approx(total)


# ---- interaction


class Layers:
    """A decoder whose hidden layer is a function of two latents."""

    def __init__(self, function):
        self.function = function

    def stages(self, z):
        hidden = self.function(z[:, 0], z[:, 1])
        return [hidden[:, None], hidden[:, None]]


def ratio(function, deviations, params):
    z = torch.tensor([[0.3, -0.2]], dtype=torch.float64)
    moves = directions(1, 2, params, np.random.default_rng(0))
    return interaction(Layers(function), z, torch.tensor(deviations, dtype=torch.float64), params, moves).item()


@pytest.mark.parametrize("normalised", ["over_batch", "as_released"])
@pytest.mark.parametrize(
    ("function", "deviations", "limit"),
    [
        (lambda a, b: a * b, (1.0, 1.0), 1.0),
        (lambda a, b: a**2 + b**2, (1.0, 1.0), 0.0),
        (lambda a, b: a**2 + a * b, (1.0, 1.0), 1 / 3),
        (lambda a, b: a**2 + a * b, (0.5, 2.0), 8 / 9),
    ],
)
def test_interaction_of_known_functions_tends_to_its_limit(function, deviations, limit, normalised):
    """sum_{i != j} H_ij^2 s_i^2 s_j^2 / sum_ij H_ij^2 s_i^2 s_j^2; 4096 directions leave an error of a few percent."""
    params = Params(multi_information=0, hessian=1, perturbations=4096, normalised=normalised)
    assert ratio(function, deviations, params) == pytest.approx(limit, abs=0.07)


def test_interaction_does_not_depend_on_the_scale_of_a_layer():
    one, large = (ratio(lambda a, b, by=by: by * (a**2 + a * b), (1.0, 1.0), PARAMS) for by in (1, 1000))
    assert one == pytest.approx(large)


@pytest.mark.parametrize("normalised", ["over_batch", "as_released"])
def test_interaction_is_that_of_loops_over_images_layers_and_directions(model, normalised):
    params = PARAMS.model_copy(update={"normalised": normalised, "perturbations": 3, "epsilon": 0.7})
    rng = np.random.default_rng(0)
    z = torch.from_numpy(rng.normal(size=(5, 4)))
    deviations, moves = z.std(dim=0), directions(5, 4, params, rng)
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.add_(torch.from_numpy(rng.normal(size=tuple(parameter.shape))))
        found = interaction(model, z, deviations, params, moves).item()

        def hidden(code, layer):
            return model.stages(code[None])[layer][0]

        total = 0.0
        for layer in (0, 1):
            parts = []
            for n in range(5):
                spread = []
                for kind in (0, 1):
                    second = []
                    for k in range(3):
                        move = torch.from_numpy(moves[kind, k, n]) * 0.7 * deviations
                        second.append((hidden(z[n] + move, layer) - 2 * hidden(z[n], layer)
                                       + hidden(z[n] - move, layer)) / 0.7**2)  # fmt: skip
                    spread.append(torch.stack(second).var(dim=0, correction=0).mean().item())
                parts.append(spread)
            signs, normals = np.array(parts).T
            total += signs.mean() / (normals.mean() + 1e-10) if normalised == "over_batch" else np.mean(
                signs / (normals + 1e-10)
            )  # fmt: skip
    assert found == pytest.approx(total)


def test_directions_are_signs_and_normal_numbers():
    signs, normals = directions(50, 4, PARAMS.model_copy(update={"perturbations": 20}), np.random.default_rng(0))
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(signs.mean()) < 0.06
    assert stats.kstest(normals.ravel(), "norm").pvalue > 1e-3


# ---- the loss


def test_without_penalties_it_is_the_autoencoder_of_quantised_codes(model, batch, step):
    class Quantised:
        decode = staticmethod(model.decode)

        def encode(self, x):
            q = model.encode(x)
            return replace(q, mean=quantised(q.mean.tanh(), 12))

    ours = loss(model, batch, Params(multi_information=0, hessian=0), step())
    theirs = ae.loss(Quantised(), batch, ae.Params(), step())
    assert torch.equal(ours.recon, theirs.recon)
    assert ours.latent == 0


def test_its_loss_weighs_its_parts(model, batch, step):
    losses = loss(model, batch, PARAMS, step())
    expected = 0.1 * losses.parts["multi_information"] + 0.2 * losses.watch["interaction"]
    torch.testing.assert_close(losses.latent, expected)


def test_its_code_is_the_quantised_mean():
    z = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).double()
    found = code(Posterior(z, z), PARAMS, None)
    assert torch.equal(found, quantised(z.tanh(), 12))
