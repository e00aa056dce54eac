"""beta-VAE against its terms written out."""

import numpy as np
import torch
from torch.distributions import Normal, kl_divergence

from disentune.frameworks.beta_vae import Params, loss


def test_terms_are_those_of_the_paper(model, batch, step):
    q = model.encode(batch.x)
    deviation = torch.exp(q.logvar / 2)
    z = q.mean + deviation * torch.from_numpy(np.random.default_rng(0).standard_normal(q.mean.shape))
    recon = (model.decode(z) - batch.x).square().sum(dim=(1, 2, 3)).mean()
    kl = kl_divergence(Normal(q.mean, deviation), Normal(0.0, 1.0)).sum(dim=1).mean()
    losses = loss(model, batch, Params(beta=4), step())
    torch.testing.assert_close(losses.recon, recon)
    torch.testing.assert_close(losses.latent, 4 * kl)
    torch.testing.assert_close(losses.parts["kl"], kl)
