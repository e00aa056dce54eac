"""One table of codes: the right images, encoded once, and a metric that fails takes only itself down."""

import copy
import os
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from disentune.data.factors import FactorGrid
from disentune.data.noise import noise_keys, octets
from disentune.errors import DataError
from disentune.learn import evaluation
from disentune.learn.evaluation import encoded, evaluated, line_indices, sample_indices, table_from, table_indices
from disentune.learn.training import Training, weights_of
from disentune.learn.transforms import Pixels, inputs
from disentune.metrics import score
from disentune.plugin import Posterior
from disentune.spec.config import Scored

SMALL = {
    "dataset__image_size": 16,
    "dataset__square_size": 4,
    "dataset__grid_size": 3,
    "model__width": 8,
    "model__latents": 3,
}
"""3**6 = 729 images."""


@pytest.fixture
def training(trial_with):
    return Training(trial_with(**SMALL))


def test_a_small_data_set_is_evaluated_whole():
    assert sample_indices(64, 100, np.random.default_rng(0)).tolist() == list(range(64))


def test_a_large_one_is_sampled_without_repeats_the_same_way_every_time(trial_with):
    config, grid = trial_with(evaluation__table=100), FactorGrid(("a", "b"), (1000, 1000))
    indices = table_indices(config, grid, "full", lines=False)
    assert len(set(indices.tolist())) == 100
    assert (indices == table_indices(config, grid, "full", lines=False)).all()
    assert (indices != table_indices(trial_with(evaluation__table=100, seed=1), grid, "full", lines=False)).any()
    assert 0 <= indices.min() < indices.max() < 10**6


def test_the_fast_size_has_a_table_of_its_own(trial_with):
    config, grid = trial_with(evaluation__fast_table=50), FactorGrid(("a", "b"), (1000, 1000))
    assert len(table_indices(config, grid, "fast", lines=False)) == 50


def test_a_table_of_lines_holds_every_value_of_a_factor_around_equally_many_points():
    grid = FactorGrid(("a", "b", "c"), (7, 11, 5))
    factors = grid.factors(line_indices(grid, 230, np.random.default_rng(0)))
    assert len(factors) == 10 * (7 + 11 + 5)
    for factor, block in enumerate(np.split(factors, [70, 180])):
        lines = block.reshape(10, grid.sizes[factor], 3)
        assert (lines[:, :, factor] == np.arange(grid.sizes[factor])).all()
        others = np.delete(lines, factor, axis=2)
        assert (others == others[:, :1]).all()
        assert len(np.unique(others[:, 0], axis=0)) > 5


def test_a_small_data_set_is_its_own_table_of_lines():
    grid = FactorGrid(("a", "b"), (4, 5))
    assert line_indices(grid, 20, np.random.default_rng(0)).tolist() == list(range(20))


def test_codes_stand_beside_their_own_factors(training):
    indices = np.array([5, 700, 0, 333])
    table = encoded(training.trained_model(), indices)
    assert (training.known.index(table.factors) == indices).all()
    for row, index in enumerate(indices):
        with torch.no_grad():
            q = training.model.encode(training.inputs(np.array([index])))
        # One image at a time takes another matrix product than four, so the last bits may differ.
        np.testing.assert_allclose(table.means[row], q.mean[0].numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(table.logvars[row], q.logvar[0].numpy(), rtol=1e-4, atol=1e-6)


def test_sampled_codes_follow_the_posteriors_and_are_the_same_at_every_evaluation(training):
    trained = training.trained_model()
    images = replace(
        encoded(trained, np.arange(729)), means=np.full((729, 3), 5.0), logvars=np.tile(np.log([4, 1, 1e-4]), (729, 1))
    )
    codes = table_from(trained, images, "sampled").codes
    # 5 standard errors: sd / sqrt(n) of a mean, sd / sqrt(2 n) of a deviation
    np.testing.assert_allclose(codes.mean(axis=0), 5, atol=5 * 2 / np.sqrt(729))
    np.testing.assert_allclose(codes.std(axis=0) / [2, 1, 0.01], 1, atol=5 / np.sqrt(2 * 729))
    assert (codes == table_from(trained, images, "sampled").codes).all()
    assert (table_from(trained, images, "mean").codes == 5).all()


def test_rows_are_as_far_apart_as_the_reconstruction_loss_says(trial_with):
    training = Training(trial_with(**SMALL, recon__name="mae"))
    trained = training.trained_model()
    table = table_from(trained, encoded(trained, np.array([3, 500, 77])), "mean")
    x = trained.images(np.array([3, 500, 77]))
    expected = [(x[0] - x[1]).abs().sum(), (x[2] - x[2]).abs().sum(), (x[1] - x[2]).abs().sum()]
    found = table.distance(np.array([0, 2, 1]), np.array([1, 2, 2]))
    scale = found[0] / float(expected[0])  # the loss has its own scale, a mean or a sum over pixels
    np.testing.assert_allclose(found, scale * np.array(expected, dtype=float), rtol=1e-5)
    assert found[0] > 0 == found[1]


def test_a_rows_reconstruction_is_its_own_code_decoded(training):
    trained = training.trained_model()
    table = table_from(trained, encoded(trained, np.array([3, 500, 77])), "sampled")
    with torch.no_grad():
        output = training.model.decode(torch.tensor(table.codes[[2, 0]], dtype=torch.float32))
    target = trained.images(np.array([77, 3]))
    expected = training.config.recon.plugin.per_image(output, target, training.config.recon.params)
    np.testing.assert_allclose(table.reconstruction(np.array([2, 0])), expected.numpy(), rtol=1e-5)


@pytest.mark.parametrize("recon", ["mse", "bce"])
def test_a_rows_gram_is_that_of_the_decoders_jacobian(trial_with, recon):
    """By central differences, in double precision."""
    training = Training(trial_with(**SMALL, recon__name=recon, dataset__transform="unit"))
    trained = training.trained_model()
    table = table_from(trained, encoded(trained, np.array([3, 500, 77])), "sampled")
    model, plugin = copy.deepcopy(training.model).double().eval(), training.config.recon

    def image(z):
        with torch.no_grad():
            return plugin.plugin.to_image(model.decode(z), plugin.params).flatten(1)

    z, step = torch.tensor(table.codes[[2, 0]]), 1e-5
    shifts = step * torch.eye(z.shape[1], dtype=z.dtype)
    jacobian = torch.stack([(image(z + shift) - image(z - shift)) / (2 * step) for shift in shifts], dim=2)
    expected = (jacobian.mT @ jacobian).numpy()
    # single against double precision; a ReLU whose kink lies within the step would show as a larger gap
    np.testing.assert_allclose(table.gram(np.array([2, 0])), expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())


def test_chunks_change_nothing(training, monkeypatch):
    trained = training.trained_model()
    whole = table_from(trained, encoded(trained, np.arange(50)), "mean")
    rows, others = np.arange(50), np.arange(50)[::-1]
    expected = whole.codes, whole.distance(rows, others), whole.reconstruction(rows)
    monkeypatch.setattr(evaluation, "CHUNK", 7)
    parts = table_from(trained, encoded(trained, np.arange(50)), "mean")
    for one, other in zip(
        expected, (parts.codes, parts.distance(rows, others), parts.reconstruction(rows)), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)  # another product, so other last bits


def test_the_trials_score_is_the_plain_functions_score(trial_with):
    training = Training(trial_with(**SMALL, evaluation__metrics=["mig"], seed=7))
    found = evaluated(training.config, training.trained_model(), training.config.metrics)
    table = encoded(training.trained_model(), np.arange(729))
    assert found.numbers == score("mig", table.means, table.factors, seed=7)


@pytest.mark.slow
def test_a_row_says_how_each_number_was_made(trial_with):
    metrics = [{"name": "dci", "train": 20, "test": 10, "trees": "sklearn"}]
    training = Training(trial_with(**SMALL, evaluation__metrics=metrics, evaluation__size="both"))
    found = evaluated(training.config, training.trained_model(), training.config.metrics)
    assert {key for key in found.numbers if key.endswith("disentanglement")} == {"dci_disentanglement"}
    assert "dci_disentanglement_fast" in found.numbers
    sizes = {"table": 729, "train": 20, "test": 10, "trees": "sklearn"}
    assert found.scored["dci_fast"] == {"size": "fast", "codes": "mean", **sizes}
    assert found.scored["dci"] == {"size": "full", "codes": "mean", **sizes}
    assert np.shape(found.details["dci_importance_fast"]) == (3, 6)
    assert found.row().keys() == {"details", "scored"}


def test_a_row_says_which_number_must_be_read_with_care(trial_with):
    """A whole grid of 729 images is too small for votes of 64, and large enough for votes of 8."""
    metrics = [{"name": "factor_vae_score", "train": 20, "test": 10, "members": members} for members in (64, 8)]
    for metric in metrics:
        training = Training(trial_with(**SMALL, evaluation__metrics=[metric]))
        found = evaluated(training.config, training.trained_model(), training.config.metrics)
        caution = found.scored["factor_vae_score"].get("caution", "")
        assert caution.endswith("noise may score more than 0.03 above chance, and the whole grid has 729") == (
            metric["members"] == 64
        )
        assert not found.notes


def test_a_sample_too_small_for_a_vote_is_refused_in_the_notes(trial_with):
    metrics = [{"name": "factor_vae_score", "train": 20, "test": 10}]
    training = Training(trial_with(**SMALL, evaluation__metrics=metrics, evaluation__table=500))
    found = evaluated(training.config, training.trained_model(), training.config.metrics)
    assert np.isnan(found.numbers["factor_vae_score"])
    assert found.notes["factor_vae_score"].startswith("with fewer than 988 rows noise may score more")


def test_each_image_is_encoded_once(trial_with, monkeypatch):
    calls = []
    monkeypatch.setattr(
        evaluation, "encoded", lambda trained, indices: calls.append(len(indices)) or encoded(trained, indices)
    )
    training = Training(trial_with(**SMALL, evaluation__metrics=["mig", "dci"], evaluation__codes="both"))
    config = replace(training.config, metrics=tuple(shorter(scored) for scored in training.config.metrics))
    assert len(evaluated(config, training.trained_model(), config.metrics).scored) == 4
    assert calls == [729]


def shorter(scored):
    params = {"train": 20, "test": 10} if scored.metric.name == "dci" else {"samples": 20}
    return scored._replace(metric=scored.metric._replace(params=scored.metric.params.model_copy(update=params)))


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (DataError("too few rows"), "too few rows"),
        (IndexError("3"), "IndexError: 3"),
        (None, "must return its keys mine, but returned nothing"),
    ],
)
def test_a_failing_metric_leaves_nan_and_a_note_and_the_others_continue(trial_with, error, note):
    training = Training(trial_with(**SMALL, evaluation__metrics=["mig"]))
    (mig,) = training.config.metrics

    def broken(*arguments):
        if error:
            raise error
        return {}

    plugin = replace(mig.metric.plugin, name="mine", keys=("mine",), score=broken)
    mine = Scored(mig.metric._replace(plugin=plugin, name="mine"), "full", "mean", 0)
    found = evaluated(training.config, training.trained_model(), [mine, mig])
    assert np.isfinite(found.numbers["mig"])
    assert np.isnan(found.numbers["mine"])
    assert found.notes == {"mine": note}
    assert "mine" not in found.scored


@pytest.mark.parametrize("kind", [DataError, ValueError])
def test_the_note_of_a_failing_metric_reveals_no_key(trial_with, monkeypatch, kind):
    monkeypatch.setenv("WANDB_API_KEY", "0123456789abcdef/hush")
    training = Training(trial_with(**SMALL, evaluation__metrics=["mig"]))
    (mig,) = training.config.metrics

    def broken(*arguments):
        raise kind(f"refused {os.environ['WANDB_API_KEY']}, 0123456789abcdef%2Fhush")

    plugin = replace(mig.metric.plugin, score=broken)
    found = evaluated(
        training.config, training.trained_model(), [mig._replace(metric=mig.metric._replace(plugin=plugin))]
    )
    assert found.notes["mig"].endswith("refused ***, ***")


def test_codes_that_are_not_finite_fail_every_metric_and_not_the_trial(training):
    with torch.no_grad():
        for parameter in training.model.encoder.parameters():
            parameter.fill_(float("nan"))
    found = evaluated(training.config, training.trained_model(), training.config.metrics)
    assert found.notes == {"mig": "codes must be finite, but row 0, column 0 is nan"}


class Static:
    """Images of noise and nothing else: 2 x 3 of them."""

    factor_names, factor_sizes, shape = ("a", "b"), (2, 3), (1, 2, 2)
    mean, std, categorical, noisy = (0.5,), (0.25,), (), True

    def __len__(self):
        return 6

    def images(self, indices, rng=None):
        return octets(noise_keys(indices, rng), 4).reshape(-1, 1, 2, 2)


@pytest.fixture
def noisy(training):
    """Codes that show the images, which are nothing but nuisance."""
    trained = replace(training.trained_model(), images=inputs(Pixels(), Static(), training.device))
    trained.model.encode = lambda x: Posterior(x.flatten(1), x.flatten(1))
    trained.model.decode = lambda z: torch.zeros(len(z), 1, 2, 2)
    return trained


def test_every_row_of_a_noisy_data_set_has_a_nuisance_of_its_own(noisy):
    rows = encoded(noisy, np.array([4, 1, 4, 4]))
    assert len(np.unique(rows.means, axis=0)) == 4
    np.testing.assert_array_equal(encoded(noisy, np.array([4, 1, 4, 4])).means, rows.means)
    assert rows.factors[0].tolist() == rows.factors[2].tolist()


def test_a_rows_nuisance_is_the_same_in_distances_and_reconstructions(noisy):
    images = encoded(noisy, np.array([4, 1, 4, 4, 0]))
    table, rows = table_from(noisy, images, "mean"), np.array([3, 0, 2])
    norms = (images.means.astype(float)[rows] ** 2).sum(axis=1)  # images are codes, and zeros are decoded
    found = table.reconstruction(rows)
    np.testing.assert_allclose(found / found[0], norms / norms[0], rtol=1e-5)
    gaps = ((images.means[[0, 2, 3]].astype(float) - images.means[[2, 1, 3]]) ** 2).sum(axis=1)
    found = table.distance(np.array([0, 2, 3]), np.array([2, 1, 3]))
    np.testing.assert_allclose(found / found[0], gaps / gaps[0], rtol=1e-5)
    assert found[2] == 0


def test_a_noisy_table_has_as_many_rows_as_asked_however_few_combinations_there_are(trial_with):
    config, grid = trial_with(evaluation__table=300), FactorGrid(("a", "b"), (4, 5))
    counts = np.bincount(table_indices(config, grid, "full", lines=False, noisy=True), minlength=20)
    assert counts.sum() == 300
    assert counts.min() > 0
    assert counts.std() > 1  # drawn one by one, not dealt out evenly: a deviation of about 3.8
    assert len(table_indices(config, grid, "full", lines=False)) == 20
    assert len(table_indices(config, grid, "full", lines=True, noisy=True)) == 33 * (4 + 5)


@pytest.mark.slow
def test_every_metric_can_score_a_noisy_table(trial_with, noisy):
    names = ["mig", "sap", "dci", "modularity", "beta_vae_score", "factor_vae_score", "downstream", "distances"]
    small = {"train": 200, "test": 100}
    sizes = {"sap": small, "dci": small, "downstream": small, "beta_vae_score": small, "factor_vae_score": small}
    metrics = [{"name": name, **sizes.get(name, {})} for name in names]
    config = trial_with(evaluation__metrics=metrics, evaluation__table=9000)
    found = evaluated(config, noisy, config.metrics)
    assert not found.notes
    assert np.isfinite([*found.numbers.values()]).all()
    assert {made["table"] for made in found.scored.values()} >= {9000}


def test_rows_of_sampled_codes_are_drawn_again_when_they_are_encoded_again(training):
    trained = training.trained_model()
    images = replace(encoded(trained, np.arange(3)), means=np.full((3, 3), 5.0), logvars=np.full((3, 3), np.log(4)))
    sampled, mean = (table_from(trained, images, codes) for codes in ("sampled", "mean"))
    rows = np.zeros((200, 7), int)
    again = sampled.encoded(rows, np.random.default_rng(0))
    assert again.shape == (200, 7, 3)
    assert abs(again.mean() - 5) < 5 * 2 / np.sqrt(again.size)  # 5 standard errors of a deviation of 2
    assert abs(again.std() - 2) < 5 * 2 / np.sqrt(2 * again.size)
    assert (mean.encoded(rows, np.random.default_rng(0)) == 5).all()


# ---- the prior of the framework

STUDENT = {"framework__name": "decomposition_vae", "framework__prior": {"name": "student_t", "nu": 3}}


def test_codes_can_be_mapped_from_a_students_t_to_a_normal_before_they_are_scored(trial_with):
    training = Training(trial_with(**SMALL, **STUDENT))
    trained = training.trained_model()
    images = encoded(trained, np.arange(50))
    expected = stats.norm.ppf(stats.t.cdf(images.means.astype(float), 3))
    np.testing.assert_allclose(table_from(trained, images, "normal").codes, expected, atol=1e-8)


def test_scores_of_mapped_codes_have_keys_of_their_own(trial_with):
    metrics = ["mig", {"name": "mig", "codes": "normal"}]
    config = trial_with(**SMALL, **STUDENT, evaluation__metrics=metrics)
    assert config.metric_keys() == ["mig", "mig_normal"]
    scores = evaluated(config, Training(config).trained_model(), config.metrics)
    assert set(scores.numbers) == {"mig", "mig_normal"}
    assert scores.scored["mig_normal"]["codes"] == "normal"


def test_a_table_knows_the_prior_of_its_framework(trial_with):
    codes = np.random.default_rng(0).normal(size=(5, 3))
    trained = Training(trial_with(**SMALL, **STUDENT)).trained_model()
    law = table_from(trained, encoded(trained, np.arange(20)), "mean").prior
    np.testing.assert_allclose(law.log_density(codes), stats.t.logpdf(codes, 3).sum(axis=1))
    assert law.sample(7, 3, np.random.default_rng(0)).shape == (7, 3)
    plain = Training(trial_with(**SMALL)).trained_model()
    assert table_from(plain, encoded(plain, np.arange(20)), "mean").prior is None


def test_a_learned_prior_is_kept_with_weights_that_are_only_scored(trial_with):
    learned = {"framework__name": "decomposition_vae", "framework__prior": {"name": "anisotropic", "learned": True}}
    config = trial_with(**SMALL, **learned)
    training = Training(config)
    for _ in training.run(3):
        pass
    again = Training.with_weights(config, weights_of(training.state()))
    fresh = Training(config)
    assert torch.equal(again.trained_model().prior.logits, training.extra.logits)
    assert not torch.equal(fresh.trained_model().prior.logits, training.extra.logits)
