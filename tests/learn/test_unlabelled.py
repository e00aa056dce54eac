"""A trial on images without factors: trained, scored, pictured and looked at like any other."""

import math

import numpy as np
import pytest

from disentune.errors import DataError
from disentune.learn import image_distances
from disentune.learn.pictures import drawn, from_bytes, sheets, to_bytes
from disentune.learn.training import Training
from disentune.metrics import METRICS

OF_ANY_MODEL = {"jacobian_orthogonality": {"threshold": 10.0}}
"""So that every latent counts as active after four steps."""
UNSUPERVISED = [
    {"name": metric.name, **OF_ANY_MODEL.get(metric.name, {})} for metric in METRICS if "factors" not in metric.needs
]


@pytest.fixture
def config(trial_with):
    return trial_with(
        dataset__name="sparse_parts", dataset__count=300, model__width=16, model__latents=3, training__steps=4,
        training__batch_size=8, training__log_every=2, framework__beta=1.0, evaluation__metrics=UNSUPERVISED,
        evaluation__size="fast", evaluation__every=2, loss_scale="sum",
    )  # fmt: skip


@pytest.fixture
def trained(config):
    training = Training(config)
    for _ in training.run():
        pass
    return training.trained_model()


def test_every_metric_without_factors_gives_its_numbers_and_resuming_changes_nothing(config):
    rows = [progress.row for progress in Training(config).run() if progress.row]
    assert all(math.isfinite(rows[-1]["metrics"][key]) for key in config.metric_keys())
    half = Training(config)
    for _ in half.run(until=2):
        pass
    assert [progress.row for progress in Training(config, half.state()).run() if progress.row] == rows[1:]


def test_the_three_parts_of_the_kl_add_up_in_a_row(config):
    """Evaluated means and variances are those of the table, so the KL is that of `kl_per_latent`."""
    metrics = [progress.row for progress in Training(config).run() if progress.row][-1]["metrics"]
    parts = sum(metrics[f"kl_decomposition_{part}_fast"] for part in ("mi", "tc", "marginals"))
    assert parts == pytest.approx(3 * metrics["kl_per_latent_fast"], rel=1e-6)


@pytest.mark.parametrize("framework", [{"name": "factor_vae", "gamma": 2.0}, {"name": "beta_tc_vae", "beta": 2.0}])
def test_a_second_batch_and_the_number_of_images_need_no_factors(trial_with, framework):
    changes = {f"framework__{key}": value for key, value in framework.items()}
    config = trial_with(dataset__name="sparse_parts", dataset__count=50, model__width=4, training__steps=3,
                        training__batch_size=8, training__log_every=1, evaluation__metrics=[],
                        **{"framework__beta": ..., **changes})  # fmt: skip
    rows = [progress.row for progress in Training(config).run()]
    assert all(math.isfinite(row["metrics"]["loss"]) for row in rows)


def test_pictures_show_images_and_traversals_but_no_distances_along_factors(trained):
    pictures = drawn(trained)
    assert pictures.originals.shape == pictures.reconstructions.shape == (8, 12, 12, 1)
    assert pictures.distances == {}
    assert set(sheets(from_bytes(to_bytes(pictures)))) == {"reconstructions", "traversals"}


def test_the_look_at_a_loss_has_distances_of_random_images_only(config):
    look = image_distances.look(image_distances.opened(config))
    assert look.factors == {}
    assert look.order is look.line_order is None
    assert look.anywhere.pearson is look.anywhere.spearman is None
    data = Training(config).data
    images = data.images(np.arange(300)).reshape(300, -1) / 255.0 / data.std[0]
    mean = np.mean([((one - images) ** 2).mean(axis=1).sum() / 299 for one in images])
    assert look.anywhere.mean_distance == pytest.approx(mean, rel=0.05)  # of 64 groups of 32


def test_what_needs_lines_says_so(trained):
    with pytest.raises(DataError, match=r"a line along one factor needs .* but the images have no known factors"):
        list(image_distances.levels(trained, 1))
