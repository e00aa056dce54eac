"""Makes a prepared array from its files: under a lock, in a temporary folder, hashing and measuring it on the way."""

import hashlib
import json
import math
import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np

from disentune.data.prepared.download import Progress, download
from disentune.data.prepared.measuring import Measuring
from disentune.data.prepared.store import (
    ABOUT,
    CHECKED,
    FORMAT,
    IMAGES,
    VARIABLE,
    About,
    Made,
    about_of,
    command_of,
    folder_of,
    locked,
    own_file,
    places_of,
    quiet,
    root,
    stamp_of,
)
from disentune.errors import DataError
from disentune.files.writing import write_atomically
from disentune.plugin import File, Source


def prepare(
    source: Source, given: Path | None = None, again: bool = False, accept: bool = False, say: Progress = quiet
) -> About:
    """Makes the array from the user's files (`given`: a file or a folder), from files in the root, or from downloads.
    An existing array is kept unless `again`; `accept` accepts contents that differ from the published ones."""
    with locked(source):
        if not again and (about := about_of(source)) is not None:
            return about
        _assert_ours(source)
        _clear_leftovers(source)
        fetched = [downloads() / file.name for file in source.files if file.urls and given is None]
        if again:
            _remove(fetched)
        paths = [_located(file, source, given, say) for file in source.files]
        with _aside(source) as aside, _removed_if_wrong(fetched):
            about = _written(source, paths, aside / "made", say)
            if about.published is False and not accept:
                raise _not_published(source, about, given)
            _put_in_place(source, aside)
        _remove(fetched)  # the array has all their content
        return about


@contextmanager
def _aside(source: Source) -> Iterator[Path]:
    """A temporary folder for the new array, which is always removed afterwards."""
    with _writing(source):
        aside = Path(tempfile.mkdtemp(prefix=f".{source.key}.", dir=root()))
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put_in_place(source: Source, aside: Path) -> None:
    folder = folder_of(source)
    with _writing(source):
        if folder.exists():
            folder.rename(aside / "replaced")  # current readers keep their mapping
        (aside / "made").rename(folder)
        _sync(root())


def _assert_ours(source: Source) -> None:
    """Raises DataError if the folder, which will be replaced, has files that are not ours."""
    folder = folder_of(source)
    names = (IMAGES, ABOUT, CHECKED)
    with _writing(source):
        found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    others = [name for name in found if not name.removeprefix(".").startswith(names)]
    if others:
        raise DataError(
            f"{folder} would be replaced by the prepared array, but contains {', '.join(others)}; move that "
            f"elsewhere, then run: {command_of(source)} --again --from FILE"
        )


def _clear_leftovers(source: Source) -> None:
    """Removes temporary folders of processes that were killed while holding the lock."""
    for path in root().glob(f".{source.key}.*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _writing(source: Source) -> Iterator[None]:
    """Turns errors of a full disk, a quota or missing permissions into a DataError that says what to do."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"'{source.key}' cannot be written in {root()} ({error.strerror}); free some space or fix the "
            f"permissions there, or choose another root with {VARIABLE}; then run: {command_of(source)}"
        ) from None


def _sync(folder: Path) -> None:
    """Syncs a folder, so that its names survive a loss of power; some network file systems refuse, and do not need
    it."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


# ---- finding the files


def _located(file: File, source: Source, given: Path | None, say: Progress) -> Path:
    if given is not None:
        return _given(file, source, given)
    if not file.urls:
        return _own(file)
    places = [root() / name for name in (file.name, *file.also)]
    there = next((path for path in places if path.is_file() or (file.folder and path.is_dir())), None)
    if there is not None:
        return there
    return download(file, downloads(), command_of(source), say)


def _own(file: File) -> Path:
    found = own_file(file)
    if found is None:
        raise _no_file(places_of(file), "file or folder" if file.folder else "file")
    return found


def _no_file(places: list[Path], what: str) -> DataError:
    folder = next((path for path in places if path.is_dir()), None)
    if folder is not None:
        return DataError(f"{folder} is a folder, but must be a file; correct the path")
    if len(places) == 1:
        return DataError(f"{places[0]} does not exist; put the {what} there, or correct the path")
    tried = ", ".join(map(str, places))
    return DataError(f"none of {tried} exists; put the {what} in one of these places, or correct the path")


def assert_obtainable(source: Source) -> None:
    """Raises DataError if a user's own file is missing; public files can be downloaded."""
    for file in source.files:
        if not file.urls:
            _own(file)


def downloads() -> Path:
    return root() / "downloads"


def _given(file: File, source: Source, given: Path) -> Path:
    if given.is_file() and len(source.files) == 1:
        return given
    names = ", ".join(known.name for known in source.files)
    if given.is_file():
        raise DataError(f"--from {given}: must be the folder that contains {names}")
    inside = [given / name for name in (file.name, *file.also)]
    there = next((path for path in inside if path.is_file() or (file.folder and path.is_dir())), None)
    if there is None and file.folder and given.is_dir():
        return given
    if there is None:
        what = "does not exist" if not given.exists() else f"{file.name} is not in that folder"
        raise DataError(f"--from {given}: {what}; '{source.name}' is made from {names}")
    return there


def _remove(fetched: list[Path]) -> None:
    for path in fetched:
        path.unlink(missing_ok=True)


class WrongFiles(DataError):
    """The files do not belong to this data set."""


@contextmanager
def _removed_if_wrong(fetched: list[Path]) -> Iterator[None]:
    """Removes downloads that turn out to be wrong, so that the next attempt does not reuse them."""
    try:
        yield
    except WrongFiles:
        _remove(fetched)
        raise


# ---- writing the array


def _written(source: Source, paths: list[Path], folder: Path, say: Progress) -> About:
    """Writes the array in chunks, and computes its hash and statistics on the way."""
    about = About(
        format=FORMAT, name=source.name, variant=source.variant, options=source.options,
        count=source.count, shape=source.shape, binary=source.binary,
        sha256="", mean=(), std=(),
        files=tuple(Made.of(path, own=not file.urls) for file, path in zip(source.files, paths, strict=True)),
        provenance=dict(source.provenance()),
    )  # fmt: skip
    _assert_room(source, about)
    digest, moments, done = hashlib.sha256(), Measuring(), 0
    with _writing(source), _created(folder / IMAGES) as file:
        file.write(about.header)
        for chunk in _read(source, paths):
            _assert_images(source, chunk, done, paths)
            rows = _rows(source, chunk, paths)
            file.write(rows)
            digest.update(rows)
            moments.add(chunk)
            done += len(chunk)
            say(f"preparing {source.key}", done, source.count)
    if done != source.count:
        raise _wrong(source, paths, f"must have {source.count} images, but has {done}")
    mean, std = moments.statistics()
    found = {"sha256": digest.hexdigest(), "mean": mean, "std": std, "published": _is_published(source, mean, std)}
    about = about.model_copy(update=found)
    with _writing(source):
        write_atomically(folder / ABOUT, about.model_dump_json(indent=1).encode())
        write_atomically(folder / CHECKED, json.dumps(stamp_of(folder / IMAGES)).encode())
        _sync(folder)
    return about


@contextmanager
def _created(path: Path) -> Iterator[BinaryIO]:
    """A file in a new folder, synced to disk when it is closed."""
    path.parent.mkdir()
    with path.open("wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _read(source: Source, paths: list[Path]) -> Iterator[np.ndarray]:
    try:
        yield from source.read(paths)
    except OSError as error:
        raise _wrong(source, paths, f"cannot be read ({error})") from error
    except DataError as error:
        raise WrongFiles(f"{error}; {_right_file(source)}") from None


def _assert_room(source: Source, about: About) -> None:
    free = shutil.disk_usage(root()).free
    if about.file_bytes > free:
        raise DataError(
            f"{root()}: '{source.key}' needs {about.file_bytes / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are free"
        )


def _assert_images(source: Source, chunk: np.ndarray, done: int, paths: list[Path]) -> None:
    if chunk.dtype != np.uint8 or chunk.shape[1:] != source.shape:
        came = f"{chunk.shape[1:]} {chunk.dtype}"
        raise _wrong(source, paths, f"images must be {source.shape} (channels, height, width) bytes, but are {came}")
    if done + len(chunk) > source.count:
        raise _wrong(source, paths, f"must have {source.count} images, but has more")


def _rows(source: Source, chunk: np.ndarray, paths: list[Path]) -> memoryview:
    flat = np.ascontiguousarray(chunk).reshape(len(chunk), math.prod(source.shape))
    if source.binary:
        if not ((flat == 0) | (flat == 255)).all():
            raise _wrong(source, paths, "pixels must be black or white, but some are grey")
        flat = np.packbits(flat, axis=1)
    return flat.data


def _wrong(source: Source, paths: list[Path], text: str) -> WrongFiles:
    return WrongFiles(f"{', '.join(map(str, paths))}: {text}; {_right_file(source)}")


def _right_file(source: Source) -> str:
    if not any(file.urls for file in source.files):
        return f"fix the file or these parameters, then run: {command_of(source)}"
    return f"get the right file, then run: {command_of(source)} --from {'FILE' if len(source.files) == 1 else 'FOLDER'}"


# ---- measuring it


def _is_published(source: Source, mean: tuple[float, ...], std: tuple[float, ...]) -> bool | None:
    """Checks the contents by the published statistics, whatever file they came in."""
    if source.published is None:
        return None
    return np.allclose([mean, std], source.published, rtol=0, atol=source.tolerance)


def _not_published(source: Source, about: About, given: Path | None) -> DataError:
    taken = f" --from {shlex.quote(str(given))}" if given else ""
    assert source.published is not None
    return DataError(
        f"{', '.join(file.name for file in about.files)}: is not the published data set: mean and std of the channels "
        f"must be {_short(source.published.mean)} and {_short(source.published.std)}, but are {_short(about.mean)} "
        f"and {_short(about.std)}. Get the public file, or accept this one with: "
        f"{command_of(source)}{taken} --accept"
    )


def _short(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6f}" for value in values)
