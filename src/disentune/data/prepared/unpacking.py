"""Files that come packed with gzip, and that users may have unpacked."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

from disentune.errors import DataError


@contextmanager
def unpacked(path: Path) -> Iterator[IO[bytes]]:
    """A file's contents whether it is packed or not, whatever its name: some browsers unpack what they download.

    DataError when it turns out damaged while it is read; its checksum stands at the end, so read to there.
    """
    try:
        with path.open("rb") as file:
            is_packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_packed else path.open("rb") as contents:
            yield cast(IO[bytes], contents)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path}: must be a whole file, but is cut off or damaged ({error})") from None
