"""Batches of 256 images: drawn, read from a prepared set as large as dSprites, and shared by processes. One thread.

1. XYSquares by our data set against drawing its images one by one in NumPy. Two loops tuned by hand follow without a
   goal: they know that places are powers of 8, and the second fills the batch in place.
2. Batches from a prepared set of 737,280 binary images of 64 x 64 pixels, mapped from 377 MB of packed bits, against
   the training step of conv64 on them; against HDF5 with a compressed chunk for each image, as disent stores its sets,
   read image by image; and against bytes that were loaded into memory. Everything is in the page cache.
3. Four processes that read all of the prepared set: how much memory its map costs them together.

The set is made here from drawings of a few shapes, in a temporary folder (`TMPDIR`) that needs 0.5 GB.
"""

import math
import multiprocessing
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from ratios import Bench, Spread, interleaved

from disentune import data
from disentune.data.prepared.preparing import prepare
from disentune.data.prepared.store import images_path, use_root
from disentune.data.prepared.stored import StoredImages
from disentune.learn import process
from disentune.learn.training import Training
from disentune.plugin import Dataset, File, Frozen, Source
from disentune.spec.config import TrialConfig

BATCH, SIZE = 256, 64
DRAWING_GOAL = 5.0
STEP_LIMIT = 0.10
SHARING_LIMIT = 1.05
READERS = 4

# ---- a set like dSprites

FACTORS = {"shape": 3, "scale": 6, "orientation": 40, "x": 32, "y": 32}


def sprite(shape: int, scale: int, orientation: int) -> np.ndarray:
    """bool (33, 33): a box, an ellipse or a triangle, turned."""
    y, x = np.mgrid[-16:17, -16:17] / (0.5 + scale / 10)
    angle = 2 * np.pi * orientation / FACTORS["orientation"]
    x, y = x * np.cos(angle) - y * np.sin(angle), x * np.sin(angle) + y * np.cos(angle)
    box, ellipse, triangle = (abs(x) < 9) & (abs(y) < 6), x**2 / 100 + y**2 / 25 < 1, (y > -5) & (y < 8 - 2 * abs(x))
    return (box, ellipse, triangle)[shape]


def drawings(paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """uint8 (1024, 1, 64, 64) for each shape, scale and orientation: windows on one picture, so that it moves."""
    for picture in product(*(range(FACTORS[name]) for name in ("shape", "scale", "orientation"))):
        canvas = np.zeros((SIZE + 31, SIZE + 31), np.uint8)
        canvas[31 : 31 + 33, 31 : 31 + 33][sprite(*picture)] = 255
        windows = sliding_window_view(canvas, (SIZE, SIZE))[::-1, ::-1]  # by y, x of the upper left corner
        yield windows.transpose(1, 0, 2, 3).reshape(-1, 1, SIZE, SIZE)


SOURCE = Source("bench", (File("bench.txt"),), drawings, (1, SIZE, SIZE), math.prod(FACTORS.values()), binary=True)


def open_bench(params: Frozen) -> StoredImages:
    return StoredImages(SOURCE, FACTORS)


DATASET = Dataset(
    name="bench",
    params=Frozen,
    shape=lambda params: SOURCE.shape,
    factor_sizes=lambda params: tuple(FACTORS.values()),
    open=open_bench,
    sources=lambda params: (SOURCE,),
)


def build(folder: Path) -> None:
    (folder / "bench.txt").touch()
    began = time.perf_counter()
    about = prepare(SOURCE)
    seconds, size = time.perf_counter() - began, images_path(SOURCE).stat().st_size
    print(f"prepared {about.count:,} images ({size / 1e6:.0f} MB) in {seconds:.1f} s")


# ---- timing


def batches(read: Callable[[np.ndarray], object], size: int, times: int) -> Callable[[], None]:
    """So many batches of other images each time."""
    rng = np.random.default_rng(0)

    def run() -> None:
        for _ in range(times):
            read(rng.integers(size, size=BATCH))

    return run


def compared(ours: Callable, rival: Callable, sizes: tuple[int, int], times: int) -> tuple[Spread, dict[str, Any]]:
    """How many times faster ours is, and both in ms a batch."""
    runs = (batches(read, size, times) for read, size in zip((ours, rival), sizes, strict=True))
    mine, theirs, ratio = interleaved(*runs, rounds=20)
    return ratio.inverse(), {"ours": 1000 * mine / times, "rival": 1000 * theirs / times, "unit": "ms"}


# ---- XYSquares


def by_numpy(index: int) -> np.ndarray:
    image = np.zeros((3, SIZE, SIZE), np.uint8)
    places = 8 * np.array(np.unravel_index(index, (8,) * 6))
    for channel, (x, y) in enumerate(places.reshape(3, 2)):
        image[channel, y : y + 8, x : x + 8] = 255
    return image


def draw_into(image: np.ndarray, index: int) -> np.ndarray:
    for channel in (2, 1, 0):
        index, y = divmod(index, 8)
        index, x = divmod(index, 8)
        image[channel, 8 * y : 8 * y + 8, 8 * x : 8 * x + 8] = 255
    return image


def filled(indices: np.ndarray) -> np.ndarray:
    images = np.zeros((len(indices), 3, SIZE, SIZE), np.uint8)
    for image, index in zip(images, indices.tolist(), strict=True):
        draw_into(image, index)
    return images


def tuned(indices: np.ndarray) -> np.ndarray:
    return np.stack([draw_into(np.zeros((3, SIZE, SIZE), np.uint8), index) for index in indices.tolist()])


def one_by_one(indices: np.ndarray) -> np.ndarray:
    return np.stack([by_numpy(index) for index in indices])


def drawing(bench: Bench) -> None:
    squares = data.load("xysquares")
    sample = np.random.default_rng(0).integers(len(squares), size=BATCH)
    for rival in (one_by_one, tuned, filled):
        np.testing.assert_array_equal(squares.images(sample), rival(sample))
    sizes = (len(squares),) * 2
    rivals = {
        "drawn one by one in NumPy": (one_by_one, DRAWING_GOAL),
        "drawn one by one, tuned by hand": (tuned, None),
        "drawn into the batch, tuned by hand": (filled, None),
    }
    for what, (rival, goal) in rivals.items():
        ratio, sides = compared(squares.images, rival, sizes, times=4)
        bench.ratio(f"256 images of XYSquares: {what} / ours", ratio, at_least=goal, **sides)


# ---- the prepared set


def trial() -> TrialConfig:
    return TrialConfig.parse(
        {
            "dataset": {"name": "bench_data:DATASET"},
            "model": {"name": "conv64", "latents": 10},
            "framework": {"name": "beta_vae", "beta": 4},
            "recon": {"name": "mse"},
            "training": {"steps": 10**9, "batch_size": BATCH, "learning_rate": 1e-4, "log_every": 10**6},
            "evaluation": {},
            "loss_scale": "sum",
            "seed": 0,
        }
    )


def against_the_step(bench: Bench) -> None:
    training = Training(trial())
    progress, inputs, size = training.run(), training.inputs, len(training.data)
    for what, read in (("as bytes", training.data.images), ("as the network's input", inputs)):
        mine, step, share = interleaved(batches(read, size, times=10), lambda: next(progress), rounds=12)
        sides = {"ours": 100 * mine, "rival": 1000 * step, "unit": "ms"}
        name = f"256 images of a mapped set, {what} / the conv64 step that they feed"
        bench.ratio(name, share.times(0.1), at_most=STEP_LIMIT, **sides)


def as_hdf5(images: np.ndarray, path: Path) -> h5py.Dataset:
    """A gzipped chunk for each image."""
    file = h5py.File(path, "w")
    layout = {"chunks": (1, *images.shape[1:]), "compression": "gzip", "compression_opts": 4}
    return file.create_dataset("data", data=images, **layout)


def against_other_storage(bench: Bench, folder: Path) -> None:
    stored = open_bench(Frozen())
    rng = np.random.default_rng(1)
    few, many = (stored.images(np.sort(rng.choice(len(stored), count, replace=False))) for count in (4096, 65_536))
    hdf5 = as_hdf5(few, folder / "few.h5")
    np.save(folder / "many.npy", many)
    loaded = np.load(folder / "many.npy")
    del many

    def from_hdf5(indices: np.ndarray) -> np.ndarray:
        return np.stack([hdf5[index] for index in indices.tolist()])

    np.testing.assert_array_equal(from_hdf5(np.arange(5)), few[:5])
    ratio, sides = compared(stored.images, from_hdf5, (len(stored), len(few)), times=2)
    bench.ratio("256 images: HDF5 with a gzipped chunk an image / ours, mapped", ratio, **sides)
    ratio, sides = compared(stored.images, loaded.__getitem__, (len(stored), len(loaded)), times=10)
    note = "the rival holds 65,536 images as bytes: 8 times the memory, in each process"
    bench.ratio("256 images: bytes in memory / ours, mapped bits", ratio, **sides, note=note)
    hdf5.file.close()


# ---- processes that share it


def read_all(orders: Connection) -> None:
    """Says when it is ready, reads every image when told to, says so, and waits to be looked at."""
    torch.set_num_threads(1)
    orders.send("ready")
    orders.recv()
    stored, lit = open_bench(Frozen()), 0
    for start in range(0, len(stored), BATCH):
        lit += int(stored.images(np.arange(start, start + BATCH)).sum(dtype=np.int64)) // 255
    orders.send(lit)
    orders.recv()


def kilobytes(pid: int, field: str, mapping: str | None = None) -> int:
    """Of all mappings of a process, or of those of a file, from the kernel's accounts."""
    total, counts = 0, mapping is None
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            counts = mapping is None or line.endswith(mapping)
        elif counts and line.startswith(f"{field}:"):
            total += int(line.split()[1])
    return total


def sharing(bench: Bench) -> None:
    spawning = multiprocessing.get_context("spawn")
    pipes = [spawning.Pipe() for _ in range(READERS)]
    readers = [spawning.Process(target=read_all, args=(theirs,)) for _, theirs in pipes]
    for reader in readers:
        reader.start()
    orders = [ours for ours, _ in pipes]
    try:
        assert {one.recv() for one in orders} == {"ready"}
        before = [kilobytes(reader.pid, "Anonymous") for reader in readers]
        for one in orders:
            one.send("go")
        assert len({one.recv() for one in orders}) == 1
        grown = [kilobytes(reader.pid, "Anonymous") - was for reader, was in zip(readers, before, strict=True)]
        path = str(images_path(SOURCE))
        resident, shares, private = (
            [kilobytes(reader.pid, field, path) for reader in readers] for field in ("Rss", "Pss", "Private_Dirty")
        )
    finally:
        for one in orders:
            one.send("end")
        for reader in readers:
            reader.join()
    print(f"{READERS} processes map {_mb(resident)} MB each; their shares (PSS): {_mb(shares)} MB")
    print(f"private pages of the map: {_mb(private)} MB; other memory grew by {_mb(grown)} MB")
    size_kb = os.path.getsize(path) / 1024
    together = f"memory of the mapped set in {READERS} processes together / size of its file"
    size_mb = size_kb * 1024 / 1e6
    sides = {"ours": sum(shares) * 1024 / 1e6, "rival": size_mb, "unit": "MB"}
    bench.ratio(f"{together} (PSS)", sum(shares) / size_kb, at_most=SHARING_LIMIT, **sides)
    sides["ours"] = sum(private) * 1024 / 1e6
    bench.ratio(f"{together} (private pages)", sum(private) / size_kb, at_most=0.01, **sides)


def _mb(kilobytes: list[int]) -> str:
    return ", ".join(f"{one * 1024 / 1e6:.0f}" for one in kilobytes)


def main() -> None:
    process.prepare(threads=1, device="cpu")
    bench = Bench("data")
    drawing(bench)
    with tempfile.TemporaryDirectory() as folder:
        use_root(folder, override=True)
        build(Path(folder))
        sharing(bench)
        against_the_step(bench)
        against_other_storage(bench, Path(folder))
    bench.close()


if __name__ == "__main__":
    main()
