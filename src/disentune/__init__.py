"""disentune: distributed sweeps for disentanglement research on Ray Tune, with bit-exact resume."""

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from disentune.api.run import load
    from disentune.api.scoring import compare, score
    from disentune.api.sweep import Sweep

__all__ = ["Sweep", "compare", "load", "score"]
_MODULES = {"Sweep": "sweep", "compare": "scoring", "load": "run", "score": "scoring"}


def __getattr__(name: str) -> Any:
    """Imports a name of the API when it is used, so that `import disentune` and reading a run stay fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'disentune' has no attribute '{name}'")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "IProgress not found")  # tqdm, in a notebook without ipywidgets
        return getattr(import_module(f"disentune.api.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
