"""Data without factors, or with a table of them: what is refused before anything starts, and what is not."""

import pytest

from disentune.frameworks import FRAMEWORKS
from disentune.metrics import METRICS
from disentune.spec.config import Invalid
from framework_examples import EXAMPLES

TABLE = {"dataset__name": "grid_file", "dataset__path": "own.npz", "dataset__factor_names": ["a", "b"],
         "dataset__factor_sizes": [3, 4], "dataset__image_shape": [1, 8, 8], "dataset__labels": "labels",
         "dataset__count": 60_000}  # fmt: skip
PAIRED = ("ada_gvae", "ada_ml_vae", "pcl", "slow_vae")


def refused(trial_with, **changes):
    with pytest.raises(Invalid) as raised:
        trial_with(**changes)
    return {mistake.key: mistake.text for mistake in raised.value.mistakes}


def without_beta(name):
    return {"framework__beta": ..., **{f"framework__{key}": value for key, value in EXAMPLES[name][0].items()}}


def test_metrics_that_need_factors_are_refused_by_name_in_one_sentence(trial_with):
    found = refused(trial_with, dataset__name="sparse_parts", evaluation__metrics=["mig", "hoyer", "dci"])
    others = ", ".join(metric.name for metric in METRICS if "factors" not in metric.needs)
    assert found == {
        "evaluation.metrics": "'mig', 'dci' need known factors, but the data set 'sparse_parts' has no "
        f"known factors; use instead: {others}"
    }
    assert "hoyer" in others
    assert "mig" not in others


@pytest.mark.parametrize("name", [metric.name for metric in METRICS])
def test_each_metric_is_refused_if_and_only_if_it_needs_factors(trial_with, name):
    changes = {"dataset__name": "sparse_parts", "evaluation__metrics": [name], "evaluation__table": 5000}
    if "factors" in METRICS[name].needs:
        assert f"'{name}' needs known factors" in refused(trial_with, **changes)["evaluation.metrics"]
    else:
        assert trial_with(**changes).metrics[0].metric.name == name


@pytest.mark.parametrize("name", [metric.name for metric in METRICS if "factors" in metric.needs])
def test_of_a_table_only_metrics_along_lines_are_refused(trial_with, name):
    changes = {**TABLE, "evaluation__metrics": [name], "evaluation__size": "fast"}
    if METRICS[name].lines:
        text = refused(trial_with, **changes)["evaluation.metrics"]
        assert f"'{name}' needs all combinations of the factors, but the data set 'grid_file'" in text
    else:
        assert trial_with(**changes).metrics


@pytest.mark.parametrize("name", PAIRED)
@pytest.mark.parametrize("data", [{"dataset__name": "sparse_parts"}, TABLE])
def test_frameworks_of_pairs_are_refused_with_those_that_serve(trial_with, name, data):
    found = refused(trial_with, **data, evaluation__metrics=[], framework__name=name, **without_beta(name))
    assert set(found) == {"framework.name"}
    assert f"'{name}' draws pairs of images that differ in some factors, but the data set" in found["framework.name"]
    assert found["framework.name"].endswith("dip_vae_ii, factor_vae, hfs_vae, info_vae, qlae, tripod")


def test_a_framework_that_reads_factors_is_refused_where_there_are_none_and_accepts_a_table(trial_with):
    chosen = {"framework__name": "manipulator", **without_beta("manipulator"), "evaluation__metrics": []}
    text = refused(trial_with, dataset__name="sparse_parts", **chosen)["framework.name"]
    assert text.startswith("'manipulator' needs the factors of each image, but the data set 'sparse_parts' has no")
    assert text.endswith("factor_vae, hfs_vae, info_vae, qlae, tripod")
    assert trial_with(**TABLE, dataset__transform="unit", **chosen).framework.name == "manipulator"


def test_labels_of_images_without_factors_are_refused_once(trial_with):
    text = refused(trial_with, dataset__name="sparse_parts", framework__name="ivae", **without_beta("ivae"),
                   evaluation__metrics=[])  # fmt: skip
    assert text.keys() == {"framework.name"}


@pytest.mark.parametrize(
    "name", [name for name in EXAMPLES if name not in PAIRED and not FRAMEWORKS[name].needs_factors]
)
def test_every_other_framework_serves(trial_with, name):
    config = trial_with(
        dataset__name="sparse_parts", evaluation__metrics=[], framework__name=name, **without_beta(name)
    )
    assert config.setting().population == 5000


def test_what_a_table_needs_is_counted_in_images(trial_with):
    found = refused(
        trial_with, dataset__name="sparse_parts", dataset__count=1, evaluation__metrics=["kl_decomposition"]
    )
    assert "'kl_decomposition' in full size needs 2 images, but its table has 1 of the data set's 1" in str(found)


# ---- choices of Adam


def test_adams_usual_choices_leave_the_identity_of_a_trial_alone(trial_with):
    usual = trial_with()
    spelled = trial_with(training__optimiser={"betas": [0.9, 0.999], "amsgrad": False, "weight_decay": 0.0})
    assert "optimiser" not in usual.tree()["training"]
    assert spelled.id == usual.id
    assert trial_with(training__optimiser={"amsgrad": True}).id != usual.id


@pytest.mark.parametrize(
    ("chosen", "key", "text"),
    [
        ({"betas": [0.9]}, "training.optimiser.betas", "at least 2 item"),
        ({"betas": [0.9, 1.0]}, "training.optimiser.betas.1", "must be < 1"),
        ({"weight_decay": -0.1}, "training.optimiser.weight_decay", "must be >= 0"),
        ({"amsgrad": 1}, "training.optimiser.amsgrad", "must be true or false"),
        ({"momentum": 0.9}, "training.optimiser.momentum", "unknown key"),
        ("adam", "training.optimiser", "must be a mapping"),
    ],
)
def test_wrong_choices_of_adam_are_named(trial_with, chosen, key, text):
    found = refused(trial_with, training__optimiser=chosen)
    assert text in found[key]
