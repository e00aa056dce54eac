"""A process that trains: as many threads as asked for, and no denormals."""

import pytest
import torch
from threadpoolctl import threadpool_info

from disentune import process


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
