"""A trained model takes images as the data set gives them, and refuses all others with one sentence."""

import numpy as np
import pytest
import torch

from disentune.errors import ConfigError, DataError
from trained_examples import SQUARES, model_named


@pytest.fixture(scope="module")
def model():
    return model_named("mlp")


@pytest.fixture(scope="module")
def images(model):
    return model.found.trained.images.data.images(np.arange(4))


def posterior(model, indices):
    """What the training loop would see."""
    trained = model.found.trained
    trained.model.eval()
    with torch.no_grad():
        return trained.model.encode(trained.images(indices))


def test_codes_are_those_of_the_training_loop_to_the_bit(model, images):
    q = posterior(model, np.arange(4))
    mean, std = model.encode(images)
    assert (mean == q.mean.numpy()).all()
    assert std == pytest.approx(np.exp(q.logvar.double().numpy() / 2), rel=1e-6)


def test_bytes_and_floats_from_0_to_1_give_the_same_codes(model, images):
    mean, std = model.encode(images)
    for given in (images / 255, images.astype("float32") / 255):
        assert model.encode(given)[0] == pytest.approx(mean, abs=1e-6)
        assert model.encode(given)[1] == pytest.approx(std, abs=1e-6)


def test_tensors_give_tensors_and_arrays_arrays(model, images):
    mean, std = model.encode(torch.from_numpy(images))
    assert isinstance(mean, torch.Tensor)
    assert not std.requires_grad
    assert isinstance(model.decode(mean), torch.Tensor)
    assert isinstance(model.traverse(torch.from_numpy(images)), torch.Tensor)
    assert (mean.numpy() == model.encode(images)[0]).all()
    assert isinstance(model.reconstruct(images), np.ndarray)


def test_decoded_images_are_pixels_with_the_transform_undone(model):
    trained, z = model.found.trained, torch.randn(3, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = trained.model.decode(z).double() * trained.images.std + trained.images.mean
    found = model.decode(z)
    assert found.double().numpy() == pytest.approx(expected.clamp(0, 1).numpy(), abs=1e-6)
    assert 0 <= found.min() < found.max() <= 1


def test_more_images_than_a_chunk_are_encoded_as_one_by_one(model, monkeypatch, images):
    whole = model.encode(images)[0]
    monkeypatch.setattr("disentune.results.trained.CHUNK", 3)
    assert model.encode(images)[0] == pytest.approx(whole, abs=1e-6)


def test_a_traversal_moves_one_latent_and_leaves_the_others(model, images):
    frames = model.traverse(images[:2], latents=[2, 0], values=[-1, 0.5, 3])
    assert frames.shape == (2, 2, 3, *model.shape)
    code = model.encode(images[:2])[0][1].copy()
    code[0] = 0.5
    assert frames[1, 1, 1] == pytest.approx(model.decode(code[None])[0], abs=1e-6)
    assert model.traverse(images[:1]).shape == (1, 3, 8, *model.shape)


def test_the_network_stays_in_the_mode_it_was_in():
    model = model_named("dcgan")
    images = model.found.trained.images.data.images(np.arange(3))
    model.network.train()
    one_by_one = np.concatenate([model.encode(images[i : i + 1])[0] for i in range(3)])
    assert model.network.training
    assert model.encode(images)[0] == pytest.approx(one_by_one, abs=1e-5)  # batch statistics would differ


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x: x[0],
            r"must have the shape \(n, 3, 8, 8\), got \(3, 8, 8\); for a single image pass images",
        ),
        (lambda x: x.transpose(0, 2, 3, 1), r"got \(4, 8, 8, 3\); move the channels first: images.transpose"),
        (lambda x: x[:, :, :4], r"must have the shape \(n, 3, 8, 8\), got \(4, 3, 4, 8\)$"),
        (lambda x: x[:0], "must have at least one row"),
        (lambda x: x.astype("int64"), r"must be uint8 \(0 to 255\) or floats \(0 to 1\), got int64"),
        (lambda x: x > 0, "got bool"),
        (lambda x: x.astype("float32"), "floats must go from 0 to 1, got 0 to 255"),
        (lambda x: x / 127.5 - 1, "got -1 to 1; the model standardises pixels itself"),
        (lambda x: (x > 0).astype("uint8"), "the largest of these is 1; multiply them by 255"),
        (lambda x: x / np.nan, "must be finite"),
        (lambda x: x.astype(object), "must be numbers, got object"),
        (lambda x: x.tolist(), "must be a NumPy array or a torch tensor, got list"),
    ],
)
def test_images_in_other_units_or_shapes_are_refused_with_one_sentence(model, images, change, message):
    with pytest.raises(DataError, match=rf"^images: .*{message}"):
        model.encode(change(images))


def test_a_grey_image_without_its_channel_is_told_where_to_add_it():
    model = model_named("mlp", dataset__rgb=False)
    with pytest.raises(DataError, match=r"\(n, 1, 8, 8\), got \(2, 8, 8\); add the channel: images\[:, None\]"):
        model.encode(np.zeros((2, 8, 8), "uint8"))


@pytest.mark.parametrize("z", [np.zeros(3), np.zeros((2, 4)), np.zeros((0, 3))])
def test_codes_of_another_shape_are_refused(model, z):
    with pytest.raises(DataError, match=r"^z: must have the shape \(n, 3\), got"):
        model.decode(z)
    with pytest.raises(DataError, match=r"^z: must be finite"):
        model.decode(np.full((1, 3), np.inf))


def test_a_single_code_is_refused_with_how_to_pass_it(model):
    with pytest.raises(DataError, match=r"got \(3,\); for a single code pass z\[None\]$"):
        model.decode(np.zeros(3))


@pytest.mark.parametrize("latents", [[3], [-1], [0.5], [], ["a"], 1])
def test_latents_that_do_not_exist_are_refused(model, images, latents):
    with pytest.raises(ConfigError, match="latents: must be a list of whole numbers from 0 to 2"):
        model.traverse(images, latents=latents)


@pytest.mark.parametrize("values", [[], ["a"], [np.nan], 1.0])
def test_values_of_a_traversal_are_numbers(model, images, values):
    with pytest.raises(ConfigError, match="values: must be a list of finite numbers"):
        model.traverse(images, values=values)


def test_points_are_taken_as_they_are():
    squares = dict.fromkeys(("dataset__image_size", *SQUARES), ...)
    model = model_named("pinwheel_mlp", dataset__name="pinwheel", evaluation__metrics=[], **squares)
    points = model.found.trained.images.data.images(np.arange(5))
    assert points.min() < 0
    before = points.copy()
    assert (model.encode(points)[0] == posterior(model, np.arange(5)).mean.numpy()).all()
    assert (points == before).all()
    assert model.reconstruct(points).min() < 0


def test_the_representation_is_one_line(model):
    assert repr(model) == "TrainedModel(beta_vae, mlp: images (3, 8, 8), 3 latents, step 7)"
