"""Mistakes in Python: one message for each, in the words of the command line."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from disentune.errors import ConfigError, Problem
from disentune.parameters import Mistake, shown, validated
from disentune.plugin import Frozen

_OPTION = re.compile(r"^--([a-z]+(?:-[a-z]+)*)\b")


@contextmanager
def in_python() -> Iterator[None]:
    """Errors name an argument as `retry_failed` instead of `--retry-failed`, and a key once."""
    try:
        yield
    except ConfigError as error:
        problems = [Problem(_argument(one.where), _without(one.where, one.text)) for one in error.problems]
        raise type(error)(_argument(error.subject), problems) from None


def _argument(text: str) -> str:
    return _OPTION.sub(lambda found: found[1].replace("-", "_"), text)


def _without(where: str, text: str) -> str:
    """The text without the key that `where` ends in: `trial.framework.beta  must be >= 0`."""
    key, colon, rest = text.partition(": ")
    is_repeated = bool(colon) and (where == key or where.endswith(f".{key}"))
    return rest if is_repeated else text


def options(kind: type[Frozen], subject: str, **given: Any) -> Any:
    """Checked arguments of a function. Raises one ConfigError with every mistake."""
    mistakes: list[Mistake] = []
    found = validated(kind, given, "", mistakes)
    if mistakes:
        raise ConfigError(subject, [Problem(mistake.key, shown(mistake)) for mistake in mistakes])
    return found
