"""Data sets: images on a full grid of factors, with a table of factors, or without known factors."""

from typing import Any

from disentune.data import (
    cars3d,
    celeba,
    color_dsprites,
    dsprites,
    fashion_mnist,
    grid_file,
    image_folder,
    manipulated,
    mpi3d_real,
    mpi3d_realistic,
    mpi3d_toy,
    noisy_dsprites,
    pinwheel,
    scream_dsprites,
    shapes3d,
    smallnorb,
    sparse_parts,
    sprites2d,
    x_columns,
    xy_blocks,
    xy_object,
    xy_object_shaded,
    xy_single_square,
    xysquares,
)
from disentune.parameters import chosen
from disentune.plugin import Catalogue, Dataset, FactorImages

DATASETS = Catalogue(
    "data set",
    Dataset,
    [
        cars3d.DATASET,
        celeba.DATASET,
        color_dsprites.DATASET,
        dsprites.DATASET,
        fashion_mnist.DATASET,
        grid_file.DATASET,
        image_folder.DATASET,
        manipulated.DATASET,
        mpi3d_real.DATASET,
        mpi3d_realistic.DATASET,
        mpi3d_toy.DATASET,
        noisy_dsprites.DATASET,
        pinwheel.DATASET,
        scream_dsprites.DATASET,
        shapes3d.DATASET,
        smallnorb.DATASET,
        sparse_parts.DATASET,
        sprites2d.DATASET,
        x_columns.DATASET,
        xy_blocks.DATASET,
        xy_object.DATASET,
        xy_object_shaded.DATASET,
        xy_single_square.DATASET,
        xysquares.DATASET,
    ],
)


def load(name: str, /, **params: Any) -> FactorImages:
    """An opened data set; raises ConfigError with every wrong parameter.

    A data set made from files is prepared first if necessary, in the folder that DISENTUNE_DATA names.
    """
    dataset, checked = chosen(DATASETS, name, params)
    return dataset.open(checked)
