"""Data sets: images on a full grid of factors."""

from typing import Any

from disentune.data import (
    cars3d,
    color_dsprites,
    dsprites,
    grid_file,
    mpi3d_real,
    mpi3d_realistic,
    mpi3d_toy,
    noisy_dsprites,
    pinwheel,
    scream_dsprites,
    shapes3d,
    smallnorb,
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
        color_dsprites.DATASET,
        dsprites.DATASET,
        grid_file.DATASET,
        mpi3d_real.DATASET,
        mpi3d_realistic.DATASET,
        mpi3d_toy.DATASET,
        noisy_dsprites.DATASET,
        pinwheel.DATASET,
        scream_dsprites.DATASET,
        shapes3d.DATASET,
        smallnorb.DATASET,
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
    """An opened data set; ConfigError lists every wrong parameter.

    One that is made from files is prepared first if it is not yet, below the folder that DISENTUNE_DATA names.
    """
    dataset, checked = chosen(DATASETS, name, params)
    return dataset.open(checked)
