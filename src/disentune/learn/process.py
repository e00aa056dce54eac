"""Settings of a training process: threads, allocator, denormals, determinism."""

import contextlib
import ctypes

import torch
from threadpoolctl import threadpool_limits

from disentune.learn import cuda

# glibc's mallopt: keep freed tensors instead of handing their pages back to the kernel (a quarter of a training step
# at batch 256 was page faults); it changes speed and never a result.
_MALLOPT = {-3: 1 << 30, -1: (1 << 31) - 1, -2: 64 << 20}


def has(device: str) -> bool:
    """Whether this machine has a device of this kind."""
    if device == "mps":
        return torch.backends.mps.is_available()
    return device == "cpu" or cuda.is_available()


def prepare(threads: int, device: str, gpu_fraction: float = 1.0) -> None:
    """Call before each trial; cheap to repeat."""
    with contextlib.suppress(OSError, AttributeError):
        libc = ctypes.CDLL("libc.so.6")
        for option, value in _MALLOPT.items():
            libc.mallopt(option, value)
    threadpool_limits(limits=threads)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    if device == "cuda":
        cuda.prepare(gpu_fraction)
