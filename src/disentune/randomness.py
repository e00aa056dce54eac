"""Named streams of random numbers: what a stream gives depends on its name alone, never on who drew before.

Philox (Salmon et al., SC 2011) is a counter-based generator: a key picks the sequence, a counter the place in it.
"""

import hashlib
from functools import lru_cache

import numpy as np


@lru_cache(maxsize=256)
def _digest(seed: int, purpose: str) -> bytes:
    return hashlib.sha256(f"{seed}/{purpose}".encode()).digest()


def stream(seed: int, purpose: str, counter: int = 0) -> np.random.Generator:
    """The generator of one purpose; different counters (steps, say) lie 2**192 blocks apart and never overlap."""
    key = np.frombuffer(_digest(seed, purpose)[:16], "<u8")
    place = np.array([0, 0, 0, counter], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=place))


def torch_seed(seed: int, purpose: str) -> int:
    """63 bits for a `torch.Generator`."""
    return int.from_bytes(_digest(seed, purpose)[:8], "little") >> 1


def metric_rng(seed: int, name: str) -> np.random.Generator:
    """One metric's own stream, so that adding a metric changes no other number."""
    return stream(seed, f"metric/{name}")
