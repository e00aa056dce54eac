"""Draws data.png: nine images of each kind of data set that needs no file."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from disentune.data import load

IMAGES = 9


def row(name: str) -> np.ndarray:
    """(64, 9 * 66, 3): images side by side, with a line between them."""
    data = load(name)
    drawn = data.images(np.random.default_rng(3).choice(len(data), IMAGES, replace=False))
    pictures = np.broadcast_to(drawn.transpose(0, 2, 3, 1), (IMAGES, 64, 64, 3))
    return np.concatenate([np.pad(one, [(0, 0), (0, 2), (0, 0)], constant_values=255) for one in pictures], axis=1)


def main() -> None:
    names = ["xysquares", "xy_single_square", "x_columns", "xy_object", "xy_blocks", "sprites2d"]
    figure, axes = plt.subplots(len(names), 1, figsize=(8, 0.74 * len(names)), dpi=120)
    for axis, name in zip(axes, names, strict=True):
        axis.imshow(row(name))
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=10)
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_visible(False)
    figure.subplots_adjust(left=0.2, right=1, top=1, bottom=0, hspace=0.06)
    figure.savefig(Path(__file__).with_suffix(".png"), facecolor="white")


if __name__ == "__main__":
    main()
