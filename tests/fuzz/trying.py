"""Tries inputs one after another and tells of each that went wrong by its seed and its text."""

import os
import random
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

TIMES = float(os.environ.get("FUZZ_TIMES", "0.1"))
"""The share of the inputs that is tried: a tenth in `make test`, all in `make test-all`, more with FUZZ_TIMES=20."""
LONGEST_S = 1.0
"""CPU time of one input; a tenth of a second is usual."""
SHOWN = 3000


class Input(NamedTuple):
    """What it was made from, its seed, and what is to be read."""

    origin: str
    seed: int
    content: Any


def scaled(count: int) -> int:
    """`count` times FUZZ_TIMES, but at least one."""
    return max(1, round(count * TIMES))


def inputs(origin: str, count: int, make: Callable[[random.Random], Any]) -> list[Input]:
    """`scaled(count)` of them; each depends on its origin and its seed alone."""
    return [Input(origin, seed, make(random.Random(f"{origin}/{seed}"))) for seed in range(scaled(count))]


def wrongs(
    tried: Iterable[Input], attempt: Callable[[Any], str], longest: Callable[[Any], float] = lambda content: LONGEST_S
) -> str:
    """Of every input that raises, takes too long, or of which `attempt` complains; empty when all checks passed."""
    said = ((one, _wrong(attempt, one.content, longest)) for one in tried)
    return "\n\n".join(f"{one.origin}, seed {one.seed}: {text}\n{_shown(one.content)}" for one, text in said if text)


def _wrong(attempt: Callable[[Any], str], content: Any, longest: Callable[[Any], float]) -> str:
    try:
        said, seconds = _timed(attempt, content)
        if seconds > LONGEST_S:  # or the machine was busy just then
            seconds = min(seconds, *(_timed(attempt, content)[1] for _ in range(2)))
    except Exception as error:
        return "".join(traceback.format_exception(error, limit=-6))
    return said or (f"took {seconds:.1f} s" if seconds > LONGEST_S and seconds > longest(content) else "")


def _timed(attempt: Callable[[Any], str], content: Any) -> tuple[str, float]:
    began = time.process_time()
    return attempt(content), time.process_time() - began


def _shown(content: Any) -> str:
    text = content.decode(errors="backslashreplace") if isinstance(content, bytes) else str(content)
    return ascii(text)[:SHOWN] if "\0" in text else text.encode(errors="backslashreplace").decode()[:SHOWN]
