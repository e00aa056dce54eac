"""Files that are published with gzip compression, and that users may have unpacked."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from disentune.errors import DataError


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """A file's contents, compressed or not, whatever its name: some browsers unpack downloads.

    Raises DataError if the file turns out to be damaged; its checksum is at the end, so read all of it.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_packed else path.open("rb") as contents:
            yield cast(IO[bytes], contents)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: is truncated or damaged ({error})") from None
