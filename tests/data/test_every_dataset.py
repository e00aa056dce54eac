"""What every data set of the catalogue must do. Those made from files are met in miniature, in the public formats."""

import math
import pickle
import re

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from disentune.data import DATASETS, load
from disentune.data.factors import FactorGrid
from disentune.errors import DataError
from disentune.learn.training import Training
from disentune.parameters import chosen
from photo_files import FILES as PHOTOS
from sprite_files import FILES as SPRITES

FILES = SPRITES | PHOTOS
every_dataset = pytest.mark.parametrize("name", DATASETS.names())
only_files = pytest.mark.parametrize("name", sorted(FILES))
CHANGED = ("xysquares", "dsprites", "pinwheel")
"""Drawn, stored and made of points: those of which every quick run also changes the pixels."""


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def params(name, root, monkeypatch):
    return FILES[name](root, monkeypatch) if name in FILES else {}


@pytest.fixture
def data(name, params):
    return load(name, **params)


def sample_of(data, size=32):
    return np.random.default_rng(0).integers(len(data), size=size)


def test_every_data_set_with_sources_has_its_miniature(root, monkeypatch):
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


@every_dataset
def test_factors_span_the_grid(data):
    assert len(data.factor_names) == len(set(data.factor_names)) == len(data.factor_sizes)
    assert len(data) == np.prod(data.factor_sizes)
    assert set(data.categorical) <= set(data.factor_names)


@every_dataset
def test_images_come_in_the_order_asked_for(data):
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
def test_only_noisy_images_are_drawn_anew(data):
    indices = sample_of(data)
    drawn = [data.images(indices, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any() == data.noisy
    assert (drawn[0] != data.images(indices)).any() == data.noisy


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
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    origin = np.zeros((1, len(data.factor_sizes)), int)
    moved = origin + np.diag(np.array(data.factor_sizes) > 1).astype(int)
    images = data.images(grid.index(np.concatenate([origin, moved])))
    assert len(np.unique(images, axis=0)) == len(images)


@every_dataset
@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(draw=st.data())
def test_indices_and_factors_are_one_to_one(data, draw):
    grid = FactorGrid(data.factor_names, data.factor_sizes)
    index = np.array([draw.draw(st.integers(0, len(data) - 1))])
    assert grid.index(grid.factors(index)) == index


WITH_PIXELS = [
    pytest.param(name, pixels, id=f"{name}-{pixels}", marks=[] if not pixels or name in CHANGED else [pytest.mark.long])
    for name in DATASETS.names()
    for pixels in ({}, {"transform": "unit"}, {"noise": 0.1})
]


@pytest.mark.parametrize(("name", "pixels"), WITH_PIXELS)
def test_a_trial_trains_on_it_and_goes_on_to_the_bit(name, params, pixels, trial_with):
    if DATASETS[name].points and "noise" in pixels:
        pytest.skip("noise is for pixels")
    section = {f"dataset__{key}": value for key, value in {"name": name, **params, **pixels}.items()}
    config = trial_with(**section, model__width=4, training__steps=4, training__batch_size=8, training__log_every=1,
                        evaluation__metrics=[], framework__name="ada_gvae")  # fmt: skip
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
def test_altered_images_are_noticed_and_named(name, params, root):
    load(name, **params)
    path = next(path for path in root.glob("*/images.npy"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{re.escape(str(path))} was altered.*disentune data prepare"):
        load(name, **params)


@only_files
def test_a_trial_does_not_go_on_with_other_contents(name, params, root, trial_with):
    section = {f"dataset__{key}": value for key, value in {"name": name, **params}.items()}
    training = Training(trial_with(**section, model__width=4))
    state = training.state()
    state["contents"] = [*state["contents"][:-1], "0" * 64]
    with pytest.raises(DataError, match="other contents"):
        Training(training.config, state)


@every_dataset
def test_images_are_the_same_on_the_network_side(data, name, params, trial_with):
    """x / 255 and nothing else, for pixels; points as they are."""
    section = {f"dataset__{key}": value for key, value in {"name": name, **params, "transform": "unit"}.items()}
    inputs = Training(trial_with(**section, model__width=4)).inputs
    indices = sample_of(data, 4)
    expected = torch.from_numpy(data.images(indices)).double() / (1 if DATASETS[name].points else 255)
    torch.testing.assert_close(inputs(indices).double(), expected, rtol=1e-6, atol=1e-7)
