"""The run folder survives what befalls disks and processes, and says what it cannot read."""

import ast
import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from disentune.errors import ConfigError
from disentune.files import documents, lease
from disentune.files.storage import assert_writable, place, read_bytes
from disentune.runs import ledger
from disentune.runs.ledger import Run, find_run
from disentune.runs.trial_folder import Status, TrialFolder
from disentune.spec.config import TrialConfig, id_of
from disentune.spec.sweepfile import read_sweep

TREE = {
    "dataset": {"name": "xysquares"},
    "model": {"name": "mlp", "latents": 4},
    "framework": {"name": "beta_vae", "beta": 1},
    "recon": {"name": "mse"},
    "training": {"steps": 10, "batch_size": 8, "learning_rate": 1e-3},
    "loss_scale": "mean",
}
CONFIG = TrialConfig.parse(TREE | {"seed": 0})


@pytest.fixture
def folder(tmp_path) -> TrialFolder:
    trial = Run(tmp_path / "demo" / "main").trial(CONFIG.id)
    trial.create(CONFIG, ("a",))
    return trial


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path / "runs" / "demo" / "main")


def sweep_file(folder: Path, **keys):
    path = folder / "demo.yaml"
    with open(path, "w") as file:
        documents.dump({"trial": TREE, **keys}, file)
    return read_sweep(path)


def row(step, **metrics):
    return {"step": step, "metrics": metrics}


# ---- folders


@pytest.fixture
def unsynced(monkeypatch):
    """Folders that were made and whose parent was not synced since: a machine that dies now may lose them."""
    made = set()
    real_mkdir, real_fsync = os.mkdir, os.fsync

    def mkdir(path, *options, **more):
        real_mkdir(path, *options, **more)
        made.add(Path(path).resolve())

    def fsync(handle):
        real_fsync(handle)
        synced = Path(os.readlink(f"/proc/self/fd/{handle}"))
        made.difference_update({path for path in made if path.parent == synced})

    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(os, "fsync", fsync)
    return made


def test_every_new_folder_is_synced_into_the_one_above_it(tmp_path, unsynced):
    run = Run(tmp_path / "a" / "b" / "runs" / "demo" / "main")
    with run.locked():
        assert unsynced == set()
        trial = run.trial(CONFIG.id)
        trial.create(CONFIG, ("a",))
        assert unsynced == set()
        trial.checkpoints.save(1, {})
        other = run.trial("0" * 16).checkpoints
        other.copy_from(trial.checkpoints, 1)
        trial.write_pictures(1, b"x")
        trial.append_row(row(1))
        assert unsynced == set()
    assert_writable(tmp_path / "c" / "d" / "main")
    assert unsynced == set()
    assert (tmp_path / "c" / "d" / "main").is_dir()


# ---- config and status


def test_a_trial_keeps_its_config_and_gathers_arms(folder):
    assert folder.config().id == folder.id == CONFIG.id
    folder.create(CONFIG, ("b", "a"))
    folder.create(CONFIG, ("a",))
    assert folder.arms() == ("a", "b")
    assert folder.tree() == CONFIG.tree()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"5", b"null", b"{}", b'{"config": 5, "arms": []}',
                                     b'{"config": {}, "arms": "a"}', b"[" * 100_000], ids=range(10))  # fmt: skip
def test_a_damaged_config_is_named_with_what_to_do(folder, content):
    path = folder.path / "config.json"
    path.write_bytes(content)
    for read in (folder.tree, folder.arms, folder.config):
        with pytest.raises(ConfigError) as caught:
            read()
        assert f"{path} is damaged" in str(caught.value)
        assert f"remove the folder {folder.path} to run this trial again" in str(caught.value)


def test_a_missing_config_is_named(folder):
    (folder.path / "config.json").unlink()
    with pytest.raises(ConfigError, match=r"config\.json is missing; remove the folder"):
        folder.config()


def test_a_config_that_was_edited_by_hand_is_refused(folder):
    path = folder.path / "config.json"
    path.write_text(path.read_text().replace('"steps": 10', '"steps": 20'))
    for read in (folder.config, folder.tree, folder.arms):
        with pytest.raises(ConfigError, match=f"is not the config of trial {CONFIG.id}: it was edited"):
            read()


def test_a_config_that_this_version_cannot_read_says_why(run):
    tree = json.loads(json.dumps(CONFIG.tree()).replace('"beta_vae"', '"gamma_vae"'))
    folder = recorded(run, tree)
    assert folder.tree() == tree
    with pytest.raises(ConfigError, match=r"cannot be used by this version: framework\.name: unknown framework"):
        folder.config()


def recorded(run, tree):
    """A trial as a version without checksums wrote it."""
    folder = run.trial(id_of(tree))
    folder.path.mkdir(parents=True)
    (folder.path / "config.json").write_text(json.dumps({"trial_id": folder.id, "arms": ["a"], "config": tree}))
    return folder


def test_a_config_without_a_checksum_is_read_and_gets_one_when_it_is_written_again(run):
    folder = recorded(run, CONFIG.tree())
    assert (folder.arms(), folder.tree(), folder.config()) == (("a",), CONFIG.tree(), CONFIG)
    folder.create(CONFIG, ("b",))
    assert folder.arms() == ("a", "b")
    path = folder.path / "config.json"
    path.write_text(path.read_text().replace('"b"', '"c"'))
    with pytest.raises(ConfigError, match=r"config\.json is damaged \(its checksum is wrong\)"):
        folder.arms()


def flips(content, every):
    """The text with one bit changed, for every so many bits."""
    for number in range(0, 8 * len(content), every):
        at, bit = divmod(number, 8)
        yield content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]


EVERY = [17, pytest.param(1, marks=pytest.mark.long)]
"""Bits from one flip to the next; 17 meets every place of a bit in its byte."""


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("has_checksum", [True, False])
def test_no_flipped_bit_of_a_config_gives_another_trial(folder, has_checksum, every):
    path = folder.path / "config.json"
    content = json.loads(path.read_bytes())
    if not has_checksum:
        del content["checksum"]
    path.write_text(json.dumps(content))
    silent = []
    for changed in flips(path.read_bytes(), every):
        path.write_bytes(changed)
        with suppress(ConfigError):
            found = folder.tree(), folder.arms() if has_checksum else ("a",)
            if found != (CONFIG.tree(), ("a",)):
                silent.append(found)
    assert silent == []


def test_a_config_is_checked_without_importing_what_it_names(run, tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    tree = {**CONFIG.tree(), "framework": {"name": "stranger:FRAMEWORK"}}
    folder = recorded(run, tree)
    assert folder.tree() == tree
    (folder.path / "config.json").write_text(json.dumps({"arms": ["a"], "config": {**tree, "seed": 9}}))
    with pytest.raises(ConfigError, match="is not the config of trial"):
        folder.tree()


@pytest.mark.parametrize("name", ["{}.bak", "tmp", "{}-copy", "copy of {}", "0000"])
def test_a_copy_beside_a_trial_is_not_a_trial_and_is_named(run, name):
    folder = run.trial(CONFIG.id)
    folder.create(CONFIG, ("a",))
    copy = run.path / "trials" / name.format(CONFIG.id)
    shutil.copytree(folder.path, copy)
    assert [trial.id for trial in run.trials()] == [CONFIG.id]
    assert run.ignored() == [copy.name]


def test_a_folder_that_is_being_made_is_not_called_ignored(run):
    run.trial(CONFIG.id).path.mkdir(parents=True)
    (run.path / "trials" / "a file").touch()
    assert run.ignored() == []
    assert Run(run.path / "nothing").ignored() == []


def test_status_round_trip_and_its_default(folder):
    assert folder.status() == Status()
    status = Status("failed", 7, "it broke\nbadly", 3, "node-1", 12.5)
    folder.set_status(status)
    assert folder.status() == status
    assert folder.update_status(state="pending", cause="") == Status("pending", 7, "", 3, "node-1", 12.5)


@pytest.mark.parametrize("state", ["pending", "running", "done", "diverged", "failed"])
def test_only_done_diverged_and_failed_are_final(state):
    assert Status(state).final == (state in ("done", "diverged", "failed"))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b"[]", b"5", b'{"state": "wat"}', b'{"state": null}',
                                     b'{"step": "5"}', b'{"step": 1.5}', b'{"wat": 1}'], ids=range(10))  # fmt: skip
def test_a_damaged_status_is_named_with_what_to_do(folder, content):
    path = folder.path / "status.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        folder.status()
    assert f"{path} is damaged" in str(caught.value)
    assert "remove it, and the trial continues from its newest checkpoint" in str(caught.value)


# ---- runs


def test_a_folder_whose_creation_was_cut_short_is_not_a_trial(run):
    run.trial(CONFIG.id).create(CONFIG, ("a",))
    (run.path / "trials" / "0000").mkdir()
    (run.path / "trials" / "a file").touch()
    assert [trial.id for trial in run.trials()] == [CONFIG.id]
    assert Run(run.path / "nothing").trials() == []


def test_a_recorded_sweep_reads_back_and_earlier_ones_stay(run, tmp_path):
    run.path.mkdir(parents=True)
    for seeds in (1, 1, 2, 3):
        run.record(sweep_file(tmp_path, seeds=seeds))
    assert run.sweep().seeds == (0, 1, 2)
    before = sorted(run.path.glob("sweep-before-*.yaml"))
    assert [path.name for path in before] == ["sweep-before-1.yaml", "sweep-before-2.yaml"]
    assert [len(read_sweep(path, ["name=x"]).seeds) for path in before] == [1, 2]
    before[0].unlink()
    run.record(sweep_file(tmp_path, seeds=4))  # takes the free number, overwrites none
    assert [len(read_sweep(path, ["name=x"]).seeds) for path in before] == [3, 2]


def test_a_damaged_sweep_of_a_run_is_an_error_with_its_path(run, tmp_path):
    run.path.mkdir(parents=True)
    run.sweep_path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=f"{run.sweep_path}:1"):
        run.sweep()


def test_the_environment_is_of_the_first_session_and_may_be_removed(run, tmp_path, monkeypatch):
    run.path.mkdir(parents=True)
    assert run.environment() == {}
    monkeypatch.setattr(ledger, "environment", lambda: {"python": "1.0"})
    run.record(sweep_file(tmp_path))
    monkeypatch.setattr(ledger, "environment", lambda: {"python": "2.0"})
    run.record(sweep_file(tmp_path))
    assert run.environment() == {"python": "1.0"}
    (run.path / "environment.json").write_text("[]")
    with pytest.raises(ConfigError, match="remove it: it only records versions"):
        run.environment()


def test_each_session_with_other_code_is_recorded_with_the_rows_that_were_there(run, tmp_path, monkeypatch):
    def session(**now):
        monkeypatch.setattr(ledger, "environment", lambda: now)
        run.record(sweep_file(tmp_path))

    run.path.mkdir(parents=True)
    session(source="a", cores=1)
    folder = run.trial(CONFIG.id)
    folder.create(CONFIG, ("all",))
    folder.append_row({"step": 20, "metrics": {"loss": 1.0}})
    session(source="a", cores=2)  # not another one
    assert not run.sessions_path.exists()
    session(source="b", cores=2)
    session(source="b", cores=2)
    session(source="a", cores=2)
    assert [one["source"] for one in run.environments()] == ["a", "b", "a"]
    assert [one.get("after") for one in run.environments()] == [None, {CONFIG.id: 20}, {CONFIG.id: 20}]


def test_what_an_older_version_did_not_record_is_recorded_by_the_next_session(run, tmp_path):
    run.path.mkdir(parents=True)
    (run.path / "environment.json").write_text("{}")
    run.record(sweep_file(tmp_path))
    assert [bool(one.get("source")) for one in run.environments()] == [False, True]


@pytest.mark.parametrize("text", ["{}", "[1]", '[{"packages": 1}]', '[{"plugins": []}]', '[{"commit": 1}]', "["])
def test_a_damaged_list_of_sessions_is_named_with_what_to_do(run, text):
    run.path.mkdir(parents=True)
    run.sessions_path.write_text(text)
    with pytest.raises(ConfigError, match=r"sessions.json is damaged .*; remove it: it only records versions"):
        run.environments()


def test_generations_are_kept_in_order_and_a_damaged_history_is_named(run):
    run.path.mkdir(parents=True)
    assert run.generations() == []
    first, second = ({"population": "a", "step": step, "moves": {}} for step in (1, 2))
    run.add_generation(first)
    run.add_generation(second)
    assert run.generations() == [first, second]
    (run.path / "population.json").write_text('{"step": 1}')
    with pytest.raises(ConfigError, match=r"population\.json is damaged .* restore it from a backup"):
        run.generations()


def test_generations_without_a_checksum_are_read_and_get_one(run):
    run.path.mkdir(parents=True)
    path, first = run.path / "population.json", {"population": "a", "step": 1, "moves": {}}
    path.write_text(json.dumps([first]))
    assert run.generations() == [first]
    run.add_generation(first | {"step": 2})
    assert [generation["step"] for generation in run.generations()] == [1, 2]
    path.write_text(path.read_text().replace('"step": 2', '"step": 6'))
    with pytest.raises(ConfigError, match=r"population\.json is damaged \(its checksum is wrong\)"):
        run.generations()


@pytest.mark.parametrize("every", EVERY)
def test_no_flipped_bit_of_a_population_gives_another_history(run, every):
    run.path.mkdir(parents=True)
    move = {"source": CONFIG.id, "values": {"framework.beta": 0.75, "training.learning_rate": 0.001}}
    for step in (300, 600):
        run.add_generation({"population": "all/seed 0", "step": step, "moves": {"0123456789abcdef": move}})
    path, expected, silent = run.path / "population.json", run.generations(), []
    for changed in flips(path.read_bytes(), every):
        path.write_bytes(changed)
        with suppress(ConfigError):
            if (found := run.generations()) != expected:
                silent.append(found)
    assert silent == []


# ---- finding a run


@pytest.fixture
def storage(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one/main", "two/main", "two/other", "three/a", "three/b", "four/only"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "sweep.yaml").touch()
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("runs/one/main", "one/main"),
        ("runs/one/main/", "one/main"),
        ("./runs/two/other", "two/other"),
        ("one/main", "one/main"),
        ("two/other", "two/other"),
        ("one", "one/main"),
        ("two", "two/main"),
        ("runs/two", "two/main"),
        ("four", "four/only"),
    ],
)
def test_a_run_is_found_by_folder_by_name_and_by_sweep(storage, text, name):
    assert find_run(text).path == storage / name
    assert find_run(text, storage).name == name


def test_a_sweep_with_several_runs_asks_which(storage):
    with pytest.raises(ConfigError, match="three has several runs; name one: three/a, three/b"):
        find_run("three")


def test_an_unknown_run_lists_the_known_ones(storage, tmp_path):
    with pytest.raises(ConfigError) as caught:
        find_run("one/mian")
    known = "four/only, one/main, three/a, three/b, two/main, two/other"
    assert str(caught.value) == f"no run 'one/mian'. Did you mean 'one/main'? Known in runs: {known}"
    with pytest.raises(
        ConfigError, match=f"no run 'x'. There are no runs in '{tmp_path / 'empty'}' yet; start one with"
    ):
        find_run("x", tmp_path / "empty")


@pytest.mark.parametrize("text", ["x" * 5000, "one/main/sweep.yaml", "../../../../etc/passwd", "one/main/x/y/z"])
def test_a_text_that_can_be_no_run_is_refused(storage, text):
    with pytest.raises(ConfigError, match="no run"):
        find_run(text)


def test_a_trial_is_refused_with_the_name_of_its_run(storage):
    trial = storage / "one" / "main" / "trials" / "0123456789abcdef"
    trial.mkdir(parents=True)
    (trial / "config.json").touch()
    with pytest.raises(ConfigError, match=r"^one/main/trials/\w+ is a trial; name its run: runs/one/main$"):
        find_run("one/main/trials/0123456789abcdef")


# ---- one driver at a time


HOLDER = """
import sys, time
from pathlib import Path
from disentune.runs.ledger import Run
with Run(Path(sys.argv[1])).locked() as token:
    print(token, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(run):
    """Another process that holds the run, and its session token."""
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(run.path)], stdout=subprocess.PIPE, text=True)
    yield process, process.stdout.readline().strip()
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_driver_is_refused_by_name_until_the_first_is_gone_however_it_ends(run, holder):
    process, token = holder
    assert run.is_running()
    assert run.session() == token
    with pytest.raises(ConfigError, match=rf"is already being run by process {process.pid} on \S+; wait for it"):
        run.locked().__enter__()
    assert run.session() == token  # a refused driver changes nothing
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not run.is_running()
    with run.locked() as mine:
        assert run.session() == mine != token


def test_every_session_has_its_own_token_and_clears_an_old_request_to_stop(run):
    assert run.session() == ""
    assert not run.is_running()
    tokens = []
    for _ in range(3):
        with run.locked() as token:
            tokens.append(token)
            assert not run.stop_path.exists()
            assert run.is_running()
            run.stop_path.touch()
        assert not run.is_running()
    assert len(set(tokens)) == 3
    assert run.session() == tokens[-1]


# ---- what killed writers leave

WRITER = """
import os, sys
from pathlib import Path
from disentune.files.writing import write_atomically
os.replace = lambda *paths: (print(paths[0], flush=True), sys.stdin.read())
for name in sys.argv[1:]:
    write_atomically(Path(name), b"new")
"""


@pytest.fixture
def writer():
    """Starts a process that stands still just before it gives a file its name; gives it and what it has written."""
    started = []

    def start(path):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)  # fmt: skip
        started.append(process)
        return process, Path(process.stdout.readline().strip())

    yield start
    for process in started:
        process.kill()
        process.communicate()


def held(run):
    with run.locked():
        pass


@pytest.mark.parametrize(
    "name",
    [
        "trials/ID/status.json",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("results.parquet", "trials/ID/config.json", "sweep.yaml")
        ),
    ],
)
def test_what_a_killed_writer_left_is_cleared_by_the_next_driver(run, writer, name):
    run.trial(CONFIG.id).create(CONFIG, ("a",))
    process, aside = writer(run.path / name.replace("ID", CONFIG.id))
    process.kill()
    process.wait()
    assert aside.exists()
    before = {path for path in run.path.rglob("*") if path != aside}
    held(run)
    assert {path for path in run.path.rglob("*") if path.name != "driver.lock"} == before


def test_what_a_living_writer_writes_stays_however_old(run, writer):
    run.trial(CONFIG.id).create(CONFIG, ("a",))
    process, aside = writer(run.path / "results.parquet")
    os.utime(aside, (0, 0))
    held(run)
    assert aside.exists()
    assert process.poll() is None


@pytest.mark.parametrize("name", [".status.json.0123abcd", ".status.json.aaaaaa-bbbbbb-1-0123abcd"])
@pytest.mark.parametrize(("age_s", "stays"), [(60, True), (3600, False)])
def test_what_was_left_by_a_writer_nobody_here_knows_is_cleared_when_it_is_old(run, name, age_s, stays):
    """By another machine, or by an earlier version."""
    folder = run.trial(CONFIG.id)
    folder.create(CONFIG, ("a",))
    aside = folder.path / name
    aside.write_text("half")
    os.utime(aside, (time.time() - age_s,) * 2)
    held(run)
    assert aside.exists() == stays


def test_no_other_file_is_cleared(run):
    folder = run.trial(CONFIG.id)
    folder.create(CONFIG, ("a",))
    kept = [".hidden", ".status.json.bak", ".git", "notes.0123abcd", ".x.0123ABCD", ".nfs0000000012345678"]
    for place_ in (run.path, folder.path):
        for name in kept:
            (place_ / name).write_text("mine")
            os.utime(place_ / name, (0, 0))
        (place_ / ".folder.0123abcd").mkdir()
    held(run)
    for place_ in (run.path, folder.path):
        assert {*kept, ".folder.0123abcd"} <= set(os.listdir(place_))


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"5", b"null", b"\xff"])
def test_a_damaged_lock_file_locks_nothing_out(run, content):
    run.path.mkdir(parents=True)
    (run.path / "driver.lock").write_bytes(content)
    assert run.session() == ""
    with run.locked() as token:
        assert run.session() == token


def test_a_storage_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot be written: Not a directory; choose another --storage"):
        Run(tmp_path / "file" / "demo" / "main").locked().__enter__()


def test_a_storage_that_cannot_lock_is_not_called_busy(run, monkeypatch):
    def unsupported(*arguments):
        raise OSError(37, "No locks available")

    monkeypatch.setattr(ledger.fcntl, "flock", unsupported)
    with pytest.raises(ConfigError, match="cannot be locked: No locks available; choose another --storage"):
        run.locked().__enter__()


def test_what_is_written_is_json_that_any_program_reads(folder):
    folder.set_status(Status("done", 3))
    content = json.loads((folder.path / "config.json").read_text())
    assert content.pop("checksum")
    assert content == {"trial_id": CONFIG.id, "arms": ["a"], "config": CONFIG.tree()}
    assert json.loads((folder.path / "status.json").read_text())["state"] == "done"


# ---- hiccups


def stumbling(monkeypatch, name, failures, number=errno.EIO):
    """The first calls of a function of the system fail."""
    left, real = [failures], getattr(os, name)

    def call(*arguments):
        if left[0]:
            left[0] -= 1
            raise OSError(number, os.strerror(number))
        return real(*arguments)

    monkeypatch.setattr(os, name, call)
    monkeypatch.setattr("disentune.files.storage.FIRST_WAIT_S", 0.001)


def test_a_disk_that_stumbles_loses_nothing_and_no_row_counts_twice(folder, monkeypatch):
    stumbling(monkeypatch, "fsync", 3)
    folder.append_row(row(1, loss=0.5))
    stumbling(monkeypatch, "fsync", 2)
    folder.set_status(Status("running", 1))
    assert folder.rows() == [row(1, loss=0.5)]
    assert folder.status().step == 1
    assert [path for path in folder.path.iterdir() if path.name.startswith(".")] == []


def test_a_full_disk_is_raised_at_once_and_leaves_the_old_content(folder, monkeypatch):
    folder.set_status(Status("running", 1))
    stumbling(monkeypatch, "fsync", 1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        folder.set_status(Status("running", 2))
    assert folder.status().step == 1


def test_a_worker_does_not_take_a_storage_that_cannot_be_read_for_another_driver(run, monkeypatch):
    with run.locked() as token:
        monkeypatch.setattr("disentune.files.storage.PATIENCE_S", 0.0)
        monkeypatch.setattr(
            "disentune.files.storage.opened", lambda path: (_ for _ in ()).throw(OSError(errno.EIO, "gone"))
        )
        with pytest.raises(OSError, match="gone"):
            run.session()
        monkeypatch.undo()
        assert run.session() == token


# ---- in an object store


@pytest.fixture
def far(object_store) -> Run:
    return Run(place("s3://bucket/runs/demo/main"))


@pytest.fixture
def far_folder(far) -> TrialFolder:
    trial = far.trial(CONFIG.id)
    trial.create(CONFIG, ("a",))
    return trial


@pytest.mark.slow
def test_a_trial_in_a_store_reads_back(far, far_folder):
    far_folder.create(CONFIG, ("b",))
    far_folder.set_status(Status("running", 3))
    far_folder.write_pictures(3, b"picture")
    far_folder.write_pictures_failure("no picture")
    far_folder.add_error("first\n")
    far_folder.add_error("second\n")
    again = far.trials()[0]
    assert [trial.id for trial in far.trials()] == [CONFIG.id]
    assert (again.config(), again.arms()) == (CONFIG, ("a", "b"))
    assert again.status() == Status("running", 3)
    assert again.update_status(step=4) == far_folder.status()
    assert (again.picture_steps(), again.read_pictures(3), again.read_pictures(4)) == ([3], b"picture", None)
    assert again.pictures_failure() == "no picture"
    assert read_bytes(again.errors_path) == b"first\nsecond\n"


def test_a_folder_without_a_config_is_not_a_trial_in_a_store_either(far, far_folder):
    (far.path / "trials" / "half" / "status.json").write_bytes(b"{}")
    assert [trial.id for trial in far.trials()] == [CONFIG.id]
    assert far.known_trials("status.json").keys() == {CONFIG.id}


def test_rows_in_a_store_are_those_of_a_file(far_folder, folder, object_store):
    for step in (1, 2, 3):
        for one in (far_folder, folder):
            one.append_row(row(step, loss=1 / step))
    assert object_store[f"runs/demo/main/trials/{CONFIG.id}/rows.jsonl"] == folder.rows_path.read_bytes()
    assert TrialFolder(far_folder.path).rows() == folder.rows()


def test_a_worker_that_was_cut_off_takes_no_row_from_the_one_in_its_place(far_folder):
    old, new = far_folder, TrialFolder(far_folder.path)
    old.append_row(row(1))
    for step in (2, 3):
        new.append_row(row(step))
    old.append_row(row(2))
    assert [found["step"] for found in new.rows()] == [1, 2, 3]
    old.append_row(row(4))
    new.append_row(row(5))
    assert [found["step"] for found in new.rows()] == [1, 2, 3, 4, 5]


@pytest.fixture
def late(far_folder):
    """The request of a worker that was cut off comes late: fewer rows stand in the place of three."""
    old = far_folder
    new = TrialFolder(old.path)
    for step in (1, 2, 3):
        new.append_row(row(step))
    old.rows_path.write_bytes(new.rows_path.read_bytes().split(b"\n")[0] + b"\n")
    return new


def test_a_late_request_takes_no_row_away(late):
    late.append_row(row(4))
    assert [found["step"] for found in late.rows()] == [1, 2, 3, 4]


def test_a_late_request_takes_no_row_away_at_the_end_of_a_stretch_either(late):
    assert [found["step"] for found in late.rows()] == [1]
    late.keep_rows()
    assert [found["step"] for found in late.rows()] == [1, 2, 3]


def test_rows_that_are_all_there_are_not_written_again(far_folder, object_store):
    far_folder.append_row(row(1))
    object_store.requests.clear()
    far_folder.keep_rows()
    assert not any(request.startswith("PUT") for request in object_store.requests)


def test_rows_in_a_store_that_were_cut_stay_cut_until_they_are_written_again(far_folder):
    for step in (1, 2, 3):
        far_folder.append_row(row(step, loss=float(step)))
    far_folder.cut_rows(2)
    assert [found["step"] for found in far_folder.rows()] == [1]
    far_folder.append_row(row(2, loss=5.0))
    assert [found["metrics"]["loss"] for found in far_folder.rows()] == [1.0, 5.0]


@pytest.mark.slow
def test_checkpoints_in_a_store_are_kept_pruned_copied_and_passed_over_when_damaged(far, far_folder):
    checkpoints = far_folder.checkpoints
    for step in (1, 2, 3, 4):
        checkpoints.save(step, {"x": torch.tensor([step])})
    checkpoints.prune(2, best=1)
    assert checkpoints.steps() == [1, 3, 4]
    other = far.trial("other").checkpoints
    other.save(5, {"x": torch.tensor([50])})
    other.copy_from(checkpoints, 3)
    assert other.steps() == [3]
    checkpoints.path(4).write_bytes(b"damaged")
    step, state, notes = checkpoints.newest()
    assert (step, state["x"].item(), len(notes)) == (3, 3, 1)
    assert checkpoints.steps() == [1, 3]
    assert checkpoints.path(4).with_suffix(".damaged").read_bytes() == b"damaged"


@pytest.mark.slow
def test_a_store_that_does_not_answer_damages_no_checkpoint(far_folder, object_store, monkeypatch):
    monkeypatch.setattr("disentune.files.storage.PATIENCE_S", 0.0)
    checkpoints = far_folder.checkpoints
    checkpoints.save(1, {"x": torch.tensor([1])})
    monkeypatch.setattr(checkpoints, "steps", lambda: [1])
    object_store.faults = [500] * 20
    with pytest.raises(OSError, match="HTTP status 500"):
        checkpoints.newest()
    object_store.faults = []
    assert checkpoints.newest()[0] == 1


def test_a_run_in_a_store_keeps_its_sweeps_and_generations(far, tmp_path):
    far.record(sweep_file(tmp_path))
    far.record(sweep_file(tmp_path, seeds=3))
    far.add_generation({"population": "a", "step": 1, "moves": {}})
    assert far.exists()
    assert far.sweep().seeds == (0, 1, 2)
    assert (far.path / "sweep-before-1.yaml").is_file()
    assert far.generations() == [{"population": "a", "step": 1, "moves": {}}]
    assert far.environment()["python"]


@pytest.mark.slow
def test_one_driver_at_a_time_holds_a_run_in_a_store(far, monkeypatch):
    monkeypatch.setattr(lease, "RENEW_S", 0.1)
    assert not far.is_running()
    far.stop_path.touch()
    with far.locked() as token:
        assert far.session() == token
        assert far.is_running()
        assert not far.stop_path.exists()
        assert far.began() is not None
        with pytest.raises(ConfigError, match=r"s3://bucket/runs/demo/main is already being run by process \d+ on"):
            far.locked().__enter__()
    assert not far.is_running()


@pytest.mark.slow
def test_a_run_is_found_by_its_address_or_in_its_storage(far, tmp_path):
    far.record(sweep_file(tmp_path))
    for text, where in (("s3://bucket/runs/demo/main", "runs"), ("s3://bucket/runs/demo", "runs"),
                        ("demo/main", "s3://bucket/runs"), ("demo", "s3://bucket/runs")):  # fmt: skip
        assert find_run(text, where) == far
    with pytest.raises(ConfigError, match="Did you mean 'demo/main'"):
        find_run("dem/main", "s3://bucket/runs")
    with pytest.raises(ConfigError, match="bucket 'nobody' does not exist"):
        find_run("s3://nobody/demo/main")


def test_damage_in_a_store_is_named_by_its_address(far_folder):
    (far_folder.path / "status.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match=r"s3://bucket/runs/demo/main/trials/\w+/status.json is damaged"):
        far_folder.status()
    far_folder.rows_path.write_bytes(b"{}\n")
    with pytest.raises(ConfigError, match=r"rows.jsonl:1 is damaged"):
        far_folder.rows()


def test_nothing_that_a_worker_writes_brings_a_deleted_run_back(tmp_path, trial_with):
    config = trial_with()
    run = Run(tmp_path / "runs" / "x" / "main")
    run.path.mkdir(parents=True)
    folder = run.trial(config.id)
    folder.create(config, ("all",))
    shutil.rmtree(run.path)
    writes = [
        lambda: folder.append_row({"step": 1, "metrics": {}}),
        lambda: folder.set_status(Status()),
        lambda: folder.checkpoints.save(1, {}),
        lambda: folder.write_pictures(1, b""),
    ]
    for write in writes:
        with pytest.raises(FileNotFoundError):
            write()
    assert not run.path.exists()


# ---- who knows the names of files

PACKAGE = Path(ledger.__file__).parents[1]
OWNERS = {PACKAGE / "runs" / f"{name}.py" for name in ("ledger", "trial_folder", "checkpoints")}
OTHERS = {
    ("tracking/connection.py", "wandb"),
    ("results/listing.py", "sweep.yaml"),
    ("files/earlier.py", "checkpoints"),
}
"""The folder of W&B's own settings; how a storage is searched for runs, and for the weights of an earlier trial."""


def joined_names(path: Path) -> set[str]:
    """The texts that a module joins to paths, itself or by a constant of its own."""
    tree = ast.parse(path.read_text())
    constants = dict(pair for node in tree.body if isinstance(node, ast.Assign) for pair in texts_by_name(node))
    joined = [operand for node in ast.walk(tree) for operand in operands(node)]
    literals = {one.value for one in joined if is_text(one)}
    return literals | {constants[one.id] for one in joined if isinstance(one, ast.Name) and one.id in constants}


def operands(node: ast.AST) -> list[ast.AST]:
    """What is joined to a path by `/` or a call."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return [node.right]
    is_join = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in JOINS
    return node.args if is_join else []


JOINS = ("join", "joinpath", "with_name")


def texts_by_name(node: ast.Assign) -> list[tuple[str, str]]:
    """Of `A = "a"` and of `A, B = "a", "b"`."""
    sides = (side.elts if isinstance(side, ast.Tuple) else [side] for side in (node.targets[0], node.value))
    pairs = zip(*sides, strict=False)
    return [(name.id, text.value) for name, text in pairs if isinstance(name, ast.Name) and is_text(text)]


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_only_the_ledger_joins_paths_inside_a_run():
    names = set().union(*map(joined_names, OWNERS))
    assert {"trials", "config.json", "status.json", "rows.jsonl", "pictures", "checkpoints", "report"} <= names
    modules = [path for path in PACKAGE.rglob("*.py") if path not in OWNERS]
    found = {(str(path.relative_to(PACKAGE)), name) for path in modules for name in joined_names(path) & names}
    assert found == OTHERS
