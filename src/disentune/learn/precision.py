"""What `training.precision` changes: the networks of a training step.

Weights, the optimiser, losses, a framework's helper and all that is outside a step are float32 in every precision.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal

import torch
from torch import Tensor

from disentune.learn import cuda
from disentune.plugin import AutoEncoder, Posterior

Precision = Literal["float32", "tf32", "bfloat16"]


class InBfloat16(AutoEncoder):
    """The same network under torch.autocast; what it returns is float32, so that losses are."""

    def __init__(self, network: AutoEncoder):
        super().__init__(network.encoder, network.decoder, network.latents)
        self.network = network

    def encode(self, x: Tensor) -> Posterior:
        with _autocast(x):
            q = self.network.encode(x)
        return Posterior(q.mean.float(), q.logvar.float())

    def decode(self, z: Tensor) -> Tensor:
        with _autocast(z):
            output = self.network.decode(z)
        return output.float()

    def stages(self, z: Tensor) -> list[Tensor]:
        with _autocast(z):
            outputs = self.network.stages(z)
        return [output.float() for output in outputs]


def _autocast(x: Tensor) -> torch.autocast:
    return torch.autocast(x.device.type, torch.bfloat16)


def network_in(precision: Precision, network: AutoEncoder) -> AutoEncoder:
    """The network that a training step calls; it has the same weights."""
    return InBfloat16(network) if precision == "bfloat16" else network


def step_in(precision: Precision) -> AbstractContextManager[None]:
    """Surrounds the forward and backward passes of a training step."""
    return cuda.tf32() if precision == "tf32" else nullcontext()
