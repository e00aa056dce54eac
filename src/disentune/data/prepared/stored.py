"""A prepared array as a data set; whoever comes first on a node prepares it, the others wait."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from disentune.data.factors import FactorGrid
from disentune.data.prepared.preparing import prepare
from disentune.data.prepared.store import ABOUT, Prepared, about_of, folder_of, mapped
from disentune.errors import DataError
from disentune.plugin import Source


def opened(source: Source) -> Prepared:
    """Prepared first if it is not there. Looks again when the folder was replaced while its files were opened."""
    while True:
        before = _identity(source)
        if before is None:
            prepare(source)  # or waits for whoever is at it
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
    """Of a folder: about.json is written once, with it. None when there is none."""
    try:
        stat = (folder_of(source) / ABOUT).stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return 0, 0  # it is there, and `about_of` says why it cannot be read
    return stat.st_ino, stat.st_mtime_ns


def contents(sources: Iterable[Source]) -> list[str]:
    """Hashes of what prepared sources hold; where one is missing it has none."""
    known = [about_of(source) for source in sources]
    return [about.sha256 if about else "" for about in known]


class StoredImages:
    """Images of a source on a grid of factors; a pickle holds no image, only where they come from."""

    noisy = False

    def __init__(self, source: Source, factors: Mapping[str, int], categorical: tuple[str, ...] = ()):
        self._made_from = source, dict(factors), categorical
        self._grid = FactorGrid(tuple(factors), tuple(factors.values()))
        if len(self._grid) != source.count:
            raise DataError(
                f"'{source.name}' has {source.count} images, but factors of sizes {self._grid.sizes} have "
                f"{len(self._grid)} combinations"
            )
        self._prepared = opened(source)
        self.factor_names, self.factor_sizes = self._grid.names, self._grid.sizes
        self.categorical, self.shape = categorical, source.shape
        self.mean, self.std = self._prepared.about.mean, self._prepared.about.std

    def __reduce__(self) -> tuple[Callable[..., "StoredImages"], tuple[Any, ...]]:
        return type(self), self._made_from

    def __len__(self) -> int:
        return len(self._grid)

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, c, h, w)"""
        return self._prepared.images(self._grid.checked(indices))
