"""MPI3D real: Gondal et al., NeurIPS 2019: an object that a robot arm moves, in photographs."""

from disentune.data import mpi3d
from disentune.data.prepared.stored import StoredImages
from disentune.plugin import Dataset, Frozen, Source, Statistics

PUBLISHED: Statistics | None = Statistics(
    (0.13111154099374112, 0.16746449372488892, 0.14051725201807627),
    (0.10137409845578041, 0.10087824338375781, 0.10534121043187629),
)
FILE = mpi3d.complete("mpi3d_real.npz", "real.npz", "0f33f609918fb5c97996692f91129802")


class Params(Frozen):
    """No parameters: photographs were only published with 6 colours and shapes."""


def published(params: Params) -> Statistics | None:
    return PUBLISHED


def sources(params: Params) -> tuple[Source]:
    return (mpi3d.source("mpi3d_real", FILE, 6, PUBLISHED),)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(mpi3d.FACTORS[6].values())


def opened(params: Params) -> StoredImages:
    return mpi3d.opened(*sources(params), 6)


DATASET = Dataset(
    name="mpi3d_real",
    params=Params,
    shape=mpi3d.shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(mpi3d.FACTORS[6]),
    open=opened,
    sources=sources,
    published=published,
)
