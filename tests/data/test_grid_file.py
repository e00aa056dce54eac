"""A user's own file of images."""

import pickle
import re
import shlex

import h5py
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from disentune.data import grid_file
from disentune.data.factors import factors_of
from disentune.data.grid_file import DATASET, Params
from disentune.data.prepared.preparing import prepare
from disentune.data.prepared.store import about_of
from disentune.errors import DataError
from disentune.files import documents

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(256, size=(12, 5, 7, 3), dtype=np.uint8)
GREY = RNG.integers(256, size=(12, 5, 7), dtype=np.uint8)
FIELDS = {"path": "own.npz", "factor_names": ["a", "b"], "factor_sizes": [3, 4], "image_shape": [3, 5, 7]}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path / "root"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def written(path, **arrays):
    if path.suffix == ".npz":
        np.savez_compressed(path, **arrays)
    else:
        with h5py.File(path, "w") as file:
            for key, array in arrays.items():
                file[key] = array


def params_of(**changes):
    return Params(**{**FIELDS, **changes})


def opened(**changes):
    return DATASET.open(params_of(**changes))


def all_images(**changes):
    return opened(**changes).images(np.arange(12))


# ---- what a file may hold


@pytest.mark.parametrize("name", ["own.npz", "own.h5"])
@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (COLOUR, COLOUR.transpose(0, 3, 1, 2)),
        (COLOUR.transpose(0, 3, 1, 2), COLOUR.transpose(0, 3, 1, 2)),
        (COLOUR.reshape(3, 4, 5, 7, 3), COLOUR.transpose(0, 3, 1, 2)),
        (COLOUR.transpose(0, 3, 1, 2).reshape(3, 4, 3, 5, 7), COLOUR.transpose(0, 3, 1, 2)),
        (GREY, GREY[:, None]),
        (GREY[..., None], GREY[:, None]),
        (GREY[:, None], GREY[:, None]),
        (GREY.reshape(3, 4, 5, 7), GREY[:, None]),
    ],
    ids=["nhwc", "nchw", "axes hwc", "axes chw", "nhw", "nhw1", "n1hw", "axes hw"],
)
def test_images_are_those_of_the_file_however_arranged(root, name, stored, expected):
    written(root / name, images=np.ascontiguousarray(stored))
    np.testing.assert_array_equal(all_images(path=name, image_shape=list(expected.shape[1:])), expected)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (GREY.astype(np.int64), GREY),
        (GREY.astype(">u2"), GREY),
        (GREY / 255, GREY),
        ((GREY / 255).astype(np.float32), GREY),
        (GREY > 99, 255 * (GREY > 99)),
    ],
    ids=["int64", "big-endian", "float64", "float32", "bool"],
)
def test_pixels_may_be_of_any_type_that_means_bytes(root, stored, expected):
    written(root / "own.npz", images=stored)
    np.testing.assert_array_equal(all_images(image_shape=[1, 5, 7])[:, 0], expected)


def test_a_cube_has_its_channels_last(root):
    cubes = RNG.integers(256, size=(12, 3, 3, 3), dtype=np.uint8)
    written(root / "own.npz", images=cubes)
    np.testing.assert_array_equal(all_images(image_shape=[3, 3, 3]), cubes.transpose(0, 3, 1, 2))


def test_a_file_of_many_chunks_keeps_its_order(root, monkeypatch):
    monkeypatch.setattr(grid_file, "rows_of", lambda shape, size_mb: 5)
    written(root / "own.npz", images=COLOUR)
    np.testing.assert_array_equal(all_images(), COLOUR.transpose(0, 3, 1, 2))


@pytest.mark.parametrize("white", [1, 255])
def test_binary_images_are_stored_as_bits(root, white):
    written(root / "own.npz", images=np.uint8(white) * (GREY > 99))
    data = opened(image_shape=[1, 5, 7], binary=True)
    np.testing.assert_array_equal(data.images(np.arange(12))[:, 0], 255 * (GREY > 99))
    assert about_of(grid_file.source(params_of(image_shape=[1, 5, 7], binary=True))).row_bytes == 5  # 35 pixels


def test_grey_pixels_are_not_binary(root):
    written(root / "own.npz", images=GREY)
    with pytest.raises(DataError, match="must be black or white"):
        opened(image_shape=[1, 5, 7], binary=True)


def test_a_file_may_be_below_the_working_folder(root, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    written(tmp_path / "here/own.npz", images=COLOUR)
    np.testing.assert_array_equal(all_images(), COLOUR.transpose(0, 3, 1, 2))
    written(tmp_path / "here/own.npz", images=COLOUR + 1)
    with pytest.raises(DataError, match=f"{tmp_path}/here/own.npz has changed since it was prepared"):
        opened()


def test_the_data_root_comes_before_the_working_folder(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(root / "own.npz", images=COLOUR)
    written(tmp_path / "own.npz", images=COLOUR + 1)
    np.testing.assert_array_equal(all_images(), COLOUR.transpose(0, 3, 1, 2))


def test_a_file_in_neither_place_is_refused_with_both(root, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError) as raised:
        opened()
    assert str(raised.value) == (
        f"none of {root}/own.npz, {tmp_path}/own.npz exists; put the file in one of these places, or correct the path"
    )


def test_a_file_need_not_be_below_the_root(root, tmp_path):
    written(tmp_path / "it's mine.h5", images=COLOUR)
    np.testing.assert_array_equal(all_images(path=str(tmp_path / "it's mine.h5")), COLOUR.transpose(0, 3, 1, 2))


def test_names_sizes_and_shape_are_the_users(root):
    written(root / "own.npz", pictures=COLOUR)
    params = params_of(images="pictures", categorical=["b"])
    data = DATASET.open(params)
    assert (data.factor_names, data.factor_sizes, data.categorical) == (("a", "b"), (3, 4), ("b",))
    assert data.shape == DATASET.shape(params) == (3, 5, 7)
    assert DATASET.factor_sizes(params) == (3, 4)
    assert not data.noisy


def test_statistics_are_those_of_the_images(root):
    written(root / "own.npz", images=COLOUR)
    data, images = opened(), COLOUR / 255
    assert data.mean == pytest.approx(images.mean(axis=(0, 1, 2)), rel=1e-12)
    assert data.std == pytest.approx(images.std(axis=(1, 2), ddof=1).mean(axis=0), rel=1e-12)


# ---- which contents


def test_contents_are_named_by_their_hash(root):
    written(root / "own.npz", images=COLOUR)
    sha256 = prepare(grid_file.source(params_of())).sha256
    for digits in (12, 13, 64):
        assert len(opened(contents=sha256[:digits])) == 12


@pytest.mark.parametrize("digits", [12, 64])
def test_other_contents_are_refused_here_and_where_a_pickle_is_opened(root, digits):
    written(root / "own.npz", images=COLOUR)
    params = params_of(contents=prepare(grid_file.source(params_of())).sha256[:digits])
    pickled = pickle.dumps(DATASET.open(params))
    assert len(pickled) < 2000
    written(root / "own.npz", images=COLOUR[::-1])
    prepare(grid_file.source(params), again=True)
    for again in (lambda: DATASET.open(params), lambda: pickle.loads(pickled)):
        with pytest.raises(DataError, match=f"own.npz: .*must have the sha256 {params.contents}, but have .*--again"):
            again()


def test_a_file_that_changed_is_not_taken_for_the_old_one(root):
    written(root / "own.npz", images=COLOUR)
    opened()
    written(root / "own.npz", images=COLOUR[:, ::-1])
    with pytest.raises(DataError, match=r"own.npz has changed since it was prepared.*--again"):
        opened()


# ---- the folder and the command


def test_what_the_array_depends_on_has_an_array_of_its_own():
    changes = [
        {},
        {"path": "other.npz"},
        {"images": "pictures"},
        {"image_shape": [3, 7, 5]},
        {"binary": True},
        {"factor_sizes": [4, 3]},
    ]
    assert len({grid_file.source(params_of(**change)).key for change in changes}) == len(changes)
    same = [{"categorical": ["a"]}, {"factor_names": ["c", "d"]}, {"contents": "0" * 12}]
    assert {grid_file.source(params_of(**change)).key for change in same} == {grid_file.source(params_of()).key}


paths = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=30)


@settings(max_examples=50, deadline=None)
@given(path=paths, key=paths)
def test_no_path_or_key_gets_into_the_folders_name(path, key):
    try:
        params = params_of(path=path, images=key)
    except ValidationError:
        return
    assert re.fullmatch("grid_file_[0-9a-f]{16}", grid_file.source(params).key)


@settings(max_examples=50, deadline=None)
@given(path=paths, key=paths, name=paths)
@example("true", "[1]", "null")
@example("line\nbreak\x7f.npz", "'\"$(x)`x`;", "\N{GRINNING FACE}")
@example("a: b", "#", "\x00\\")
def test_the_command_is_complete_and_safe_for_a_shell(path, key, name):
    try:
        params = params_of(path=path, images=key, factor_names=["a", name], binary=True)
    except ValidationError:
        return
    source = grid_file.source(params)
    words = shlex.split(source.command)
    assert words[:4] == ["disentune", "data", "prepare", "grid_file"]
    assert set(words[4::2]) == {"--set"}
    read = {word.partition("=")[0]: documents.parse(word.partition("=")[2], "").value for word in words[5::2]}
    assert grid_file.source(Params(**read)).key == source.key
    assert Params(**read) == params


def test_the_command_reads_well():
    assert grid_file.source(params_of(path="a b.npz", images="1e3")).command == (
        "disentune data prepare grid_file --set 'path=a b.npz' --set 'images=\"1e3\"' "
        "--set 'factor_names=[\"a\",\"b\"]' --set 'factor_sizes=[3,4]' --set 'image_shape=[3,5,7]'"
    )


@pytest.mark.parametrize("path", ["own.npz", "downloads/own.npz", "grid_file/own.npz"])
def test_the_users_file_is_only_read(root, path):
    (root / path).parent.mkdir(exist_ok=True)
    written(root / path, images=COLOUR)
    before = (root / path).read_bytes()
    opened(path=path)
    prepare(grid_file.source(params_of(path=path)), again=True)
    assert (root / path).read_bytes() == before


# ---- wrong parameters


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"path": ""}, "must be absolute, or relative to the data root or working folder"),
        ({"path": "../own.npz"}, r"without '\.\.' or '~', got '\.\./own\.npz'"),
        ({"path": "a/../../own.npz"}, "must be absolute, or relative"),
        ({"path": "~/own.npz"}, "must be absolute, or relative"),
        ({"images": ""}, "at least 1 character"),
        ({"factor_names": ["a", "a"]}, "must be different and not empty"),
        ({"factor_names": ["a", " "]}, "must be different and not empty"),
        ({"factor_names": [], "factor_sizes": []}, "at least 1 item"),
        ({"factor_sizes": [3, 4, 5]}, "must be one for each of the 2 factor_names, but are 3"),
        ({"factor_sizes": [3, 0]}, "greater than or equal to 1"),
        ({"factor_sizes": [2**32, 2**31]}, r"fewer than 2\*\*63"),
        ({"factor_sizes": [3, 4.5]}, "valid integer"),
        ({"image_shape": [5, 7]}, "at least 3 items"),
        ({"image_shape": [3, 5, 0]}, "greater than or equal to 1"),
        ({"categorical": ["c"]}, r"must be among factor_names \(a, b\), but is \['c'\]"),
        ({"contents": "0123456789a"}, "must be 12 to 64 of the digits"),
        ({"contents": "0123456789ag"}, "must be 12 to 64 of the digits"),
        ({"contents": "0" * 65}, "must be 12 to 64 of the digits"),
    ],
)
def test_wrong_parameters_are_refused(changes, text):
    with pytest.raises(ValidationError, match=text):
        params_of(**changes)


def test_the_file_is_not_needed_to_check_a_config():
    assert DATASET.shape(params_of(path="nowhere.npz")) == (3, 5, 7)
    assert DATASET.factor_sizes(params_of(path="nowhere.npz", factor_sizes=[1e1, 4])) == (10, 4)


# ---- wrong files


def refused(root, text, **changes):
    """The message names the file, says what is wrong and which command takes another."""
    with pytest.raises(DataError, match=text) as raised:
        opened(**changes)
    assert str(root / changes.get("path", "own.npz")) in str(raised.value)
    return str(raised.value)


def with_command(message):
    return f"fix the file or these parameters, then run: {grid_file.source(params_of()).command}" in message


@pytest.mark.parametrize(
    ("stored", "text"),
    [
        (COLOUR[:11], r"must be \(12, 5, 7, 3\) or \(12, 3, 5, 7\) for factor_sizes \[3, 4\].*but is \(11, 5, 7, 3\)"),
        (COLOUR.reshape(4, 3, 5, 7, 3), r"one axis per factor .* but is \(4, 3, 5, 7, 3\)"),
        (COLOUR.transpose(0, 2, 1, 3), r"but is \(12, 7, 5, 3\)"),
        (GREY, r"but is \(12, 5, 7\)"),
        (COLOUR + 0.5, "pixels must be numbers from 0 to 1, but image 0 has"),
        (COLOUR.astype(np.int16) - 300, "pixels must be whole numbers from 0 to 255, but image 0 has"),
        (COLOUR.astype("U1"), "must hold plain numbers"),
        (COLOUR % 2, "from 0 to 255, but are 0 and 1; set binary: true"),
    ],
    ids=["count", "order of axes", "sides", "channels", "scale", "negative", "text", "black and white"],
)
def test_a_wrong_array_is_named(root, stored, text):
    written(root / "own.npz", images=stored)
    assert with_command(refused(root, text))


@pytest.mark.parametrize("shape", [(12, 5, 7, 3), (3, 4, 5, 7, 3)])
def test_a_nan_is_found_and_its_image_named(root, monkeypatch, shape):
    monkeypatch.setattr(grid_file, "rows_of", lambda shape, size_mb: 2)
    stored = COLOUR / 255
    stored[9, 2, 3, 1] = np.nan
    written(root / "own.npz", images=stored.reshape(shape))
    assert with_command(refused(root, "image 9 has nan"))


def test_a_missing_key_is_named_with_those_there(root):
    written(root / "own.npz", pictures=COLOUR, labels=np.arange(12))
    assert with_command(refused(root, "must have an array 'images', but has labels, pictures"))


def test_a_missing_file_is_named(root):
    refused(root, "exists; put the file in one of these places")


def test_a_file_of_another_kind_is_named(root):
    (root / "own.npz").write_bytes(b"\x89PNG\r\n")
    assert with_command(refused(root, "must be an NPZ or HDF5 file, but is neither"))


def test_a_cut_off_file_is_named(root):
    written(root / "own.npz", images=COLOUR)
    (root / "own.npz").write_bytes((root / "own.npz").read_bytes()[:900])
    assert with_command(refused(root, "truncated or damaged"))


def test_objects_are_not_unpickled(root):
    np.savez(root / "own.npz", images=np.array([{"a": 1}] * 12, dtype=object))
    assert with_command(refused(root, "objects are never unpickled"))


def test_channels_at_the_end_of_image_shape_are_a_mistake():
    with pytest.raises(ValidationError, match=r"must be \[channels, .*is \[64, 64, 3\]; did you mean \[3, 64, 64\]"):
        params_of(image_shape=[64, 64, 3])
    assert params_of(image_shape=[4, 4, 4]).image_shape == [4, 4, 4]
    assert params_of(image_shape=[2, 1, 1]).image_shape == [2, 1, 1]


# ---- a table of factors instead of a grid


LABELS = np.array([[0, 3], [2, 0], [2, 0], [1, 1], [0, 0]])
TABLE = {"labels": "labels", "count": 5}


def test_factors_are_those_of_the_table_whatever_its_type(root):
    for kind in (np.int64, np.uint8, np.float32):
        written(root / "own.npz", images=COLOUR[:5], labels=LABELS.astype(kind))
        prepare_again()
        data = opened(**TABLE)
        assert (len(data), data.factor_names, data.factor_sizes) == (5, ("a", "b"), (3, 4))
        np.testing.assert_array_equal(factors_of(data).factors([4, 1, 0]), LABELS[[4, 1, 0]])
        np.testing.assert_array_equal(data.images(np.arange(5)), COLOUR[:5].transpose(0, 3, 1, 2))


def prepare_again():
    for source in DATASET.sources(params_of(**TABLE)):
        prepare(source, again=True)


def test_a_pickle_keeps_the_table(root):
    written(root / "own.h5", images=COLOUR[:5], labels=LABELS)
    data = pickle.loads(pickle.dumps(opened(path="own.h5", **TABLE)))
    np.testing.assert_array_equal(factors_of(data).factors(np.arange(5)), LABELS)


def test_the_record_says_what_is_lacking_and_a_grid_lacks_nothing():
    assert DATASET.lacks(params_of(**TABLE)) == "grid"
    assert DATASET.population(params_of(**TABLE)) == 5
    assert DATASET.lacks(params_of()) == ""
    assert len(DATASET.sources(params_of())) == 1


def test_keys_and_identity_of_a_full_grid_are_as_before():
    params = params_of()
    assert "labels" not in params.model_dump()
    assert "count" not in params.model_dump()


WRONG_TABLES = {
    "another shape": (LABELS[:4], r"'labels' must be \(5, 2\), a row for each image, but is \(4, 2\)"),
    "too large": (LABELS + np.array([1, 0]), r"whole numbers from 0 to 2 for the factor 'a', but image 1 has 3"),
    "negative": (LABELS - np.array([0, 1]), r"from 0 to 3 for the factor 'b', but image 1 has -1"),
    "a fraction": (LABELS + 0.5 * np.eye(5, 2, -3), r"the factor 'a', but image 3 has 1.5"),
    "no number": (np.where(LABELS == 3, np.nan, LABELS), "the factor 'b', but image 0 has nan"),
}


@pytest.mark.parametrize("case", WRONG_TABLES)
def test_a_wrong_table_is_refused_with_the_image(root, case):
    labels, text = WRONG_TABLES[case]
    written(root / "own.npz", images=COLOUR[:5], labels=labels)
    with pytest.raises(DataError, match=text):
        opened(**TABLE)


def test_images_must_be_as_many_as_counted(root):
    written(root / "own.npz", images=COLOUR, labels=LABELS)
    with pytest.raises(DataError, match=r"'images' must be \(5, 5, 7, 3\) or .* for count 5, but is \(12, 5, 7, 3\)"):
        opened(**TABLE)


@pytest.mark.parametrize("changes", [{"labels": "labels"}, {"count": 5}])
def test_labels_and_count_belong_together(changes):
    with pytest.raises(ValidationError, match="must be set with labels, and only then"):
        params_of(**changes)
