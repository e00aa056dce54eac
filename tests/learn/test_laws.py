"""Training and scoring under a law of sampling: what is drawn, what is scored, and that nothing else changes."""

import numpy as np
import pytest
import torch

from disentune.errors import DataError
from disentune.learn import pictures
from disentune.learn.evaluation import encoded, table_from
from disentune.learn.training import Training
from disentune.metrics import score
from tiny_trials import assert_equal, through_disk, tiny

DATA = {"name": "xysquares", "image_size": 8, "square_size": 2, "grid_size": 3, "squares": 3}
"""Six factors of three values: 729 images."""
LAW = {"name": "correlated", "factors": ["x_R", "x_G"], "sigma": 0.3}
HELD_OUT = "x_R == 1 and y_R >= 0.5"


def under(law=None, held_out=None, framework="beta_vae", **changes):
    data = {**DATA, **({"law": law} if law else {}), **({"held_out": held_out} if held_out else {})}
    return tiny(framework, dataset=data, **changes)


def trained(config) -> Training:
    training = Training(config)
    for _ in training.run():
        pass
    return training


def seen_images(config, monkeypatch) -> np.ndarray:
    """The indices of every image that training asks for."""
    training, asked = Training(config), []
    whole = type(training.inputs).__call__

    def noted(self, indices, rng=None):
        asked.append(np.array(indices))
        return whole(self, indices, rng)

    monkeypatch.setattr(type(training.inputs), "__call__", noted)
    monkeypatch.setattr(training, "_reports", lambda: False)
    for _ in training.run():
        pass
    return np.concatenate(asked)


FRAMEWORKS = [
    "beta_vae",
    {"name": "ada_gvae", "beta": 0.1},
    {"name": "ada_gvae", "beta": 0.1, "pairs": "laplace"},
    {"name": "factor_vae", "gamma": 1.0, "width": 8, "depth": 1},
    {"name": "decomposition_vae", "beta": 0.1, "prior": "anisotropic"},
]


@pytest.mark.parametrize("framework", FRAMEWORKS, ids=str)
@pytest.mark.parametrize("law", [None, LAW], ids=["even", "correlated"])
def test_training_never_sees_a_held_out_image(framework, law, monkeypatch):
    config = under(law, HELD_OUT, framework)
    seen = seen_images(config, monkeypatch)
    assert len(seen) >= 12 * 4
    assert config.sampling.weights[seen].min() > 0


@pytest.mark.parametrize("framework", ["beta_vae", {"name": "ada_gvae", "beta": 0.1}], ids=str)
def test_a_law_of_equal_weights_changes_no_number(framework):
    """Neither losses nor scores of everything, to the bit."""
    plain, even = (trained(under(law, framework=framework)) for law in (None, {"name": "weighted", "weight": "1"}))
    assert plain.config.id != even.config.id
    assert_equal(plain.model.state_dict(), even.model.state_dict())
    ours, theirs = (one._scores(one.config.due(12))["metrics"] for one in (plain, even))
    assert theirs["mig"] == ours["mig"]


@pytest.mark.parametrize("stop", [3, 6])
def test_resuming_under_a_law_changes_nothing(stop):
    config = under(LAW, HELD_OUT, {"name": "ada_gvae", "beta": 0.1})
    straight = trained(config)
    first = Training(config)
    for _ in first.run(stop):
        pass
    resumed = Training(config, through_disk(first))
    for _ in resumed.run():
        pass
    assert_equal(straight.state(), resumed.state())


def test_each_region_is_scored_on_its_own_images():
    """Against tables that are made here by hand, one region at a time."""
    training = trained(under(None, HELD_OUT))
    drawn, model = training.config.sampling, training.trained_model()
    found = training._scores(training.config.due(12))
    for key, indices in (("mig", np.arange(729)), ("mig_inside", drawn.inside), ("mig_outside", drawn.outside)):
        table = table_from(model, encoded(model, indices), "mean")
        alone = score("mig", table.codes, table.factors, seed=training.config.seed)
        assert found["metrics"][key] == alone["mig"]
        assert found["scored"][key]["table"] == len(indices)
    assert found["scored"]["mig_outside"]["region"] == "outside"
    assert found["scored"]["mig"]["region"] == "everything"


def test_inside_a_correlated_law_factors_of_the_table_depend_on_each_other():
    training = Training(under(LAW, evaluation={"metrics": [{"name": "mig", "region": "inside"}], "table": 20_000}))
    config = training.config
    (due,) = config.due(12)
    from disentune.learn.evaluation import table_indices

    indices = table_indices(config, training.known, due.size, False, region=due.region)
    factors = training.known.factors(indices)
    (expected, _) = config.sampling.dependences["x_R", "x_G"]
    # the standard error of a correlation near 0.6 of 20,000 rows is (1 - r^2) / sqrt(n) = 0.005
    assert np.corrcoef(factors[:, 0], factors[:, 2])[0, 1] == pytest.approx(expected, abs=0.02)
    assert np.corrcoef(factors[:, 1], factors[:, 3])[0, 1] == pytest.approx(0, abs=0.03)


def test_the_population_of_a_batch_is_what_training_may_draw():
    assert Training(under())._batch().population == 729
    assert Training(under(None, HELD_OUT))._batch().population == 729 - 162


# ---- pictures


def test_pictures_show_the_law_and_images_that_are_never_drawn():
    training = trained(under(LAW, HELD_OUT))
    shown = pictures.drawn(training.trained_model())
    assert shown.outside.shape == shown.outside_reconstructions.shape == shown.originals.shape
    assert shown.law_factors.tolist() == ["x_R", "x_G"]
    np.testing.assert_allclose(shown.law, training.config.sampling.table(0, 2), rtol=1e-6)
    again = pictures.from_bytes(pictures.to_bytes(shown))
    for name in ("outside", "outside_reconstructions", "law", "law_factors"):
        np.testing.assert_array_equal(getattr(again, name), getattr(shown, name))
    assert {"outside", "law"} < pictures.sheets(shown).keys()


def test_originals_are_images_that_training_draws():
    training = trained(under(None, "x_R >= 1"))
    shown = pictures.drawn(training.trained_model())
    inside = training.data.images(training.config.sampling.inside).transpose(0, 2, 3, 1)
    assert all((image == inside).all(axis=(1, 2, 3)).any() for image in shown.originals)
    assert not any((image == inside).all(axis=(1, 2, 3)).any() for image in shown.outside)


def test_pictures_without_a_law_have_nothing_of_it():
    shown = pictures.drawn(trained(under()).trained_model())
    assert (shown.outside, shown.law, shown.law_factors) == (None, None, None)
    assert not {"outside", "law"} & pictures.sheets(shown).keys()


@pytest.mark.parametrize(
    "change",
    [
        {"law": np.ones((2, 2), np.float32)},
        {"law": np.ones((2, 200), np.float32), "law_factors": np.array(["a", "b"])},
        {"law": np.ones((2, 2), np.float32), "law_factors": np.array(["a"])},
        {"outside": np.zeros((1, 8, 8, 3), np.uint8)},
    ],
)
def test_damaged_pictures_of_a_law_are_refused(change):
    from dataclasses import replace

    shown = pictures.drawn(trained(under()).trained_model())
    with pytest.raises(DataError, match="do not fit together"):
        pictures.from_bytes(pictures.to_bytes(replace(shown, **change)))


def test_an_evaluation_leaves_training_alone_under_a_law():
    """The same weights whether or not regions are scored during training."""
    often, never = (
        trained(under(LAW, HELD_OUT, evaluation={"metrics": metrics, "every": 3})) for metrics in (["mig"], [])
    )
    assert all(
        torch.equal(one, other) for one, other in zip(often.model.parameters(), never.model.parameters(), strict=True)
    )
