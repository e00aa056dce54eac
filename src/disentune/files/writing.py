"""Files that are whole or not there: written aside, synced and renamed; and what a killed writer leaves of that."""

import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from disentune.files.storage import OWNER, Owner, Place, RemotePath, owner, owner_in, retried, sync_folder


def write_atomically(path: Place, data: bytes) -> None:
    """All of it or nothing: a reader sees the old content until the new one is safe."""
    if isinstance(path, RemotePath):
        path.write_bytes(data)
    else:
        _write_aside(path, data)


@retried
def _write_aside(path: Path, data: bytes) -> None:
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


def asides(folder: Place, pattern: str) -> Iterator[Path]:
    """What killed writers left. In an object store there is no such thing."""
    return iter(()) if isinstance(folder, RemotePath) else folder.glob(pattern)


_ASIDE = re.compile(rf"\..+\.({OWNER}-)?[0-9a-f]{{8}}")
STALE_S = 1800.0
"""How long the file of a writer that cannot be seen from here is left alone. No write takes so long."""


def clear_asides(folder: Path) -> None:
    """What killed writers left. A living one's stays, as does what a late worker of another machine may be writing."""
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
