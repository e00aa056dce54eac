"""QLAE: quantised codes by a loop, the straight-through gradient, and the autoencoder of codes that are values."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from disentune.frameworks import ae
from disentune.frameworks.qlae import FRAMEWORK, Codebook, Params, code, loss
from disentune.learn.training import Training
from disentune.plugin import Posterior
from tiny_trials import tiny


def codebook(latents=4, **params):
    return Codebook(latents, Params(**params)).double()


def test_values_begin_evenly_spaced_and_codes_take_the_nearest():
    """10 values from -0.5 to 0.5; z = 0 lies between two of them, and takes the lower one."""
    z = torch.tensor([[-0.7, -0.1, 0.02, 0.3, 0.0]], dtype=torch.float64)
    book = codebook(5)
    np.testing.assert_allclose(book.values[0].detach(), np.linspace(-0.5, 0.5, 10))
    expected = np.linspace(-0.5, 0.5, 10)[[0, 4, 5, 7, 4]]
    np.testing.assert_allclose(book(z)[0].detach(), expected, atol=1e-12)


def test_both_terms_of_four_codes_are_those_computed_by_hand():
    z = torch.tensor([[-0.7, -0.1, 0.02, 0.3]], dtype=torch.float64)
    squares = (z - codebook()(z)).square().mean().item()
    assert squares == pytest.approx(0.010933, abs=5e-7)
    assert (0.01 + 0.01) * squares == pytest.approx(0.00021867, abs=5e-9)


def test_codes_are_those_of_a_loop_with_values_of_their_own_for_each_latent():
    rng = np.random.default_rng(0)
    book = codebook(3, values=4)
    book.values.data = torch.from_numpy(rng.normal(size=(3, 4)))
    z = torch.from_numpy(rng.normal(size=(7, 3)))
    expected = [
        [min(book.values[d].tolist(), key=lambda value: abs(value - z[n, d].item())) for d in range(3)]
        for n in range(7)
    ]
    np.testing.assert_array_equal(book(z).detach(), expected)


def test_shared_values_are_one_row(model, batch, step_for):
    params = Params(codebook="shared")
    assert step_for(FRAMEWORK, params).extra.values.shape == (1, 10)
    assert step_for(FRAMEWORK, Params()).extra.values.shape == (4, 10)


def test_its_loss_is_its_equation(model, batch, step_for):
    params = Params(values=5, quantisation=0.3, commitment=0.2)
    step = step_for(FRAMEWORK, params)
    losses = loss(model, batch, params, step)
    z = model.encode(batch.x).mean
    values, total = torch.linspace(-0.5, 0.5, 5).double(), 0.0
    q = torch.stack([torch.stack([values[(values - one).abs().argmin()] for one in row]) for row in z])
    for code_, value in zip(z.tolist(), q.tolist(), strict=True):
        total += sum(0.5 * (a - b) ** 2 for a, b in zip(code_, value, strict=True)) / len(z)
    assert losses.latent.item() == pytest.approx(total)
    assert losses.recon.item() == pytest.approx(batch.recon(model.decode(q), batch.x).item())


def test_the_encoder_feels_the_reconstruction_as_if_nothing_was_quantised(model, batch, step_for):
    """The gradient of the reconstruction at q, passed to z: without the two terms the values feel nothing."""
    params = Params(quantisation=0, commitment=0)
    step = step_for(FRAMEWORK, params)
    loss(model, batch, params, step).recon.backward()
    ours = [parameter.grad.clone() for parameter in model.encoder.parameters()]
    assert step.extra.values.grad is None or not step.extra.values.grad.any()
    model.zero_grad()
    z = model.encode(batch.x).mean
    q = step.extra(z).detach().requires_grad_()
    (slope,) = torch.autograd.grad(batch.recon(model.decode(q), batch.x), q)
    (z * slope).sum().backward()
    for one, parameter in zip(ours, model.encoder.parameters(), strict=True):
        torch.testing.assert_close(one, parameter.grad)


def test_each_term_moves_only_its_side(model, batch, step_for):
    for params, moved in ((Params(commitment=0), "values"), (Params(quantisation=0), "codes")):
        step = step_for(FRAMEWORK, params)
        model.zero_grad()
        loss(model, batch, params, step).latent.backward()
        of_values = step.extra.values.grad
        of_codes = any(p.grad is not None and p.grad.any() for p in model.encoder.parameters())
        assert (of_values is not None and bool(of_values.any())) == (moved == "values")
        assert of_codes == (moved == "codes")


def test_codes_that_are_values_already_make_it_the_autoencoder(model, batch, step_for):
    params = Params(values=len(batch.x))
    step = step_for(FRAMEWORK, params)
    step.extra.values.data = model.encode(batch.x).mean.detach().T.contiguous()
    ours, theirs = loss(model, batch, params, step), ae.loss(model, batch, ae.Params(), step)
    torch.testing.assert_close(ours.recon, theirs.recon)
    assert ours.latent == 0


def test_values_that_are_not_learned_stay():
    assert not [*codebook(learned=False).parameters()]
    assert [*codebook().parameters()]


def test_a_code_quantised_twice_is_the_same_code():
    book = codebook()
    z = torch.randn(9, 4, generator=torch.Generator().manual_seed(0)).double()
    once = code(Posterior(z, z), Params(), book)
    assert torch.equal(code(Posterior(once, z), Params(), book), once)


def test_a_trained_model_is_scored_on_its_values():
    config = tiny({"name": "qlae", "values": 3}, training={"optimiser": {"decoupled": True, "weight_decay": 0.1}})
    training = Training(config)
    for _ in training.run():
        pass
    trained = training.trained_model()
    x = trained.images(np.arange(40))
    codes = trained.encode(x, np.arange(40)).mean
    assert all(set(codes[:, latent].tolist()) <= set(training.extra.values[latent].tolist()) for latent in range(4))


def test_its_values_do_not_decay():
    optimiser = {"decoupled": True, "weight_decay": 0.5}
    training = Training(tiny({"name": "qlae", "quantisation": 0.0}, training={"optimiser": optimiser}))
    before = training.extra.values.detach().clone()
    for _ in training.run():
        pass
    assert torch.equal(training.extra.values, before)


def test_a_step_of_another_framework_is_not_touched(model, batch, step_for):
    params = Params()
    step = step_for(FRAMEWORK, params)
    first = loss(model, batch, params, step)
    assert torch.equal(first.recon, loss(model, batch, params, replace(step, number=9)).recon)
