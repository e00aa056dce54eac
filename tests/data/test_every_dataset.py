"""What every data set of the catalogue must do. Those made from files are met in miniature, in the public formats."""

import math
import pickle
import re
import shutil

import numpy as np
import pytest
import torch

from chain_examples import FILES as CHAINS
from disentune.data import DATASETS, load
from disentune.data.factors import FactorGrid, factors_of
from disentune.data.noise import Recalled
from disentune.errors import DataError
from disentune.learn.training import Training
from disentune.parameters import chosen
from photo_files import FILES as PHOTOS
from sprite_files import FILES as SPRITES

FILES = SPRITES | PHOTOS | CHAINS
every_dataset = pytest.mark.parametrize("name", DATASETS.names(), scope="module")
only_files = pytest.mark.parametrize("name", sorted(FILES), scope="module")
CHANGED = ("xysquares", "dsprites", "pinwheel")
"""Drawn, stored and made of points: those of which every quick run also changes the pixels."""


@pytest.fixture(scope="module")
def miniature(name, tmp_path_factory):
    """(data root, params, opened) of a data set with its files prepared: made once, and only read by the tests."""
    root = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DISENTUNE_DATA", str(root))
        params = FILES[name](root, patch) if name in FILES else {}
        yield root, params, load(name, **params)


@pytest.fixture
def root(miniature, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(miniature[0]))
    return miniature[0]


@pytest.fixture
def params(miniature, root):
    return miniature[1]


@pytest.fixture
def data(miniature, root):
    return miniature[2]


def sample_of(data, size=32):
    return np.random.default_rng(0).integers(len(data), size=size)


def test_every_data_set_with_sources_has_its_miniature():
    def has_sources(name):
        dataset = DATASETS[name]
        required = any(field.is_required() for field in dataset.params.model_fields.values())
        return required or bool(dataset.sources(dataset.params()))

    assert set(FILES) == {name for name in DATASETS.names() if has_sources(name)}


# ---- images


@every_dataset
def test_images_have_the_promised_shape_and_type(name, data, params):
    images = data.images(sample_of(data))
    assert images.shape == (32, *data.shape)
    assert images.dtype == (np.float32 if DATASETS[name].points else np.uint8)
    assert np.isfinite(images).all()
    assert images.max() > images.min()


@every_dataset
def test_shape_and_factors_are_known_without_opening(name, params, data):
    dataset, checked = chosen(DATASETS, name, params)
    assert dataset.shape(checked) == data.shape
    assert dataset.factor_sizes(checked) == data.factor_sizes
    assert dataset.population(checked) == len(data)


@every_dataset
def test_factors_span_the_grid_unless_the_record_says_what_is_lacking(name, params, data):
    dataset, checked = chosen(DATASETS, name, params)
    assert len(data.factor_names) == len(set(data.factor_names)) == len(data.factor_sizes)
    assert (dataset.lacks(checked) == "") == (len(data) == np.prod(data.factor_sizes))
    assert (dataset.lacks(checked) == "factors") == (not data.factor_names)
    assert set(data.categorical) <= set(data.factor_names)


@every_dataset
def test_every_image_has_as_many_factors_as_there_are_names(data):
    known, indices = factors_of(data), sample_of(data)
    assert len(known) == len(data)
    assert known.factors(indices).shape == (32, len(data.factor_names))


@every_dataset
def test_images_come_in_the_requested_order(data):
    indices = sample_of(data)
    one_by_one = np.concatenate([data.images(indices[i : i + 1]) for i in range(len(indices))])
    np.testing.assert_array_equal(data.images(indices), one_by_one)


@every_dataset
def test_indices_may_be_a_list_or_none_at_all(data):
    np.testing.assert_array_equal(data.images([1, 0]), data.images(np.array([1, 0])))
    assert data.images(np.array([], dtype=int)).shape == (0, *data.shape)


@every_dataset
def test_two_openings_give_the_same_images(name, params):
    first, second = load(name, **params), load(name, **params)
    np.testing.assert_array_equal(first.images(sample_of(first)), second.images(sample_of(first)))


@every_dataset
def test_writing_into_images_leaves_the_data_alone(data):
    before = data.images(np.array([0])).copy()
    data.images(np.array([0]))[:] = 7
    np.testing.assert_array_equal(data.images(np.array([0])), before)


@every_dataset
def test_a_pickle_holds_no_image_and_gives_the_same_ones(data):
    pickled = pickle.dumps(data)
    assert len(pickled) < 10_000
    np.testing.assert_array_equal(pickle.loads(pickled).images(sample_of(data)), data.images(sample_of(data)))


@every_dataset
def test_only_noisy_images_are_drawn_again(name, params, data):
    indices = sample_of(data)
    drawn = [data.images(indices, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any() == data.noisy == is_noisy(name, params)
    assert (drawn[0] != data.images(indices)).any() == data.noisy


def is_noisy(name, params):
    """As known before anything is opened."""
    dataset, checked = chosen(DATASETS, name, params)
    return dataset.noisy(checked)


@every_dataset
def test_a_nuisance_that_is_recalled_is_the_same_in_any_company(data):
    indices, keys = sample_of(data), np.random.default_rng(0).integers(2**63, size=len(sample_of(data)))
    together = data.images(indices, Recalled(keys))
    for row in range(0, len(indices), 3):
        alone = data.images(indices[row : row + 1], Recalled(keys[row : row + 1]))
        np.testing.assert_array_equal(alone[0], together[row])


@every_dataset
def test_statistics_describe_a_sample(name, data):
    assert len(data.mean) == len(data.std) == data.shape[0]
    if DATASETS[name].points:
        values = data.images(np.arange(len(data)))[:, :, 0, 0]
        np.testing.assert_allclose([values.mean(0), values.std(0, ddof=1)], [data.mean, data.std], rtol=1e-4, atol=1e-6)
        return
    images = data.images(sample_of(data, 500), np.random.default_rng(3)) / 255.0
    deviations = images.std(axis=(2, 3), ddof=1)
    found = images.mean(axis=(0, 2, 3)), deviations.mean(axis=0)
    for values, statistic, spread in zip(found, (data.mean, data.std), (images.mean((2, 3)), deviations), strict=True):
        error = spread.std(axis=0) / math.sqrt(500)
        # five standard errors, and half a level of grey for noise that is rounded to bytes
        assert (np.abs(values - statistic) <= 5 * error + 0.5 / 255).all() or np.allclose(statistic, 1.0)


@every_dataset
def test_published_statistics_are_those_of_the_images(name, data):
    dataset = DATASETS[name]
    published = None if name in FILES else dataset.published(dataset.params())
    if published is not None:
        # those of XYObject were summed with less precision than these
        np.testing.assert_allclose([data.mean, data.std], [published.mean, published.std], rtol=1e-8)


@every_dataset
@pytest.mark.parametrize("outside", [-1, "len"])
def test_an_index_outside_is_refused(data, outside):
    with pytest.raises(DataError, match="index must be"):
        data.images(np.array([0, len(data) if outside == "len" else outside]))


@every_dataset
def test_neighbours_along_a_factor_differ(data):
    grid = factors_of(data)
    if not isinstance(grid, FactorGrid):
        pytest.skip("its images are on no grid")
    origin = np.zeros((1, len(data.factor_sizes)), int)
    moved = origin + np.diag(np.array(data.factor_sizes) > 1).astype(int)
    images = data.images(grid.index(np.concatenate([origin, moved])))
    assert len(np.unique(images, axis=0)) == len(images)


@every_dataset
def test_indices_and_factors_are_one_to_one(data):
    grid = factors_of(data)
    if not isinstance(grid, FactorGrid):
        pytest.skip("its images are on no grid")
    indices = np.concatenate([[0, len(data) - 1], sample_of(data, 1000)])
    np.testing.assert_array_equal(grid.index(grid.factors(indices)), indices)


WITH_PIXELS = [
    pytest.param(name, pixels, id=f"{name}-{pixels}", marks=[] if not pixels or name in CHANGED else [pytest.mark.long])
    for name in DATASETS.names()
    for pixels in ({}, {"transform": "unit"}, {"noise": 0.1})
]


@pytest.mark.parametrize(("name", "pixels"), WITH_PIXELS, scope="module")
def test_a_trial_trains_on_it_and_continues_to_the_bit(name, params, pixels, trial_with):
    if DATASETS[name].points and "noise" in pixels:
        pytest.skip("noise is for pixels")
    section = {f"dataset__{key}": value for key, value in {"name": name, **params, **pixels}.items()}
    on_grid = not DATASETS[name].lacks(chosen(DATASETS, name, params)[1])
    config = trial_with(**section, model__width=4, training__steps=4, training__batch_size=8, training__log_every=1,
                        evaluation__metrics=[], framework__name="ada_gvae" if on_grid else "beta_vae")  # fmt: skip
    whole = [progress.row for progress in Training(config).run()]
    half = Training(config)
    rows = [progress.row for progress in half.run(until=2)]
    rows += [progress.row for progress in Training(config, half.state()).run()]
    assert rows == whole
    assert all(math.isfinite(row["metrics"]["loss"]) for row in whole)
    assert len({row["metrics"]["loss"] for row in whole}) == 4


# ---- files


@only_files
def test_a_source_can_travel_and_names_a_safe_folder(name, params):
    dataset, checked = chosen(DATASETS, name, params)
    for source in dataset.sources(checked):
        travelled = pickle.loads(pickle.dumps(source))
        assert (travelled.key, travelled.files, travelled.shape) == (source.key, source.files, source.shape)
        assert re.fullmatch(r"[a-z0-9_]+", source.key)
        assert source.command.startswith(f"disentune data prepare {source.name}")


@only_files
def test_public_files_have_plain_names_and_addresses(name, params):
    dataset, checked = chosen(DATASETS, name, params)
    for source in dataset.sources(checked):
        for file in source.files:
            assert all(url.startswith(("https://", "http://")) for url in file.urls)
            assert not file.urls or re.fullmatch(r"[\w.-]+", file.name)


@only_files
def test_without_a_root_the_message_says_how_to_set_one(name, params, monkeypatch):
    monkeypatch.delenv("DISENTUNE_DATA")
    with pytest.raises(DataError, match=r"no data root is set.*DISENTUNE_DATA"):
        load(name, **params)


@only_files
def test_altered_images_are_noticed_and_named(name, params, root, tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(shutil.copytree(root, tmp_path / "altered")))
    load(name, **params)
    path = next(path for path in tmp_path.glob("altered/*/images.npy"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{re.escape(str(path))} was altered.*disentune data prepare"):
        load(name, **params)


@only_files
def test_a_trial_does_not_continue_with_other_contents(name, params, root, trial_with):
    section = {f"dataset__{key}": value for key, value in {"name": name, **params}.items()}
    training = Training(trial_with(**section, model__width=4, evaluation__metrics=[]))
    state = training.state()
    state["contents"] = [*state["contents"][:-1], "0" * 64]
    with pytest.raises(DataError, match="contents other than those"):
        Training(training.config, state)


@every_dataset
def test_images_are_the_same_on_the_network_side(data, name, params, trial_with):
    """x / 255 and nothing else, for pixels; points as they are."""
    section = {f"dataset__{key}": value for key, value in {"name": name, **params, "transform": "unit"}.items()}
    inputs = Training(trial_with(**section, model__width=4, evaluation__metrics=[])).inputs
    indices = sample_of(data, 4)
    expected = torch.from_numpy(data.images(indices)).double() / (1 if DATASETS[name].points else 255)
    torch.testing.assert_close(inputs(indices).double(), expected, rtol=1e-6, atol=1e-7)
