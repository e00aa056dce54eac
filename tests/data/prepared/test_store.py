"""Prepared arrays are trusted while nothing has touched them, and checked when something has."""

import json
import os
import shutil
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from disentune.data.prepared import store
from disentune.data.prepared.preparing import prepare
from disentune.data.prepared.store import VARIABLE, about_of, folder_of, mapped, prepared_sources, use_root, verify
from disentune.errors import DataError
from disentune.plugin import File, Source
from stored_examples import BITS, COUNT, NAME, example, source_of

MENDS = r"prepare it again with: disentune data prepare example --again"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "root"))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def prepared(root: Path) -> Path:
    """The folder of a prepared example, a moment old: time stamps of files are no finer than some milliseconds."""
    (root / NAME).write_bytes(example().tobytes())
    prepare(source_of())
    time.sleep(0.02)
    return folder_of(source_of())


def checks(source=None) -> list[str]:
    """What is said while a source is opened: nothing when nothing is read."""
    source, said = source or source_of(), []
    about = about_of(source)
    assert about is not None
    mapped(source, about, lambda what, done, total: said.append(f"{what} {done}/{total}"))
    return said


CHECKED_ALL = [f"checking example {COUNT * 60}/{COUNT * 60}"]


@pytest.fixture
def another_process(monkeypatch: pytest.MonkeyPatch):
    """Forgets what this process has checked itself."""
    return lambda: monkeypatch.setattr(store, "_checked", {})


# ---- when an array is read from end to end


def test_what_was_just_prepared_is_trusted(prepared, another_process):
    assert checks() == []
    another_process()
    assert checks() == []


def test_a_touched_file_is_checked_once_for_all(prepared, another_process):
    os.utime(prepared / "images.npy")
    assert checks() == CHECKED_ALL
    assert checks() == []
    another_process()
    assert checks() == []


@pytest.mark.parametrize("record", [None, "", "[]", '{"size": 1}', b"\xff"])
def test_without_a_valid_record_the_file_is_checked(prepared, another_process, record):
    path = prepared / "checked.json"
    path.unlink() if record is None else path.write_bytes(record if isinstance(record, bytes) else record.encode())
    assert checks() == CHECKED_ALL
    another_process()
    assert checks() == []


def altered(path: Path, place: int, undated: bool = False) -> None:
    """One bit of one byte; `undated` sets the time of change back."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(place, os.SEEK_SET if place >= 0 else os.SEEK_END)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ 1]))
    if undated:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.stat().st_mtime_ns == before.st_mtime_ns


@pytest.mark.parametrize("undated", [False, True])
@pytest.mark.parametrize("place", [-1, 128, 500])
def test_an_altered_byte_is_noticed_and_the_file_named(prepared, place, undated):
    altered(prepared / "images.npy", place, undated)
    for _ in range(2):  # what was found wrong is not trusted afterwards
        with pytest.raises(DataError, match=f"{prepared}/images.npy was altered after it was prepared: .*{MENDS}"):
            checks()


def test_an_altered_header_is_noticed(prepared):
    header = about_of(source_of()).header
    altered(prepared / "images.npy", len(header) - 2)  # a space of the padding, so that numpy would still read it
    with pytest.raises(DataError, match=f"images.npy was altered .*{MENDS}"):
        checks()


@pytest.mark.parametrize("change", [-1, -COUNT * 60, 1])
def test_a_file_of_another_length_is_noticed_without_reading_it(prepared, change):
    size = (prepared / "images.npy").stat().st_size
    os.truncate(prepared / "images.npy", size + change)
    with pytest.raises(
        DataError, match=f"{prepared}/images.npy must have {size} bytes, but has {size + change}; {MENDS}"
    ):
        about_of(source_of())


def test_made_again_an_altered_array_is_intact(prepared):
    altered(prepared / "images.npy", -1)
    prepare(source_of(), again=True)
    assert checks() == []
    verify(source_of())


# ---- verify


def test_verify_reads_all_of_it_even_when_it_is_trusted(prepared):
    said = []
    assert verify(source_of(), lambda what, done, total: said.append((done, total))) == about_of(source_of())
    assert said == [(COUNT * 60, COUNT * 60)]


def test_verify_finds_a_change_that_left_no_trace_in_the_time_stamps(prepared):
    altered(prepared / "images.npy", -1)
    (prepared / "checked.json").write_text(json.dumps(store.stamp_of(prepared / "images.npy")))
    assert checks() == []
    with pytest.raises(DataError, match="was altered"):
        verify(source_of())


def test_verify_of_what_is_not_prepared_says_how_to_prepare_it(root):
    with pytest.raises(DataError, match=f"'example' is not prepared in {root}; .*: disentune data prepare example$"):
        verify(source_of())


def test_a_file_larger_than_a_block_is_checked_block_by_block(prepared, monkeypatch):
    monkeypatch.setattr(store, "BLOCK", 100)
    said = []
    verify(source_of(), lambda what, done, total: said.append(done))
    assert said == [60 * row for row in range(1, COUNT + 1)]  # whole images


@pytest.mark.parametrize("part", ["mean", "std"])
@pytest.mark.parametrize("values", [[0.9, 0.9, 0.9], [0.5], [], [0.0, 0.0, 0.0]])
def test_statistics_that_are_not_those_of_the_images_are_noticed(prepared, part, values):
    path = prepared / "about.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {part: values}))
    for look in (checks, partial(verify, source_of())):
        with pytest.raises(DataError, match=rf"{path} was altered: its mean and std .*prepare example --again$"):
            look()


def test_a_forged_hash_is_noticed(prepared):
    path = prepared / "about.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"sha256": "f" * 64}))
    with pytest.raises(DataError, match=r"do not match the hash in about\.json"):
        checks()


# ---- all that lies in a root


def test_what_is_prepared_can_be_told_from_its_folder(prepared, root):
    (told,) = prepared_sources().values()
    assert isinstance(told, Source)
    assert verify(told).sha256 == verify(source_of()).sha256
    assert told.command == source_of().command


def test_a_copy_in_another_folder_is_not_taken_for_the_original(prepared, root):
    shutil.copytree(prepared, root / "backup")
    told = prepared_sources()
    assert isinstance(told["example"], Source)
    assert "backup was moved after its array was prepared" in str(told["backup"])


@pytest.mark.parametrize("forged", [{"name": "../outside/x"}, {"options": "; rm -rf ~ #"}, {"options": "'"}])
def test_nothing_in_about_json_leads_out_of_the_root_or_into_a_command(prepared, forged):
    path = prepared / "about.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | forged))
    assert isinstance(prepared_sources()["example"], DataError)


def test_an_unreadable_about_json_is_reported(prepared):
    (prepared / "about.json").write_text("{")
    assert "is missing or damaged" in str(prepared_sources()["example"])
    (prepared / "about.json").unlink()
    assert "is missing or damaged" in str(prepared_sources()["example"])


# ---- what is known of an array


def test_what_was_never_prepared_is_not_known(root):
    assert about_of(source_of()) is None


@pytest.mark.parametrize("name", ["about.json", "images.npy"])
def test_a_missing_file_is_named(prepared, name):
    (prepared / name).unlink()
    with pytest.raises(DataError, match=f"{prepared}/{name} is missing; {MENDS}"):
        about_of(source_of())


@pytest.mark.parametrize("text", [b"", b"{", b"null", b"\xff\xfe", b'{"format": 1}', b"[1, 2]"])
def test_a_garbled_about_json_is_named(prepared, text):
    (prepared / "about.json").write_bytes(text)
    with pytest.raises(DataError, match=f"{prepared}/about.json is damaged; {MENDS}"):
        about_of(source_of())


def test_an_unknown_key_in_about_json_is_refused(prepared):
    known = json.loads((prepared / "about.json").read_text())
    (prepared / "about.json").write_text(json.dumps(known | {"colour": "blue"}))
    with pytest.raises(DataError, match="is damaged"):
        about_of(source_of())


@pytest.mark.parametrize("changes", [{"count": 6}, {"shape": [3, 5, 4]}, {"format": 2}, {"binary": True}])
def test_an_array_of_something_else_is_refused(prepared, changes):
    known = json.loads((prepared / "about.json").read_text())
    (prepared / "about.json").write_text(json.dumps(known | changes))
    with pytest.raises(
        DataError, match=rf"{prepared}/about.json describes .* but .* has 12 of shape \(3, 4, 5\); {MENDS}"
    ):
        about_of(source_of())


def test_two_sources_under_one_name_do_not_get_each_others_images(prepared):
    for other in (source_of(BITS), source_of(count=11), source_of(binary=True)):
        with pytest.raises(DataError, match=MENDS):
            about_of(other)


def test_a_place_that_holds_no_folder_is_named(root):
    (root / "example").write_text("a file")
    with pytest.raises(DataError, match=rf"{root}/example/about.json cannot be read \(Not a directory\)"):
        about_of(source_of())


def test_a_users_own_file_that_changed_since_is_noticed(root, prepared):
    (root / NAME).write_bytes(example(seed=1).tobytes())
    with pytest.raises(DataError, match=f"{root / NAME} has changed since it was prepared; {MENDS}"):
        about_of(source_of())


def test_a_users_own_file_may_be_removed_when_it_is_prepared(root, prepared):
    (root / NAME).unlink()
    assert checks() == []


def test_a_public_file_in_the_root_may_change(root, prepared):
    (root / NAME).write_bytes(example(seed=1).tobytes())
    assert about_of(replace(source_of(), files=(File(NAME, urls=("https://example.org/",)),))) is not None


# ---- reading


def test_images_come_in_the_requested_order_and_own_their_memory(prepared):
    opened = mapped(source_of(), about_of(source_of()))
    picked = opened.images(np.array([7, 0, 7, 11]))
    np.testing.assert_array_equal(picked, example()[[7, 0, 7, 11]])
    picked[:] = 0
    np.testing.assert_array_equal(opened.images(np.arange(COUNT)), example())
    assert opened.images(np.array([], int)).shape == (0, 3, 4, 5)


def test_the_array_is_mapped_and_cannot_be_written(prepared):
    rows = mapped(source_of(), about_of(source_of())).rows
    assert isinstance(rows.base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1


# ---- the root


def test_without_a_root_the_ways_to_say_it_are_named(monkeypatch):
    for value in (None, ""):
        monkeypatch.delenv(VARIABLE) if value is None else monkeypatch.setenv(VARIABLE, value)
        with pytest.raises(
            DataError,
            match=r"export DISENTUNE_DATA=.*`data: \{root: .*\}` in the sweep, or for `disentune data` with --root",
        ):
            store.root()


def test_a_root_is_the_same_from_every_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(VARIABLE, "~/some data")
    assert store.root() == tmp_path / "some data"
    for relative in ("data", "./data", "~nobody-of-this-name/data"):
        monkeypatch.setenv(VARIABLE, relative)
        with pytest.raises(
            DataError, match=f"DISENTUNE_DATA must be an absolute path or start with ~, but is '{relative}'"
        ):
            store.root()


def test_the_environments_root_wins_unless_overridden(monkeypatch, tmp_path):
    monkeypatch.setenv(VARIABLE, "/from/the/environment")
    use_root("/from/the/sweep")
    assert store.root() == Path("/from/the/environment")
    use_root(None, override=True)
    assert store.root() == Path("/from/the/environment")
    use_root("/from/the/command", override=True)
    assert store.root() == Path("/from/the/command")
    monkeypatch.delenv(VARIABLE)
    use_root(Path("/from/the/sweep"))
    assert store.root() == Path("/from/the/sweep")


def test_a_root_given_from_here_stays_when_the_process_goes_elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    use_root("here", override=True)
    monkeypatch.chdir("/")
    assert store.root() == tmp_path / "here"


@pytest.mark.parametrize("name", ["with space", "größe 数据", "a/b/c", "%s {x} [y]*"])
def test_a_root_may_have_any_name_and_is_made(monkeypatch, root, tmp_path, name):
    (root / NAME).write_bytes(example().tobytes())
    monkeypatch.setenv(VARIABLE, str(tmp_path / name))
    for again in (False, True):
        prepare(source_of(), root / NAME, again)
    np.testing.assert_array_equal(np.load(tmp_path / name / "example" / "images.npy"), example().reshape(COUNT, -1))
    assert {path.name for path in (tmp_path / name).iterdir()} == {"example", ".example.lock"}


def test_root_and_folder_may_be_links(monkeypatch, prepared, root, tmp_path):
    prepared.rename(tmp_path / "large disk")
    (root / "example").symlink_to(tmp_path / "large disk")
    (tmp_path / "link").symlink_to(root)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "link"))
    assert checks() == []
    prepare(source_of(), again=True)
    assert checks() == []
    assert (tmp_path / "large disk" / "images.npy").exists()


@pytest.mark.parametrize("below", ["", "below"])
def test_a_root_that_cannot_be_made_is_named(monkeypatch, tmp_path, below):
    (tmp_path / "file").touch()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "file" / below))
    assert about_of(source_of()) is None
    with pytest.raises(DataError, match=rf"{tmp_path}/file.* cannot be written \(.*permission to run: disentune"):
        prepare(source_of())


class Refused:
    """A lock in a root that only others may write."""

    def __init__(self, path, **options):
        pass

    def acquire(self):
        raise PermissionError(13, "Permission denied")


def test_a_root_that_only_others_may_write_is_read_without_writing(monkeypatch, prepared, another_process):
    monkeypatch.setattr(store, "FileLock", Refused)

    def refused(path, text):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(store, "write_atomically", refused)
    assert checks() == []
    os.utime(prepared / "images.npy")
    for _ in range(2):
        assert checks() == CHECKED_ALL
        assert checks() == []  # this process remembers
        another_process()
    with pytest.raises(
        DataError, match=r"cannot be written \(Permission denied\), so 'example' cannot be prepared there"
    ):
        prepare(source_of(), again=True)
