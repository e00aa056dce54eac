"""Falcor3D and Isaac3D from small archives of the public format."""

import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from disentune.data import falcor3d, isaac3d, load, scenes
from disentune.data.prepared.preparing import prepare
from disentune.errors import DataError
from photo_files import KITCHENS, ROOMS, encoded, mosaics, scene_files, scene_labels, write_zip

MODULES = {"falcor3d": falcor3d, "isaac3d": isaac3d}
SIZES = {"falcor3d": ROOMS, "isaac3d": KITCHENS}
TITLES = {"falcor3d": "Falcor3D", "isaac3d": "Isaac3D"}


@pytest.fixture(params=list(MODULES))
def name(request, monkeypatch):
    monkeypatch.setattr(MODULES[request.param], "FACTORS", SIZES[request.param])
    return request.param


@pytest.fixture(autouse=True)
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path / "root"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def files_of(name):
    return scene_files(TITLES[name], MODULES[name].LABELS, SIZES[name])


def write(root, name, files):
    write_zip(root / f"{TITLES[name]}_down128.zip", files)


def prepared(name):
    dataset = MODULES[name].DATASET
    return prepare(*dataset.sources(dataset.params()))


def shrunk(image, size, filter_):
    with Image.open(io.BytesIO(image)) as opened:
        return np.asarray(opened.resize((size, size), filter_)).transpose(2, 0, 1)


def pictures(files):
    return [content for name, content in files.items() if name.endswith(".png")]


@pytest.mark.parametrize("kind", ["zip", "folder"])
def test_images_come_in_the_order_of_their_numbers_and_are_made_small(root, name, kind):
    files = files_of(name)
    write(root, name, dict(reversed(files.items())))
    if kind == "folder":
        with zipfile.ZipFile(root / f"{TITLES[name]}_down128.zip") as archive:
            archive.extractall(root)
        (root / f"{TITLES[name]}_down128.zip").unlink()
    data = load(name)
    expected = [shrunk(image, 64, Image.Resampling.BICUBIC) for image in pictures(files)]
    np.testing.assert_array_equal(data.images(np.arange(len(data))), expected)
    assert data.factor_sizes == tuple(SIZES[name].values())


def test_images_may_keep_their_size_or_be_made_small_otherwise(root, name):
    files = files_of(name)
    write(root, name, files)
    whole, other = load(name, image_size=128), load(name, image_size=32, resize="lanczos")
    images = mosaics(len(whole), 128, 3, seed=len(whole))
    np.testing.assert_array_equal(whole.images(np.arange(len(whole))), images.transpose(0, 3, 1, 2))
    expected = shrunk(pictures(files)[5], 32, Image.Resampling.LANCZOS)
    np.testing.assert_array_equal(other.images(np.array([5]))[0], expected)


def test_factors_are_those_of_the_authors_files():
    """The index of Isaac3D is that of their script and not of the README, whose names do not fit its strides."""
    assert {one: module.DATASET.factor_sizes(scenes.Params()) for one, module in MODULES.items()} == {
        "falcor3d": (5, 6, 6, 6, 6, 6, 6), "isaac3d": (3, 8, 5, 4, 4, 4, 6, 4, 4)
    }  # fmt: skip
    assert [*isaac3d.FACTORS] == [
        "object_shape", "robot_x", "robot_y", "camera_height", "object_scale", "lighting_intensity", "lighting_y",
        "object_color", "wall_color",
    ]  # fmt: skip
    sizes = np.array([*isaac3d.FACTORS.values()])
    strides = [int(sizes[factor + 1 :].prod()) for factor in range(len(sizes))]
    assert strides == [245760, 30720, 6144, 1536, 384, 96, 16, 4, 1]


def test_archives_are_those_that_the_authors_name():
    sources = {one: module.DATASET.sources(scenes.Params())[0] for one, module in MODULES.items()}
    assert {one: source.count for one, source in sources.items()} == {"falcor3d": 233_280, "isaac3d": 737_280}
    assert all("1XAQfFK1x6cpN1eiovbP0hVfLTm5SsSoJ" in url for url in sources["falcor3d"].files[0].urls)
    assert all("1OmQ1G2wnm6eTsSFGTKFZZAh5D3nQTW1B" in url for url in sources["isaac3d"].files[0].urls)
    assert sources["isaac3d"].key == "isaac3d_64_bicubic"
    assert sources["isaac3d"].command == "disentune data prepare isaac3d"


def test_images_without_labels_are_taken(root, name):
    files = {key: content for key, content in files_of(name).items() if key.endswith(".png")}
    write(root, name, files)
    assert prepared(name).count == len(files)


def saved(labels):
    file = io.BytesIO()
    np.save(file, labels, allow_pickle=True)
    return file.getvalue()


WRONG = {
    "other order": (lambda labels: saved(labels[::-1]), "labels must be the full grid of sizes"),
    "columns in another order": (lambda labels: saved(labels[:, ::-1]), "labels must be the full grid of sizes"),
    "too few": (lambda labels: saved(labels[1:]), r"must be numbers \(\d+, \d\), but is \(\d+, \d\) float64"),
    "objects": (lambda labels: saved(np.array([None])), "cannot be read as an array"),
    "damaged": (lambda labels: saved(labels)[:200], "cannot be read as an array"),
}


@pytest.mark.parametrize("what", WRONG)
def test_labels_that_contradict_the_numbers_are_refused(root, name, what):
    wrong, message = WRONG[what]
    labels = MODULES[name].LABELS
    write(root, name, files_of(name) | {f"{TITLES[name]}_down128/{labels}": wrong(scene_labels(SIZES[name]))})
    with pytest.raises(DataError, match=rf"{labels}:? {message}.*disentune data prepare {name} --from FILE"):
        prepared(name)
    assert not [*root.glob(f"{name}*")]


def renamed(files):
    """As FactorQVAE renames them: their order is no longer that of the numbers."""
    return {f"images/{number}.png": image for number, image in enumerate(pictures(files))}


def test_images_with_other_names_are_refused_because_their_order_is_another(root, name):
    write(root, name, renamed(files_of(name)))
    with pytest.raises(
        DataError, match=r"named 000000.png to 0000\d\d.png, .* images/0.png is in the place of 000000.png"
    ):
        prepared(name)


def test_missing_images_and_images_of_another_size_are_refused(root, name):
    files = files_of(name)
    last = [*files][-1]
    write(root, name, {key: content for key, content in files.items() if key != last})
    with pytest.raises(DataError, match=rf"must have {len(files) - 2} images .*, but has {len(files) - 3}"):
        prepared(name)
    write(root, name, files | {last: encoded(mosaics(1, 64, 3)[0], "PNG")})
    with pytest.raises(DataError, match="128 high and 128 wide"):
        prepared(name)


def test_dsprites_has_as_many_images_as_isaac3d_and_is_not_taken_for_it(root):
    np.savez(root / "Isaac3D_down128.zip", imgs=np.zeros((3, 64, 64), np.uint8))
    (root / "Isaac3D_down128.zip.npz").rename(root / "Isaac3D_down128.zip")
    with pytest.raises(DataError, match=r"must have 737280 images .*, but has 0"):
        prepared("isaac3d")
