"""Which trials count and which rank first; needs no table, so that commands that only look answer at once."""

import math
from collections.abc import Collection
from typing import Literal

from disentune.spec.config import WATCHED

BROKEN = ("failed", "diverged")
Mode = Literal["max", "min"]
At = Literal["last", "max", "min"]


def evaluated(metrics: Collection[str]) -> list[str]:
    """The keys of metrics. Losses are recognised by occurring twice, as `kl` and `kl_sum`; watched numbers by a
    prefix."""
    return [key for key in metrics if not is_loss(key, metrics)]


def is_loss(key: str, metrics: Collection[str]) -> bool:
    twin = key.removesuffix("_sum") if key.endswith("_sum") else f"{key}_sum"
    return key in ("loss", "recon") or key.startswith(WATCHED) or twin in metrics


def rank(value: float, cut: bool, step: int) -> tuple[bool, bool, int, float]:
    """A sort key that puts the best trials first, where small values are good; `cut` and `step` as in
    `tables.Record`."""
    missing = math.isnan(value)
    return missing, cut, -step if cut else 0, 0.0 if missing else value
