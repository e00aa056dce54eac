"""Falcor3D: Nie et al., ICML 2020: a living room, rendered under light and from places that vary along each axis.

The archive of 128 x 128 pixels takes 3.7 GB (CC BY 4.0).
"""

from disentune.data import scenes
from disentune.data.prepared import google_drive
from disentune.data.prepared.stored import StoredImages
from disentune.data.scenes import Params
from disentune.plugin import Dataset, File, Source

FACTORS = {
    "lighting_intensity": 5,
    "lighting_x": 6,
    "lighting_y": 6,
    "lighting_z": 6,
    "camera_x": 6,
    "camera_y": 6,
    "camera_z": 6,
}
LABELS = "train-rec.labels"
FILE = File(
    name="Falcor3D_down128.zip",
    urls=google_drive.urls("1XAQfFK1x6cpN1eiovbP0hVfLTm5SsSoJ"),
    also=("Falcor3D_down128",),
    folder=True,
)


def sources(params: Params) -> tuple[Source]:
    return (scenes.source("falcor3d", FILE, LABELS, FACTORS, params),)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(FACTORS.values())


def opened(params: Params) -> StoredImages:
    return StoredImages(*sources(params), FACTORS)


DATASET = Dataset(
    name="falcor3d",
    params=Params,
    shape=scenes.shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(FACTORS),
    open=opened,
    sources=sources,
)
