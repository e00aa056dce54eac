"""All uses of CUDA except moving tensors; these lines cannot be tested on a machine without a GPU."""

import errno
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch

LEAK_BYTES = 128 << 20
"""Memory that a process may keep between two trials, mostly cuBLAS workspaces; more is a leak."""
_OUT_OF_MEMORY = (
    "CUDA error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "MPS backend out of memory",
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
    """Makes results repeatable, and limits the memory on a shared GPU to the trial's share of it."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is only repeatable with this
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    _allow_tf32(False)  # torch allows it in convolutions
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(fraction if 0 < fraction < 1 else 1.0)


def _allow_tf32(allowed: bool) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


@contextmanager
def tf32() -> Iterator[None]:
    """Lets matrix products and convolutions shorten their factors to 10 bits of mantissa; sums stay in float32."""
    _allow_tf32(True)
    try:
        yield
    finally:
        _allow_tf32(False)


def hide() -> None:
    """Hides the GPUs from a trial that holds none. Ray by default leaves all GPUs of a node visible."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ""


def release() -> int:
    """Frees the memory that no tensor uses; returns the bytes that are still allocated in this process.

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


def held_bytes() -> int:
    """GPU memory that this process has reserved; 0 if it has not used a GPU."""
    if not torch.cuda.is_initialized():
        return 0
    return sum(torch.cuda.memory_reserved(number) for number in range(device_count()))


MOST_OBJECTS = 20_000


def _collect() -> None:
    """Collects garbage. Libraries create half a million objects that stay forever, and scanning them took longer than a
    short trial, so the objects that survive are frozen and later collections skip them."""
    gc.collect()
    if len(gc.get_objects()) > MOST_OBJECTS:
        gc.freeze()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that the GPU or the host ran out of memory; some libraries say so only in the message."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or getattr(error, "errno", None) == errno.ENOMEM:
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
