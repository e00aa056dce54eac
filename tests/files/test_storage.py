"""Folders and object stores behind one face. The real S3 client talks to a server on loopback."""

import errno
import os
import pickle
import random
from pathlib import Path
from types import SimpleNamespace

import pytest

from disentune.errors import ConfigError, Unavailable
from disentune.files import storage
from disentune.files.storage import RemotePath, Stat, assert_reachable, assert_writable, place, retried, viewed


@pytest.fixture
def quick(monkeypatch):
    """Waits take no time; gives what they were."""
    waits = []
    monkeypatch.setattr(storage.time, "sleep", waits.append)
    return waits


# ---- names


@pytest.mark.parametrize("text", ["runs", "/shared/runs", "./a:b", "C:/runs"])
def test_what_is_not_an_address_is_a_folder(text):
    assert place(text) == Path(text)
    assert isinstance(place(text), Path)


def test_a_place_stays_what_it_is():
    remote, local = RemotePath("s3", "bucket/runs"), Path("runs")
    assert place(remote) is remote
    assert place(local) == local


@pytest.mark.parametrize(
    "text", ["s3://bucket/runs", "s3://bucket/runs/", "S3://bucket//runs", Path("s3://bucket/runs")]
)
def test_an_address_is_written_in_one_way(text):
    assert str(place(text)) == "s3://bucket/runs"


def test_an_address_has_the_names_of_a_path():
    path = place("gs://bucket/runs/sweep/main") / "trials/ab" / "step-0000000010.ckpt"
    assert str(path) == "gs://bucket/runs/sweep/main/trials/ab/step-0000000010.ckpt"
    assert (path.name, path.stem, path.suffix) == ("step-0000000010.ckpt", "step-0000000010", ".ckpt")
    assert str(path.parent.parent) == "gs://bucket/runs/sweep/main/trials"
    assert path.with_suffix(".damaged").name == "step-0000000010.damaged"
    assert path.with_name("x").parent == path.parent
    assert path.parts[-2:] == ("ab", "step-0000000010.ckpt")
    assert str(path.relative_to(place("gs://bucket/runs"))) == "sweep/main/trials/ab/step-0000000010.ckpt"


def test_a_bucket_is_its_own_parent():
    assert place("s3://bucket").parent == place("s3://bucket")


def test_an_address_can_be_a_key_and_travel():
    path = place("s3://bucket/runs")
    assert {path: 1}[place("s3://bucket/runs")] == 1
    assert pickle.loads(pickle.dumps(path)) == path
    assert sorted([path / "b", path / "a"]) == [path / "a", path / "b"]


@pytest.mark.parametrize("text", ["s3://id:password@bucket/runs", "s3://bucket/runs?secret_key=password",
                                  "ftp://me:password@host/x", "s3://bucket/#password"])  # fmt: skip
def test_an_address_with_secrets_is_refused_without_repeating_them(text):
    with pytest.raises(ConfigError, match="must not contain keys") as error:
        place(text)
    assert "password" not in str(error.value).replace("keys, passwords or options", "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "http://host/runs",
            "http:// is not supported; must be a folder that every worker sees, s3://BUCKET/FOLDER or",
        ),
        ("s3a://bucket/runs", "s3a:// is not supported"),
        ("s3://", "must name a bucket: s3://BUCKET/FOLDER"),
        ("gs:///", "must name a bucket"),
        ("s3://bucket/../c", "must not have"),
    ],
)
def test_what_can_be_no_place_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        place(text)


# ---- objects


def test_what_is_written_is_read(object_store):
    path = place("s3://bucket/runs") / "a.json"
    path.write_bytes(b"one")
    path.write_bytes(b"two!")
    assert path.read_bytes() == b"two!"
    assert path.read_text() == "two!"
    assert object_store["runs/a.json"] == b"two!"
    assert path.stat().st_size == 4


def test_a_large_object_is_read_as_it_was_written(object_store):
    data = os.urandom(11 << 20)  # sent in parts
    (place("s3://bucket") / "large").write_bytes(data)
    assert (place("s3://bucket") / "large").read_bytes() == data


def test_objects_and_folders_are_distinguished(object_store):
    root = place("s3://bucket/runs")
    (root / "a" / "b").write_bytes(b"")
    assert (root / "a").is_dir()
    assert not (root / "a").is_file()
    assert (root / "a" / "b").is_file()
    assert not (root / "a" / "b").is_dir()
    assert not (root / "a" / "b" / "c").exists()
    assert not (root / "").parent.is_file()


def test_names_that_begin_alike_are_not_below_each_other(object_store):
    root = place("s3://bucket/runs")
    (root / "sweep-2" / "x").write_bytes(b"")
    assert not (root / "sweep").exists()
    assert list((root / "sweep").iterdir()) == []
    assert viewed(root / "sweep").view.files == {}


def test_an_object_beside_a_folder_of_the_same_name_is_an_object(object_store):
    root = place("s3://bucket")
    (root / "a").write_bytes(b"1")
    (root / "a" / "b").write_bytes(b"2")
    assert (root / "a").is_file()
    assert not (root / "a").is_dir()
    assert (root / "a").read_bytes() == b"1"


@pytest.mark.slow
def test_a_folder_lists_what_is_in_it_and_no_deeper(object_store):
    root = place("s3://bucket/runs")
    for name in ("b/1", "a/2", "a/3", "c"):
        (root / name).write_bytes(b"")
    assert sorted(path.name for path in root.iterdir()) == ["a", "b", "c"]
    assert sorted(str(path.relative_to(root)) for path in root.glob("*/*")) == ["a/2", "a/3", "b/1"]
    assert [str(path.relative_to(root)) for path in root.glob("*/1")] == ["b/1"]
    assert [path.name for path in root.glob("c")] == ["c"]
    assert list(root.glob("*/4")) == []


@pytest.mark.slow
def test_more_objects_than_a_page_are_all_listed(object_store, monkeypatch):
    monkeypatch.setattr("object_store.PAGE", 7)
    root = place("s3://bucket/runs")
    for number in range(23):
        (root / f"{number:03d}" / "x").write_bytes(b"")
    assert len(list(root.iterdir())) == 23
    assert len(viewed(root).view.files) == 23


def test_what_is_not_there_is_a_missing_file(object_store):
    path = place("s3://bucket/none")
    for act in (path.read_bytes, path.stat, path.unlink):
        with pytest.raises(FileNotFoundError, match="s3://bucket/none"):
            act()
    path.unlink(missing_ok=True)
    assert not path.exists()


def test_a_folder_whose_last_object_went_is_empty_and_can_go(object_store):
    folder = place("s3://bucket/runs/a")
    (folder / "x").write_bytes(b"")
    with pytest.raises(OSError, match="not empty"):
        folder.rmdir()
    (folder / "x").unlink()
    assert list(folder.iterdir()) == []
    folder.rmdir()
    assert not folder.exists()


def test_an_object_can_be_moved_and_touched(object_store):
    root = place("s3://bucket")
    (root / "a").write_bytes(b"1")
    (root / "a").replace(root / "b")
    (root / "b").touch()
    (root / "c").touch()
    assert not (root / "a").exists()
    assert (root / "b").read_bytes() == b"1"
    assert (root / "c").read_bytes() == b""


def test_an_object_that_is_replaced_by_a_longer_one_while_it_is_read_is_never_cut(object_store, monkeypatch):
    path = place("s3://bucket/a")
    path.write_bytes(b"old")
    client = path._store

    class Replacing:
        """After the size was asked for, and before the content is."""

        def __getattr__(self, name):
            return getattr(client, name)

        def open_input_file(self, key):
            file = client.open_input_file(key)
            if object_store["a"] == b"old":
                path_of_writer.write_bytes(b"new and longer")
            return file

    path_of_writer = RemotePath("s3", "bucket/a")
    real = storage._store
    monkeypatch.setattr(RemotePath, "_store", property(lambda self: client if self is path_of_writer else Replacing()))
    assert path.read_bytes() == b"new and longer"
    assert real is storage._store


# ---- many at once


@pytest.mark.slow
def test_a_view_answers_from_one_listing_and_one_fetch_of_each(object_store):
    root = place("s3://bucket/runs")
    for number in range(30):
        (root / f"{number:02d}" / "status.json").write_bytes(str(number).encode())
        (root / f"{number:02d}" / "big").write_bytes(b"not asked for")
    object_store.requests.clear()
    seen = viewed(root, ["status.json"])
    first = len(object_store.requests)
    names = sorted(path.name for path in seen.iterdir() if path.is_dir())
    contents = [(seen / name / "status.json").read_bytes() for name in names]
    assert contents == [str(number).encode() for number in range(30)]
    assert (seen / "07" / "big").is_file()
    assert not (seen / "07" / "none").exists()
    assert (seen / "07" / "big").stat().st_size == 13
    assert len(object_store.requests) == first
    assert sum("list-type" in request for request in object_store.requests) == 1
    assert not any("big" in request for request in object_store.requests)


def test_a_view_reads_what_it_has_not_fetched_and_knows_no_more_outside_its_folder(object_store):
    root = place("s3://bucket/runs")
    (root / "a").write_bytes(b"1")
    seen = viewed(root)
    (root / "later").write_bytes(b"2")
    assert (seen / "a").read_bytes() == b"1"
    assert not (seen / "later").exists()
    assert seen.parent.view is None
    assert (seen.parent / "runs" / "later").exists()
    assert pickle.loads(pickle.dumps(seen)).view is None


def test_a_local_folder_is_its_own_view(tmp_path):
    assert viewed(tmp_path, ["status.json"]) is tmp_path


# ---- hiccups


@pytest.mark.parametrize(
    "number", [errno.EIO, errno.ESTALE, errno.EAGAIN, errno.ETIMEDOUT, errno.EBUSY, errno.ENETDOWN]
)
def test_a_hiccup_is_tried_again(quick, number):
    failures = [OSError(number, "hiccup")] * 4

    @retried
    def act():
        if failures:
            raise failures.pop()
        return "done"

    assert act() == "done"
    assert len(quick) == 4
    assert quick[3] > quick[0]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT, errno.ENOENT])
def test_what_is_no_hiccup_is_raised_at_once(quick, number):
    @retried
    def act():
        raise OSError(number, "no")

    with pytest.raises(OSError, match="no"):
        act()
    assert quick == []


def test_a_full_or_read_only_storage_says_what_to_do():
    assert "free some space" in storage.advice(OSError(errno.ENOSPC, "full"))
    assert "for writing" in storage.advice(OSError(errno.EROFS, "read-only"))
    assert storage.advice(OSError(errno.ENOENT, "none")) == ""


@pytest.mark.parametrize(
    ("files", "free_files", "free_blocks", "said"),
    [(100, 0, 5, "cannot hold more files"), (100, 0, 0, "free some space"), (100, 9, 5, "free some space"),
     (0, 0, 5, "free some space")],
    ids=["no inodes", "no space and no inodes", "a quota", "inodes without a limit"],
)  # fmt: skip
def test_a_disk_without_free_inodes_is_told_from_a_full_one(
    monkeypatch, tmp_path, files, free_files, free_blocks, said
):
    asked = []
    numbers = SimpleNamespace(f_files=files, f_favail=free_files, f_bavail=free_blocks)
    monkeypatch.setattr(storage.os, "statvfs", lambda folder: (asked.append(folder), numbers)[1])
    error = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "missing" / "missing" / "file"))
    assert said in storage.advice(error)
    assert asked == [tmp_path]


@pytest.mark.parametrize("name", [None, 3, "s3://bucket/runs/x"])
def test_a_full_disk_of_an_unknown_place_gets_the_usual_advice(name):
    assert "free some space" in storage.advice(OSError(errno.ENOSPC, "No space left on device", name))


def test_patience_ends(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(storage.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(storage.time, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))

    @retried
    def act():
        raise OSError(errno.EIO, "for good")

    with pytest.raises(OSError, match="for good"):
        act()
    assert storage.PATIENCE_S / 2 < now[0] <= storage.PATIENCE_S


def test_trying_again_draws_nothing_from_the_random_numbers_of_training(quick):
    failures = [OSError(errno.EIO, "hiccup")] * 3

    @retried
    def act():
        if failures:
            raise failures.pop()

    random.seed(0)
    before = random.getstate()
    act()
    assert random.getstate() == before


@pytest.mark.slow
@pytest.mark.parametrize(
    "faults", [[503, 500] * 2, pytest.param(["drop"] * 4, marks=pytest.mark.long)]
)  # the client by itself tries three times
def test_a_store_that_stumbles_for_a_while_loses_nothing(object_store, quick, faults):
    path = place("s3://bucket/a")
    object_store.faults = list(faults)
    path.write_bytes(b"kept")
    object_store.faults = list(faults)
    assert path.read_bytes() == b"kept"
    assert quick


# ---- what a user is told


def test_a_missing_bucket_is_named(object_store):
    with pytest.raises(ConfigError, match="s3://nobody/runs: bucket 'nobody' does not exist"):
        assert_reachable(place("s3://nobody/runs"))


def test_wrong_credentials_are_named_and_not_repeated(object_store, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "someone-else")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush")
    storage._store.cache_clear()
    with pytest.raises(ConfigError, match="credentials are not valid") as error:
        assert_reachable(place("s3://bucket/runs"))
    assert "hush" not in str(error.value)
    storage._store.cache_clear()


def test_without_credentials_it_says_how_to_give_them(object_store, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    storage._store.cache_clear()
    with pytest.raises(ConfigError, match=r"no credentials are set on this machine .*AWS_PROFILE"):
        assert_reachable(place("s3://bucket/runs"))
    storage._store.cache_clear()


def test_a_store_that_refuses_to_write_is_met_before_anything_is_spent(object_store):
    object_store.refused = "PUT"
    with pytest.raises(ConfigError, match="s3://bucket/runs cannot be written: access denied"):
        assert_writable(place("s3://bucket/runs"))
    assert object_store.names == []


def test_a_store_that_can_be_written_is_left_empty(object_store):
    assert_writable(place("s3://bucket/runs"))
    assert list(place("s3://bucket/runs").iterdir()) == []


@pytest.mark.slow
def test_a_store_that_nothing_answers_for_is_known_without_long_patience(monkeypatch, quick):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    with pytest.raises(ConfigError, match=r"http://127.0.0.1:9 cannot be reached"):
        assert_reachable(place("s3://bucket/runs"))
    assert quick == []


def test_the_endpoint_for_s3_alone_comes_first(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://general")
    assert storage.endpoint_of("s3") == "http://general"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://special")
    assert storage.endpoint_of("s3") == "http://special"


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("Permanent error, with a last message of PERMISSION_DENIED: no access", errno.EACCES),
        ("google::cloud::Status(UNAUTHENTICATED: Could not find credentials)", errno.EACCES),
        ("When reading information for key 'x' in bucket 'b': AWS Error ACCESS_DENIED during HeadObject", errno.EACCES),
        ("AWS Error SLOW_DOWN during PutObject operation: Reduce your request rate", errno.EIO),
        (
            "AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28, Timeout was reached",
            errno.ENETUNREACH,
        ),
        ("AWS Error NO_SUCH_BUCKET during PutObject operation: The specified bucket does not exist", errno.ENXIO),
    ],
)
def test_a_clients_words_become_the_number_that_a_disk_would_give(text, number):
    for scheme in ("s3", "gs"):
        assert storage._translation(text, RemotePath(scheme, "b/x")).errno == number


def test_the_client_of_google_is_made_without_asking_anybody(monkeypatch):
    """All that can be tested of it without a network."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "127.0.0.1:9")
    client = place("gs://bucket/runs")._store
    assert type(client).__name__ == "GcsFileSystem"
    assert place("gs://bucket/runs")._store is client


def test_a_local_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot be written: Not a directory; choose another --storage"):
        assert_writable(tmp_path / "file" / "runs")


# ---- beside a store


def test_scratch_is_one_private_folder_for_each_run(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    one = storage.scratch(place("s3://bucket/runs/a/main"))
    assert one == storage.scratch(place("s3://bucket/runs/a/main"))
    assert one != storage.scratch(place("s3://bucket/runs/b/main"))
    assert one.is_relative_to(tmp_path)
    assert one.stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_a_password_in_the_endpoint_is_not_repeated(object_store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://me:hush@127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1 cannot be reached") as caught:
        assert_reachable(place("s3://bucket/runs"))
    assert "hush" not in str(caught.value)


def test_a_store_that_tells_no_time_is_asked_again(object_store, monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    assert storage.clock_offset("s3") is None
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", object_store.url)
    assert storage.clock_offset("s3") is not None


def test_the_stores_clock_is_asked_for(object_store):
    assert abs(storage.clock_offset("s3")) < 5
    storage._clock_offsets.clear()
    object_store.ahead_s = 600.0
    assert 595 < storage.clock_offset("s3") < 605


def test_a_time_is_in_seconds():
    assert Stat(1, 1_500_000_000).st_mtime == 1.5


# ---- what is no file of ours


def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(tmp_path):
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(OSError, match="not a file but a pipe"):
        storage.read_bytes(tmp_path / "rows.jsonl")


def test_a_device_in_the_place_of_a_file_is_refused_at_once():
    with pytest.raises(OSError, match="not a file but a pipe, a socket or a device"):
        storage.read_bytes(Path("/dev/zero"))


def test_a_folder_in_the_place_of_a_file_is_called_one(tmp_path):
    with pytest.raises(IsADirectoryError):
        storage.read_bytes(tmp_path)


def test_a_file_too_large_to_be_ours_is_refused_before_it_is_read(tmp_path):
    with open(tmp_path / "rows.jsonl", "wb") as file:
        file.truncate(30 * 10**9)  # takes no disk
    with pytest.raises(OSError, match="larger than 1 GB, so it is not a file of a run"):
        storage.read_bytes(tmp_path / "rows.jsonl")
