"""Pictures that move over an empty image: each position is a view, and a batch is one copy from small tables."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view


def shifted(pictures: np.ndarray, furthest: int) -> np.ndarray:
    """Flat images (m, furthest + 1, h * w) of pictures (m, h, w): [i, y * w + x] is picture i moved by (x, y).

    Moving a picture shifts its flat pixels; pixels that wrap around to the next row are empty as long as the picture
    stays inside the image. So all positions are windows of one row of pixels, and the table is not much larger than
    the pictures.
    """
    pixels = pictures.reshape(len(pictures), -1)
    row = np.pad(pixels, [(0, 0), (furthest, 0)])
    return sliding_window_view(row, pixels.shape[1], axis=1)[:, ::-1]
