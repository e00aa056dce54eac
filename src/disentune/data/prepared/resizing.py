"""Photographs made smaller, one by one with Pillow, as the published experiments made theirs."""

from typing import Literal

import numpy as np
from PIL import Image

from disentune.data.prepared.formats import channels_first

Filter = Literal["bilinear", "lanczos"]
"""Bilinear as disent and its published constants, Lanczos as disentanglement_lib; both average what they shrink."""

_FILTERS = {"bilinear": Image.Resampling.BILINEAR, "lanczos": Image.Resampling.LANCZOS}


def resized(images: np.ndarray, size: int, filter_: Filter) -> np.ndarray:
    """uint8 (m, h, w) or (m, h, w, c) -> (m, c, size, size), contiguous; images of that size stay as they are.

    Lanczos overshoots at edges; Pillow clips that to 0 to 255, so [0, 1] always holds.
    """
    if images.shape[1:3] != (size, size):
        small = (Image.fromarray(image).resize((size, size), _FILTERS[filter_]) for image in images)
        images = np.stack([np.asarray(image) for image in small])
    return channels_first(images)


def made(size: int, original: int, filter_: Filter) -> str:
    """Tells apart the arrays that one set of photographs is made into; no filter touches the original size."""
    return str(size) if size == original else f"{size}_{filter_}"
