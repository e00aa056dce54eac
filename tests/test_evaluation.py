"""One table of codes: the right images, encoded once, and a metric that fails takes only itself down."""

from dataclasses import replace

import numpy as np
import torch

from disentune import evaluation
from disentune.errors import DataError
from disentune.evaluation import encoded, scores, table_indices
from disentune.metrics import score
from disentune.training import Training


def test_a_small_data_set_is_evaluated_whole(trial_with):
    assert table_indices(trial_with(evaluation__table=100), 64).tolist() == list(range(64))


def test_a_large_one_is_sampled_without_repeats_the_same_way_every_time(trial_with):
    config = trial_with(evaluation__table=100)
    indices = table_indices(config, 10**6)
    assert len(set(indices.tolist())) == 100
    assert (indices == table_indices(config, 10**6)).all()
    assert (indices != table_indices(trial_with(evaluation__table=100, seed=1), 10**6)).any()
    assert 0 <= indices.min() < indices.max() < 10**6


def test_codes_stand_beside_their_own_factors(trial_with):
    config = trial_with(dataset__image_size=16, dataset__square_size=4, dataset__grid_size=3, model__width=8)
    training = Training(config)
    indices = np.array([5, 700, 0, 333])
    table = encoded(training.model, training.data, training.transform, indices)
    assert (training.grid.index(table.factors) == indices).all()
    for row, index in enumerate(indices):
        with torch.no_grad():
            q = training.model.encode(training.transform(training.data.images(np.array([index]))))
        # One image at a time takes another matrix product than four, so the last bits may differ.
        np.testing.assert_allclose(table.means[row], q.mean[0].numpy(), rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(table.logvars[row], q.logvar[0].numpy(), rtol=1e-4, atol=1e-6)


def test_the_trials_score_is_the_plain_functions_score(trial_with):
    config = trial_with(evaluation__metrics=["mig"], seed=7)
    rng = np.random.default_rng(0)
    table = evaluation.Table(rng.normal(size=(500, 4)), np.zeros((500, 4)), rng.integers(0, 5, size=(500, 2)))
    assert scores(config, table)[0] == score("mig", table.means, table.factors, seed=7)


def test_a_failing_metric_leaves_nan_and_a_note_and_the_others_go_on(trial_with):
    config = trial_with(evaluation__metrics=["mig", "dci"])

    def broken(*arguments):
        raise DataError("dci: too few rows")

    mig, dci = config.metrics
    config = replace(config, metrics=(dci._replace(plugin=replace(dci.plugin, score=broken)), mig))
    rng = np.random.default_rng(0)
    table = evaluation.Table(rng.normal(size=(50, 3)), np.zeros((50, 3)), rng.integers(0, 3, size=(50, 2)))
    numbers, notes = scores(config, table)
    assert np.isfinite(numbers["mig"])
    assert np.isnan(numbers["dci_disentanglement"])
    assert notes == {"dci": "dci: too few rows"}
