"""Codes of a user's own images, in a file that `disentune score` reads."""

import io
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from disentune.errors import ConfigError, DataError
from disentune.files.writing import write_atomically
from disentune.results.trained import TrainedModel


def write_codes(model: TrainedModel, arrays: Mapping[str, np.ndarray], source: Path, path: Path) -> int:
    """Writes codes, logvars and, if they are known, factors; gives the number of images."""
    if path.suffix != ".npz" or path.is_dir() or not path.absolute().parent.is_dir():
        raise ConfigError(f"--output {path}: must be a file that ends in .npz, in a folder that exists")
    images, known = arrays["images"], {name: arrays[name] for name in ("factors",) if name in arrays}
    if any(len(array) != len(images) for array in known.values()):
        raise DataError(f"{source}: factors must have one row per image, {len(images)}, got {len(known['factors'])}")
    try:
        mean, std = model.encode(images)
    except DataError as error:
        raise DataError(f"{source}: {error}") from None
    buffer = io.BytesIO()
    logvars = 2 * np.log(np.maximum(std, np.finfo(np.float32).tiny))
    np.savez(buffer, allow_pickle=False, codes=mean, logvars=logvars, **known)
    write_atomically(path, buffer.getvalue())
    return len(images)
