"""Shrinks photographs one by one with Pillow, as in the published experiments."""

from typing import Literal

import numpy as np
from PIL import Image

from disentune.data.prepared.formats import channels_first

Filter = Literal["bilinear", "lanczos", "bicubic"]
"""Bilinear as in disent and its published constants, Lanczos as in disentanglement_lib, bicubic as in QLAE; all of them
average when shrinking."""

_FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "lanczos": Image.Resampling.LANCZOS,
    "bicubic": Image.Resampling.BICUBIC,
}


def resized(images: np.ndarray, size: int | tuple[int, int], filter_: Filter) -> np.ndarray:
    """uint8 (m, h, w) or (m, h, w, c) -> (m, c, height, width), contiguous; images of that size are unchanged.

    Lanczos and bicubic overshoot at edges; Pillow clips to 0 to 255, so pixels always stay in [0, 1].
    """
    height, width = (size, size) if isinstance(size, int) else size
    if images.shape[1:3] != (height, width):
        small = (Image.fromarray(image).resize((width, height), _FILTERS[filter_]) for image in images)
        images = np.stack([np.asarray(image) for image in small])
    return channels_first(images)


def made(size: int, original: int, filter_: Filter) -> str:
    """Distinguishes the arrays made from one set of photographs; the filter does not matter at the original size."""
    return str(size) if size == original else f"{size}_{filter_}"
