"""A run as one file, to move it between machines: a tar file compressed with zstd, whose first member lists the size
and the hash of every other.

A tar file can be made to write anywhere, so a restored one is read by the strict rules of this module: only plain
files, in the order and with the sizes of the list, and only below a new folder.
"""

import hashlib
import json
import os
import shutil
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from disentune.errors import ConfigError
from disentune.files.checkpoint import LARGEST_CHECKPOINT
from disentune.files.storage import (
    Place,
    RemotePath,
    assert_reachable,
    files_below,
    make_folder,
    opened,
    shown,
    sizes_below,
)
from disentune.files.writing import write_atomically
from disentune.runs.ledger import Run
from disentune.spec.sweepfile import NAME

LIST = "disentune-archive.json"
FORMAT = 1
LARGEST_LIST, LARGEST_SWEEP = 200_000_000, 50_000_000
"""Bytes. A run of a million files has a smaller list; a sweep file is kept in memory until everything else is safe."""
DEEPEST, LONGEST = 10, 240
"""Folders and characters of a file's name in a run."""
CHUNK = 1 << 20
BLOCK = tarfile.BLOCKSIZE

Say = Callable[[str, int, int], None]


class Source(Protocol):
    """What pyarrow's streams and files have in common."""

    def read(self, size: int, /) -> bytes: ...


class Sink(Protocol):
    def write(self, data: bytes, /) -> Any: ...


@dataclass(frozen=True)
class Entry:
    """A file of a run."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Archived:
    """What was moved: the run, how many files, and their bytes."""

    run: Run
    files: int
    size: int


# ---- writing


def pack(run: Run, target: Path, say: Say = lambda what, done, total: None) -> Archived:
    """Writes a run that is not running to a file that does not exist yet. Raises ConfigError when the run changes."""
    import pyarrow as pa

    _assert_can_write(run, target)
    names = _names(run)
    entries = []
    for done, name in enumerate(names):
        say("hashing files", done, len(names))
        entries.append(_entry(run.path / name, name))
    about = {"format": FORMAT, "run": run.name, "files": [[one.name, one.size, one.sha256] for one in entries]}
    with _new_file(target) as raw, pa.CompressedOutputStream(raw, "zstd") as sink:
        _write_member(sink, LIST, json.dumps(about).encode(), time.time())
        for done, entry in enumerate(entries):
            say("writing the archive", done, len(entries))
            _copy_in(sink, run.path / entry.name, entry)
        if run.is_running() or _names(run) != names:
            raise _changed(run.path)
        sink.write(bytes(2 * BLOCK))
    return Archived(run, len(entries), sum(entry.size for entry in entries))


def _assert_can_write(run: Run, target: Path) -> None:
    if not target.name.endswith(".tar.zst"):
        raise ConfigError(f"{target}: the name of an archive must end in .tar.zst")
    if os.path.lexists(target):
        raise ConfigError(f"{target} exists already; remove it or choose another name")
    if isinstance(run.path, Path) and target.resolve().is_relative_to(run.path.resolve()):
        raise ConfigError(f"{target} is inside the run; choose a file outside {shown(run.path)}")
    if run.is_running():
        raise ConfigError(f"{run.path} is being run; stop it first with: disentune stop {shown(run.path)}")


def _names(run: Run) -> list[str]:
    """Files that belong to the run. Links (W&B's client makes some), locks and temporary files do not."""
    return sorted(name for name in sizes_below(run.path) if not is_passing(run, name))


def is_passing(run: Run, name: str) -> bool:
    """Whether a file only says who uses the run now, or is temporary."""
    first, _, rest = name.partition("/")
    if first == run.incoming_folder.name:
        return True
    is_aside = name.rpartition("/")[2].startswith(".")
    return is_aside or (not rest and first in {run.lock_path.name, run.stop_path.name, run.tracking_lock.name})


def _entry(path: Place, name: str) -> Entry:
    if not _is_safe(name):
        raise ConfigError(f"{path} cannot be archived: its name is too long or has control characters; rename it")
    digest, size = hashlib.sha256(), 0
    for chunk in _chunks(path):
        digest.update(chunk)
        size += len(chunk)
    return Entry(name, size, digest.hexdigest())


def _chunks(path: Place) -> Iterator[bytes]:
    if isinstance(path, RemotePath):
        yield path.read_bytes()
        return
    with opened(path) as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _copy_in(sink: Sink, path: Place, entry: Entry) -> None:
    """Raises ConfigError if the file is no longer the one that was listed."""
    digest, size = hashlib.sha256(), 0
    try:
        sink.write(_header(entry.name, entry.size, path.stat().st_mtime))
        for chunk in _chunks(path):
            sink.write(chunk)
            digest.update(chunk)
            size += len(chunk)
    except FileNotFoundError:
        raise _changed(path) from None
    if (size, digest.hexdigest()) != (entry.size, entry.sha256):
        raise _changed(path)
    sink.write(bytes(-size % BLOCK))


def _changed(path: Place) -> ConfigError:
    return ConfigError(f"{path} changed while it was archived; archive the run again when nothing writes to it")


def _write_member(sink: Sink, name: str, data: bytes, time_s: float) -> None:
    sink.write(_header(name, len(data), time_s) + data + bytes(-len(data) % BLOCK))


def _header(name: str, size: int, time_s: float) -> bytes:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size, max(0, int(time_s)), 0o644
    try:
        if size >= 8 << 30:  # only this format has numbers of more than eleven octal digits
            return info.tobuf(tarfile.GNU_FORMAT, "utf-8", "strict")
        return info.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")
    except ValueError as error:
        raise ConfigError(f"{name} cannot be archived: {error}; rename it") from None


@contextmanager
def _new_file(target: Path) -> Iterator[Any]:
    """A file that appears under its name only once it is whole."""
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(aside, "xb") as file:
            yield file  # pyarrow closes it
        with open(aside, "rb") as file:
            os.fsync(file.fileno())
        os.rename(aside, target)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


# ---- reading


def unpack(source: Path, storage: Place, say: Say = lambda what, done, total: None) -> Archived:
    """Restores a run below a storage, under the name that it had. Raises ConfigError for a file that is damaged or was
    made to harm, and when the run exists already; then nothing is left behind."""
    import pyarrow as pa

    assert_reachable(storage)
    with opened(source) as raw, _Compressed(pa.CompressedInputStream(raw, "zstd"), source) as stream:
        name, entries = _listed(stream)
        run = Run(storage / name)
        _assert_new(run)
        _assert_space(storage, sum(entry.size for entry in entries), source)
        _create(run)
        try:
            _restore(stream, run, entries, say)
        except BaseException:
            _remove(run)
            raise
    return Archived(run, len(entries), sum(entry.size for entry in entries))


class _Compressed:
    """Reads exactly as many bytes as are asked for; every failure to read is that of a damaged archive."""

    def __init__(self, stream: Any, source: Path):
        self.stream, self.source = stream, source

    def __enter__(self) -> "_Compressed":
        return self

    def __exit__(self, *error: object) -> None:
        with suppress(OSError):
            self.stream.close()

    def read(self, size: int, /) -> bytes:
        try:
            data: bytes = self.stream.read(size)
            while len(data) < size and (more := self.stream.read(size - len(data))):
                data += more
        except OSError:
            raise self.damage("it is not compressed with zstd, or it is cut off") from None
        if len(data) < size:
            raise self.damage("it is cut off")
        return data

    def damage(self, why: str) -> ConfigError:
        return ConfigError(f"{self.source} cannot be restored: {why}; copy it again from where it was archived")

    def header(self) -> tarfile.TarInfo:
        """The next member, which must be a plain file."""
        try:
            info = tarfile.TarInfo.frombuf(self.read(BLOCK), "utf-8", "strict")
        except (tarfile.HeaderError, UnicodeError):
            raise self.damage("it is not an archive of a run") from None
        if info.type != tarfile.REGTYPE:
            raise self.damage(f"{info.name!r:.100} is a link, a folder or a device, and only files are allowed")
        return info

    def padding(self, size: int) -> None:
        self.read(-size % BLOCK)


def _listed(stream: _Compressed) -> tuple[str, list[Entry]]:
    """The name of the run and its files, checked."""
    head = stream.header()
    if head.name != LIST or not 0 <= head.size <= LARGEST_LIST:
        raise stream.damage(f"it is not an archive of a run: it must begin with {LIST}")
    try:
        about = json.loads(stream.read(head.size))
        name, entries = about["run"], [Entry(*one) for one in about["files"]]
    except (ValueError, TypeError, LookupError, RecursionError):
        raise stream.damage(f"{LIST} in it is damaged") from None
    stream.padding(head.size)
    if about.get("format") != FORMAT:
        raise stream.damage(f"it has format {about.get('format')!r:.40}, and this version reads format {FORMAT}")
    if problem := _problem(name, entries):
        raise stream.damage(problem)
    return name, entries


def _problem(name: Any, entries: list[Entry]) -> str:
    """Why these files cannot be a run; empty if they can."""
    parts = name.split("/") if isinstance(name, str) else []
    if len(parts) != 2 or not all(map(NAME.fullmatch, parts)):
        return f"{name!r:.100} is not the name of a run"
    for one in entries:
        if not isinstance(one.name, str) or not _is_safe(one.name) or is_passing(Run(Path(name)), one.name):
            return f"{one.name!r:.100} is not a file of a run"
        most = LARGEST_SWEEP if one.name == SWEEP else LARGEST_CHECKPOINT
        if type(one.size) is not int or not 0 <= one.size <= most or not isinstance(one.sha256, str):
            return f"{one.name} cannot have {one.size!r:.40} bytes"
    names = [one.name for one in entries]
    folders = {name[:at] for name in names for at in range(len(name)) if name[at] == "/"}
    if names != sorted(set(names)) or folders & set(names):
        return "a file is listed twice"
    return "" if SWEEP in names else "it has no sweep.yaml"


SWEEP = Run(Path()).sweep_path.name


def _is_safe(name: str) -> bool:
    """Whether a relative name stays in its folder on any system."""
    parts = name.split("/")
    is_short = len(name.encode(errors="replace")) <= LONGEST and len(parts) <= DEEPEST
    return is_short and name.isprintable() and "\\" not in name and not {"", ".", ".."} & set(parts)


def _assert_new(run: Run) -> None:
    is_there = os.path.lexists(run.path) if isinstance(run.path, Path) else next(iter(files_below(run.path)), None)
    if is_there:
        raise ConfigError(f"{shown(run.path)} exists already; move it away, or choose another --storage")


def _assert_space(storage: Place, needed: int, source: Path) -> None:
    if isinstance(storage, RemotePath):
        return
    make_folder(storage)
    free = shutil.disk_usage(storage).free
    if needed > free:
        raise ConfigError(
            f"{source} holds {needed:,} bytes, but {shown(storage)} has {free:,} free; choose another --storage"
        )


def _create(run: Run) -> None:
    """A new, empty folder. It has no sweep.yaml until the end, so no command takes it for a run."""
    if isinstance(run.path, Path):
        make_folder(run.path.parent)
        run.path.mkdir()


def _remove(run: Run) -> None:
    if isinstance(run.path, Path):
        shutil.rmtree(run.path, ignore_errors=True)
        with suppress(OSError):  # the sweep has other runs
            run.path.parent.rmdir()
        return
    for path in files_below(run.path):
        with suppress(OSError):
            path.unlink(missing_ok=True)


def _restore(stream: _Compressed, run: Run, entries: list[Entry], say: Say) -> None:
    sweep = b""
    for done, entry in enumerate(entries):
        say("restoring files", done, len(entries))
        info = stream.header()
        if (info.name, info.size) != (entry.name, entry.size):
            raise stream.damage(f"{info.name!r:.100} is in the place of {entry.name}")
        if entry.name == SWEEP or isinstance(run.path, RemotePath):
            data = b"".join(_checked(stream, entry))
            if entry.name == SWEEP:
                sweep = data
            else:
                write_atomically(run.path / entry.name, data)
        else:
            _write(run.path / entry.name, _checked(stream, entry), info.mtime)
        stream.padding(entry.size)
    if stream.read(BLOCK) != bytes(BLOCK):
        raise stream.damage("it has more files than it lists")
    if isinstance(run.path, Path):
        os.sync()
    write_atomically(run.sweep_path, sweep)


def _write(path: Path, chunks: Iterator[bytes], time_s: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "xb") as file:
        for chunk in chunks:
            file.write(chunk)
    when = min(float(time_s), time.time())
    os.utime(path, (when, when))


def _checked(stream: _Compressed, entry: Entry) -> Iterator[bytes]:
    """The content of a file. Raises ConfigError at its end unless it has the listed hash."""
    digest, left = hashlib.sha256(), entry.size
    while left:
        chunk = stream.read(min(left, CHUNK))
        digest.update(chunk)
        left -= len(chunk)
        yield chunk
    if digest.hexdigest() != entry.sha256:
        raise stream.damage(f"the content of {entry.name} has changed")
