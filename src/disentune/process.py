"""Settings of a process that trains: threads, allocator, denormals, determinism."""

import contextlib
import ctypes
import os

import torch
from threadpoolctl import threadpool_limits

# glibc's mallopt: keep freed tensors instead of handing their pages back to the kernel (a quarter of a training step
# at batch 256 was page faults); it changes speed and never a result.
_MALLOPT = {-3: 1 << 30, -1: (1 << 31) - 1, -2: 64 << 20}


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
        _prepare_cuda(gpu_fraction)


def _prepare_cuda(gpu_fraction: float) -> None:
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is only repeatable with this
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.cuda.empty_cache()
    if 0 < gpu_fraction < 1:
        torch.cuda.set_per_process_memory_fraction(gpu_fraction)
