"""What a model sees is shown as it is, costs its trial nothing but time, and survives the way to disk and back."""

import io
import subprocess
import sys
import zipfile
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from PIL import Image, ImageSequence
from scipy.special import expit
from torch import nn

from conftest import trial_config
from disentune.errors import DataError
from disentune.learn import image_distances, pictures
from disentune.learn.evaluation import Trained
from disentune.learn.pictures import COLUMNS, Pictures, drawn, from_bytes, mosaic, sheets, to_bytes
from disentune.learn.training import Training
from disentune.learn.transforms import Pixels, inputs
from disentune.maths.randomness import stream
from disentune.plugin import AutoEncoder

SMALL = {"dataset__image_size": 8, "dataset__square_size": 2, "dataset__grid_size": 3, "model__width": 8}


class Grid:
    """Random images on a grid of factors; remembers which were asked for."""

    categorical, noisy = (), False

    def __init__(self, sizes, shape=(1, 4, 4), kind=np.uint8, names=None):
        self.factor_names = names or tuple(f"f{place}" for place in range(len(sizes)))
        self.factor_sizes, self.shape, self.asked = tuple(sizes), shape, []
        rng = np.random.default_rng(0)
        everything = rng.integers(0, 256, (min(len(self), 5000), *shape))
        self.pixels = (
            everything.astype(kind) if kind == np.uint8 else rng.standard_normal(everything.shape).astype(kind)
        )
        self.mean, self.std = tuple(0.1 * (1 + np.arange(shape[0]))), tuple(0.3 + 0.1 * np.arange(shape[0]))

    def __len__(self):
        return int(np.prod(self.factor_sizes))

    def images(self, indices, rng=None):
        self.asked.append(np.array(indices))
        return self.pixels[np.asarray(indices) % len(self.pixels)]


def network(shape, channels, latents):
    generator = torch.Generator().manual_seed(1)
    pixels = int(np.prod(shape))
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(pixels, 2 * latents))
    decoder = nn.Sequential(nn.Linear(latents, channels * pixels // shape[0]), nn.Unflatten(1, (channels, *shape[1:])))
    model = AutoEncoder(encoder, decoder, latents)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / pixels**0.5)
    return model


def trained_on(data, recon=None, transform="standardise", latents=3):
    recon = recon or trial_config().recon
    channels = recon.plugin.channels(data.shape[0], recon.params)
    images = inputs(Pixels(transform=transform), data, torch.device("cpu"))
    return Trained(network(data.shape, channels, latents), images, recon, seed=0)


def recon_of(name, **params):
    config = trial_config(recon__name=name, dataset__transform="unit", **{f"recon__{k}": v for k, v in params.items()})
    return config.recon


def trained_training(**changes):
    training = Training(trial_config(**SMALL, **changes))
    for _ in training.run(3):
        pass
    return training


def sample_of(trained):
    """Every image of a small data set, encoded: means and logvars in float64, by index."""
    with torch.no_grad():
        q = trained.model.encode(trained.images(np.arange(len(trained.grid))))
    return q.mean.double().numpy(), q.logvar.double().numpy()


def index_of(data, image):
    """Of a displayed image (h, w, c)."""
    same = (data.pixels.transpose(0, 2, 3, 1) == image).all(axis=(1, 2, 3))
    return int(np.flatnonzero(same)[0])


def displayed(trained, x):
    """Independently of the code: outputs in the network's units as pixels."""
    mean, std = (part.numpy().reshape(1, -1, 1, 1) for part in (trained.images.mean, trained.images.std))
    return np.rint(255 * np.clip(np.asarray(x, np.float64) * std + mean, 0, 1)).astype(np.uint8).transpose(0, 2, 3, 1)


# ---- images


@pytest.mark.parametrize("shape", [(1, 4, 4), (3, 4, 5)])
@pytest.mark.parametrize("transform", ["unit", "standardise"])
def test_originals_are_the_data_sets_own_pixels(transform, shape):
    data = Grid((3, 4), shape)
    found = drawn(trained_on(data, transform=transform)).originals
    assert found.shape == (8, *shape[1:], shape[0])
    assert found.dtype == np.uint8
    indices = [index_of(data, image) for image in found]
    assert len(set(indices)) == 8


def test_every_pixel_value_survives_the_way_through_the_network_s_units():
    data = Grid((2,), (1, 16, 16))
    data.pixels[:] = np.arange(256, dtype=np.uint8).reshape(1, 16, 16)
    for mean, std in ((0.0426, 0.195), (0.5, 1e-3), (0.9, 0.05)):
        data.mean, data.std = (mean,), (std,)
        found = drawn(trained_on(data)).originals[0]
        assert found.ravel().tolist() == list(range(256))


def test_noise_of_the_inputs_is_shown():
    training = trained_training(dataset__noise=0.3)
    clean = trained_training()
    assert (drawn(training.trained_model()).originals != drawn(clean.trained_model()).originals).any()


@pytest.mark.parametrize("transform", ["unit", "standardise"])
def test_reconstructions_are_decoded_means_as_pixels(transform):
    data = Grid((3, 4), (3, 4, 4))
    trained = trained_on(data, transform=transform)
    found = drawn(trained)
    indices = np.array([index_of(data, image) for image in found.originals])
    with torch.no_grad():
        outputs = trained.model.decode(trained.model.encode(trained.images(indices)).mean)
    np.testing.assert_array_equal(found.reconstructions, displayed(trained, outputs))
    assert len(np.unique(found.reconstructions)) > 20, "clipping alone would hide a wrong scale"


def test_logits_are_shown_as_probabilities_and_learned_deviations_not_at_all():
    data = Grid((3, 4), (1, 4, 4))
    for recon, image in (
        (recon_of("bce"), expit),
        (recon_of("normal", std="learned"), lambda outputs: outputs[:, :1]),
    ):
        trained = trained_on(data, recon, "unit")
        found = drawn(trained)
        indices = np.array([index_of(data, shown) for shown in found.originals])
        with torch.no_grad():
            outputs = trained.model.decode(trained.model.encode(trained.images(indices)).mean)
        expected = displayed(trained, image(outputs.double().numpy())).astype(int)
        assert np.abs(found.reconstructions.astype(int) - expected).max() <= 1, "float32 may round another way"
        assert len(np.unique(found.reconstructions)) > 20


def test_every_trial_and_evaluation_shows_the_same_images():
    first, other = (trained_training(seed=seed).trained_model() for seed in (0, 7))
    one, two = drawn(first), drawn(other)
    np.testing.assert_array_equal(one.originals, two.originals)
    assert (one.reconstructions != two.reconstructions).any()
    for factor in one.distances:
        np.testing.assert_array_equal(one.distances[factor][1], two.distances[factor][1])
    assert (drawn(first, seed=1).originals != one.originals).any()


def test_a_data_set_of_few_images_shows_all_of_them():
    found = drawn(trained_on(Grid((3,))))
    assert len(found.originals) == len(found.reconstructions) == 3
    assert found.traversals.shape[:2] == (3, 8)


def test_points_have_no_images_but_distances():
    found = drawn(trained_on(Grid((4, 3), (2, 1, 1), np.float32), transform="unit"))
    assert found.originals.shape == found.reconstructions.shape == (0, 1, 1, 2)
    assert found.traversals.shape == (0, 8, 1, 1, 2)
    assert len(found.latents) == 3
    assert list(found.distances) == ["f0", "f1"]
    assert set(sheets(from_bytes(to_bytes(found)))) == {"distances", "plane"}


# ---- latents


def test_latents_are_ordered_by_their_kl_to_the_prior_over_the_sample():
    data = Grid((3, 5))
    trained = trained_on(data, latents=12)
    found = drawn(trained)
    means, logvars = sample_of(trained)
    kl = (0.5 * (means**2 + np.exp(logvars) - 1 - logvars)).mean(axis=0)
    assert found.latents.tolist() == np.argsort(-kl)[:10].tolist()
    np.testing.assert_allclose(found.kl, np.sort(kl)[::-1][:10], rtol=1e-5)


def test_a_traversal_moves_one_latent_of_the_first_image_from_the_smallest_mean_to_the_largest():
    data = Grid((3, 5), (3, 4, 4))
    trained = trained_on(data)
    found = drawn(trained)
    means, _ = sample_of(trained)
    base = means[index_of(data, found.originals[0])]
    for row, latent in enumerate(found.latents):
        low, high = means[:, latent].min(), means[:, latent].max()
        np.testing.assert_allclose(found.spans[row], [low, high], rtol=1e-6)
        for frame in range(8):
            z = base.copy()
            z[latent] = low + frame / 7 * (high - low)
            with torch.no_grad():
                output = trained.model.decode(torch.tensor(z[None], dtype=torch.float32))
            apart = found.traversals[row, frame].astype(int) - displayed(trained, output)[0]
            assert np.abs(apart).max() <= 1, "float32 may round another way"
    assert (found.traversals[:, 0] != found.traversals[:, -1]).any(axis=(1, 2, 3)).all()


def test_the_sample_of_a_large_data_set_has_256_distinct_images():
    data = Grid((20, 30))
    drawn(trained_on(data))
    assert len(data.asked[0]) == len(set(data.asked[0].tolist())) == 256


# ---- distances


def naive_distances(trained, lines, values):
    """Pair by pair, line by line, in float64."""
    total = np.zeros((5, len(values), len(values)))
    recon = trained.recon
    with torch.no_grad():
        for line in lines:
            x = trained.images(line)
            q = trained.model.encode(x)
            shown = recon.plugin.to_image(trained.model.decode(q.mean), recon.params)
            m, v = q.mean.double().numpy(), np.exp(q.logvar.double().numpy())
            for i in range(len(values)):
                for j in range(i, len(values)):
                    forth = 0.5 * (np.log(v[j] / v[i]) + (v[i] + (m[i] - m[j]) ** 2) / v[j] - 1)
                    back = 0.5 * (np.log(v[i] / v[j]) + (v[j] + (m[i] - m[j]) ** 2) / v[i] - 1)
                    cell = [
                        abs(int(values[i]) - int(values[j])),
                        float(recon.plugin.distance(x[i : i + 1], x[j : j + 1], recon.params)),
                        np.sqrt(((m[i] - m[j]) ** 2).sum()),
                        ((forth + back) / 2).mean(),
                        float(recon.plugin.distance(shown[i : i + 1], shown[j : j + 1], recon.params)),
                    ]
                    total[:, i, j] += cell
                    total[:, j, i] += cell if i != j else 0
    total[[1, 4]] /= np.prod(trained.images.data.shape)  # means over pixels
    return total / len(lines)


@pytest.mark.parametrize(
    ("recon", "transform"),
    [({"name": "mse"}, "standardise"), ({"name": "bce"}, "unit"), ({"name": "normal", "std": "learned"}, "unit"),
     ({"name": "overlap", "radius": 2, "alpha": 9.0}, "standardise")],
    ids=lambda value: value["name"] if isinstance(value, dict) else value,
)  # fmt: skip
def test_matrices_are_means_over_whole_traversals_of_each_factor(recon, transform):
    data = Grid((3, 5), (1, 4, 4))
    trained = trained_on(data, recon_of(**recon), transform)
    found = drawn(trained)
    lines = [asked for asked in data.asked if len(asked) in (6 * 3, 6 * 5)]
    assert [len(asked) for asked in lines] == [18, 30]
    for factor, asked in enumerate(lines):
        size = data.factor_sizes[factor]
        factors = np.stack(np.unravel_index(asked, data.factor_sizes), axis=1).reshape(6, size, 2)
        assert (factors[:, :, factor] == np.arange(size)).all()
        assert (factors[:, :, 1 - factor] == factors[:, :1, 1 - factor]).all()
        expected = naive_distances(trained, asked.reshape(6, size), np.arange(size))
        np.testing.assert_allclose(found.distances[f"f{factor}"], expected, rtol=1e-4, atol=1e-4)
    assert found.distances["f0"].dtype == np.float32


def test_pairs_are_the_same_however_many_are_compared_at_a_time(monkeypatch):
    trained = trained_on(Grid((4, 6)))
    whole = drawn(trained)
    monkeypatch.setattr(image_distances, "COMPARED", 5 * 16)
    for factor, matrices in drawn(trained).distances.items():
        np.testing.assert_allclose(matrices, whole.distances[factor], rtol=1e-5, atol=1e-6)


def test_a_long_factor_is_thinned_evenly_and_its_values_keep_their_distances():
    data = Grid((100, 2))
    found = drawn(trained_on(data)).distances["f0"]
    assert found.shape == (5, 40, 40)
    values = np.round(np.linspace(0, 99, 40))
    np.testing.assert_array_equal(found[0], np.abs(values[:, None] - values))
    asked = next(asked for asked in data.asked if len(asked) == 3 * 40)
    assert (asked.reshape(3, 40) // 2 == values).all()


def test_a_factor_of_forty_values_is_whole():
    assert drawn(trained_on(Grid((40, 2)))).distances["f0"][0, 0, -1] == 39


def test_the_six_longest_factors_are_shown_in_their_order_and_single_values_are_not():
    assert list(drawn(trained_on(Grid((3, 2, 4, 2, 5, 3, 3, 1)))).distances) == ["f0", "f1", "f2", "f4", "f5", "f6"]
    assert list(drawn(trained_on(Grid((1, 4, 1)))).distances) == ["f1"]
    assert drawn(trained_on(Grid((1,)))).distances == {}


@pytest.mark.parametrize("sizes", [(3, 6, 40, 32, 32), (15,) * 6, (8,) * 6, (100,) * 8, (4, 24, 183)])
def test_few_images_are_asked_for(sizes):
    data = Grid(sizes)
    drawn(trained_on(data))
    assert sum(map(len, data.asked)) <= 1000


# ---- what must not happen


def test_the_model_is_in_its_mode_again_also_after_an_error():
    trained = trained_on(Grid((3, 4)))
    for training in (True, False):
        trained.model.train(training)
        seen = []
        trained.model.encoder.register_forward_hook(lambda module, *_: seen.append(module.training))  # noqa: B023
        drawn(trained)
        assert trained.model.training == trained.model.decoder.training == training
        assert not any(seen)
    trained.model.train()
    with pytest.raises(RuntimeError):
        drawn(replace(trained, images=inputs(Pixels(), Grid((3, 4), (1, 2, 2)), torch.device("cpu"))))
    assert trained.model.training
    assert trained.model.encoder.training


class Restless(nn.Module):
    """Draws from the global generator also when it is evaluated."""

    def forward(self, x):
        return x + 0.01 * torch.rand_like(x)


def test_no_global_generator_moves_and_no_layer_learns():
    trained = trained_on(Grid((3, 4)))
    trained.model.encoder.append(nn.BatchNorm1d(6))
    trained.model.encoder.append(Restless())
    trained.model.train()
    before = {name: value.clone() for name, value in trained.model.state_dict().items()}
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()  # noqa: NPY002
    found = drawn(trained)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert (np.random.get_state()[1] == numpy_state[1]).all()  # noqa: NPY002
    assert all(torch.equal(value, before[name]) for name, value in trained.model.state_dict().items())
    assert all(parameter.grad is None for parameter in trained.model.parameters())
    assert found.kl.shape == (3,)


@pytest.mark.parametrize("part", ["encoder", "decoder"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_no_pictures(part, value):
    trained = trained_on(Grid((3, 4)))
    layer = next(layer for layer in getattr(trained.model, part) if isinstance(layer, nn.Linear))
    with torch.no_grad():
        layer.bias[-1] = value
    with pytest.raises(DataError, match=f"{part}.*not finite"):
        drawn(trained)


def test_posteriors_that_overflow_are_clipped():
    trained = trained_on(Grid((3, 4)))
    with torch.no_grad():
        trained.model.encoder[1].weight[3:] *= 1e4
    found = drawn(trained)
    assert not np.isinf(found.distances["f1"]).any()
    assert set(sheets(found)) == {"reconstructions", "traversals", "distances"}


# ---- bytes


def made_up(channels=3, size=4, latents=2, factors=("hue", "größe $x$")):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (2, 3, size, size, channels), dtype=np.uint8)
    return Pictures(
        originals=images[0],
        reconstructions=images[1],
        traversals=rng.integers(0, 256, (latents, 8, size, size, channels), dtype=np.uint8),
        latents=np.arange(latents)[::-1].copy(),
        kl=rng.uniform(0, 5, latents).astype(np.float32),
        spans=rng.standard_normal((latents, 2)).astype(np.float32),
        distances={name: rng.uniform(size=(5, 3 + i, 3 + i)).astype(np.float32) for i, name in enumerate(factors)},
    )


def assert_equal(one, other):
    for field in fields(Pictures):
        if field.name not in ("distances", "plane"):
            first, second = getattr(one, field.name), getattr(other, field.name)
            assert getattr(first, "dtype", None) == getattr(second, "dtype", None)
            np.testing.assert_array_equal(first, second)
    assert list(one.distances) == list(other.distances)
    for name in one.distances:
        np.testing.assert_array_equal(one.distances[name], other.distances[name])


@pytest.mark.parametrize("factors", [(), ("hue", "größe $x$", "a/b", "")])
def test_pictures_come_back_from_bytes(factors):
    assert_equal(from_bytes(to_bytes(made_up(factors=factors))), made_up(factors=factors))


def test_equal_pictures_give_equal_bytes_on_any_day():
    trained = trained_training().trained_model()
    data = to_bytes(drawn(trained))
    assert to_bytes(drawn(trained)) == data
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_DEFLATED}


def test_numpy_alone_can_read_them():
    with np.load(io.BytesIO(to_bytes(made_up())), allow_pickle=False) as file:
        assert file["factors"].tolist() == ["hue", "größe $x$"]
        np.testing.assert_array_equal(file["originals"], made_up().originals)


def test_damaged_bytes_are_an_error_or_read_as_they_were():
    data = to_bytes(made_up())
    for cut in (0, 1, 10, len(data) // 2, len(data) - 1):
        with pytest.raises(DataError, match="damaged"):
            from_bytes(data[:cut])
    noticed = 0
    for place in range(0, len(data), 7):
        changed = bytearray(data)
        changed[place] ^= 0xFF
        try:
            assert_equal(from_bytes(bytes(changed)), made_up())
        except DataError:
            noticed += 1
    assert noticed > len(data) / 7 / 2


@pytest.mark.parametrize(
    "changes",
    [{"originals": np.zeros((2, 4, 4, 3), np.uint8)}, {"originals": np.zeros((3, 4, 4, 3))},
     {"traversals": np.zeros((2, 8, 5, 4, 3), np.uint8)}, {"traversals": np.zeros((1, 8, 4, 4, 3), np.uint8)},
     {"kl": np.zeros(3, np.float32)}, {"spans": np.zeros((2, 3), np.float32)},
     {"distances": {"hue": np.zeros((5, 3, 4), np.float32)}}, {"distances": {"hue": np.zeros((4, 3, 3), np.float32)}},
     {"originals": np.zeros((3, 4, 4), np.uint8), "reconstructions": np.zeros((3, 4, 4), np.uint8),
      "traversals": np.zeros((2, 8, 4, 4), np.uint8)}],
    ids=range(9),
)  # fmt: skip
def test_arrays_that_do_not_go_together_are_refused(changes):
    with pytest.raises(DataError, match="do not fit together"):
        from_bytes(to_bytes(replace(made_up(), **changes)))


def test_a_checksum_is_checked_even_if_not_all_bytes_are_read():
    """A header that asks for fewer numbers than there are leaves a file that reads well."""
    stored = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(to_bytes(made_up()))) as archive, zipfile.ZipFile(stored, "w") as copy:
        for info in archive.infolist():
            copy.writestr(info.filename, archive.read(info.filename))
    assert_equal(from_bytes(stored.getvalue()), made_up())
    changed = stored.getvalue().replace(b"(5, 3, 3)", b"(5, 2, 2)")
    assert changed != stored.getvalue()
    with pytest.raises(DataError, match="checksum"):
        from_bytes(changed)


def test_objects_are_never_unpickled():
    buffer = io.BytesIO()
    np.savez(buffer, factors=np.array([{"a": 1}], object))
    with pytest.raises(DataError, match="allow_pickle"):
        from_bytes(buffer.getvalue())


# ---- sheets


def test_sheets_are_rgb_images():
    for sheet in sheets(made_up()).values():
        assert sheet.dtype == np.uint8
        assert sheet.ndim == 3
        assert sheet.shape[2] == 3


def test_an_animation_plays_the_traversals_to_their_end_and_back():
    """With black and white pixels, a GIF is exact."""
    levels = np.arange(5)[:, None] > np.arange(4)  # frame k has k white columns
    moving = np.broadcast_to(levels[None, :, None, :, None], (2, 5, 4, 4, 1)) * np.uint8(255)
    made = replace(made_up(channels=1), traversals=moving)
    with Image.open(io.BytesIO(pictures.animation(made))) as file:
        assert (file.n_frames, file.info["loop"]) == (8, 0)
        frames = [np.array(frame.convert("RGB")) for frame in ImageSequence.Iterator(file)]
    white = [int((frame == 255).all(axis=2).sum()) for frame in frames]
    column = 2 * 64 * 16  # two latents, 64 pixels high, each pixel 16 wide
    assert np.diff(white).tolist() == [column] * 4 + [-column] * 3


def test_nothing_to_show_is_no_sheet():
    assert set(sheets(made_up(factors=()))) == {"reconstructions", "traversals"}


def test_a_mosaic_holds_every_image_enlarged_by_whole_pixels():
    images = made_up().traversals
    found = mosaic(images, 12)
    apart = 12 + pictures.GAP
    assert found.shape == (2 * apart - pictures.GAP, 8 * apart - pictures.GAP, 4)
    for row in range(2):
        for column in range(8):
            cell = found[row * apart : row * apart + 12, column * apart : column * apart + 12]
            np.testing.assert_array_equal(cell[..., :3], np.kron(images[row, column], np.ones((3, 3, 1), np.uint8)))
            assert (cell[..., 3] == 255).all()
    assert (found[12 : 12 + pictures.GAP, :, 3] == 0).all()
    assert (found[:, 12 : 12 + pictures.GAP, 3] == 0).all()


def test_large_images_keep_their_size():
    assert mosaic(np.zeros((1, 1, 100, 80, 3), np.uint8)).shape == (100, 80, 4)


def test_grey_images_are_grey_and_other_channels_are_the_first_colours():
    grey = made_up(channels=1).traversals
    np.testing.assert_array_equal(mosaic(grey, 4)[:4, :4, :3], np.repeat(grey[0, 0], 3, axis=2))
    two = made_up(channels=2).traversals
    np.testing.assert_array_equal(mosaic(two, 4)[:4, :4, :2], two[0, 0])
    assert (mosaic(two, 4)[:4, :4, 2] == 0).all()
    five = made_up(channels=5).traversals
    np.testing.assert_array_equal(mosaic(five, 4)[:4, :4, :3], five[0, 0, ..., :3])


def test_originals_stand_above_their_reconstructions():
    found, made = sheets(made_up(size=64))["reconstructions"], made_up(size=64)
    top = pictures.MARGIN
    left = found.shape[1] - pictures.MARGIN - (3 * 64 + 2 * pictures.GAP)
    np.testing.assert_array_equal(found[top : top + 64, left : left + 64], made.originals[0])
    below = top + 64 + pictures.GAP
    np.testing.assert_array_equal(found[below : below + 64, left : left + 64], made.reconstructions[0])


def test_each_panel_has_the_whole_scale_of_colours():
    made = made_up(factors=("a", "b", "c"))
    found, shades = sheets(made)["distances"], pictures._shades()
    side, top = pictures.SIDE, pictures.MARGIN + pictures.LINE
    left = found.shape[1] - pictures.MARGIN - (5 * side + 4 * pictures.GAP)
    for row, stack in enumerate(made.distances.values()):
        for column, matrix in enumerate(stack):
            y, x = top + row * (side + pictures.GAP), left + column * (side + pictures.GAP)
            panel = found[y : y + side, x : x + side]
            for value, shade in ((matrix.min(), shades[0]), (matrix.max(), shades[255])):
                i, j = np.argwhere(matrix == value)[0]
                spot = panel[int((i + 0.5) * side / len(matrix)), int((j + 0.5) * side / len(matrix))]
                np.testing.assert_array_equal(spot, shade)


def test_panels_of_equal_or_of_no_finite_numbers_are_drawn():
    made = made_up(factors=("a",))
    for value in (0.0, 7.0, np.nan, np.inf):
        matrices = np.full((5, 3, 3), value, np.float32)
        shown = sheets(replace(made, distances={"a": matrices}))["distances"]
        assert (shown == pictures._shades()[0]).all(axis=2).sum() >= 5 * pictures.SIDE**2
    mixed = np.full((5, 2, 2), np.nan, np.float32)
    mixed[:, 0] = [1, np.inf]
    assert pictures._levels(np.array([[0, 1], [np.inf, 2]], np.float32)).tolist() == [[0, 128], [255, 255]]
    assert set(sheets(replace(made, distances={"a": mixed}))) >= {"distances"}


def test_names_of_any_letters_and_length_are_drawn():
    for name in ("größe", "形", "x" * 300, "", "$a_b$"):
        assert sheets(made_up(factors=(name,)))["distances"].shape[0] > pictures.SIDE


def test_labels_name_latents_with_their_nats():
    made = replace(made_up(), kl=np.array([0.004, 123456], np.float32))
    assert pictures.latent_labels(made) == ["z1 (0.00)", "z0 (1e+05)"]


def test_colours_rise_evenly_in_lightness():
    """CIE L* of each shade, by its own formulas."""
    unit = pictures._shades() / 255
    linear = np.where(unit <= 0.04045, unit / 12.92, ((unit + 0.055) / 1.055) ** 2.4)
    lightness = 116 * np.cbrt(linear @ [0.2126, 0.7152, 0.0722]) - 16
    assert (np.diff(lightness[::8]) > 0).all()
    straight = np.linspace(lightness[0], lightness[-1], 256)
    assert np.abs(lightness - straight).max() < 4
    assert lightness[-1] - lightness[0] > 70


@pytest.mark.long
def test_sheets_need_no_plotting_library():
    code = (
        "import sys; from disentune.learn import pictures;"
        "pictures.sheets(pictures.from_bytes(sys.stdin.buffer.read()));"
        "print([name for name in ('matplotlib', 'ray') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], input=to_bytes(made_up()), capture_output=True, check=True)
    assert done.stdout.decode().strip() == "[]"


def test_columns_are_those_of_the_paper():
    assert COLUMNS == ("factors", "x", "z", "kl", "x_recon")


# ---- latents by variance, two of them together, and a manipulated data set


def test_latents_may_come_in_the_order_of_their_mean_posterior_variance():
    trained = trained_on(Grid((4, 5)), latents=3)
    variances = torch.cat([trained.model.encode(trained.images(np.arange(20))).logvar.exp()]).mean(dim=0)
    found = drawn(trained, order="variance")
    assert found.latents.tolist() == torch.argsort(variances).tolist()
    assert sorted(found.latents) == sorted(drawn(trained).latents)


def test_a_plane_moves_the_first_two_latents_over_their_spans():
    """Its row and its column through the same corner are decoded one by one here."""
    trained = trained_on(Grid((4, 5)), transform="unit", latents=3)
    found = drawn(trained, two_latents=True)
    first, second = found.latents[:2]
    indices = stream(0, "pictures").choice(20, 20, replace=False)
    mean = trained.model.encode(trained.images(indices)).mean[0].detach()
    assert found.two_latents.shape == (8, 8, 4, 4, 1)
    for row, column in ((0, 0), (0, 7), (3, 5), (7, 7)):
        z = mean.clone()
        z[first] = float(found.spans[0, 0] + (found.spans[0, 1] - found.spans[0, 0]) * row / 7)
        z[second] = float(found.spans[1, 0] + (found.spans[1, 1] - found.spans[1, 0]) * column / 7)
        pixels = 255 * trained.model.decode(z[None]).clamp(0, 1)  # mean squared error: the output is the image
        np.testing.assert_allclose(found.two_latents[row, column, ..., 0], pixels[0, 0].detach().numpy(), atol=0.51)


def test_a_plane_is_drawn_only_on_request_and_needs_two_latents():
    assert drawn(trained_on(Grid((4, 5)))).two_latents is None
    assert drawn(trained_on(Grid((4, 5)), latents=1), two_latents=True).two_latents is None


def test_pictures_of_a_manipulated_data_set_have_the_images_before_the_change():
    data = Grid((4, 5))
    assert drawn(trained_on(data)).unchanged is None
    data.original = Grid((4, 5))
    data.pixels = 255 - data.original.pixels
    found = drawn(trained_on(data, transform="unit"))
    np.testing.assert_array_equal(found.unchanged, 255 - found.originals)
    assert_equal(from_bytes(to_bytes(found)), found)


@pytest.mark.parametrize("change", [{"unchanged": np.zeros((1, 2, 2, 1), np.uint8)},
                                    {"two_latents": np.zeros((2, 2, 3, 3, 1), np.uint8)},
                                    {"two_latents": np.zeros((0, 0, 8, 8, 3), np.uint8)}])  # fmt: skip
def test_what_does_not_fit_the_images_is_damaged(change):
    with pytest.raises(DataError, match="its shapes do not fit together"):
        from_bytes(to_bytes(replace(made_up(), **change)))
