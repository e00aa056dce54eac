"""Atomic writes: to a temporary file that is synced and renamed; and the removal of those that a killed writer left."""

import errno
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from disentune.files.storage import OWNER, Owner, Place, RemotePath, owner, owner_in, retried, sync_folder


def write_atomically(path: Place, data: bytes) -> None:
    """Writes all or nothing: a reader sees the old content until the new content is safe. Raises OSError for a pipe or
    a device, such as /dev/null, which the rename would turn into a file."""
    if isinstance(path, RemotePath):
        path.write_bytes(data)
    else:
        _write_aside(path, data)


@retried
def _write_aside(path: Path, data: bytes) -> None:
    _assert_replaceable(path)
    aside = path.with_name(f".{path.name}.{owner()}-{secrets.token_hex(4)}")
    try:
        with open(aside, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def _assert_replaceable(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
        raise OSError(errno.EINVAL, "not a file but a folder, a pipe or a device; name a file to write", str(path))


def asides(folder: Place, pattern: str) -> Iterator[Path]:
    """Temporary files that killed writers left; none in an object store."""
    return iter(()) if isinstance(folder, RemotePath) else folder.glob(pattern)


_ASIDE = re.compile(rf"\..+\.({OWNER}-)?[0-9a-f]{{8}}")
STALE_S = 1800.0
"""Minimum age before removing a file whose writer is not visible from here; no write takes that long."""


def clear_asides(folder: Path) -> None:
    """Removes the temporary files of killed writers, but not those of a live one or of a worker on another machine."""
    for entry in os.scandir(folder):
        found = _ASIDE.fullmatch(entry.name)
        if found and entry.is_file(follow_symlinks=False) and _is_left(owner_in(found), entry):
            with suppress(OSError):
                os.unlink(entry.path)


def _is_left(writer: Owner | None, entry: "os.DirEntry[str]") -> bool:
    if writer is not None and writer.is_known:
        return writer.is_dead
    with suppress(OSError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > STALE_S
    return False
