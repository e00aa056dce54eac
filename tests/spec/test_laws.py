"""Laws of sampling in a trial's config: its id, the keys of its scores, and what is refused at plan time."""

import pytest

from disentune.data import DATASETS
from disentune.frameworks import FRAMEWORKS
from disentune.spec.config import Invalid, TrialConfig, flattened, metric_keys, nested

TREE = {
    "dataset": {"name": "xysquares", "image_size": 8, "square_size": 2, "grid_size": 3, "squares": 2},
    "model": {"name": "mlp", "width": 8, "latents": 3},
    "framework": {"name": "beta_vae", "beta": 1.0},
    "recon": {"name": "mse"},
    "training": {"steps": 4, "batch_size": 4, "learning_rate": 1e-3},
    "evaluation": {"metrics": ["mig"]},
    "loss_scale": "sum",
    "seed": 0,
}
"""Factors x_R, y_R, x_G, y_G of three values each: 81 images."""
CORRELATED = {"name": "correlated", "factors": ["x_R", "x_G"], "sigma": 0.3}
HELD_OUT = "x_R == 1 and y_R >= 0.5"


def config(**changes):
    flat = flattened(TREE) | {key.replace("__", "."): value for key, value in changes.items()}
    return TrialConfig.parse(nested(flat))


def mistakes(**changes):
    with pytest.raises(Invalid) as caught:
        config(**changes)
    return {mistake.key: mistake.text for mistake in caught.value.mistakes}


# ---- identity


def test_a_trial_without_a_law_has_no_key_of_one():
    plain = config()
    assert not {"law", "held_out"} & plain.tree()["dataset"].keys()
    assert "region" not in plain.tree()["evaluation"]
    assert "region" not in plain.tree()["evaluation"]["metrics"][0]
    assert config(dataset__law=None, dataset__held_out=None, evaluation__region=None).id == plain.id
    assert config(evaluation__region="each").id == config(evaluation__region="everything").id == plain.id


def test_a_law_is_part_of_the_id_and_survives_the_canonical_form():
    ids = {config().id}
    for changes in ({"dataset__law": CORRELATED}, {"dataset__held_out": HELD_OUT},
                    {"dataset__law": CORRELATED, "dataset__held_out": "composition"}):  # fmt: skip
        one = config(**changes)
        assert TrialConfig.parse(one.tree()).id == one.id
        assert TrialConfig.parse(nested(flattened(one.tree()))).tree() == one.tree()
        ids.add(one.id)
    assert len(ids) == 4


def test_two_spellings_of_a_split_are_one_trial():
    assert config(dataset__held_out="composition").id == config(dataset__held_out={"name": "composition"}).id
    assert config(dataset__held_out=HELD_OUT).id == config(dataset__held_out={"name": "where", "formula": HELD_OUT}).id


# ---- regions


def test_metrics_are_scored_everywhere_and_their_keys_say_where():
    assert config(dataset__held_out=HELD_OUT).metric_keys() == ["mig", "mig_inside", "mig_outside"]
    assert config(dataset__law=CORRELATED).metric_keys() == ["mig", "mig_inside"]


def test_regions_sizes_and_codes_combine():
    metrics = [{"name": "mig", "size": "both", "codes": "sampled"}]
    found = config(dataset__held_out=HELD_OUT, evaluation__metrics=metrics, evaluation__region="outside")
    assert found.metric_keys() == ["mig_outside_sampled_fast", "mig_outside_sampled"]


def test_a_metric_may_have_regions_of_its_own():
    metrics = ["mig", {"name": "sap", "region": "everything"}]
    found = config(dataset__held_out=HELD_OUT, evaluation__region="inside", evaluation__metrics=metrics)
    assert found.metric_keys() == ["mig_inside", "sap"]


def test_metrics_of_whole_lines_are_scored_on_everything():
    metrics = ["linearity"]
    assert config(dataset__held_out=HELD_OUT, evaluation__metrics=metrics).metric_keys() == ["linearity"]
    found = mistakes(dataset__held_out=HELD_OUT, evaluation__metrics=metrics, evaluation__region="inside")
    assert found["evaluation.metrics"] == (
        "'linearity' compares images along whole lines of the grid: it can only have region: everything"
    )


def test_keys_of_a_section_follow_its_regions():
    assert metric_keys({"metrics": ["mig"]}) == ["mig"]
    assert metric_keys({"metrics": ["mig"]}, has_law=True) == ["mig", "mig_inside", "mig_outside"]
    assert metric_keys({"metrics": ["mig"], "region": "outside"}, has_law=True) == ["mig_outside"]


def test_a_region_without_a_law_is_refused():
    found = mistakes(evaluation__region="outside")
    assert found["evaluation.metrics"] == (
        "region outside of 'mig' needs dataset.law or dataset.held_out, which say what is outside"
    )


def test_a_region_without_images_is_refused():
    found = mistakes(dataset__law=CORRELATED, evaluation__region="outside")
    assert found["evaluation.metrics"] == (
        "region outside of 'mig' has no images: the law draws every combination of factors"
    )


def test_a_metric_that_needs_more_images_than_are_outside_is_refused():
    own = [{"name": "downstream", "train": 40}]
    found = mistakes(dataset__held_out=HELD_OUT, evaluation__metrics=own)
    assert found["evaluation.metrics"] == (
        "'downstream' in full size needs 41 images, but its table has 18 of the "
        "18 images outside; omit it, or choose smaller sizes "
        "or region: everything"
    )


# ---- refusals at plan time


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("law", {"name": "correlated", "factors": ["x_R", "x_B"], "sigma": 1.0}, "unknown factor 'x_B'."),
        ("law", {"name": "weighted", "weight": "0 * x_R"}, "nothing is left to train on"),
        ("held_out", "x_R > 1.0", "holds out nothing: no combination of x_R, y_R, x_G, y_G fits it"),
        ("held_out", "x_R >= 0", "holds out every combination"),
        ("held_out", "colour == 0", "unknown factor 'colour'. Known: "),
    ],
)
def test_a_law_that_leaves_nothing_is_refused_by_its_key(key, value, reason):
    found = mistakes(**{f"dataset__{key}": value})
    assert reason in found[f"dataset.{key}"]


@pytest.mark.parametrize(
    ("law", "key", "reason"),
    [
        ({"name": "corelated"}, "dataset.law.name", "Did you mean 'correlated'?"),
        ({"name": "correlated", "factors": ["x_R", "x_G"]}, "dataset.law.sigma", "is required but not set"),
        ({**CORRELATED, "sigma": 0}, "dataset.law.sigma", "must be > 0"),
        ({**CORRELATED, "factors": ["x_R"]}, "dataset.law.factors", "must have at least 2 item(s)"),
        ({**CORRELATED, "width": 1}, "dataset.law.width", "unknown key."),
        ("correlated", "dataset.law", "must be a mapping"),
    ],
)
def test_a_misspelt_law_is_refused_with_its_key(law, key, reason):
    assert reason in mistakes(dataset__law=law)[key]


def test_a_law_needs_factors():
    found = mistakes(dataset={"name": "sparse_parts"}, dataset__held_out="x == 1")
    assert found["dataset.held_out"] == (
        "needs an image for every combination of known factors, but 'sparse_parts' has no known factors"
    )


def test_distinct_images_of_an_uneven_law_are_refused():
    found = mistakes(dataset__law=CORRELATED, training__replacement=False)
    assert found["training.replacement"] == "must be true with a dataset.law that draws some images more often"


def test_a_batch_of_distinct_images_must_fit_inside():
    changes = {"dataset__held_out": "x_R >= 1", "training__replacement": False}
    assert config(**changes, training__batch_size=27)
    found = mistakes(**changes, training__batch_size=28)
    assert found["training.batch_size"].startswith("must be at most 27, the number of images that the law draws")


def test_the_population_is_what_training_may_draw():
    assert config().setting().population == 81
    assert config(dataset__law=CORRELATED).setting().population == 81
    assert config(dataset__held_out=HELD_OUT).setting().population == 63


def test_a_pair_law_without_partners_is_refused():
    alone = "not (x_R == y_R and y_R == x_G and x_G == y_G)"
    pairs = {"framework": {"name": "ada_gvae", "beta": 1.0, "pairs": {"name": "fixed_k", "k": 1}}}
    found = mistakes(**pairs, dataset__held_out=alone)
    assert found["framework.pairs"].startswith("'fixed_k' finds no partner for the image with x_R ")


# ---- names of factors


@pytest.mark.parametrize("name", ["shapes3d", "dsprites", "cars3d", "smallnorb", "mpi3d_real", "mpi3d_toy"])
def test_a_law_of_a_data_set_of_files_is_checked_before_they_are_prepared(name, monkeypatch, tmp_path):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    dataset = DATASETS[name]
    first = dataset.names(dataset.params())[0]
    found = config(dataset={"name": name}, model={"name": "linear", "latents": 2}, dataset__held_out=f"{first} == 0")
    assert found.sampling.count < found.dataset.plugin.population(found.dataset.params)


def test_no_framework_forbids_a_law():
    """A law is part of the data, so every framework may be trained under it."""
    assert "beta_vae" in FRAMEWORKS.names()
    assert config(dataset__law=CORRELATED, framework={"name": "factor_vae", "gamma": 1.0}).sampling is not None
