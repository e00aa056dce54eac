"""Parameters and checks shared by data sets that are made from a user's own files."""

import re
from pathlib import PurePath
from typing import Annotated

from pydantic import AfterValidator, Field

from disentune.data.prepared.stored import StoredImages
from disentune.errors import DataError
from disentune.plugin import Count, Shape, Source


def _findable(path: str) -> str:
    is_below = not path.startswith("~") and ".." not in PurePath(path).parts
    if not path.strip() or not (PurePath(path).is_absolute() or is_below) or "\0" in path:
        raise ValueError(
            f"must be absolute, or relative to the data root or working folder without '..' or '~', got {path!r}"
        )
    return path


def _channels_first(shape: list[int]) -> list[int]:
    if shape[0] > 4 >= shape[2]:
        meant = shape[2:] + shape[:2]
        raise ValueError(f"must be [channels, height, width], but is {shape}; did you mean {meant}?")
    return shape


def _hash(contents: str | None) -> str | None:
    if contents is not None and not re.fullmatch("[0-9a-f]{12,64}", contents):
        raise ValueError(f"must be 12 to 64 of the digits 0-9 and a-f, but is '{contents}'")
    return contents


OwnPath = Annotated[str, AfterValidator(_findable)]
Side = Annotated[Count, Field(ge=1, le=2048)]
Sides = Annotated[list[Side], Field(min_length=3, max_length=3), AfterValidator(_channels_first)]
"""Channels, height, width."""
Contents = Annotated[str | None, AfterValidator(_hash)]


def as_shape(sides: list[int]) -> Shape:
    channels, height, width = sides
    return channels, height, width


class OwnImages(StoredImages):
    """Checks the requested contents even when it is unpickled, perhaps on another node."""

    def assert_contents(self, path: str, wanted: str | None, source: Source) -> None:
        found = self._prepared.about.sha256
        if not found.startswith(wanted or ""):
            raise DataError(
                f"{path}: its images must have the sha256 {wanted}, but have {found}; put the right "
                f"file there and run: {source.command} --again, or change `contents` if this file is right"
            )
