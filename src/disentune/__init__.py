"""disentune: distributed sweeps for disentanglement research on Ray Tune, resumable to the bit."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disentune.results.tables import Results

__all__ = ["load"]


def load(run: str | Path) -> "Results":
    """A run's results: `load("runs/quickstart/main").rows` is a DataFrame."""
    from disentune.results.tables import load as load_results  # so that `import disentune` stays instant

    return load_results(run)
