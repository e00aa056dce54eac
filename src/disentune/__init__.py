"""disentune: distributed sweeps for disentanglement research on Ray Tune, resumable to the bit."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from disentune.results.tables import Results

__all__ = ["load"]


def load(run: str | Path) -> "Results":
    """The results of a run, given by its folder, `sweep/run` or the sweep's name.

    `.rows` is a DataFrame with one row per trial and report, `.trials` one with one row per trial.
    """
    from disentune.results.tables import load as load_results  # imported here to keep `import disentune` fast

    return load_results(run)
