"""From indices to the network's input: pixels are scaled, optionally given noise, and standardised on the device."""

import math
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from disentune.learn import cuda
from disentune.maths.randomness import scrambled
from disentune.plugin import FactorImages, Statistics
from disentune.spec.pixels import Pixels

FILL = 4096
"""Images copied at a time when a whole data set is moved to a device."""
CACHED = 8
"""Images that get noise at a time on a CPU, so that it stays in the cache: 1.6 times as fast."""
SHARE = 0.5
"""Share of a device's free memory that a whole data set may take."""


@dataclass(frozen=True)
class Inputs:
    """Indices (n,) -> float32 (n, c, h, w) on the device; a call is a pure function of indices and generator."""

    data: FactorImages
    mean: Tensor
    """Per channel, float64 on the CPU; so is `std`."""
    std: Tensor
    device: torch.device
    noise: float = 0.0
    resident: Tensor | None = None
    """All images of the data set on the device, if they are kept there."""
    _folded: dict[torch.dtype, tuple[Tensor, Tensor]] = field(default_factory=dict, init=False)

    def on_cpu(self) -> "Inputs":
        """The same images on the CPU."""
        return replace(self, device=torch.device("cpu"), resident=None)

    def __call__(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> Tensor:
        indices = np.array(indices, np.int64)  # torch does not accept views with negative strides
        images = self._images(indices, rng)
        if not self.noise:
            return self.in_units(images)
        x = images.to(self.device, torch.float32).mul_(1 / 255)
        keys = torch.as_tensor(indices, device=x.device)
        return disturbed(x, keys, self.noise).sub_(self._moved(self.mean)).div_(self._moved(self.std))

    def in_units(self, images: Tensor) -> Tensor:
        """Images (n, c, h, w) as the data set gives them, or with pixels from 0 to 1, in the network's units, without
        noise."""
        scale, shift = self._scale_and_shift(images.dtype)
        return images.to(self.device, torch.float32, copy=images.dtype == torch.float32).mul_(scale).add_(shift)

    def _images(self, indices: np.ndarray, rng: np.random.Generator | None) -> Tensor:
        if self.resident is None:
            return torch.from_numpy(self.data.images(indices, rng))
        return self.resident[torch.as_tensor(indices, device=self.resident.device)]

    def _scale_and_shift(self, kind: torch.dtype) -> tuple[Tensor, Tensor]:
        """Scales with one multiplication and one addition, rounded once; points are used as they are, not divided by
        255."""
        if kind not in self._folded:
            unit = 255 if kind == torch.uint8 else 1
            self._folded[kind] = self._moved(1 / (unit * self.std)), self._moved(-self.mean / self.std)
        return self._folded[kind]

    def _moved(self, constants: Tensor) -> Tensor:
        return constants.float().to(self.device)


def inputs(pixels: Pixels, data: FactorImages, device: torch.device, published: Statistics | None = None) -> Inputs:
    """`published` has the constants for `statistics: published`."""
    channels = data.shape[0]
    mean, std = data.mean, data.std
    if pixels.statistics == "published":
        assert published is not None
        mean, std = published
    if pixels.transform == "unit":
        mean, std = (0.0,) * channels, (1.0,) * channels

    def per_channel(values: tuple[float, ...]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64).reshape(1, -1, 1, 1)

    return Inputs(data, per_channel(mean), per_channel(std), device, pixels.noise)


def disturbed(x: Tensor, keys: Tensor, amplitude: float) -> Tensor:
    """Images in [0, 1] plus noise uniform on [-amplitude, amplitude], reflected at 0 and 1; keys (n,) select the
    noise."""
    if x.device.type == "cpu" and len(x) > CACHED:
        pieces = zip(x.split(CACHED), keys.split(CACHED), strict=True)
        return torch.cat([disturbed(*piece, amplitude) for piece in pieces])
    size = math.prod(x.shape[1:])
    words = scrambled(keys, -(-size // 2)).view(torch.int32)[:, :size]
    x = x + (words.float() * (amplitude / 2**31)).reshape(x.shape)
    x.abs_()
    return torch.minimum(x, 2 - x)


# ---- the whole data set on a device


def fits(data: FactorImages, device: torch.device) -> bool:
    """Whether all images can be kept on the device; noisy ones have no fixed pixels."""
    if data.noisy or device.type != "cuda":
        return False
    return len(data) * math.prod(data.shape) <= SHARE * cuda.free_bytes(device)


def moved(data: FactorImages, device: torch.device) -> Tensor:
    """All images, in their original type."""
    first = data.images(np.arange(1))
    images = torch.empty((len(data), *data.shape), dtype=torch.from_numpy(first).dtype, device=device)
    for start in range(0, len(data), FILL):
        indices = np.arange(start, min(start + FILL, len(data)))
        images[start : start + len(indices)] = torch.from_numpy(data.images(indices))
    return images
