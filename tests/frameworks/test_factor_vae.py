"""FactorVAE: the estimate of its discriminator, and who learns from what."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, Normal

from disentune.frameworks import beta_vae
from disentune.frameworks.factor_vae import (
    FRAMEWORK,
    Params,
    discrimination,
    discriminator,
    loss,
    optimiser,
    permuted,
    total_correlation,
)
from disentune.plugin import Context

SMALL = {"width": 8, "depth": 2}
RHO = 0.9
TC = -math.log(1 - RHO**2) / 2
JOINT = MultivariateNormal(torch.zeros(2).double(), torch.tensor([[1, RHO], [RHO, 1]]).double())


def correlated(n, seed=0):
    cholesky = np.linalg.cholesky([[1, RHO], [RHO, 1]])
    return torch.from_numpy(np.random.default_rng(seed).standard_normal((n, 2)) @ cholesky.T)


def ideal(z):
    """The best discriminator of correlated codes: the log-densities themselves."""
    product = Normal(0.0, 1.0).log_prob(z).sum(dim=1)
    return torch.stack([JOINT.log_prob(z), product], dim=1)


def test_the_ideal_discriminator_gives_the_total_correlation():
    z = correlated(20_000)
    spread = (ideal(z)[:, 0] - ideal(z)[:, 1]).std() / math.sqrt(len(z))
    assert abs(total_correlation(ideal(z)) - TC) < 4 * spread
    assert spread < TC / 50


def test_the_discriminator_learns_joint_as_its_first_class():
    """Half of each cross-entropy, one code at a time; guessing costs log 2, and only the right way round less."""
    joint = correlated(500)
    product = permuted(joint, np.random.default_rng(1))
    half = [-math.log(math.exp(a) / (math.exp(a) + math.exp(b))) for a, b in ideal(joint).tolist()]
    other = [-math.log(math.exp(b) / (math.exp(a) + math.exp(b))) for a, b in ideal(product).tolist()]
    cost = discrimination(ideal, joint, product).item()
    assert cost == pytest.approx(np.mean(half) / 2 + np.mean(other) / 2)
    assert cost < math.log(2) < discrimination(lambda z: ideal(z).flip(1), joint, product)


def test_a_trained_discriminator_finds_the_total_correlation():
    params = Params(gamma=1, width=32, depth=2, helper_learning_rate=3e-3)
    network = discriminator(Context((1, 4, 4), 2, 256, (10,)), params, torch.Generator().manual_seed(0)).double()
    adam, rng = optimiser(network.parameters(), params), np.random.default_rng(0)
    for seed in range(400):
        network.zero_grad()
        discrimination(network, correlated(256, seed), permuted(correlated(256, seed + 1000), rng)).backward()
        adam.step()
    estimate = total_correlation(network(correlated(20_000, seed=5000))).item()
    assert estimate == pytest.approx(TC, rel=0.25)  # a lower bound, and the network is small


def test_each_latent_is_permuted_by_itself():
    z = torch.arange(12.0).reshape(6, 2)
    shuffled = permuted(z, np.random.default_rng(0))
    assert torch.equal(shuffled.sort(dim=0).values, z)
    assert not torch.equal(shuffled[:, 1] - shuffled[:, 0], z[:, 1] - z[:, 0])


def test_every_permutation_of_a_latent_is_as_likely():
    rng, z = np.random.default_rng(0), torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]])
    counts = np.zeros((27, 27))
    for _ in range(3600):
        first, second = (permuted(z, rng).T @ torch.tensor([9.0, 3.0, 1.0])).int().tolist()
        counts[first, second] += 1
    seen = counts[counts > 0]
    assert len(seen) == 36  # 6 orders of one latent with each of the other's
    assert (abs(seen - 100) < 5 * 10).all()  # Poisson with mean 100


class Recorder:
    """Notes what a discriminator is shown."""

    def __init__(self):
        self.shown = []

    def __call__(self, z):
        self.shown.append(z)
        return z[:, :2]


def recorded(model, batch, step, **params):
    recorder = Recorder()
    loss(model, batch, Params(gamma=3, **SMALL, **params), replace(step(), helper=recorder))
    return recorder.shown


def codes(model, x, noise):
    q = model.encode(x)
    return q.mean + torch.exp(q.logvar / 2) * torch.from_numpy(noise)


@pytest.mark.parametrize("source", ["second_batch", "same_batch"])
def test_the_discriminator_sees_joint_codes_and_permuted_ones_of_the_named_batch(source, model, batch, step):
    noise = np.random.default_rng(0).standard_normal((2, 6, 4))
    z = codes(model, batch.x, noise[0])
    other = codes(model, batch.pair, noise[1]) if source == "second_batch" else z
    _, taught = recorded(model, batch, step, permuted=source)
    torch.testing.assert_close(taught[:6], z)
    torch.testing.assert_close(taught[6:].sort(dim=0).values, other.sort(dim=0).values)
    assert not torch.isclose(taught[6:], other).all()


def test_only_the_vaes_view_of_the_codes_reaches_the_encoder(model, batch, step):
    judged, taught = recorded(model, batch, step)
    assert judged.requires_grad
    assert not taught.requires_grad


def test_the_encoder_follows_the_total_correlation_through_the_discriminator(model, batch, step_for):
    """d latent = d KL + gamma d TC, where d TC is not 0."""
    params = Params(gamma=3, **SMALL)
    losses = loss(model, batch, params, step_for(FRAMEWORK, params))
    last = [*model.encoder.parameters()][-1]
    terms = (losses.latent, losses.parts["kl"], losses.parts["tc"])
    whole, kl, tc = (torch.autograd.grad(term, last, retain_graph=True)[0] for term in terms)
    torch.testing.assert_close(whole, kl + 3 * tc)
    assert tc.any()


def test_gamma_zero_is_the_vae(model, batch, step, step_for):
    params = Params(gamma=0, **SMALL)
    ours = loss(model, batch, params, step_for(FRAMEWORK, params))
    theirs = beta_vae.loss(model, batch, beta_vae.Params(beta=1), step())
    assert (ours.recon, ours.latent) == (theirs.recon, theirs.latent)


def test_slope_in_gamma_is_the_total_correlation(model, batch, step_for):
    low, high = (Params(gamma=gamma, **SMALL) for gamma in (1.0, 4.0))
    low, high = (loss(model, batch, params, step_for(FRAMEWORK, params)) for params in (low, high))
    torch.testing.assert_close((high.latent - low.latent) / 3, low.parts["tc"])
    assert torch.equal(low.helper, high.helper)
    assert torch.equal(low.watch["discriminator_loss"], low.helper)


def test_the_discriminator_is_the_papers():
    """Six hidden layers of 1000 units for 10 latents: 5,018,002 parameters, as in disentanglement_lib."""
    network = discriminator(Context((1, 4, 4), 10, 64, (10,)), Params(gamma=1), torch.Generator().manual_seed(0))
    assert sum(parameter.numel() for parameter in network.parameters()) == 5_018_002
    slopes = [layer.negative_slope for layer in network if isinstance(layer, nn.LeakyReLU)]
    assert slopes == [0.2] * 6
    assert network(torch.zeros(3, 10)).shape == (3, 2)


def test_the_discriminators_weights_are_drawn_from_its_generator():
    setting, params = Context((1, 4, 4), 4, 64, (10,)), Params(gamma=1, **SMALL)
    same, again, other = (
        discriminator(setting, params, torch.Generator().manual_seed(seed))[0].weight for seed in (0, 0, 1)
    )
    assert torch.equal(same, again)
    assert not torch.equal(same, other)


def test_the_discriminators_optimiser_is_the_papers():
    adam = optimiser([nn.Parameter(torch.zeros(1))], Params(gamma=1))
    assert (adam.learning_rate, adam.betas) == (1e-4, (0.5, 0.9))


def test_a_second_batch_is_only_drawn_when_it_is_used():
    assert Params(gamma=1).pairs.name == "independent"
    assert Params(gamma=1, permuted="same_batch").pairs is None


def test_a_batch_of_one_is_refused():
    with pytest.raises(ValueError, match="batch_size must be >= 2"):
        FRAMEWORK.check(Context((1, 4, 4), 4, 1, (10,)), Params(gamma=1))
    FRAMEWORK.check(Context((1, 4, 4), 4, 2, (10,)), Params(gamma=1))
