"""All that the project does with CUDA beyond moving tensors: the lines that a machine without a GPU cannot try."""

import errno
import gc
import os
import sys

import torch

LEAK_BYTES = 128 << 20
"""Held by a process between two trials: up to this it is cuBLAS's own workspaces, above it something is left over."""
_OUT_OF_MEMORY = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "DefaultCPUAllocator: can't allocate memory",
)


def is_available() -> bool:
    return torch.cuda.is_available()


def device_count() -> int:
    return torch.cuda.device_count()


def free_bytes(device: torch.device) -> int:
    free, _ = torch.cuda.mem_get_info(device)
    return free


def prepare(fraction: float) -> None:
    """Repeatable numbers, and no more of a shared GPU's memory than a trial's share of the GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is only repeatable with this
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(fraction if 0 < fraction < 1 else 1.0)


def hide() -> None:
    """From a trial that holds no GPU, whatever it calls. Ray by itself leaves all of a node's to be seen."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def release() -> int:
    """Gives back what no tensor holds any more; returns the bytes that are still held in this process.

    An error of a kernel breaks CUDA for the rest of a process: then all of the memory counts as held.
    """
    _collect()
    if not torch.cuda.is_initialized():
        return 0
    try:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return sum(torch.cuda.memory_allocated(number) for number in range(device_count()))
    except RuntimeError:
        return sys.maxsize


MOST_OBJECTS = 20_000


def _collect() -> None:
    """Libraries bring half a million objects that never go. To look at them all again took longer than a short trial:
    what is left of very many is not looked at any more."""
    gc.collect()
    if len(gc.get_objects()) > MOST_OBJECTS:
        gc.freeze()


def is_out_of_memory(error: BaseException) -> bool:
    """Of a GPU or of the host; some libraries say so only in words."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
