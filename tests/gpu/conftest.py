from collections.abc import Iterator

import pytest
import torch

from disentune.learn import process


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "gpu":
            item.add_marker("gpu")


@pytest.fixture(autouse=True)
def a_gpu() -> Iterator[None]:
    """A CUDA device, set up as for a trial that has it for itself."""
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    process.prepare(1, "cuda")
    yield
    process.prepare(1, "cuda")  # lifts a cap on memory
    torch.use_deterministic_algorithms(False)
