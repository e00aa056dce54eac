"""Named streams of random numbers: the numbers depend only on the stream's name, never on earlier draws elsewhere.

Philox (Salmon et al., SC 2011) is a counter-based generator: a key selects the sequence, a counter the position in it.
SplitMix64 (Steele et al., OOPSLA 2014) gives many short sequences at once, on any device: the noise of each image.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor


@lru_cache(maxsize=256)
def _digest(seed: int, purpose: str) -> bytes:
    return hashlib.sha256(f"{seed}/{purpose}".encode()).digest()


def stream(seed: int, purpose: str, counter: int = 0) -> np.random.Generator:
    """The generator for one purpose; different counters, such as steps, are 2**192 blocks apart and never overlap."""
    key = np.frombuffer(_digest(seed, purpose)[:16], "<u8")
    place = np.array([0, 0, 0, counter], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=place))


def torch_seed(seed: int, purpose: str) -> int:
    """A 63-bit seed for a `torch.Generator`."""
    return int.from_bytes(_digest(seed, purpose)[:8], "little") >> 1


def metric_rng(seed: int, name: str) -> np.random.Generator:
    """A stream for one metric, so that adding a metric changes no other number."""
    return stream(seed, f"metric/{name}")


# ---- one sequence per key


def _signed(word: int) -> int:
    return word - 2**64 if word >= 2**63 else word


_GAMMA = _signed(0x9E3779B97F4A7C15)
_ROUNDS = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)), (31, 1))


def _mixed(words: Tensor) -> Tensor:
    """SplitMix64's mixing function on int64 words, in place; overflow wraps around."""
    for shift, factor in _ROUNDS:
        words ^= (words >> shift) & (
            2 ** (64 - shift) - 1
        )  # torch's shift is arithmetic; the mask removes the sign bits
        words *= factor
    return words


def scrambled(keys: Tensor, count: int) -> Tensor:
    """64 random bits each, int64 (n, count): row i depends only on its key, int64 (n,)."""
    import torch

    seeds = _mixed(keys.clone())
    steps = torch.arange(1, count + 1, device=keys.device) * _GAMMA
    return _mixed(seeds[:, None] + steps)
