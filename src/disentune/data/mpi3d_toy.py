"""MPI3D toy: Gondal et al., NeurIPS 2019: an object that a robot arm moves, in simple renderings."""

from disentune.data import mpi3d
from disentune.data.mpi3d import Params
from disentune.data.prepared.stored import StoredImages
from disentune.plugin import Dataset, Source, Statistics

PUBLISHED: Statistics | None = Statistics(
    (0.22681593831231503, 0.22353985202496676, 0.22666059934624702),
    (0.07854112062669572, 0.07319301658077378, 0.0790763900050426),
)
"""Statistics of the file with 6 colours and shapes; those of the other file are not published."""
MD5 = "55889cb7c7dfc655d6e0277beee88868"
FILES = {6: mpi3d.complete("mpi3d_toy.npz", "mpi3d_toy.npz", MD5), 4: mpi3d.of_the_challenge("toy")}


def published(params: Params) -> Statistics | None:
    return PUBLISHED if params.objects == 6 else None


def sources(params: Params) -> tuple[Source]:
    return (mpi3d.source("mpi3d_toy", FILES[params.objects], params.objects, published(params)),)


def opened(params: Params) -> StoredImages:
    return mpi3d.opened(*sources(params), params.objects)


DATASET = Dataset(
    name="mpi3d_toy",
    params=Params,
    shape=mpi3d.shape,
    factor_sizes=mpi3d.factor_sizes,
    factor_names=lambda params: tuple(mpi3d.FACTORS[params.objects]),
    open=opened,
    sources=sources,
    published=published,
)
