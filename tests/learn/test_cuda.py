"""CUDA code on a machine without a GPU: torch's own functions are replaced, and what they were told is looked at."""

import gc
import os
import re
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch

from disentune.environment import environment
from disentune.learn import cuda
from processes import patience_s


class FakeCuda:
    """Two GPUs on which some bytes are held, and what they were asked."""

    def __init__(self, monkeypatch, held=(0, 0), broken=False):
        self.calls, self.held, self.broken = [], held, broken
        fakes = {
            "device_count": lambda: len(held), "is_initialized": lambda: True, "synchronize": self.synchronize,
            "empty_cache": lambda: self.calls.append("emptied"), "memory_allocated": lambda number: held[number],
            "get_device_name": lambda number: f"GPU {number}", "mem_get_info": lambda device: (7, 9),
            "set_per_process_memory_fraction": lambda share: self.calls.append(share),
        }  # fmt: skip
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)

    def synchronize(self):
        if self.broken:
            raise RuntimeError("CUDA error: device-side assert triggered")


def test_devices_are_named_and_their_free_memory_known(monkeypatch):
    FakeCuda(monkeypatch)
    assert environment()["gpus"] == ["GPU 0", "GPU 1"]
    assert cuda.free_bytes(torch.device("cuda")) == 7


@pytest.mark.slow
def test_released_is_what_no_tensor_holds_and_the_rest_is_counted_over_all_devices(monkeypatch):
    fake = FakeCuda(monkeypatch, held=(5, 6))
    assert cuda.release() == 11
    assert fake.calls == ["emptied"]


def test_a_gpu_that_broke_down_counts_as_all_held(monkeypatch):
    FakeCuda(monkeypatch, broken=True)
    assert cuda.release() == sys.maxsize > cuda.LEAK_BYTES


def test_a_process_without_cuda_holds_nothing_and_collects_its_garbage():
    class Ring:
        pass

    ring = Ring()
    ring.self, gone = ring, weakref.ref(ring)
    gc.disable()
    try:
        del ring
        assert gone() is not None
        assert cuda.release() == 0
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize(("fraction", "share"), [(0.25, 0.25), (1, 1.0), (2, 1.0), (0, 1.0)])
def test_a_share_of_a_gpu_caps_its_memory_and_a_whole_one_lifts_the_cap(monkeypatch, fraction, share):
    fake = FakeCuda(monkeypatch)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", lambda on: fake.calls.append(f"deterministic {on}"))
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG")
    cuda.prepare(fraction)
    assert fake.calls == ["deterministic True", "emptied", share]
    assert not torch.backends.cudnn.benchmark
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (MemoryError(), True),
        (OSError(12, "Cannot allocate memory"), True),
        (OSError(5, "Input/output error"), False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), True),
        (RuntimeError("CUDA error: device-side assert triggered"), False),
        (ValueError("CUDA error: out of memory"), False),
    ],
)
def test_out_of_memory_is_known_by_type_or_by_the_words_of_libraries(error, memory):
    assert cuda.is_out_of_memory(error) == memory


def test_the_host_s_own_allocator_says_it_in_words_that_are_known():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert cuda.is_out_of_memory(caught.value)


def test_no_other_file_calls_cuda_s_functions():
    package = Path(cuda.__file__).parents[1]
    users = {path.name for path in package.rglob("*.py") if re.search(r"torch\.cuda\.|torch\.OutOf", path.read_text())}
    assert users == {"cuda.py", "environment.py"}, "the second only names the devices"


@pytest.mark.slow
def test_garbage_of_a_trial_is_collected_without_looking_at_all_that_libraries_brought():
    """In a process of its own, whose garbage collector is as it was at the start."""
    code = """
import gc, weakref
from disentune.learn import cuda

class Held:
    pass

def garbage():
    one = Held()
    one.itself = one
    return weakref.ref(one)

cuda.release()
assert len(gc.get_objects()) < cuda.MOST_OBJECTS < gc.get_freeze_count()
later = [[] for _ in range(cuda.MOST_OBJECTS)]  # another library
cuda.release()
assert len(gc.get_objects()) < cuda.MOST_OBJECTS
gone = garbage()
cuda.release()
assert gone() is None
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=patience_s(120))
