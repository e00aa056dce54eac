"""A run as one file: whole on the other side, and nothing that a stranger could put into the file does harm."""

import hashlib
import io
import json
import os
import tarfile

import pyarrow as pa
import pytest

from disentune.errors import ConfigError
from disentune.files.storage import place
from disentune.results import tables
from disentune.runs import archive
from disentune.runs.archive import LIST, pack, unpack
from disentune.runs.ledger import Run


@pytest.fixture
def maker(make_run):
    made = make_run()
    for seed in range(2):
        trial = made.run.trial(made.trial([{"step": 1500, "mig": 0.1 * seed}], seed=seed))
        trial.checkpoints.folder.mkdir()
        trial.checkpoints.path(1500).write_bytes(bytes([seed]) * 5000)
    return made


@pytest.fixture
def target(tmp_path):
    return tmp_path / "run.tar.zst"


def contents(run):
    files = [path for path in run.path.rglob("*") if path.is_file()]
    return {str(path.relative_to(run.path)): path.read_bytes() for path in files}


def test_a_restored_run_has_every_file_and_the_same_results(maker, target, tmp_path):
    packed = pack(maker.run, target)
    found = unpack(target, tmp_path / "elsewhere")
    assert found.run.path == tmp_path / "elsewhere" / "demo" / "main"
    assert contents(found.run) == contents(maker.run)
    assert (found.files, found.size) == (packed.files, packed.size)
    assert tables.as_json(tables.read(found.run)) == tables.as_json(tables.read(maker.run))
    ages = [(run.trials()[0].status_path.stat().st_mtime) for run in (maker.run, found.run)]
    assert int(ages[0]) == ages[1]


def test_locks_requests_temporary_files_and_links_are_left_out(maker, target, tmp_path):
    with maker.run.locked():
        pass
    maker.run.ask_to_stop("x")
    (maker.run.path / ".sweep.yaml.aside").write_text("x")
    os.symlink(tmp_path, maker.run.path / "link")
    pack(maker.run, target)
    names = contents(unpack(target, tmp_path / "elsewhere").run)
    assert not {"driver.lock", "stop", ".sweep.yaml.aside", "link"} & names.keys()


def test_common_tools_can_read_an_archive(maker, target):
    pack(maker.run, target)
    with tarfile.open(fileobj=io.BytesIO(plain(target))) as file:
        members = {one.name: file.extractfile(one).read() for one in file}
    listed = json.loads(members.pop(LIST))["files"]
    assert {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in members.items()} == {
        name: (size, digest) for name, size, digest in listed
    }


@pytest.mark.slow
def test_a_run_moves_into_object_storage_and_back(maker, target, tmp_path, object_store):
    pack(maker.run, target)
    far = unpack(target, place("s3://bucket/runs")).run
    pack(far, tmp_path / "again.tar.zst")
    back = unpack(tmp_path / "again.tar.zst", tmp_path / "back").run
    assert contents(back) == contents(maker.run)
    with pytest.raises(ConfigError, match="s3://bucket/runs/demo/main exists already"):
        unpack(target, place("s3://bucket/runs"))


def test_a_running_run_an_existing_file_and_a_file_in_the_run_are_refused(maker, target):
    with maker.run.locked(), pytest.raises(ConfigError, match="is being run; stop it first with: disentune stop"):
        pack(maker.run, target)
    target.write_text("mine")
    with pytest.raises(ConfigError, match="exists already"):
        pack(maker.run, target)
    assert target.read_text() == "mine"
    with pytest.raises(ConfigError, match="is inside the run"):
        pack(maker.run, maker.run.path / "x.tar.zst")
    with pytest.raises(ConfigError, match=r"must end in \.tar\.zst"):
        pack(maker.run, target.with_name("run.zip"))


@pytest.mark.parametrize("change", ["content", "new", "gone"])
def test_a_run_that_changes_meanwhile_leaves_no_archive(maker, target, change):
    rows = maker.run.trials()[0].rows_path

    def say(what, done, total):
        if what == "writing the archive" and done == 0:
            if change == "gone":
                rows.unlink()
            else:
                (rows if change == "content" else rows.with_name("new")).write_bytes(b"{}\n")

    with pytest.raises(ConfigError, match="changed while it was archived"):
        pack(maker.run, target, say)
    assert not [path for path in target.parent.iterdir() if "zst" in path.name]


def test_an_existing_run_is_not_touched(maker, target):
    pack(maker.run, target)
    before = contents(maker.run)
    with pytest.raises(ConfigError, match="exists already; move it away"):
        unpack(target, maker.run.path.parent.parent)
    assert contents(maker.run) == before


# ---- archives that others made


def plain(path):
    with open(path, "rb") as raw, pa.CompressedInputStream(raw, "zstd") as stream:
        return stream.read()


def member(name, data=b"", size=None, type=tarfile.REGTYPE, link=""):
    info = tarfile.TarInfo(name)
    info.size, info.type, info.linkname = len(data) if size is None else size, type, link
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % 512)


def made(target, those, members=None, run="demo/main", **changes):
    """An archive with this list and these members; by default those of the list."""
    entries = [[name, len(data), hashlib.sha256(data).hexdigest()] for name, data in those]
    about = json.dumps({"format": 1, "run": run, "files": entries} | changes).encode()
    members = [member(name, data) for name, data in those] if members is None else members
    with open(target, "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as sink:
        sink.write(member(LIST, about) + b"".join(members) + bytes(1024))
    return target


GOOD = ("sweep.yaml", b"trial: {}\n")


def refused(target, tmp_path, match):
    storage = tmp_path / "storage"
    with pytest.raises(ConfigError, match=match):
        unpack(target, storage)
    assert list(storage.rglob("*")) == []
    assert not (tmp_path / "victim").exists()


def test_an_archive_made_by_hand_is_restored(target, tmp_path):
    found = unpack(made(target, [GOOD, ("trials/x", b"1")]), tmp_path / "storage")
    assert contents(found.run) == {"sweep.yaml": b"trial: {}\n", "trials/x": b"1"}


@pytest.mark.parametrize(
    "name",
    ["../victim", "../../../victim", "/tmp/victim", "a/../../victim", "./x", "a//b", "", "a\\b", "a\x00b", "a\nb",
     "x" * 241, "a/" * 10 + "b", "driver.lock", "stop", ".hidden", "incoming/x"],
)  # fmt: skip
def test_a_name_that_leaves_the_run_or_does_not_belong_in_it_is_refused(target, tmp_path, name):
    refused(made(target, sorted([GOOD, (name, b"x")]), [member(*GOOD)]), tmp_path, "is not a file of a run")


@pytest.mark.parametrize("run", ["..", "../x", "a/b/c", "/a/b", "demo/..", "demo", "", 5, None, "demo/.x", "de mo/x"])
def test_a_name_that_no_run_can_have_is_refused(target, tmp_path, run):
    refused(made(target, [GOOD], run=run), tmp_path, "is not the name of a run")


KINDS = [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.GNUTYPE_LONGNAME,
         tarfile.GNUTYPE_SPARSE, tarfile.XHDTYPE]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_links_folders_and_devices_are_refused(target, tmp_path, kind):
    strange = member("trials/x", type=kind, link="../../victim")
    refused(made(target, [GOOD, ("trials/x", b"")], [member(*GOOD), strange]), tmp_path, "only files are allowed")


@pytest.mark.parametrize("size", [-1, 10**12, True, 1.5, "5", None])
def test_absurd_sizes_are_refused_before_anything_is_written(target, tmp_path, size):
    files = [["sweep.yaml", 1, "0"], ["trials/x", size, "0"]]
    refused(made(target, [], files=files), tmp_path, "cannot have .* bytes")


@pytest.mark.slow
def test_more_than_the_disk_holds_is_refused_before_anything_is_written(target, tmp_path):
    files = [["sweep.yaml", 1, "0"], *([f"x{number:08d}", 10**10, "0"] for number in range(10**5))]
    refused(made(target, [], files=files), tmp_path, "free; choose another --storage")


def test_a_member_of_another_size_name_or_content_is_refused(target, tmp_path):
    listed = [GOOD, ("x", b"right")]
    for wrong, why in ((("x", b"wrong"), "the content of x has changed"), (("x", b"longer"), "is in the place of x"),
                       (("y", b"right"), "is in the place of x")):  # fmt: skip
        refused(made(target, listed, [member(*GOOD), member(*wrong)]), tmp_path, why)


def test_more_files_than_the_list_has_and_doubles_are_refused(target, tmp_path):
    refused(made(target, [GOOD], [member(*GOOD), member("x")]), tmp_path, "more files than it lists")
    refused(made(target, [GOOD, GOOD]), tmp_path, "listed twice")
    refused(made(target, [GOOD, ("x", b""), ("x/y", b"")]), tmp_path, "listed twice")
    refused(made(target, [("x", b"")]), tmp_path, r"no sweep\.yaml")


@pytest.mark.parametrize("changes", [{"format": 2}, {"files": 5}, {"files": [[1]]}, {"files": None}])
def test_a_list_of_another_form_is_refused(target, tmp_path, changes):
    refused(made(target, [GOOD], **changes), tmp_path, "reads format 1" if "format" in changes else "is damaged")


@pytest.mark.parametrize("data", [b"", b"no archive", b"\x28\xb5\x2f\xfd" + b"x" * 100])
def test_a_file_that_is_no_archive_is_refused(target, tmp_path, data):
    target.write_bytes(data)
    refused(target, tmp_path, "cannot be restored")


def test_an_archive_that_is_cut_off_is_refused(maker, target, tmp_path):
    pack(maker.run, target)
    whole = target.read_bytes()
    for share in (0.1, 0.5, 0.9):
        target.write_bytes(whole[: int(share * len(whole))])
        refused(target, tmp_path, "cannot be restored")


def test_a_tar_file_of_another_tool_is_refused(target, tmp_path):
    with open(target, "wb") as raw, pa.CompressedOutputStream(raw, "zstd") as sink:
        sink.write(member("hello", b"x") + bytes(1024))
    refused(target, tmp_path, "must begin with disentune-archive.json")


def test_a_large_list_is_refused_without_reading_it(target, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "LARGEST_LIST", 10)
    refused(made(target, [GOOD]), tmp_path, "must begin with disentune-archive.json")


def test_what_is_restored_is_a_run_only_once_it_is_whole(maker, target, tmp_path):
    pack(maker.run, target)
    seen = []

    def say(what, done, total):
        seen.append(Run(tmp_path / "elsewhere" / "demo" / "main").exists())

    unpack(target, tmp_path / "elsewhere", say)
    assert seen
    assert not any(seen)
