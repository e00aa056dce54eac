"""Settings of a training process: threads, allocator, denormals, determinism."""

import contextlib
import ctypes
import time

import psutil
import torch
from threadpoolctl import threadpool_limits

from disentune.learn import cuda

# glibc's mallopt: keep freed tensors instead of handing their pages back to the kernel (a quarter of a training step
# at batch 256 was page faults); it changes speed and never a result.
_MALLOPT = {-3: 1 << 30, -1: (1 << 31) - 1, -2: 64 << 20}


USED = ("cpu_percent", "memory_mb", "gpu_memory_mb")


class Usage:
    """What this process uses."""

    def __init__(self) -> None:
        self._before = time.monotonic(), time.process_time()

    def taken(self) -> dict[str, float]:
        """`USED`: the CPU since the last call in percent of one core, and the memory held now in MB."""
        (then, used), self._before = self._before, (time.monotonic(), time.process_time())
        passed = max(self._before[0] - then, 1e-9)
        share = 100 * (self._before[1] - used) / passed
        megabytes = [held / 2**20 for held in (psutil.Process().memory_info().rss, cuda.held_bytes())]
        return dict(zip(USED, (round(number, 1) for number in (share, *megabytes)), strict=True))


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
