"""The manipulated data set: bounded changes, the same bits from the same donors, and never from others."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import expit

from chain_examples import BASE, donors, params_of, resolved, small_manipulated, study, train
from disentune.data import load
from disentune.data.factors import FactorGrid
from disentune.data.manipulated import DATASET, Params, changes, finest, hidden, networks, reflected
from disentune.errors import ConfigError, DataError
from disentune.files import earlier
from disentune.maths.manipulation import manipulated, pattern
from disentune.models.mlp import MODEL
from disentune.results.donors import manipulator_trials
from disentune.spec.config import TrialConfig


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """(data root, params) of a set that is rendered once; tests that change anything use a storage of their own."""
    root = tmp_path_factory.mktemp("manipulated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISENTUNE_DATA", str(root))
        params = small_manipulated(root, patch)
        load("manipulated", **params)
        yield root, params


@pytest.fixture
def params(world, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(world[0]))
    monkeypatch.setenv(earlier.VARIABLE, str(world[0] / "storage"))
    return world[1]


@pytest.fixture
def data(params):
    return load("manipulated", **params)


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """An empty one, with a data root beside it."""
    monkeypatch.setenv(earlier.VARIABLE, str(tmp_path / "storage"))
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path / "data"))
    return tmp_path / "storage"


def all_images(data):
    return data.images(np.arange(len(data)))


# ---- the change


def test_no_pixel_changes_by_more_than_epsilon_and_some_do_change(data, params):
    change = all_images(data).astype(float) / 255 - all_images(data.original) / 255
    assert 0 < np.abs(change).max() <= params["epsilon"]


def test_factors_and_number_of_images_stay(data):
    original = load(BASE["name"], **{key: value for key, value in BASE.items() if key != "name"})
    assert (len(data), data.factor_names, data.factor_sizes) == (len(original), original.factor_names, (3,) * 4)
    assert data.categorical == original.categorical
    np.testing.assert_array_equal(all_images(data.original), all_images(original))


def test_whole_levels_reflect_as_the_published_formula_and_never_move_farther():
    x, change = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(-255, 256, dtype=np.int16))
    found = reflected(x, change).astype(int)
    moved = x.astype(int) + change
    expected = moved - 2 * np.maximum(moved - 255, 0) + 2 * np.maximum(-moved, 0)
    np.testing.assert_array_equal(found, expected)
    assert (np.abs(found - x.astype(int)) <= np.abs(change)).all()


@pytest.mark.parametrize("epsilon", [0.1, 0.175, 0.2, 1.0])
def test_a_saturated_network_stays_within_epsilon(epsilon):
    model = MODEL.build((1, 2, 2), 1, MODEL.params(latents=2, width=32), torch.Generator().manual_seed(0))
    for parameter in model.decoder.parameters():
        parameter.data.mul_(1e3)
    table = changes(model, 64, epsilon, (1, 2, 2))
    assert np.abs(table).max() == int(255 * epsilon)


def test_rendered_images_are_what_the_network_gives_one_by_one(data, params):
    """To within a level that is lost by rounding, and one for the steps of the hidden unit."""
    unit, model = networks(Params(**params), 4)
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    for index in np.random.default_rng(0).integers(len(data), size=20):
        x = torch.from_numpy(data.original.images(np.array([index]))).double() / 255
        factors = torch.tensor(2 * grid.factors(np.array([index])) / 2 - 1.0)  # three values each: -1, 0, 1
        with torch.no_grad():
            change = params["epsilon"] * pattern(model.double(), unit.double()(factors))
        expected = 255 * manipulated(x, change)
        assert (expected - torch.from_numpy(data.images(np.array([index])))).abs().max() <= 2


def test_the_hidden_unit_is_a_logistic_of_a_weighted_sum(params):
    unit, _ = networks(Params(**params), 4)
    factors = np.random.default_rng(0).uniform(-1, 1, size=(5, 4)).astype(np.float32)
    weight, bias = (parameter.detach().double().numpy() for parameter in (unit[0].weight, unit[0].bias))
    np.testing.assert_allclose(hidden(unit, factors), expit(factors.astype(float) @ weight[0] + bias))


def test_the_table_of_changes_stays_small_for_large_images():
    assert finest((3, 64, 64)) == 4096
    assert 2 * (finest((3, 512, 512)) + 1) * 3 * 512**2 < 1.01 * 2**29


# ---- identity


def contents(params):
    data = load("manipulated", **params)
    return data._prepared.about.sha256


def test_the_same_donors_give_the_same_bytes(storage, world, monkeypatch):
    params = small_manipulated(storage.parent, monkeypatch)
    again = contents({**params})
    about = json.loads((world[0] / f"manipulated_{world[1]['manipulator']}" / "about.json").read_text())
    assert params == world[1]
    assert again == about["sha256"]


@pytest.mark.parametrize("seed", range(3))
def test_killing_the_training_at_random_steps_changes_no_byte(storage, world, seed):
    donors(storage)
    section = resolved(storage)
    (tree,) = manipulator_trials([{**study(), "dataset": section}])
    steps = tuple(sorted(int(step) for step in np.random.default_rng(seed).integers(1, 12, size=3)))
    train(storage, tree, stops=steps)
    about = json.loads((world[0] / f"manipulated_{section['manipulator']}" / "about.json").read_text())
    assert contents(params_of(section)) == about["sha256"]


def test_other_donors_or_settings_give_another_identity(storage, world):
    donors(storage, learning_rate="2e-2")
    others = [
        resolved(storage),
        resolved(storage, epsilon=0.2),
        resolved(storage, steps=24),
        resolved(storage, worst=2),
    ]
    keys = {section["manipulator"] for section in others}
    assert len(keys) == 4
    assert world[1]["manipulator"] not in keys


def test_a_donor_whose_weights_have_changed_gives_another_identity(storage):
    run = donors(storage)
    before = resolved(storage)
    chosen = run.trial(before["donors"][0]["trial"]).checkpoints
    step = chosen.steps()[-1]
    state = chosen.load(step)
    next(iter(state["model"].values())).add_(1e-3)
    chosen.save(step, state)
    after = resolved(storage)
    assert [donor["trial"] for donor in after["donors"]] == [donor["trial"] for donor in before["donors"]]
    assert after["manipulator"] != before["manipulator"]
    (tree,) = manipulator_trials([{**study(), "dataset": before}])
    with pytest.raises(AssertionError):  # the trial fails: its donor is not the one that it was planned with
        train(storage, tree)
    log = Path(storage / "tiny_manipulators" / "main" / "trials" / before["manipulator"] / "errors.log").read_text()
    assert "has other weights than expected" in log


def test_its_origin_is_recorded(data, world, params):
    about = json.loads((world[0] / f"manipulated_{params['manipulator']}" / "about.json").read_text())
    recorded = about["provenance"]
    assert {key: recorded[key] for key in params} == params
    assert recorded["weights"] == earlier.earlier(params["manipulator"]).weights
    assert [donor["role"] for donor in recorded["donors"]] == ["best", "best", "worst"]


def test_a_prepared_set_needs_no_storage(params, monkeypatch, tmp_path):
    monkeypatch.setenv(earlier.VARIABLE, str(tmp_path))
    data = load("manipulated", **params)
    np.testing.assert_array_equal(all_images(pickle.loads(pickle.dumps(data))), all_images(data))


# ---- refusals


def test_an_untrained_manipulator_is_named(storage):
    donors(storage)
    section = resolved(storage)
    with pytest.raises(DataError, match=f"trial {section['manipulator']} has no sound checkpoint in {storage}"):
        load("manipulated", **params_of(section))


def test_without_donors_the_message_says_how_to_get_them(storage):
    with pytest.raises(DataError, match=r"'donors', which are not known yet; name their sweep in `needs`"):
        load("manipulated", base=BASE, donors="donors", epsilon=0.1, steps=10)


def test_an_original_that_is_not_prepared_is_named(params, storage):
    with pytest.raises(DataError, match=r"'dsprites', whose images are manipulated, is not prepared in .*data prepare"):
        load("manipulated", **{**params, "base": {"name": "dsprites"}})


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"epsilon": 0.0}, "epsilon  must be > 0"),
        ({"epsilon": 1.1}, "epsilon  must be <= 1"),
        ({"base": "xysquare"}, "unknown data set 'xysquare'. Did you mean 'xysquares'"),
        ({"base": {"name": "xysquares", "spacin": 1}}, "spacin: unknown key. Did you mean 'spacing'"),
        ({"base": 3}, "must be a data set"),
        ({"base": "pinwheel"}, "must be a data set of fixed images"),
        ({"base": "noisy_dsprites"}, "must be a data set of fixed images"),
        ({"base": "sparse_parts"}, "must have one image for every combination of known factors"),
        ({"base": {"name": "manipulated", "base": BASE, "donors": "x", "epsilon": 0.1, "steps": 1}}, "not manipulated"),
        ({"donors": 3}, "must be the name of a sweep in `needs`"),
        ({"donors": [{"role": "best", "trial": "x", "weights": "y"}]}, "trial: must be 16 of the digits"),
        ({"best": 0}, "best  must be >= 1"),
        ({"decoder": {"name": "mlpp"}}, "unknown model 'mlpp'. Did you mean 'mlp'"),
        ({"decoder": {"name": "mlp"}}, "latents: is required"),
    ],
)
def test_wrong_parameters_are_refused_with_the_reason(wrong, reason):
    given = {"base": BASE, "donors": "donors", "epsilon": 0.1, "steps": 10}
    with pytest.raises(ConfigError, match=r"data set 'manipulated' cannot be used") as refused:
        load("manipulated", **{**given, **wrong})
    assert reason in str(refused.value)


def test_shape_and_factors_are_known_before_the_donors_are():
    config = TrialConfig.parse(study())
    assert config.setting().shape == (3, 8, 8)
    assert config.setting().factor_sizes == (3, 3, 3, 3)
    assert DATASET.sources(config.dataset.params) == ()
    assert TrialConfig.parse(config.tree()).id == config.id
