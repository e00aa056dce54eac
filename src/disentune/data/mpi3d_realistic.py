"""MPI3D realistic: Gondal et al., NeurIPS 2019: an object that a robot arm moves, in realistic renderings."""

from disentune.data import mpi3d
from disentune.data.mpi3d import Params
from disentune.data.prepared.stored import StoredImages
from disentune.plugin import Dataset, Source, Statistics

PUBLISHED: Statistics | None = Statistics(
    (0.18240164396358813, 0.20723063241107917, 0.1820551008003256),
    (0.09511163559287175, 0.10128881101801782, 0.09428244469525177),
)
"""Statistics of the file with 6 colours and shapes; those of the other file are not published."""
MD5 = "59a6225b88b635365f70c91b3e52f70f"
FILES = {6: mpi3d.complete("mpi3d_realistic.npz", "mpi3d_realistic.npz", MD5), 4: mpi3d.of_the_challenge("realistic")}


def published(params: Params) -> Statistics | None:
    return PUBLISHED if params.objects == 6 else None


def sources(params: Params) -> tuple[Source]:
    return (mpi3d.source("mpi3d_realistic", FILES[params.objects], params.objects, published(params)),)


def opened(params: Params) -> StoredImages:
    return mpi3d.opened(*sources(params), params.objects)


DATASET = Dataset(
    name="mpi3d_realistic",
    params=Params,
    shape=mpi3d.shape,
    factor_sizes=mpi3d.factor_sizes,
    factor_names=lambda params: tuple(mpi3d.FACTORS[params.objects]),
    open=opened,
    sources=sources,
    published=published,
)
