"""SmallNORB from miniatures of its binary matrices."""

import gzip
import pickle

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

import photo_files
from disentune.data import smallnorb
from disentune.data.factors import FactorGrid
from disentune.data.prepared.preparing import prepare
from disentune.data.smallnorb import DATASET, Params
from disentune.errors import DataError
from photo_files import STEMS

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "lanczos": Image.Resampling.LANCZOS}
DAT, CAT, INFO = (f"{STEMS['training']}-{kind}.mat.gz" for kind in ("dat", "cat", "info"))


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    photo_files.small_smallnorb(tmp_path, monkeypatch)
    return tmp_path


def opened(**params):
    return DATASET.open(Params(**params))


def preparing(**params):
    return prepare(smallnorb.source(Params(**params)))


def photographs(splits):
    """The first camera's image for each row of codes."""
    return {tuple(row): pair[0] for split in splits for pair, row in zip(*photo_files.toys(split), strict=True)}


def expected(split, size=64, filter_="bilinear"):
    """Every image in the order of its codes, which is also that of the grid."""
    taken = photographs(("training",) if split == "training" else ("training", "testing"))
    return [np.array(Image.fromarray(taken[codes]).resize((size, size), FILTERS[filter_])) for codes in sorted(taken)]


@pytest.mark.parametrize("split", ["both", "training"])
@pytest.mark.parametrize(("size", "filter_"), [(64, "bilinear"), (64, "lanczos"), (33, "bilinear"), (96, "lanczos")])
def test_each_image_is_the_resized_photograph_of_its_codes(root, split, size, filter_):
    data = opened(split=split, image_size=size, resize=filter_)
    images = data.images(np.arange(len(data)))
    np.testing.assert_array_equal(images[:, 0], expected(split, size, filter_))
    assert data.shape == (1, size, size) == images.shape[1:]
    assert len(data) == (96 if split == "both" else 48)


def test_original_size_is_the_file_to_the_bit(root):
    data = opened(image_size=96)
    index = FactorGrid(data.factor_names, data.factor_sizes).index(np.array([[1, 2, 0, 2, 1]]))
    np.testing.assert_array_equal(data.images(index)[0, 0], photographs(STEMS)[1, 2, 0, 4, 1])


def test_instances_of_the_training_split_are_numbered_by_rank(root):
    data = opened(split="training", image_size=96)
    index = FactorGrid(data.factor_names, data.factor_sizes).index(np.array([[0, 1, 1, 1, 0]]))
    np.testing.assert_array_equal(data.images(index)[0, 0], photographs(["training"])[0, 3, 1, 2, 0])


def test_factors_are_those_of_the_paper():
    assert tuple(smallnorb.FACTORS.items()) == (
        ("category", 5), ("instance", 10), ("elevation", 9), ("azimuth", 18), ("lighting", 6),
    )  # fmt: skip
    assert DATASET.factor_sizes(Params()) == (5, 10, 9, 18, 6)
    assert DATASET.factor_sizes(Params(split="training")) == (5, 5, 9, 18, 6)
    assert DATASET.factor_sizes(Params(instance="nuisance")) == (5, 9, 18, 6)
    assert [smallnorb.source(Params(split=split)).count for split in ("both", "training")] == [48600, 24300]


def test_instances_are_those_in_the_names_of_the_files():
    assert Params().instances == list(range(10))
    for split, stem in STEMS.items():
        assert stem.split("x")[1] == "".join(map(str, smallnorb.INSTANCES[split]))


def test_public_files_are_named_in_the_order_in_which_they_are_read():
    names = [file.name for file in smallnorb.source(Params()).files]
    assert names == [f"{stem}-{kind}.mat.gz" for stem in STEMS.values() for kind in ("dat", "cat", "info")]
    assert [file.name for file in smallnorb.source(Params(split="training")).files] == names[:3]
    assert len({file.md5 for file in smallnorb.source(Params()).files}) == 6


def test_toys_have_no_order(root):
    assert opened().categorical == ("category", "instance")
    assert opened(instance="nuisance").categorical == ("category",)


def test_published_constants_belong_to_64_bilinear_pixels_of_the_training_split():
    assert DATASET.published(Params(split="training")) == smallnorb.PUBLISHED
    assert smallnorb.source(Params(split="training", instance="nuisance")).published == smallnorb.PUBLISHED
    for params in ({}, {"split": "training", "image_size": 63}, {"split": "training", "resize": "lanczos"}):
        assert DATASET.published(Params(**params)) is smallnorb.source(Params(**params)).published is None


def test_other_photographs_than_the_published_are_refused(root, monkeypatch):
    monkeypatch.setattr(smallnorb, "PUBLISHED", smallnorb.Statistics((0.7520918401088603,), (0.09563879016827262,)))
    command = "disentune data prepare smallnorb --set split=training --accept"
    with pytest.raises(DataError, match=f"not the published data set.*{command}"):
        opened(split="training")


def test_splits_sizes_and_filters_have_arrays_of_their_own():
    kinds = [{}, {"split": "training"}, {"image_size": 32}, {"resize": "lanczos"}, {"image_size": 96}]
    assert len({smallnorb.source(Params(**params)).key for params in kinds}) == 5
    assert smallnorb.source(Params(instance="nuisance")).key == smallnorb.source(Params()).key


def test_the_command_makes_the_same_array():
    changed = smallnorb.source(Params(split="training", image_size=32, resize="lanczos", instance="nuisance"))
    options = "--set split=training --set image_size=32 --set resize=lanczos"
    assert changed.command == f"disentune data prepare smallnorb {options}"


@pytest.mark.parametrize("params", [{"image_size": 0}, {"image_size": 97}, {"split": "testing"}])
def test_what_does_not_exist_is_refused(params):
    with pytest.raises(ValidationError, match=next(iter(params))):
        Params(**params)


def test_unpacked_files_will_do(root):
    whole = preparing().sha256
    for path in list(root.glob("*.gz")):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    assert prepare(smallnorb.source(Params()), again=True).sha256 == whole


def test_files_that_a_browser_unpacked_but_named_gz_will_do(root):
    whole = preparing().sha256
    (root / DAT).write_bytes(gzip.decompress((root / DAT).read_bytes()))
    assert prepare(smallnorb.source(Params()), again=True).sha256 == whole


def test_more_rows_than_are_read_at_a_time_make_the_same_array(root, monkeypatch):
    whole = preparing().sha256
    monkeypatch.setattr(smallnorb, "ROWS", 7)
    assert prepare(smallnorb.source(Params()), again=True).sha256 == whole


# ---- instance as a nuisance


def possible(data, index):
    """Images of all instances of the other factors that an index stands for."""
    category, *rest = FactorGrid(data.factor_names, data.factor_sizes).factors(np.array([index]))[0]
    whole = opened()
    grid = FactorGrid(whole.factor_names, whole.factor_sizes)
    return whole.images(grid.index(np.array([[category, instance, *rest] for instance in range(4)])))


def test_a_nuisance_shows_any_instance_and_nothing_else(root):
    data = opened(instance="nuisance")
    assert data.noisy
    assert data.factor_names == ("category", "elevation", "azimuth", "lighting")
    assert len(data) == 24
    for index in (0, 7, 23):
        drawn = data.images(np.full(400, index), np.random.default_rng(index))
        shown = (drawn[:, None] == possible(data, index)).all(axis=(2, 3, 4))
        assert (shown.sum(axis=1) == 1).all()
        assert shown.mean(axis=0) == pytest.approx(np.full(4, 0.25), abs=0.09)  # four standard errors of 400 draws


def test_without_a_generator_an_image_keeps_its_instance(root):
    data, indices = opened(instance="nuisance"), np.arange(24)
    images = data.images(indices)
    np.testing.assert_array_equal(images[::-1], data.images(indices[::-1]))
    found = [(image == possible(data, index)).all(axis=(1, 2, 3)).argmax() for index, image in enumerate(images)]
    assert len(set(found)) == 4


def test_a_nuisance_has_the_statistics_of_all_images(root):
    data, whole = opened(instance="nuisance"), opened()
    assert (data.mean, data.std) == (whole.mean, whole.std)


def test_a_nuisance_travels_without_images(root):
    data = opened(instance="nuisance", split="training")
    pickled = pickle.dumps(data)
    assert len(pickled) < 1000
    back = pickle.loads(pickled)
    assert back.factor_sizes == data.factor_sizes == (2, 2, 3, 2)
    draws = [one.images(np.arange(24), np.random.default_rng(0)) for one in (data, back)]
    np.testing.assert_array_equal(*draws)


# ---- wrong files


def refused(path, text):
    """The message names the file, says what is wrong and which command takes others."""
    with pytest.raises(DataError, match=text) as raised:
        preparing()
    assert str(path) in str(raised.value)
    assert "disentune data prepare smallnorb --from FOLDER" in str(raised.value)


def rewritten(root, name, change):
    """A file of the miniature with other contents before it is packed."""
    content = photo_files.matrix(photo_files.toy_files()[name])
    (root / name).write_bytes(gzip.compress(change(content), 1))
    return root / name


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        (DAT, lambda content: b"\x54" + content[1:], "is 0x1e3d4c55, 4 axes, 48 x 2 x 96 x 96, but has 0x1e3d4c54"),
        (DAT, lambda content: b"\x1e\x3d\x4c\x55" + content[4:], "but has 0x554c3d1e"),
        (INFO, lambda content: content[:4] + b"\x03" + content[5:], "is 0x1e3d4c54, 2 axes, 48 x 4, but has .* 3 axes"),
        (CAT, lambda content: content[:8] + b"\x2f" + content[9:], "1 axes, 48, but has .* 47"),
        (CAT, lambda content: content[:5], "but has none"),
        (CAT, lambda content: b"", "but has none"),
        (DAT, lambda content: content[:-1], "must have 48 rows, but ends in row 47"),
        (DAT, lambda content: content + b"\0", "must have 48 rows, but has more"),
        (INFO, lambda content: content[:-16], "must have 48 rows, but ends in row 47"),
    ],
    ids=["type", "magic", "axes", "sizes", "short header", "empty", "one byte less", "one byte more", "one row less"],
)  # fmt: skip
def test_a_wrong_matrix_is_named(root, name, change, text):
    refused(rewritten(root, name, change), text)


@pytest.mark.parametrize("name", [DAT, CAT, INFO])
def test_a_cut_off_file_is_noticed(root, name):
    content = (root / name).read_bytes()
    (root / name).write_bytes(content[: len(content) // 2])
    refused(root / name, "truncated or damaged")


def test_contents_that_cannot_be_unpacked_are_noticed(root):
    content = bytearray((root / DAT).read_bytes())
    content[10] |= 0b110  # the first byte behind gzip's header: a kind of block that does not exist
    (root / DAT).write_bytes(content)
    refused(root / DAT, "truncated or damaged.*while decompressing")


def test_a_wrong_checksum_is_noticed(root):
    content = bytearray((root / DAT).read_bytes())
    content[-6] ^= 0xFF  # of the checksum behind the contents
    (root / DAT).write_bytes(content)
    refused(root / DAT, "truncated or damaged.*CRC")


@pytest.mark.parametrize(
    ("name", "column", "code", "text"),
    [
        (CAT, None, 2, "category must be one of 0, 1, but image 5 has 2"),
        (CAT, None, -1, "category must be one of 0, 1, but image 5 has -1"),
        (INFO, 0, 2, "instance must be one of 1, 3, but image 5 has 2"),
        (INFO, 1, 2, "elevation must be one of 0, 1, but image 5 has 2"),
        (INFO, 2, 1, "azimuth must be one of 0, 2, 4, but image 5 has 1"),
        (INFO, 2, 6, "azimuth must be one of 0, 2, 4, but image 5 has 6"),
        (INFO, 3, 2, "lighting must be one of 0, 1, but image 5 has 2"),
    ],
)
def test_a_code_outside_the_grid_is_named(root, name, column, code, text):
    labels = photo_files.toy_files()[name].copy()
    labels[(5,) if column is None else (5, column)] = code
    photo_files.write_matrices(root, {name: labels})
    refused(root / name, text)


def test_a_cell_that_is_filled_twice_is_named(root):
    files = photo_files.toy_files()
    for name in (CAT, INFO):
        labels = files[name].copy()
        labels[40] = labels[5]
        photo_files.write_matrices(root, {name: labels})
    refused(root / INFO, f"with {CAT} there must be one image per combination .* images 5 and 40 have the same")


def test_one_of_six_files_alone_is_not_enough(root):
    (root / DAT).rename(root / "elsewhere.gz")
    with pytest.raises(DataError, match="must be the folder that contains"):
        prepare(smallnorb.source(Params()), given=root / "elsewhere.gz")
