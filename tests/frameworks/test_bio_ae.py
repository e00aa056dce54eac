"""BioAE: the two penalties by hand, and the autoencoder that is left without them."""

import numpy as np
import pytest
import torch

from disentune.frameworks import ae
from disentune.frameworks.bio_ae import Params, loss
from disentune.plugin import Posterior

CODES = torch.tensor([[1.0, -2.0, 0.0], [0.5, 0.5, -1.0]], dtype=torch.float64)


class Fixed:
    """Gives the same codes for any images, and decodes them to nothing."""

    def __init__(self, codes):
        self.codes = codes

    def encode(self, x):
        return Posterior(self.codes, torch.zeros_like(self.codes))

    def decode(self, z):
        return torch.zeros(len(z), 2, 4, 5, dtype=z.dtype)


@pytest.mark.parametrize(("row", "below", "energy"), [(0, 2 / 3, 5 / 3), (1, 1 / 3, 0.5)])
def test_its_penalties_of_two_codes_are_those_computed_by_hand(row, below, energy, batch, step):
    """Means over the three latents, so a third of the sums."""
    parts = loss(Fixed(CODES[row].repeat(6, 1)), batch, Params(), step()).parts
    np.testing.assert_allclose([part.item() / 3 for part in parts.values()], [below, energy])


def test_its_loss_is_a_sum_over_latents_and_a_mean_over_images(model, batch, step):
    losses = loss(model, batch, Params(negativity=0.7, activity=0.3), step())
    total = 0.0
    z = model.encode(batch.x).mean.tolist()
    for code in z:
        total += sum(0.7 * max(0.0, -one) + 0.3 * one**2 for one in code) / len(z)
    assert losses.latent.item() == pytest.approx(total)


def test_without_penalties_it_is_the_autoencoder(model, batch, step):
    ours = loss(model, batch, Params(negativity=0, activity=0), step())
    theirs = ae.loss(model, batch, ae.Params(), step())
    assert torch.equal(ours.recon, theirs.recon)
    assert ours.latent == theirs.latent == 0


def test_negative_codes_are_pushed_up_and_positive_ones_left_alone(batch, step):
    """The slope of max(0, -z) is -1 below 0 and 0 above, here a mean over six equal images."""
    z = CODES[0].repeat(6, 1).requires_grad_()
    loss(Fixed(z), batch, Params(negativity=1, activity=0), step()).latent.backward()
    assert torch.equal(z.grad * 6, torch.tensor([0.0, -1.0, 0.0], dtype=torch.float64).repeat(6, 1))
