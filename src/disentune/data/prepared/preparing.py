"""Making a prepared array from its files: under a lock, written aside, hashed and measured on the way."""

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
    """Makes the array from files that the user has (`given`: a file or a folder), that lie in the root, or that are
    downloaded. What is there stays as it is, unless `again`; `accept` takes contents that are not the published."""
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
        _remove(fetched)  # the array has all that was in them
        return about


@contextmanager
def _aside(source: Source) -> Iterator[Path]:
    """A folder for what is being made; gone afterwards, whatever happens."""
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
            folder.rename(aside / "replaced")  # its readers keep what they have mapped
        (aside / "made").rename(folder)
        _sync(root())


def _assert_ours(source: Source) -> None:
    """What takes a folder's place removes it, so a file that someone else has put there must go first."""
    folder = folder_of(source)
    names = (IMAGES, ABOUT, CHECKED)
    with _writing(source):
        found = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    others = [name for name in found if not name.removeprefix(".").startswith(names)]
    if others:
        raise DataError(
            f"{folder} is for the prepared array alone and would be replaced, but holds {', '.join(others)}; move that "
            f"elsewhere, then: {command_of(source)} --again --from FILE"
        )


def _clear_leftovers(source: Source) -> None:
    """Of someone who was killed while holding the lock."""
    for path in root().glob(f".{source.key}.*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def _writing(source: Source) -> Iterator[None]:
    """A full disk, a quota, a folder of another user: nothing that a traceback explains."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"'{source.key}' cannot be written in {root()} ({error.strerror}); make room or mend the permissions "
            f"there, or choose another root with {VARIABLE}; then: {command_of(source)}"
        ) from None


def _sync(folder: Path) -> None:
    """Names in a folder survive a loss of power from here on; some network file systems refuse, and need no asking."""
    descriptor = os.open(folder, os.O_RDONLY)
    with suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)


# ---- finding the files


def _located(file: File, source: Source, given: Path | None, say: Progress) -> Path:
    if given is not None:
        return _given(file, source, given)
    places = [root() / name for name in (file.name, *file.also)]
    there = next((path for path in places if path.is_file()), None)
    if there is not None:
        return there
    if not file.urls:
        raise _no_file(places[0])
    return download(file, downloads(), command_of(source), say)


def _no_file(path: Path) -> DataError:
    what = "is a folder, but must be a file" if path.is_dir() else "does not exist"
    return DataError(f"{path} {what}; put the file there, or correct its path")


def assert_obtainable(source: Source) -> None:
    """DataError when a user's own file is not there; what is public may be downloaded."""
    for file in source.files:
        if not file.urls and not (root() / file.name).is_file():
            raise _no_file(root() / file.name)


def downloads() -> Path:
    return root() / "downloads"


def _given(file: File, source: Source, given: Path) -> Path:
    if given.is_file() and len(source.files) == 1:
        return given
    names = ", ".join(known.name for known in source.files)
    if given.is_file():
        raise DataError(f"--from {given}: must be the folder that holds {names}")
    there = next((given / name for name in (file.name, *file.also) if (given / name).is_file()), None)
    if there is None:
        what = "does not exist" if not given.exists() else f"{file.name} is not in that folder"
        raise DataError(f"--from {given}: {what}; '{source.name}' is made from {names}")
    return there


def _remove(fetched: list[Path]) -> None:
    for path in fetched:
        path.unlink(missing_ok=True)


class WrongFiles(DataError):
    """Files that cannot be this data set's."""


@contextmanager
def _removed_if_wrong(fetched: list[Path]) -> Iterator[None]:
    """Else the next attempt would take them for what they are not."""
    try:
        yield
    except WrongFiles:
        _remove(fetched)
        raise


# ---- writing the array


def _written(source: Source, paths: list[Path], folder: Path, say: Progress) -> About:
    """Chunk by chunk; hash and statistics are taken on the way."""
    about = About(
        format=FORMAT, name=source.name, variant=source.variant, options=source.options,
        count=source.count, shape=source.shape, binary=source.binary,
        sha256="", mean=(), std=(),
        files=tuple(Made.of(path, own=not file.urls) for file, path in zip(source.files, paths, strict=True)),
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
    """A file in a new folder; on the disk, not only on its way there, when it is closed."""
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
        return f"mend the file or these parameters, then: {command_of(source)}"
    return f"with the right file: {command_of(source)} --from {'FILE' if len(source.files) == 1 else 'FOLDER'}"


# ---- measuring it


def _is_published(source: Source, mean: tuple[float, ...], std: tuple[float, ...]) -> bool | None:
    """The published statistics tell the right contents from any other, whatever file they came in."""
    if source.published is None:
        return None
    return np.allclose([mean, std], source.published, rtol=0, atol=source.tolerance)


def _not_published(source: Source, about: About, given: Path | None) -> DataError:
    taken = f" --from {shlex.quote(str(given))}" if given else ""
    assert source.published is not None
    return DataError(
        f"{', '.join(file.name for file in about.files)}: is not the published data set: mean and std of its channels "
        f"must be {_short(source.published.mean)} and {_short(source.published.std)}, but are {_short(about.mean)} "
        f"and {_short(about.std)}. Get the public file, or keep this one as it is with: "
        f"{command_of(source)}{taken} --accept"
    )


def _short(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6f}" for value in values)
