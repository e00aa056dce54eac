"""disentune: distributed sweeps for disentanglement research on Ray Tune, resumable to the bit."""

import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from disentune.api.run import load
    from disentune.api.scoring import compare, score
    from disentune.api.sweep import Sweep

__all__ = ["Sweep", "compare", "load", "score"]


def __getattr__(name: str) -> Any:
    """Imports a name of the API when it is first used, so that `import disentune` stays fast."""
    if name not in __all__:
        raise AttributeError(f"module 'disentune' has no attribute '{name}'")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # tqdm, in a notebook without ipywidgets
        from disentune.api import run, scoring, sweep

    found = {"Sweep": sweep.Sweep, "compare": scoring.compare, "load": run.load, "score": scoring.score}
    return found[name]


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
