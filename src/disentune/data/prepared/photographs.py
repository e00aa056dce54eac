"""Photographs in a folder or a ZIP file, one by one in the order of their names; nothing is unpacked to disk."""

import io
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

import numpy as np
from PIL import Image

from disentune.data.prepared.formats import DAMAGE
from disentune.data.prepared.resizing import Filter, resized
from disentune.errors import DataError

FORMATS = {".jpg": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".bmp": "BMP"}
"""Files with another ending are not images of the data set."""
LARGEST = 64 << 20
"""Bytes of a file, because a small archive can unpack to more than fits in memory."""
TOGETHER = 256
"""Images that are handed on at a time."""


class Wanted(NamedTuple):
    """What photographs must be, and what they are made into."""

    mode: Literal["L", "RGB"]
    size: int | tuple[int, int]
    """Height and width, or one number for both."""
    original: tuple[int, int] | None = None
    """Height and width that all must have; None: those of the first."""
    crop: int | None = None
    """Side of the square in the middle that is kept."""
    filter_: Filter = "bilinear"


class Collection(NamedTuple):
    """Names of files, and what gives the content of one."""

    names: list[str]
    content: Callable[[str], bytes]


@contextmanager
def collected(path: Path) -> Iterator[Collection]:
    """The images of a folder, also in folders below it, or of a ZIP file, in the order of their names. DataError when
    it is neither or damaged."""
    with _files(path) as (names, content):
        yield Collection(sorted(name for name in names if PurePosixPath(name).suffix.lower() in FORMATS), content)


def file_named(path: Path, name: str) -> bytes | None:
    """The content of the file with this name in a folder or ZIP file, in whichever folder below; None if there is
    none."""
    with _files(path) as (names, content):
        found = next((one for one in names if PurePosixPath(one).name == name), None)
        return None if found is None else content(found)


@contextmanager
def _files(path: Path) -> Iterator[Collection]:
    if path.is_dir():
        files = {one.relative_to(path).as_posix(): one for one in path.rglob("*") if one.is_file()}
        yield Collection(
            _visible(files), lambda name: _modest(path, name, files[name].stat().st_size, files[name].read_bytes)
        )
        return
    try:
        with zipfile.ZipFile(path) as archive:
            sizes = {one.filename: one.file_size for one in archive.infolist() if not one.is_dir()}
            yield Collection(_visible(sizes), lambda name: _modest(path, name, sizes[name], lambda: archive.read(name)))
    except DAMAGE as error:
        raise DataError(f"{path}: must be a folder or a whole ZIP file of images ({error})") from None


def _visible(names: Iterable[str]) -> list[str]:
    """Without macOS's shadows of files ('__MACOSX/._1.jpg') and other hidden ones."""
    found = (PurePosixPath(name) for name in names)
    return [str(name) for name in found if not any(part.startswith((".", "__MACOSX")) for part in name.parts)]


def _modest(path: Path, name: str, size: int, read: Callable[[], bytes]) -> bytes:
    if size > LARGEST:
        raise DataError(f"{path}: {name} must have at most {LARGEST} bytes, but has {size}")
    return read()


def photographs(path: Path, count: int, wanted: Wanted) -> Iterator[np.ndarray]:
    """uint8 (m, c, h, w) of exactly `count` images of one size; DataError names the first that is wrong."""
    with collected(path) as (names, content):
        if len(names) != count:
            kinds = ", ".join(FORMATS)
            raise DataError(f"{path}: must have {count} images ({kinds}), but has {len(names)}")
        original = wanted.original
        for start in range(0, count, TOGETHER):
            some = names[start : start + TOGETHER]
            images = []
            for name in some:
                image = _decoded(path, name, content(name), wanted.mode, original, names[0])
                original = image.shape[:2]
                images.append(_cropped(image, wanted.crop))
            yield resized(np.stack(images), wanted.size, wanted.filter_)


def _decoded(
    path: Path, name: str, content: bytes, mode: str, original: tuple[int, int] | None, first: str
) -> np.ndarray:
    """uint8 (h, w) or (h, w, 3); a size that is wrong is refused before any pixel is decoded."""
    try:
        with Image.open(io.BytesIO(content), formats=[FORMATS[PurePosixPath(name).suffix.lower()]]) as image:
            _assert_size(path, name, (image.height, image.width), original, first)
            return np.asarray(image.convert(mode))
    except DataError:
        raise
    except Exception as error:  # damage of all kinds, by which Pillow raises errors of all kinds
        raise DataError(f"{path}: {name} cannot be read as an image ({error})") from None


def _assert_size(path: Path, name: str, size: tuple[int, int], original: tuple[int, int] | None, first: str) -> None:
    if original is not None and size != original:
        as_first = "" if name == first else f", as {first} is"
        raise DataError(
            f"{path}: images must be {original[0]} high and {original[1]} wide{as_first}, but {name} is {size[0]} high "
            f"and {size[1]} wide"
        )


def _cropped(image: np.ndarray, side: int | None) -> np.ndarray:
    if side is None:
        return image
    top, left = ((whole - side) // 2 for whole in image.shape[:2])
    return image[top : top + side, left : left + side]
