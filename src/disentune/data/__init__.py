"""Data sets: images on a full grid of factors, with a table of factors, or without known factors."""

from typing import Any

from disentune.parameters import chosen
from disentune.plugin import Catalogue, Dataset, FactorImages, Modules

DATASETS = Catalogue(
    "data set",
    Dataset,
    Modules[Dataset](
        __name__,
        "DATASET",
        "cars3d",
        "celeba",
        "color_dsprites",
        "dsprites",
        "falcor3d",
        "fashion_mnist",
        "grid_file",
        "image_folder",
        "isaac3d",
        "manipulated",
        "mpi3d_complex",
        "mpi3d_real",
        "mpi3d_realistic",
        "mpi3d_toy",
        "noisy_dsprites",
        "pinwheel",
        "scream_dsprites",
        "shapes3d",
        "smallnorb",
        "sparse_parts",
        "sprites2d",
        "x_columns",
        "xy_blocks",
        "xy_object",
        "xy_object_shaded",
        "xy_single_square",
        "xysquares",
    ),
)


def load(name: str, /, **params: Any) -> FactorImages:
    """An opened data set; raises ConfigError with every wrong parameter.

    A data set made from files is prepared first if necessary, in the folder that DISENTUNE_DATA names.
    """
    dataset, checked = chosen(DATASETS, name, params)
    return dataset.open(checked)
