"""Float64 beside a device that may not have it: on mps (Apple's GPUs) such numbers stay on the CPU."""

import torch
from torch import Tensor

_WITHOUT_FLOAT64 = "mps"


def in_float64(x: Tensor) -> Tensor:
    """The values of x without their gradient."""
    x = x.detach()
    return (x.cpu() if x.device.type == _WITHOUT_FLOAT64 else x).double()


def placed(x: Tensor, device: torch.device) -> Tensor:
    """x on the device, or where it is if the device has no numbers of its type."""
    return x if device.type == _WITHOUT_FLOAT64 and x.dtype == torch.float64 else x.to(device)
