"""Isaac3D: Nie et al., ICML 2020: a robot arm with an object in a kitchen, rendered under changing light.

The order of factors is that of the authors' script and files. Their README lists them in another order, with strides
that do not belong to it. The archive of 128 x 128 pixels takes 13 GB (CC BY 4.0).
"""

from disentune.data import scenes
from disentune.data.prepared import google_drive
from disentune.data.prepared.stored import StoredImages
from disentune.data.scenes import Params
from disentune.plugin import Dataset, File, Source

FACTORS = {
    "object_shape": 3,
    "robot_x": 8,
    "robot_y": 5,
    "camera_height": 4,
    "object_scale": 4,
    "lighting_intensity": 4,
    "lighting_y": 6,
    "object_color": 4,
    "wall_color": 4,
}
LABELS = "labels.npy"
FILE = File(
    name="Isaac3D_down128.zip",
    urls=google_drive.urls("1OmQ1G2wnm6eTsSFGTKFZZAh5D3nQTW1B"),
    also=("Isaac3D_down128",),
    folder=True,
)


def sources(params: Params) -> tuple[Source]:
    return (scenes.source("isaac3d", FILE, LABELS, FACTORS, params),)


def factor_sizes(params: Params) -> tuple[int, ...]:
    return tuple(FACTORS.values())


def opened(params: Params) -> StoredImages:
    return StoredImages(*sources(params), FACTORS, categorical=("object_shape",))


DATASET = Dataset(
    name="isaac3d",
    params=Params,
    shape=scenes.shape,
    factor_sizes=factor_sizes,
    factor_names=lambda params: tuple(FACTORS),
    open=opened,
    sources=sources,
)
