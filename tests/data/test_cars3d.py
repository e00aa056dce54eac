"""Cars3D from a miniature of its archive."""

import gzip
import pickle
import re
import tarfile

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

import photo_files
from disentune.data import cars3d
from disentune.data.cars3d import DATASET, Params
from disentune.data.prepared.preparing import prepare
from disentune.errors import DataError

FILTERS = {"bilinear": Image.Resampling.BILINEAR, "lanczos": Image.Resampling.LANCZOS}


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path))
    photo_files.small_cars3d(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def archive(root):
    return root / photo_files.ARCHIVE


def opened(**params):
    return DATASET.open(Params(**params))


def preparing(**params):
    return prepare(cars3d.source(Params(**params)))


@pytest.mark.parametrize("params", [{}, {"resize": "lanczos"}, {"image_size": 37}, {"image_size": 128}], ids=str)
def test_each_image_is_the_resized_photograph_of_its_factors(root, params):
    data, cars = opened(**params), photo_files.cars()
    size, filter_ = params.get("image_size", 64), FILTERS[params.get("resize", "bilinear")]
    images, index = data.images(np.arange(len(data))), 0
    for elevation in range(2):
        for azimuth in range(3):
            for name in sorted(cars):
                photograph = Image.fromarray(np.ascontiguousarray(cars[name][:, :, :, azimuth, elevation]))
                expected = np.array(photograph.resize((size, size), filter_)).transpose(2, 0, 1)
                np.testing.assert_array_equal(images[index], expected)
                index += 1
    assert index == len(data) == 72
    assert data.shape == (3, size, size) == DATASET.shape(Params(**params))


def test_original_size_is_the_file_to_the_bit(root):
    first = photo_files.cars()["car_000_mesh"][:, :, :, 0, 0]
    np.testing.assert_array_equal(opened(image_size=128).images(np.array([0]))[0], first.transpose(2, 0, 1))


def test_bilinear_halving_weighs_four_pixels_by_1_3_3_1(root):
    """The triangle of width 2 at half the resolution, (1, 3, 3, 1) / 8 along each axis."""
    photograph = photo_files.cars()["car_000_mesh"][:, :, 0, 0, 0].astype(float)
    halved = opened().images(np.array([0]))[0, 0]
    weights = np.outer([1, 3, 3, 1], [1, 3, 3, 1]) / 64
    for row, column in [(1, 1), (7, 30), (32, 15), (62, 62)]:
        window = photograph[2 * row - 1 : 2 * row + 3, 2 * column - 1 : 2 * column + 3]
        assert halved[row, column] == pytest.approx((weights * window).sum(), abs=1)  # Pillow rounds after each axis


def test_factors_are_those_of_the_paper():
    assert cars3d.FACTORS == {"elevation": 4, "azimuth": 24, "object_type": 183}
    assert DATASET.factor_sizes(Params()) == (4, 24, 183)
    assert cars3d.source(Params()).count == 17568


def test_only_the_car_has_no_order(root):
    data = opened()
    assert data.factor_names == ("elevation", "azimuth", "object_type")
    assert data.categorical == ("object_type",)


def test_published_constants_belong_to_64_bilinear_pixels_alone():
    assert DATASET.published(Params()) == cars3d.source(Params()).published == cars3d.PUBLISHED
    for params in ({"image_size": 63}, {"resize": "lanczos"}):
        assert DATASET.published(Params(**params)) is cars3d.source(Params(**params)).published is None


def test_other_photographs_than_the_published_are_refused(root, monkeypatch):
    monkeypatch.setattr(cars3d, "PUBLISHED", cars3d.Statistics((0.5, 0.5, 0.5), (0.9, 0.9, 0.9)))
    with pytest.raises(DataError, match=r"not the published data set.*disentune data prepare cars3d --accept"):
        opened()


def test_sizes_and_filters_have_arrays_of_their_own():
    kinds = [{}, {"image_size": 32}, {"resize": "lanczos"}, {"image_size": 128}]
    assert len({cars3d.source(Params(**params)).key for params in kinds}) == 4
    originals = [cars3d.source(Params(image_size=128, resize=filter_)).key for filter_ in FILTERS]
    assert originals[0] == originals[1]


def test_the_command_makes_the_same_array():
    assert cars3d.source(Params()).command == "disentune data prepare cars3d"
    changed = cars3d.source(Params(image_size=32, resize="lanczos"))
    assert changed.command == "disentune data prepare cars3d --set image_size=32 --set resize=lanczos"


def test_a_source_travels(root):
    source = pickle.loads(pickle.dumps(cars3d.source(Params(image_size=16))))
    assert prepare(source).sha256 == preparing(image_size=16).sha256


def test_an_unpacked_archive_will_do(root, archive):
    whole = preparing().sha256
    archive.with_suffix("").write_bytes(gzip.decompress(archive.read_bytes()))
    archive.unlink()
    assert prepare(cars3d.source(Params()), again=True).sha256 == whole


@pytest.mark.parametrize("size", [0, 129])
def test_a_size_beyond_the_original_is_refused(size):
    with pytest.raises(ValidationError, match="image_size"):
        Params(image_size=size)


# ---- wrong files


def rewritten(archive, change):
    files = photo_files.car_files(photo_files.cars())
    change(files)
    photo_files.write_archive(archive, files)


def refused(archive, text):
    """The message names the file, says what is wrong and which command takes another."""
    with pytest.raises(DataError, match=text) as raised:
        preparing()
    assert str(archive) in str(raised.value)
    assert "disentune data prepare cars3d --from FILE" in str(raised.value)


def test_a_missing_car_is_noticed(archive):
    rewritten(archive, lambda files: files.pop("data/cars/car_021_mesh.mat"))
    refused(archive, r"must hold 12 files cars/\*\.mat, but holds 11")


def test_a_car_too_many_is_noticed(archive):
    im = photo_files.cars()["car_000_mesh"]
    rewritten(archive, lambda files: files.update({"data/cars/car_999_mesh.mat": photo_files.mat(im=im)}))
    refused(archive, r"must hold 12 files cars/\*\.mat, but holds more")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (photo_files.mat(image=np.zeros((2, 2))), "must have an array 'im', but has none"),
        (photo_files.mat(im=np.zeros((128, 128, 3, 2, 3), np.uint8)), r"must be \(128, 128, 3, 3, 2\) uint8, but is"),
        (photo_files.mat(im=np.zeros((128, 128, 3, 3, 2))), r"must be .* uint8, but is .* float64"),
        (b"MATLAB 5.0 MAT-file" * 20, "cannot be read as a MATLAB file"),
        (b"", "cannot be read as a MATLAB file"),
    ],
    ids=["no im", "axes", "type", "garbage", "empty"],
)
def test_a_wrong_car_is_named(archive, content, text):
    rewritten(archive, lambda files: files.update({"data/cars/car_021_mesh.mat": content}))
    refused(archive, rf"data/cars/car_021_mesh\.mat.*{text}")


def test_a_pickled_surprise_is_not_opened(archive):
    trap = pickle.dumps(re.compile("x"))
    rewritten(archive, lambda files: files.update({"data/cars/car_021_mesh.mat": trap}))
    refused(archive, "cannot be read as a MATLAB file")


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_cut_off_archive_is_noticed(archive, share):
    content = archive.read_bytes()
    archive.write_bytes(content[: int(share * len(content))])
    refused(archive, "truncated|but holds")


def test_damage_within_is_noticed(archive):
    content = bytearray(archive.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 2000] = bytes(2000)
    archive.write_bytes(content)
    refused(archive, "cut off|damaged|cannot be read|but holds")


def test_damage_that_only_the_checksum_tells_is_noticed(archive, monkeypatch):
    monkeypatch.setattr(cars3d, "BLOCK", 512)  # tar's own reading ends before the checksum
    content = bytearray(archive.read_bytes())
    content[-6] ^= 0xFF
    archive.write_bytes(content)
    refused(archive, "truncated or damaged.*CRC")


def test_a_file_that_is_not_an_archive_is_named(archive):
    archive.write_bytes(b"<html>404</html>" * 100)
    refused(archive, "is not a complete tar.gz file")


def write_member(archive, size, **headers):
    """One car of 512 bytes, whatever its size is said to be."""
    entry = tarfile.TarInfo("data/cars/car_000_mesh.mat")
    entry.size, entry.pax_headers = size, headers
    archive.write_bytes(gzip.compress(entry.tobuf(tarfile.PAX_FORMAT) + bytes(512 + 1024)))


def test_a_car_too_large_for_any_memory_is_refused_unread(archive):
    write_member(archive, 40 * 10**9)
    assert archive.stat().st_size < 1000
    refused(archive, r"data/cars/car_000_mesh\.mat must have at most 67108864 bytes, but has 40000000000")


def test_a_sparse_car_is_refused(archive):
    write_member(archive, 512, **{"GNU.sparse.size": "40000000000", "GNU.sparse.map": "0,512"})
    refused(archive, r"data/cars/car_000_mesh\.mat must be stored whole, but is sparse, with 40000000000 bytes")


def test_a_sparse_car_without_a_map_is_refused(archive):
    write_member(archive, 512, **{"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})
    refused(archive, "is not a complete tar.gz file")


def test_a_car_of_the_largest_size_is_taken_and_a_larger_one_is_not(archive, monkeypatch):
    with tarfile.open(archive) as held:
        largest = max(member.size for member in held if "cars/car_" in member.name)
    monkeypatch.setattr(cars3d, "LARGEST", largest)
    assert preparing().count == 72
    monkeypatch.setattr(cars3d, "LARGEST", largest - 1)
    with pytest.raises(DataError, match=f"must have at most {largest - 1} bytes, but has {largest}"):
        prepare(cars3d.source(Params()), again=True)


def test_images_of_eight_bytes_a_number_would_not_be_too_large():
    assert cars3d.LARGEST > 128 * 128 * 24 * 4 * (3 + 1) * 8


def test_nothing_is_written_but_the_array(root, archive):
    archive.write_bytes(archive.read_bytes()[:5000])
    with pytest.raises(DataError):
        preparing()
    assert [path.name for path in root.iterdir() if not path.name.endswith(".lock")] == [archive.name]
