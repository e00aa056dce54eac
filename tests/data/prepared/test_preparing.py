"""From files to a prepared array: what is made, what is refused, and what is left behind."""

import errno
import hashlib
import os
import shutil
from collections import namedtuple
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from filelock import FileLock, Timeout

import stored_examples as examples
from disentune.data.prepared import preparing
from disentune.data.prepared.preparing import prepare
from disentune.data.prepared.store import VARIABLE, about_of, folder_of, images_path, mapped, verify
from disentune.errors import DataError
from disentune.plugin import File, Source, Statistics
from stored_examples import BITS, COUNT, GREY, NAME, example, reads_of, source_of

WEB = File(NAME, urls=("https://example.org/example.bin",), also=("other.bin",))


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "root"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def images_of(source: Source, count: int = COUNT) -> np.ndarray:
    about = about_of(source)
    assert about is not None
    return mapped(source, about).images(np.arange(count))


def left_in(root: Path) -> set[str]:
    """Names in the root but for the lock, which stays."""
    return {path.name for path in root.iterdir()} - {".example.lock"}


# ---- what is made


def test_grey_images_are_those_of_the_file(root):
    (root / NAME).write_bytes(example().tobytes())
    prepare(source_of())
    np.testing.assert_array_equal(images_of(source_of()), example())


@pytest.mark.parametrize("shape", [BITS, (1, 1, 1), (1, 8, 8), (3, 3, 3)])
def test_bits_give_back_the_black_and_white_pixels(root, shape):
    binary = source_of(shape, binary=True)
    (root / NAME).write_bytes(example(shape, binary=True).tobytes())
    prepare(binary)
    np.testing.assert_array_equal(images_of(binary), example(shape, binary=True))
    assert np.load(images_path(binary)).shape == (COUNT, -(-np.prod(shape) // 8))
    assert verify(binary).sha256 == hashlib.sha256(np.load(images_path(binary)).tobytes()).hexdigest()


@pytest.mark.parametrize("rows", [1, 5, 12, 100])
def test_chunks_of_any_length_make_the_same_array(root, rows):
    (root / NAME).write_bytes(example().tobytes())
    about = prepare(source_of(read=partial(examples.read_bytes, shape=GREY, rows=rows)))
    assert about.sha256 == hashlib.sha256(example().tobytes()).hexdigest()


def read_with_gaps(paths):
    empty = np.empty((0, *GREY), np.uint8)
    for chunk in examples.read_bytes(paths, GREY):
        yield from (empty, chunk, empty)


def read_backwards_in_memory(paths):
    for chunk in examples.read_bytes(paths, GREY):
        yield np.asfortranarray(chunk)


@pytest.mark.parametrize("read", [read_with_gaps, read_backwards_in_memory])
def test_empty_chunks_and_strided_ones_make_the_same_array(root, read):
    (root / NAME).write_bytes(example().tobytes())
    about = prepare(source_of(read=read))
    assert about.sha256 == hashlib.sha256(example().tobytes()).hexdigest()
    np.testing.assert_array_equal(images_of(source_of()), example())


def test_the_hash_is_that_of_the_contents_whatever_file_they_came_in(root, tmp_path):
    (tmp_path / "one.bin").write_bytes(example().tobytes())
    (tmp_path / "two.bin").write_bytes(example().tobytes())
    first = prepare(source_of(), tmp_path / "one.bin")
    second = prepare(source_of(), tmp_path / "two.bin", again=True)
    assert first.sha256 == second.sha256 == hashlib.sha256(example().tobytes()).hexdigest()
    assert first.files != second.files


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("shape", [GREY, BITS, (2, 1, 1), (1, 64, 64)])
def test_statistics_are_means_over_images_of_mean_and_unbiased_deviation(root, shape, binary):
    images = example(shape, binary)
    (root / NAME).write_bytes(images.tobytes())
    about = prepare(source_of(shape, binary=binary))
    pixels = images.reshape(COUNT, shape[0], -1) / 255.0
    assert about.mean == pytest.approx(pixels.mean(axis=2).mean(axis=0), rel=1e-13)
    deviations = pixels.std(axis=2, ddof=1).mean(axis=0) if pixels.shape[2] > 1 else np.ones(shape[0])
    assert about.std == pytest.approx(deviations, rel=1e-13)


def test_statistics_weigh_all_images_alike_however_they_come_in_chunks(root):
    (root / NAME).write_bytes(example().tobytes())
    in_fives = prepare(source_of())
    at_once = prepare(source_of(read=partial(examples.read_bytes, shape=GREY, rows=COUNT)), again=True)
    assert (in_fives.mean, in_fives.std) == (at_once.mean, at_once.std)


def test_a_channel_that_never_changes_has_deviation_one(root):
    images = example()
    images[:, 1] = 51
    (root / NAME).write_bytes(images.tobytes())
    about = prepare(source_of())
    assert about.std[1] == 1.0
    assert about.mean[1] == pytest.approx(0.2)
    assert 0 < about.std[0] < 0.5


def test_what_is_prepared_is_not_read_again_unless_asked(root):
    (root / NAME).write_bytes(example().tobytes())
    first = prepare(source_of())
    assert prepare(source_of()) == first
    assert reads_of(root / NAME) == 1
    prepare(source_of(), again=True)
    assert reads_of(root / NAME) == 2


def test_made_again_the_new_images_take_the_place_of_the_old_which_stay_readable(root):
    (root / NAME).write_bytes(example().tobytes())
    old = mapped(source_of(), prepare(source_of()))
    (root / NAME).write_bytes(example(seed=1).tobytes())
    new = mapped(source_of(), prepare(source_of(), again=True))
    np.testing.assert_array_equal(old.images(np.arange(COUNT)), example())
    np.testing.assert_array_equal(new.images(np.arange(COUNT)), example(seed=1))
    assert left_in(root) == {NAME, "example.log", "example"}


def test_progress_counts_images_up_to_all_of_them(root):
    (root / NAME).write_bytes(example().tobytes())
    said = []
    prepare(source_of(), say=lambda *words: said.append(words))
    assert said == [("preparing example", done, COUNT) for done in (5, 10, 12)]


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o002])
def test_others_may_read_what_the_umask_lets_them(root, umask):
    (root / NAME).write_bytes(example().tobytes())
    before = os.umask(umask)
    try:
        prepare(source_of())
    finally:
        os.umask(before)
    made = folder_of(source_of())
    assert made.stat().st_mode & 0o777 == 0o777 & ~umask
    assert {path.stat().st_mode & 0o777 for path in made.iterdir()} == {0o666 & ~umask}
    assert {path.name for path in made.iterdir()} == {"images.npy", "about.json", "checked.json"}


def test_anyone_who_can_write_to_the_root_can_take_the_lock(root):
    (root / NAME).write_bytes(example().tobytes())
    prepare(source_of())
    assert (root / ".example.lock").stat().st_mode & 0o777 == 0o666


def test_variants_live_side_by_side(root):
    (root / NAME).write_bytes(example().tobytes())
    prepare(source_of())
    (root / NAME).write_bytes(example(seed=1).tobytes())
    prepare(source_of(variant="other"))
    assert {"example", "example_other"} <= left_in(root)
    np.testing.assert_array_equal(images_of(source_of(variant="other")), example(seed=1))


# ---- files that are wrong


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": COUNT + 1}, rf"must have {COUNT + 1} images, but has {COUNT}; .*run: disentune data prepare"),
        ({"count": COUNT - 1}, rf"must have {COUNT - 1} images, but has more; .*run: disentune data prepare"),
        ({"shape": (3, 5, 4)}, r"images must be \(3, 5, 4\) .*, but are \(3, 4, 5\) uint8; .*prepare example"),
        ({"shape": (1, 4, 5)}, r"images must be \(1, 4, 5\) .*, but are \(3, 4, 5\) uint8"),
        ({"binary": True}, r"pixels must be black or white, but some are grey; .*run: disentune data prepare"),
        ({"published": Statistics((0.5,) * 3, (0.25,) * 3)}, r"not the published.* must be 0\.500000, .*--accept"),
    ],
)  # fmt: skip
def test_contents_that_are_not_as_they_must_be_are_refused_and_leave_nothing_behind(root, changes, message):
    (root / NAME).write_bytes(example().tobytes())
    wrong = replace(source_of(), **changes)
    with pytest.raises(DataError, match=message) as raised:
        prepare(wrong)
    assert NAME in str(raised.value)
    assert left_in(root) == {NAME, "example.log"}


def read_as_floats(paths):
    for chunk in examples.read_bytes(paths, GREY):
        yield chunk / 255


def test_a_reader_that_gives_no_bytes_is_refused(root):
    (root / NAME).write_bytes(example().tobytes())
    with pytest.raises(DataError, match=r"but are \(3, 4, 5\) float64"):
        prepare(source_of(read=read_as_floats))


def test_one_grey_pixel_in_the_last_image_is_found(root):
    images = example(BITS, binary=True)
    images[-1, 0, 2, 4] = 254
    (root / NAME).write_bytes(images.tobytes())
    with pytest.raises(DataError, match="some are grey"):
        prepare(source_of(BITS, binary=True))


@pytest.mark.parametrize("which", ["mean", "std"])
def test_published_statistics_must_match_within_the_tolerance(root, which):
    (root / NAME).write_bytes(example().tobytes())
    about = prepare(source_of())
    true = Statistics(about.mean, about.std)
    moved = true._replace(**{which: tuple(value + 1e-3 for value in getattr(true, which))})
    prepare(source_of(published=true), again=True)
    prepare(source_of(published=moved, tolerance=2e-3), again=True)
    with pytest.raises(DataError, match=r"is not the published data set: mean and std .*prepare example --accept"):
        prepare(source_of(published=moved, tolerance=5e-4), again=True)


def test_contents_that_are_not_the_published_can_be_accepted(root):
    (root / NAME).write_bytes(example().tobytes())
    strange = source_of(published=Statistics((0.1,) * 3, (0.1,) * 3))
    prepare(strange, accept=True)
    np.testing.assert_array_equal(images_of(strange), example())


def test_what_was_there_stays_when_making_it_again_fails(root):
    (root / NAME).write_bytes(example().tobytes())
    prepare(source_of())
    (root / NAME).write_bytes(example().tobytes()[:-60])
    with pytest.raises(DataError, match="but has 11"):
        prepare(source_of(), again=True)
    np.testing.assert_array_equal(np.load(images_path(source_of())), example().reshape(COUNT, -1))
    assert left_in(root) == {NAME, "example.log", "example"}


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
def test_a_reader_that_fails_in_the_middle_leaves_nothing_behind(root, error):
    (root / NAME).write_bytes(example().tobytes())
    failing = source_of(read=partial(examples.read_and_fail, shape=GREY, error=error))
    with pytest.raises(type(error)):
        prepare(failing)
    assert left_in(root) == {NAME, "example.log"}
    prepare(source_of())  # and no lock is held
    np.testing.assert_array_equal(images_of(source_of()), example())


def test_a_file_that_the_system_cannot_read_is_named(root):
    (root / NAME).write_bytes(example().tobytes())
    broken = partial(examples.read_and_fail, shape=GREY, error=OSError(errno.EIO, "Input/output error"))
    with pytest.raises(
        DataError,
        match=rf"{NAME}: cannot be read \(.*Input/output error\); .*then run: disentune data prepare example",
    ):
        prepare(source_of(read=broken))


# ---- the disk


def test_a_disk_that_is_too_small_is_noticed_before_anything_is_read(root, monkeypatch):
    (root / NAME).write_bytes(example().tobytes())
    monkeypatch.setattr(shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(COUNT * 60))  # without a header
    with pytest.raises(DataError, match=f"{root}: 'example' needs .* GB are free"):
        prepare(source_of())
    assert left_in(root) == {NAME}


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_disk_that_fails_while_writing_is_a_message_and_leaves_nothing_behind(root, monkeypatch, call):
    (root / NAME).write_bytes(example().tobytes())

    def full(*arguments, **named):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, full)
    with pytest.raises(DataError, match=rf"'example' cannot be written in {root} \(No space left on device\)"):
        prepare(source_of())
    assert left_in(root) == {NAME, "example.log"}


def test_folders_of_a_killed_process_are_cleared(root):
    (root / NAME).write_bytes(example().tobytes())
    for name in (".example.abc123", ".example_other.abc123"):
        (root / name / "made").mkdir(parents=True)
        (root / name / "made" / "images.npy").touch()
    prepare(source_of())
    assert left_in(root) == {NAME, "example.log", "example", ".example_other.abc123"}


def test_a_folder_with_files_of_the_user_is_never_replaced(root):
    (root / "example").mkdir()
    (root / "example" / "mine.npz").write_text("years of work")
    (root / NAME).write_bytes(example().tobytes())
    with pytest.raises(
        DataError, match=rf"{root}/example .* contains mine\.npz; move that elsewhere, then run: .*--again"
    ):
        prepare(source_of(), again=True)
    assert (root / "example" / "mine.npz").read_text() == "years of work"


def test_remains_of_our_own_are_replaced(root):
    (root / NAME).write_bytes(example().tobytes())
    prepare(source_of())
    (root / "example" / ".checked.json.123").touch()
    (root / "example" / "about.json").unlink()
    prepare(source_of(), again=True)
    np.testing.assert_array_equal(images_of(source_of()), example())


# ---- finding the files


def test_a_file_is_taken_from_where_the_user_says(root, tmp_path):
    (root / NAME).write_bytes(example(seed=1).tobytes())
    (tmp_path / "downloaded (2).bin").write_bytes(example().tobytes())
    prepare(source_of(files=(WEB,)), tmp_path / "downloaded (2).bin")
    np.testing.assert_array_equal(images_of(source_of(files=(WEB,))), example())


@pytest.mark.parametrize("name", [NAME, "other.bin"])
def test_a_folder_is_searched_for_every_name_of_the_file(root, tmp_path, name):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_bytes(example().tobytes())
    prepare(source_of(files=(WEB,)), tmp_path / "mine")
    np.testing.assert_array_equal(images_of(source_of(files=(WEB,))), example())


@pytest.mark.parametrize("name", [NAME, "other.bin"])
def test_a_file_in_the_root_is_used_instead_of_a_download_and_stays(root, name):
    (root / name).write_bytes(example().tobytes())
    prepare(source_of(files=(WEB,)))
    assert (root / name).exists()


def test_a_file_that_is_not_where_the_user_says_is_named(root, tmp_path):
    with pytest.raises(DataError, match=rf"--from {tmp_path}/no: does not exist; 'example' is made from {NAME}"):
        prepare(source_of(), tmp_path / "no")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=rf"--from {tmp_path}/empty: {NAME} is not in that folder; 'example' is made"):
        prepare(source_of(), tmp_path / "empty")


def test_several_files_are_given_as_a_folder(root, tmp_path):
    both = source_of(files=(File("one.bin"), File("two.bin")))
    (tmp_path / "one.bin").touch()
    with pytest.raises(DataError, match=r"must be the folder that contains one\.bin, two\.bin"):
        prepare(both, tmp_path / "one.bin")
    with pytest.raises(DataError, match=r"two\.bin is not in that folder"):
        prepare(both, tmp_path)


def read_two(paths):
    for path in paths:
        yield np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, *GREY)


def test_several_files_are_read_in_the_order_of_the_source(root, tmp_path):
    (tmp_path / "b.bin").write_bytes(example()[:7].tobytes())
    (tmp_path / "a.bin").write_bytes(example()[7:].tobytes())
    both = source_of(files=(File("b.bin"), File("a.bin")), read=read_two)
    prepare(both, tmp_path)
    np.testing.assert_array_equal(images_of(both), example())


def test_a_users_own_file_that_is_missing_is_named(root, tmp_path):
    with pytest.raises(DataError, match=f"none of {root / NAME}, .* exists; put the file in one"):
        prepare(source_of())
    with pytest.raises(DataError, match=f"{tmp_path}/mine.bin does not exist"):
        prepare(source_of(files=(File(str(tmp_path / "mine.bin")),)))


def downloaded(file, folder, command, say):
    folder.mkdir(exist_ok=True)
    (folder / file.name).write_bytes(example().tobytes())
    return folder / file.name


def test_a_download_is_removed_when_the_array_has_all_of_it(root, monkeypatch):
    monkeypatch.setattr(preparing, "download", downloaded)
    prepare(source_of(files=(WEB,)))
    np.testing.assert_array_equal(images_of(source_of(files=(WEB,))), example())
    assert not (root / "downloads" / NAME).exists()


def test_a_download_of_the_wrong_file_is_removed_so_that_the_next_attempt_fetches_it_again(root, monkeypatch):
    monkeypatch.setattr(preparing, "download", downloaded)
    with pytest.raises(
        DataError, match="grey; get the right file, then run: disentune data prepare example --from FILE"
    ):
        prepare(source_of(files=(WEB,), binary=True))
    assert not (root / "downloads" / NAME).exists()


def test_a_download_whose_contents_are_not_the_published_ones_stays_until_the_user_decides(root, monkeypatch):
    monkeypatch.setattr(preparing, "download", downloaded)
    other = source_of(files=(WEB,), published=Statistics((0.9,) * 3, (0.1,) * 3))
    with pytest.raises(DataError, match="is not the published data set"):
        prepare(other)
    assert (root / "downloads" / NAME).exists()
    prepare(other, accept=True)
    np.testing.assert_array_equal(images_of(other), example())


def test_again_fetches_again(root, monkeypatch):
    fetched = []

    def download(file, folder, command, say):
        fetched.append((folder / file.name).exists())
        return downloaded(file, folder, command, say)

    monkeypatch.setattr(preparing, "download", download)
    downloaded(WEB, root / "downloads", "", None)
    prepare(source_of(files=(WEB,)), again=True)
    assert fetched == [False]


def test_a_full_disk_keeps_the_download(root, monkeypatch):
    monkeypatch.setattr(preparing, "download", downloaded)
    monkeypatch.setattr(preparing.shutil, "disk_usage", lambda path: namedtuple("Usage", "free")(1))
    with pytest.raises(DataError, match="are free"):
        prepare(source_of(files=(WEB,)))
    assert (root / "downloads" / NAME).exists()


def test_two_variants_of_a_data_set_are_not_prepared_at_once(root):
    """They may be made from the same download."""
    with preparing.locked(source_of(variant="small")), pytest.raises(Timeout):
        FileLock(root / ".example.lock", timeout=0).acquire()


def test_a_file_that_the_user_gives_is_never_removed(root, monkeypatch):
    given = downloaded(WEB, root / "downloads", "", None)
    prepare(source_of(files=(WEB,)), given)
    assert given.exists()
