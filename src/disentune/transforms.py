"""From a data set's bytes to the network's input: part of a trial's config, applied on its device."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from disentune.plugin import FactorImages


@dataclass(frozen=True)
class Transform:
    """x / 255, then (x - mean) / std per channel: one multiplication and one addition."""

    scale: Tensor
    shift: Tensor

    def __call__(self, images: np.ndarray) -> Tensor:
        """uint8 (n, c, h, w) -> float32 (n, c, h, w) on the device."""
        x = torch.from_numpy(images).to(self.scale.device, torch.float32)
        return x.mul_(self.scale).add_(self.shift)


def transform(kind: str, data: FactorImages, device: torch.device) -> Transform:
    """`unit`: pixels in [0, 1]; `standardise`: mean 0 and standard deviation 1 by the data set's own statistics."""
    channels = data.shape[0]
    mean, std = (data.mean, data.std) if kind == "standardise" else ((0.0,) * channels, (1.0,) * channels)

    def per_channel(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64).float().reshape(1, -1, 1, 1).to(device)

    return Transform(
        scale=per_channel([1 / (255 * s) for s in std]),
        shift=per_channel([-m / s for m, s in zip(mean, std, strict=True)]),
    )
