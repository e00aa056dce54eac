"""A prepared array as a data set; the first process on a node prepares it, the others wait."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from disentune.data.factors import FactorGrid, checked_indices, in_a_line
from disentune.data.prepared.preparing import prepare
from disentune.data.prepared.store import ABOUT, Prepared, about_of, folder_of, mapped
from disentune.errors import DataError
from disentune.plugin import Source


def opened(source: Source) -> Prepared:
    """Opens the array, and prepares it first if it is missing. Retries if the folder was replaced meanwhile."""
    while True:
        before = _identity(source)
        if before is None:
            prepare(source)  # or waits for the process that is preparing it
            continue
        try:
            about = about_of(source)
            prepared = mapped(source, about) if about else None
        except DataError:
            if _identity(source) == before:
                raise
            continue
        if prepared and _identity(source) == before:
            return prepared


def _identity(source: Source) -> tuple[int, int] | None:
    """Identity of a folder, by its about.json, which is written once; None if there is none."""
    try:
        stat = (folder_of(source) / ABOUT).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return 0, 0  # it exists, and `about_of` reports why it cannot be read
    return stat.st_ino, stat.st_mtime_ns


def contents(sources: Iterable[Source]) -> list[str]:
    """Hashes of the contents of prepared sources; empty for a source that is not prepared."""
    known = [about_of(source) for source in sources]
    return [about.sha256 if about else "" for about in known]


class StoredImages:
    """Images of a source on a grid of factors, or without factors; a pickle has no images, only their source."""

    noisy = False

    def __init__(self, source: Source, factors: Mapping[str, int], categorical: tuple[str, ...] = ()):
        self._made_from = source, dict(factors), categorical
        self.factor_names, self.factor_sizes = tuple(factors), tuple(factors.values())
        if factors and (combinations := len(FactorGrid(self.factor_names, self.factor_sizes))) != source.count:
            raise DataError(
                f"'{source.name}' has {source.count} images, but factors of sizes {self.factor_sizes} have "
                f"{combinations} combinations"
            )
        self._prepared = opened(source)
        self.categorical, self.shape = categorical, source.shape
        self.mean, self.std = self._prepared.about.mean, self._prepared.about.std

    def __reduce__(self) -> tuple[Callable[..., "StoredImages"], tuple[Any, ...]]:
        return type(self), self._made_from

    def __len__(self) -> int:
        return self._prepared.about.count

    def __repr__(self) -> str:
        return in_a_line(self)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, c, h, w)"""
        return self._prepared.images(checked_indices(indices, len(self)))
