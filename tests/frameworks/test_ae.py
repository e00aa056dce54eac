"""The autoencoder: a reconstruction and nothing else."""

from dataclasses import replace

import torch

from disentune.frameworks import beta_vae
from disentune.frameworks.ae import Params, loss


def test_the_mean_is_decoded_and_nothing_is_drawn(model, batch, step):
    now = step()
    before = now.rng.bit_generator.state
    losses = loss(model, batch, Params(), now)
    recon = (model.decode(model.encode(batch.x).mean) - batch.x).square().sum(dim=(1, 2, 3)).mean()
    torch.testing.assert_close(losses.recon, recon)
    assert (losses.latent.item(), losses.parts, losses.watch) == (0.0, {}, {})
    assert now.rng.bit_generator.state == before


def test_it_is_beta_vae_with_beta_zero_and_no_variance(model, batch, step):
    class Certain:
        decode = staticmethod(model.decode)

        def encode(self, x):
            q = model.encode(x)
            return replace(q, logvar=torch.full_like(q.logvar, -200.0))

    ours, theirs = (
        loss(model, batch, Params(), step()),
        beta_vae.loss(Certain(), batch, beta_vae.Params(beta=0), step()),
    )
    torch.testing.assert_close(ours.recon, theirs.recon)
    assert theirs.latent == ours.latent == 0


def test_log_variances_learn_nothing(model, batch, step):
    loss(model, batch, Params(), step()).recon.backward()
    means, logvars = [*model.encoder.parameters()][-1].grad.chunk(2)
    assert means.any()
    assert not logvars.any()
