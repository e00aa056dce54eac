"""Tiny sources for tests of prepared data: their file holds the bytes of the images, one image after the other.

What runs in other processes stands here too, so that it can be imported there.
"""

import os
import pickle
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from disentune.data.prepared.store import VARIABLE
from disentune.data.prepared.stored import StoredImages
from disentune.plugin import File, Shape, Source
from processes import patience_s

NAME = "example.bin"
GREY: Shape = (3, 4, 5)
BITS: Shape = (1, 3, 5)
"""15 pixels: the last bit of a row belongs to none."""
COUNT = 12
FACTORS = {"rows": 3, "columns": 4}
PATIENCE_S = patience_s(60)


def example(shape: Shape = GREY, binary: bool = False, seed: int = 0) -> np.ndarray:
    """uint8 (COUNT, c, h, w)"""
    images = np.random.default_rng(seed).integers(256, size=(COUNT, *shape), dtype=np.uint8)
    return np.where(images < 128, 0, 255).astype(np.uint8) if binary else images


def source_of(shape: Shape = GREY, **changes: Any) -> Source:
    read = partial(read_bytes, shape=shape)
    made = {"name": "example", "files": (File(NAME),), "read": read, "shape": shape, "count": COUNT}
    return Source(**(made | changes))


# ---- readers


def reads_of(path: Path) -> int:
    """How often a file was read."""
    log = path.with_suffix(".log")
    return len(log.read_text()) if log.exists() else 0


def read_bytes(paths: Sequence[Path], shape: Shape, rows: int = 5) -> Iterator[np.ndarray]:
    """Chunks of a few images; leaves a mark beside the file."""
    with paths[0].with_suffix(".log").open("a") as log:
        log.write("x")
    images = np.frombuffer(paths[0].read_bytes(), np.uint8).reshape(-1, *shape)
    for start in range(0, len(images), rows):
        yield images[start : start + rows]


def read_slowly(paths: Sequence[Path], shape: Shape) -> Iterator[np.ndarray]:
    """Slow enough for others to come meanwhile."""
    for chunk in read_bytes(paths, shape):
        time.sleep(0.1)
        yield chunk


def read_and_hang(paths: Sequence[Path], shape: Shape) -> Iterator[np.ndarray]:
    """The first chunk, and the others when a file says so."""
    chunks = read_bytes(paths, shape)
    yield next(chunks)
    deadline = time.monotonic() + PATIENCE_S
    while not paths[0].with_suffix(".go").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    yield from chunks


def read_and_fail(paths: Sequence[Path], shape: Shape, error: Exception) -> Iterator[np.ndarray]:
    yield next(read_bytes(paths, shape))
    raise error


# ---- in other processes


def open_when_all_are_there(root: str, source: Source, everyone: Any, answers: Any) -> None:
    os.environ[VARIABLE] = root
    everyone.wait(PATIENCE_S)
    answers.put(StoredImages(source, FACTORS).images(np.arange(COUNT)))


def open_in(root: str, source: Source) -> None:
    os.environ[VARIABLE] = root
    StoredImages(source, FACTORS)


def unpickle_in(root: str, pickled: bytes, answers: Any) -> None:
    os.environ[VARIABLE] = root
    answers.put(pickle.loads(pickled).images(np.arange(COUNT)))
