"""MPI3D complex: Gondal et al., NeurIPS 2019: four everyday objects that a robot arm moves, in photographs.

A coffee cup, a tennis ball, a croissant and a beer cup in yellow, green, olive and red: 4 colours and 4 shapes, where
the other MPI3D data sets have 6, so their grid would give most images wrong labels.
"""

from dataclasses import replace

from disentune.data import mpi3d
from disentune.data.prepared import google_drive
from disentune.data.prepared.stored import StoredImages
from disentune.plugin import Dataset, File, Frozen, Source

OBJECTS: mpi3d.Objects = 4
FILE = File(name="real3d_complicated_shapes_ordered.npz", urls=google_drive.urls("1Tp8eTdHxgUMtsZv5uAoYAbJR1BOa_OQm"))
"""No md5 and no statistics are published, so only the number and size of its images can be checked."""


class Params(Frozen):
    """No parameters."""


def sources(params: Params) -> tuple[Source]:
    return (replace(mpi3d.source("mpi3d_complex", FILE, OBJECTS, None), variant="", options=""),)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(mpi3d.FACTORS[OBJECTS].values())


def opened(params: Params) -> StoredImages:
    return mpi3d.opened(*sources(params), OBJECTS)


DATASET = Dataset(
    name="mpi3d_complex",
    params=Params,
    shape=mpi3d.shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(mpi3d.FACTORS[OBJECTS]),
    open=opened,
    sources=sources,
)
