"""Stored images as a data set, opened by many processes at once."""

import multiprocessing
import pickle
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import stored_examples as examples
from disentune.data.prepared import stored
from disentune.data.prepared.preparing import prepare
from disentune.data.prepared.store import VARIABLE, about_of
from disentune.data.prepared.stored import StoredImages, opened
from disentune.errors import DataError
from processes import wait_until
from stored_examples import COUNT, FACTORS, GREY, NAME, PATIENCE_S, example, reads_of, source_of

PROCESSES = 10


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With the example's file in it."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "root"))
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / NAME).write_bytes(example().tobytes())
    return tmp_path / "root"


@pytest.fixture(scope="module")
def processes():
    """Real processes that share no state with this one; torch is imported once for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["disentune.data.prepared.stored"])
    return context


def names_in(root: Path) -> set[str]:
    return {path.name for path in root.iterdir()}


# ---- as a data set


def test_images_lie_on_the_grid_of_factors(root):
    data = StoredImages(source_of(), FACTORS, categorical=("rows",))
    np.testing.assert_array_equal(data.images(np.array([5, 0])), example()[[5, 0]])
    assert (data.factor_names, data.factor_sizes, data.categorical) == (("rows", "columns"), (3, 4), ("rows",))
    assert (len(data), data.shape, data.noisy) == (COUNT, GREY, False)
    about = about_of(source_of())
    assert (data.mean, data.std) == (about.mean, about.std)


@pytest.mark.parametrize("index", [-1, COUNT])
def test_an_index_outside_is_refused(root, index):
    with pytest.raises(DataError, match=f"index must be 0 to 11, got {index}"):
        StoredImages(source_of(), FACTORS).images(np.array([index]))


def test_a_grid_of_another_size_is_refused(root):
    with pytest.raises(DataError, match=r"'example' has 12 images, but factors of sizes \(3, 5\) have 15 combinations"):
        StoredImages(source_of(), {"rows": 3, "columns": 5})


def test_a_pickle_is_small_and_reads_the_root_of_the_process_that_opens_it(root, tmp_path, processes):
    pickled = pickle.dumps(StoredImages(source_of(), FACTORS))
    assert len(pickled) < 10_000
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / NAME).write_bytes(example(seed=1).tobytes())
    answers = processes.Queue()
    process = processes.Process(target=examples.unpickle_in, args=(str(tmp_path / "elsewhere"), pickled, answers))
    process.start()
    np.testing.assert_array_equal(answers.get(timeout=PATIENCE_S), example(seed=1))
    process.join()
    np.testing.assert_array_equal(pickle.loads(pickled).images(np.arange(COUNT)), example())


# ---- many processes


@pytest.mark.slow
def test_ten_processes_that_start_at_once_prepare_it_once(root, processes):
    slow = source_of(read=partial(examples.read_slowly, shape=GREY))
    everyone, answers = processes.Barrier(PROCESSES), processes.Queue()
    arguments = (str(root), slow, everyone, answers)
    started = [processes.Process(target=examples.open_when_all_are_there, args=arguments) for _ in range(PROCESSES)]
    for process in started:
        process.start()
    for _ in started:
        np.testing.assert_array_equal(answers.get(timeout=PATIENCE_S), example())
    for process in started:
        process.join()
    assert reads_of(root / NAME) == 1
    assert names_in(root) == {NAME, "example.log", "example", ".example.lock"}


def test_after_a_kill_in_the_middle_the_next_prepares_it_cleanly(root, processes):
    hanging = source_of(read=partial(examples.read_and_hang, shape=GREY))
    process = processes.Process(target=examples.open_in, args=(str(root), hanging))
    process.start()
    wait_until(lambda: list(root.glob(".example.*/made/images.npy")), "the array to be begun")
    wait_until(lambda: reads_of(root / NAME), "the first chunk")
    process.kill()
    process.join()
    assert list(root.glob(".example.*/made"))
    assert not (root / "example").exists()
    (root / "example.go").touch()
    np.testing.assert_array_equal(StoredImages(hanging, FACTORS).images(np.arange(COUNT)), example())
    assert names_in(root) == {NAME, "example.log", "example.go", "example", ".example.lock"}


def test_a_waiting_process_takes_over_when_the_preparing_one_is_killed(root, processes):
    hanging = source_of(read=partial(examples.read_and_hang, shape=GREY))
    first, second = (processes.Process(target=examples.open_in, args=(str(root), hanging)) for _ in range(2))
    first.start()
    wait_until(lambda: reads_of(root / NAME), "the first process to read")
    second.start()
    second.join(0.3)  # it is started and waits for the lock
    first.kill()
    first.join()
    (root / "example.go").touch()
    second.join(PATIENCE_S)
    assert second.exitcode == 0
    assert reads_of(root / NAME) == 2
    assert names_in(root) == {NAME, "example.log", "example.go", "example", ".example.lock"}


# ---- replaced while it is opened


def test_an_array_replaced_while_it_is_opened_is_opened_again(root, tmp_path, monkeypatch):
    prepare(source_of())
    (tmp_path / "new.bin").write_bytes(example(seed=1).tobytes())
    known = about_of(source_of())

    def replaced_after(source):
        monkeypatch.setattr(stored, "about_of", about_of)
        (root / NAME).unlink()
        prepare(source, tmp_path / "new.bin", again=True)
        return known

    monkeypatch.setattr(stored, "about_of", replaced_after)
    prepared = opened(source_of())
    assert prepared.about == about_of(source_of()) != known
    np.testing.assert_array_equal(prepared.images(np.arange(COUNT)), example(seed=1))


def test_an_array_that_vanishes_for_a_moment_while_it_is_opened_is_opened_again(root, monkeypatch):
    prepare(source_of())
    (root / "example").rename(root / "aside")
    (root / "example").mkdir()
    (root / "example" / "about.json").write_bytes((root / "aside" / "about.json").read_bytes())

    def placed_before(source):
        monkeypatch.setattr(stored, "about_of", about_of)
        with pytest.raises(DataError, match=r"images\.npy is missing") as raised:
            about_of(source)
        (root / "example").rename(root / "replaced")
        (root / "aside").rename(root / "example")
        raise raised.value

    monkeypatch.setattr(stored, "about_of", placed_before)
    np.testing.assert_array_equal(opened(source_of()).images(np.arange(COUNT)), example())


def test_opening_it_while_it_is_made_again_gives_the_old_or_the_new_and_never_a_mix(root, tmp_path):
    (root / NAME).unlink()
    files = [tmp_path / "0.bin", tmp_path / "1.bin"]
    for seed, path in enumerate(files):
        path.write_bytes(example(seed=seed).tobytes())
    prepare(source_of(), files[0])
    ended = threading.Event()

    def keep_replacing():
        while not ended.is_set():
            for path in files:
                prepare(source_of(), path, again=True)

    thread = threading.Thread(target=keep_replacing)
    thread.start()
    try:
        seen = [opened(source_of()) for _ in range(30)]
        wait_until(lambda: len({one.about.sha256 for one in [*seen, opened(source_of())]}) == 2, "both to be seen")
    finally:
        ended.set()
        thread.join()
    for prepared in seen:
        seed = int(prepared.about.files[0].name[0])
        np.testing.assert_array_equal(prepared.images(np.arange(COUNT)), example(seed=seed))
