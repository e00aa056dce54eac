"""A framework's own map from posterior to code: what is scored, decoded and shown is the code."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from disentune.errors import DataError
from disentune.frameworks import ae
from disentune.learn import pictures
from disentune.learn.evaluation import encoded, table_from
from disentune.learn.image_distances import finite_codes
from disentune.learn.training import Training
from disentune.plugin import Framework, Losses, Posterior
from tiny_trials import tiny


class Shift(nn.Module):
    """The last value of each factor moves a code by this much."""

    def __init__(self, factors: int, latents: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(factors, latents))


def rounded(q: Posterior, params, extra) -> torch.Tensor:
    return q.mean.round()


def shifted(model, x, factors, params, extra) -> Posterior:
    q = model.encode(x)
    return Posterior(q.mean + factors @ extra.weight, q.logvar)


ROUNDED = Framework(name="rounded", params=ae.Params, loss=ae.loss, parts=(), code=rounded, discrete=True)


def of(framework: Framework, **changes) -> Training:
    config = tiny({"name": "ae"}, **changes)
    named = config.framework._replace(plugin=framework)
    return Training(replace(config, framework=named))


def test_scores_see_codes_and_decode_them():
    trained = of(ROUNDED).trained_model()
    indices = np.arange(50)
    table = table_from(trained, encoded(trained, indices), "mean")
    x = trained.images(indices)
    codes = trained.model.encode(x).mean.round()
    assert torch.equal(torch.from_numpy(table.codes), codes.double())
    assert table.discrete
    output = trained.model.decode(codes)
    expected = trained.recon.plugin.per_image(output, x, trained.recon.params).detach().double()
    np.testing.assert_allclose(table.reconstruction(np.arange(50)), expected, rtol=1e-6)


def test_a_draw_of_a_discrete_code_is_the_code():
    trained = of(ROUNDED).trained_model()
    images = encoded(trained, np.arange(50))
    drawn, mean = (table_from(trained, images, codes) for codes in ("sampled", "mean"))
    np.testing.assert_array_equal(drawn.codes, mean.codes)
    np.testing.assert_array_equal(drawn.encoded(np.arange(5), np.random.default_rng(0)), mean.codes[:5])


def test_codes_of_other_frameworks_are_means_and_not_discrete():
    trained = Training(tiny()).trained_model()
    table = table_from(trained, encoded(trained, np.arange(20)), "mean")
    assert not table.discrete
    np.testing.assert_array_equal(table.codes, trained.model.encode(trained.images(np.arange(20))).mean.detach())


def test_traversals_visit_only_codes_that_occur(monkeypatch):
    trained = of(ROUNDED).trained_model()
    with torch.no_grad():
        trained.model.encoder[-1].weight *= 20  # so that codes take several values
    seen = []
    whole = pictures.decoded
    monkeypatch.setattr(pictures, "decoded", lambda trained, z: (seen.append(z), whole(trained, z))[1])
    pictures.drawn(trained, two_latents=True)
    assert all(torch.equal(z, z.round()) for z in seen)
    assert max(len(z[:, 0].unique()) for z in seen) > 1


def test_a_posterior_may_depend_on_the_factors():
    framework = Framework(
        name="shifted", params=ae.Params, loss=labelled_loss, parts=(), needs_factors=True, posterior=shifted,
        extra=lambda setting, params, generator, images: Shift(len(setting.factor_sizes), setting.latents),
    )  # fmt: skip
    training = of(framework)
    trained = training.trained_model()
    indices = np.array([0, 5, 700])
    found = encoded(trained, indices).means
    factors = training.known.evenly(indices)
    expected = trained.model.encode(trained.images(indices)).mean.detach().numpy() + factors.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert pictures.drawn(trained).originals.shape[0] == 8
    with pytest.raises(DataError, match="depend on the factors of an image"):
        finite_codes(trained, trained.images(indices), None)


def labelled_loss(model, batch, params, step) -> Losses:
    assert batch.labels is not None
    assert torch.equal(batch.labels, (batch.factors + 1).round().long())  # three values: -1, 0, 1
    return ae.loss(model, batch, ae.Params(), step)


def test_a_batch_has_labels_for_a_framework_that_needs_factors():
    framework = Framework(name="seen", params=ae.Params, loss=labelled_loss, parts=(), needs_factors=True)
    training = of(framework)
    for _ in training.run(2):
        pass
    assert Training(tiny())._batch().labels is None


@pytest.mark.parametrize("model", ["mlp", "linear"])
def test_stages_of_a_decoder_end_with_what_it_decodes(model):
    section = {"name": model, "latents": 4, **({"width": 8} if model == "mlp" else {})}
    network = Training(tiny(model=section)).model
    z = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    stages = network.stages(z)
    assert torch.equal(stages[-1], network.decode(z))
    assert len(stages) == (3 if model == "mlp" else 1)
    if model == "mlp":
        assert all((stage >= 0).all() for stage in stages[:-1])  # after their activation
