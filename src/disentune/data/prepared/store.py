"""Prepared data: one array per source, created once per node, and memory-mapped by every trial that reads it.

<root>/<source>/images.npy     one row per image: bytes, or bits if pixels are black or white <root>/<source>/about.json
what it holds, its hash and its statistics <root>/<source>/checked.json   what the array's file looked like when its
hash was last found right

A folder is written under a temporary name and renamed, so it is complete or missing. A process that finds the array's
file changed since it was last checked reads all of it once; every other process trusts the file and starts immediately.

A folder that is prepared again replaces the old one, and processes of the same node keep what they have mapped. Over
NFS that holds only on the node that prepares it: on the other nodes, nothing should read the data meanwhile.
"""

import hashlib
import io
import json
import math
import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from pydantic import ValidationError

from disentune.data.prepared.download import Progress
from disentune.data.prepared.measuring import Measuring
from disentune.errors import DataError
from disentune.files.writing import write_atomically
from disentune.plugin import File, Frozen, Shape, Source, added

VARIABLE = "DISENTUNE_DATA"
IMAGES, ABOUT, CHECKED = "images.npy", "about.json", "checked.json"
FORMAT = 1
BLOCK = 1 << 24
"""Bytes read at a time when a file is checked."""


def quiet(what: str, done: int, total: int | None) -> None:
    """Ignores progress."""


# ---- paths


def is_root_set() -> bool:
    return bool(os.environ.get(VARIABLE))


def root() -> Path:
    """The folder of prepared data, which is never guessed."""
    value = os.environ.get(VARIABLE, "")
    if not value:
        raise DataError(
            f"no data root is set: choose a folder for prepared data sets with `export {VARIABLE}=/some/folder`, "
            "with `data: {root: /some/folder}` in the sweep, or for `disentune data` with --root"
        )
    path = Path(os.path.expanduser(value))
    if not path.is_absolute():
        raise DataError(f"{VARIABLE} must be an absolute path or start with ~, but is '{value}'")
    return path


_used: list[str] = []
"""The root that was given to this process instead of its environment, if any."""


def use_root(path: str | Path | None, override: bool = False) -> None:
    """Sets the root for this process and its children; the environment's own choice wins unless it is overridden."""
    if path is not None and (override or not os.environ.get(VARIABLE)):
        os.environ[VARIABLE] = str(Path(os.path.expanduser(path)).absolute())
        _used[:] = [os.environ[VARIABLE]]


def command_of(source: Source) -> str:
    """The command that prepares the source here."""
    given = os.environ.get(VARIABLE) in _used
    return f"{source.command} --root {shlex.quote(str(root()))}" if given else source.command


def folder_of(source: Source) -> Path:
    return root() / source.key


def places_of(file: File) -> list[Path]:
    """Possible paths of a user's own file: absolute, or in the data root, or in the working folder."""
    return list(dict.fromkeys(place / name for name in (file.name, *file.also) for place in (root(), Path.cwd())))


def own_file(file: File) -> Path | None:
    """A user's own file, at the first of its possible paths that exists."""
    return next((path for path in places_of(file) if path.is_file() or (file.folder and path.is_dir())), None)


def images_path(source: Source) -> Path:
    return folder_of(source) / IMAGES


@contextmanager
def locked(source: Source) -> Iterator[None]:
    """A lock for one process at a time, on this node or on all nodes that share the root."""
    place = root()
    lock = FileLock(place / f".{source.name}.lock", mode=0o666)  # everyone who can write to the root can lock it
    try:
        place.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except OSError as error:
        raise DataError(
            f"{place} cannot be written ({error.strerror}), so '{source.key}' cannot be prepared there; ask someone "
            f"with permission to run: {command_of(source)}, or choose another root with {VARIABLE}"
        ) from None
    try:
        yield
    finally:
        lock.release()


# ---- facts about an array


class Made(Frozen):
    """A file that an array was made from."""

    name: str
    size: int
    mtime_ns: int
    sha256: str = ""
    """Set for a user's own file, which may change at any time."""

    @classmethod
    def of(cls, path: Path, own: bool) -> "Made":
        size, touched = _size_and_time(path)
        return cls(name=path.name, size=size, mtime_ns=touched, sha256=_hash_of(path) if own else "")

    def is_still(self, path: Path) -> bool:
        """Whether the file has the same contents; it is read only if its time or size has changed."""
        size, touched = _size_and_time(path)
        return size == self.size and (touched == self.mtime_ns or _hash_of(path) == self.sha256)


def _size_and_time(path: Path) -> tuple[int, int]:
    """Bytes, and when it was last changed; of a folder the bytes of all files below it, and the latest change."""
    below = sorted(path.rglob("*")) if path.is_dir() else []
    stats = [(one.stat(), one.is_file()) for one in (path, *below)]
    return sum(stat.st_size for stat, is_file in stats if is_file), max(stat.st_mtime_ns for stat, _ in stats)


def _hash_of(path: Path) -> str:
    """The hash of a file; for a folder, the hash of the names and hashes of all files below it."""
    if path.is_dir():
        files = sorted(one for one in path.rglob("*") if one.is_file())
        listed = [[one.relative_to(path).as_posix(), _hash_of(one)] for one in files]
        return hashlib.sha256(json.dumps(listed).encode()).hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class About(Frozen):
    """The content of about.json."""

    format: int
    name: str
    variant: str
    options: str
    count: int
    shape: Shape
    binary: bool
    sha256: str
    """Hash of the array's bytes without the file's header: the same for equal contents, whatever file they came in."""
    mean: tuple[float, ...]
    std: tuple[float, ...]
    files: tuple[Made, ...]
    published: bool | None = None
    """Whether its statistics are the published ones; None if none are known."""
    provenance: dict[str, Any] = added({})
    """What it was made from, in addition to files."""

    @property
    def row_bytes(self) -> int:
        pixels = math.prod(self.shape)
        return -(-pixels // 8) if self.binary else pixels

    @property
    def header(self) -> bytes:
        """The header of the array's file."""
        text, shape = io.BytesIO(), (self.count, self.row_bytes)
        np.lib.format.write_array_header_1_0(text, {"descr": "|u1", "fortran_order": False, "shape": shape})
        return text.getvalue()

    @property
    def file_bytes(self) -> int:
        return len(self.header) + self.count * self.row_bytes


def about_of(source: Source) -> About | None:
    """None if the source is not prepared; raises DataError if the prepared data is incomplete or wrong."""
    path = folder_of(source) / ABOUT
    with _readable(path, source):
        if not path.parent.exists():
            return None
        text = path.read_bytes()
    try:
        about = About.model_validate_json(text)
    except ValidationError:
        raise DataError(f"{path} is damaged; {again(source)}") from None
    if (about.format, about.count, about.shape, about.binary) != (FORMAT, source.count, source.shape, source.binary):
        raise DataError(
            f"{path} describes {about.count} images of shape {about.shape}, but '{source.name}' has {source.count} "
            f"of shape {source.shape}; {again(source)}"
        )
    _assert_whole(source, about)
    _assert_same_files(source, about)
    return about


def prepared_sources() -> dict[str, Source | DataError]:
    """The prepared data in the root, by folder, as far as it is described there: enough to verify it, not to make
    it."""
    folders = {path.parent for name in (ABOUT, IMAGES) for path in root().glob(f"[!.]*/{name}")}
    return {folder.name: _described_by(folder) for folder in sorted(folders)}


def _described_by(folder: Path) -> Source | DataError:
    try:
        about = About.model_validate_json((folder / ABOUT).read_bytes())
        plain = shlex.join(shlex.split(about.options)) == about.options
    except (ValueError, OSError):
        return DataError(f"{folder / ABOUT} is missing or damaged; remove the folder, or prepare "
                         "its data set with --again")  # fmt: skip
    fields = about.model_dump(include={"name", "variant", "options", "shape", "count", "binary"})
    source = Source(files=(), read=_unreadable, **fields)
    if source.key != folder.name or not plain:
        return DataError(f"{folder} was moved after its array was prepared; move it out of the data root, or remove it")
    return source


def _unreadable(paths: Sequence[Path]) -> Iterator[np.ndarray]:
    raise AssertionError("only the files' own source can read them")


def again(source: Source) -> str:
    return f"prepare it again with: {command_of(source)} --again"


@contextmanager
def _readable(path: Path, source: Source) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path} is missing; {again(source)}") from None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read ({error.strerror}); fix that, or choose another root with {VARIABLE}"
        ) from None


def _assert_whole(source: Source, about: About) -> None:
    path = images_path(source)
    with _readable(path, source):
        size = path.stat().st_size
    if size != about.file_bytes:
        raise DataError(f"{path} must have {about.file_bytes} bytes, but has {size}; {again(source)}")


def _assert_same_files(source: Source, about: About) -> None:
    """Checks that a user's own file has not changed; public files do not change."""
    for file, then in zip(source.files, about.files, strict=False):
        path = None if file.urls else own_file(file)
        if path is not None and not then.is_still(path):
            raise DataError(f"{path} has changed since it was prepared; {again(source)}")


# ---- reading


@dataclass(frozen=True)
class Prepared:
    """A prepared array: rows are memory-mapped, so that all processes of a node share one copy."""

    about: About
    rows: np.ndarray
    """(count, bytes of an image)"""

    def images(self, indices: np.ndarray) -> np.ndarray:
        """A new array, uint8 (n, c, h, w)."""
        return _unpacked(self.rows[indices], self.about)


def _unpacked(rows: np.ndarray, about: About) -> np.ndarray:
    """(n, bytes of an image) -> (n, c, h, w)"""
    if about.binary:
        rows = np.negative(np.unpackbits(rows, axis=1, count=math.prod(about.shape)))  # 1 becomes 255
    return rows.reshape(-1, *about.shape)


def mapped(source: Source, about: About, say: Progress = quiet) -> Prepared:
    """Raises DataError if the array's file was altered."""
    path = images_path(source)
    with _readable(path, source):
        if not _is_checked(path):
            with _locked_if_possible(source):
                if not _is_checked(path):
                    _check(source, about, say)
        return Prepared(about, np.asarray(np.load(path, mmap_mode="r")))


@contextmanager
def _locked_if_possible(source: Source) -> Iterator[None]:
    """A lock, so that one process checks and the others wait; in a read-only root every process checks."""
    with ExitStack() as stack:
        with suppress(DataError):
            stack.enter_context(locked(source))
        yield


def is_checked(source: Source) -> bool:
    """Whether its file is unchanged since its hash was last verified."""
    return _is_checked(images_path(source))


def verify(source: Source, say: Progress = quiet) -> About:
    """Reads the whole array and compares it with its hash. Raises DataError if it is missing or altered."""
    about = about_of(source)
    if about is None:
        raise DataError(f"'{source.key}' is not prepared in {root()}; prepare it with: {command_of(source)}")
    with _readable(images_path(source), source):
        _check(source, about, say)
    return about


def _check(source: Source, about: About, say: Progress) -> None:
    path, digest, measuring, done = images_path(source), hashlib.sha256(), Measuring(), 0
    stamp, rows_at_once = stamp_of(path), max(1, BLOCK // about.row_bytes)
    with path.open("rb") as file:
        header = file.read(len(about.header))
        while block := file.read(rows_at_once * about.row_bytes):
            digest.update(block)
            measuring.add(_unpacked(np.frombuffer(block, np.uint8).reshape(-1, about.row_bytes), about))
            done += len(block)
            say(f"checking {source.key}", done, about.file_bytes - len(header))
    if digest.hexdigest() != about.sha256 or header != about.header:
        raise DataError(f"{path} was altered after it was prepared: its contents do not match the hash in about.json; "
                        f"{again(source)}")  # fmt: skip
    if (about.mean, about.std) != measuring.statistics():
        raise DataError(f"{path.parent / ABOUT} was altered: its mean and std are not those of the images; "
                        f"{again(source)}")  # fmt: skip
    _remember(path, stamp)


Stamp = dict[str, int | str]

_checked: dict[Path, Stamp] = {}
"""Arrays that this process has checked itself, because a read-only root keeps no record."""


def stamp_of(path: Path) -> Stamp:
    """Changes whenever an array's file or its description changes."""
    stat, about = path.stat(), hashlib.sha256((path.parent / ABOUT).read_bytes()).hexdigest()
    return {"size": stat.st_size, "mtime_ns": stat.st_mtime_ns, "ctime_ns": stat.st_ctime_ns, "about": about}


def _is_checked(path: Path) -> bool:
    if _checked.get(path) == stamp_of(path):
        return True
    try:
        found: bool = json.loads((path.parent / CHECKED).read_text()) == stamp_of(path)
        return found
    except (OSError, ValueError):
        return False


def _remember(path: Path, stamp: Stamp) -> None:
    _checked[path] = stamp
    try:
        write_atomically(path.parent / CHECKED, json.dumps(stamp).encode())
    except OSError:
        return  # a read-only root
