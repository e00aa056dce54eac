"""A process that trains: as many threads as asked for, and no denormals."""

import subprocess
import sys
import time

import pytest
import torch
from threadpoolctl import threadpool_info

from disentune.learn import process
from processes import patience_s


@pytest.fixture(autouse=True)
def _restored():
    threads = torch.get_num_threads()
    yield
    process.prepare(threads, "cpu")
    torch.set_flush_denormal(False)


@pytest.mark.parametrize("threads", [1, 2])
def test_every_library_gets_the_trials_threads(threads):
    process.prepare(threads, "cpu")
    assert torch.get_num_threads() == threads
    assert {pool["num_threads"] for pool in threadpool_info()} <= {1, threads}


def test_denormals_are_flushed_to_zero():
    torch.set_flush_denormal(False)
    tiny = torch.full((1000,), 1e-40)
    assert (tiny * 1.0 != 0).all()
    process.prepare(1, "cpu")
    assert (tiny * 1.0 == 0).all()


@pytest.mark.long
def test_no_metric_loads_a_library_whose_threads_are_its_own():
    """In a process of its own, where nothing has been loaded yet."""
    code = """
import numpy as np
from threadpoolctl import threadpool_info
from disentune import metrics
rng = np.random.default_rng(0)
codes, factors = rng.normal(size=(600, 3)), rng.integers(0, 3, (600, 2))
known = {library["filepath"] for library in metrics._threads().info()}
for name in ("sap", "explicitness", "beta_vae_score", "dci", "mcc", "irs", "distances"):
    metrics.score(name, codes, factors, seed=0)
new = {library["filepath"] for library in threadpool_info()} - known
assert known and not new, new
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=patience_s(300))


@pytest.mark.slow
def test_what_a_process_uses_is_its_cpu_since_the_last_call_and_its_memory():
    usage = process.Usage()
    usage.taken()
    began = time.process_time()
    held = bytearray(b"x" * (64 << 20))
    while time.process_time() - began < 0.05:
        pass
    busy = usage.taken()
    assert tuple(busy) == process.USED
    assert busy["cpu_percent"] > 0
    assert busy["memory_mb"] > len(held) >> 20
    assert busy["gpu_memory_mb"] == 0.0
    time.sleep(0.1)
    assert usage.taken()["cpu_percent"] < 60
