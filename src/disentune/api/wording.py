"""Mistakes in Python: one message for each, in the words of the command line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from disentune.errors import ConfigError, Problem
from disentune.spec.config import SECTIONS

_OPTION = re.compile(r"^--([a-z]+(?:-[a-z]+)*)\b")
_LAYER = re.compile(r"trial|arms\.[^.]+")
"""The path of a mapping whose keys are those of a trial."""


@contextmanager
def in_python() -> Iterator[None]:
    """Errors name an argument as `retry_failed` instead of `--retry-failed`, and a key once, by its whole path."""
    try:
        yield
    except ConfigError as error:
        problems = [_located(Problem(_argument(one.where), one.text)) for one in error.problems]
        raise type(error)(_argument(error.subject), problems) from None


def _argument(text: str) -> str:
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


def _located(problem: Problem) -> Problem:
    """`trial.framework.beta  must be >= 0` instead of `trial.framework.beta  framework.beta: must be >= 0`."""
    where, (key, colon, rest) = problem.where, problem.text.partition(": ")
    if not colon:
        return problem
    if where == key or where.endswith((f".{key}", f" {key}")):
        return Problem(where, rest)
    if key.startswith(f"{where}."):
        return Problem(key, rest)
    if _LAYER.fullmatch(where) and key.partition(".")[0] in SECTIONS and " " not in key:
        return Problem(f"{where}.{key}", rest)
    return problem
