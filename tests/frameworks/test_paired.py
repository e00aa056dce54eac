"""What frameworks of pairs share."""

from dataclasses import replace

import pytest
import torch

from disentune.frameworks import ada_gvae, ada_ml_vae, pcl, slow_vae
from disentune.frameworks.paired import both_images, halves
from disentune.maths.pairs import FixedK, Laplace, Original
from disentune.spec.config import Invalid

MODULES = {"ada_gvae": ada_gvae, "ada_ml_vae": ada_ml_vae, "pcl": pcl, "slow_vae": slow_vae}


def test_first_images_stand_above_their_partners_and_come_apart_again(model, batch):
    x = both_images(batch)
    assert torch.equal(x[:6], batch.x)
    assert torch.equal(x[6:], batch.pair)
    first, second = halves(model.encode(x))
    for ours, images in ((first, batch.x), (second, batch.pair)):
        torch.testing.assert_close(ours.mean, model.encode(images).mean)
        torch.testing.assert_close(ours.logvar, model.encode(images).logvar)


def test_partners_are_required(batch):
    with pytest.raises(AssertionError, match="partners"):
        both_images(replace(batch, pair=None))


@pytest.mark.parametrize("name", MODULES)
def test_a_law_that_the_factors_cannot_serve_is_refused_before_anything_runs(name, trial_with):
    """xysquares has six factors."""

    def config(k):
        beta = {"beta": 1} if name.startswith("ada") else {}
        return trial_with(framework={"name": name, "pairs": {"name": "fixed_k", "k": k}, **beta})

    assert config(6).framework.params.pairs == FixedK(k=6)
    with pytest.raises(Invalid, match=r"framework\.pairs: k must be <= 6"):
        config(7)


@pytest.mark.parametrize(
    ("name", "law"), [("ada_gvae", Original()), ("ada_ml_vae", Original()), ("pcl", Laplace()), ("slow_vae", Laplace())]
)
def test_the_usual_law_is_the_papers(name, law):
    assert MODULES[name].Params.model_fields["pairs"].default == law
