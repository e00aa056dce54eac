"""The arguments of the API's functions: their types, and one message for everything that is wrong with them."""

import os
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from disentune.errors import ConfigError, Problem
from disentune.files.storage import RemotePath
from disentune.parameters import Mistake, shown, validated
from disentune.plugin import Frozen


def _as_text(value: Any) -> Any:
    return str(value) if isinstance(value, os.PathLike | RemotePath) else value


def _as_strings(value: Any) -> Any:
    found = None if isinstance(value, str) or not isinstance(value, Iterable) else tuple(value)
    if found is None or not all(isinstance(one, str) for one in found):
        raise ValueError(f"must be a list of strings, got {value!r:.100}")
    return found


Location = Annotated[str, Field(min_length=1), BeforeValidator(_as_text)]
"""A file or folder, or the address of a bucket."""
Strings = Annotated[tuple[str, ...], BeforeValidator(_as_strings)]
"""A list of strings; a string alone would be taken for the list of its letters."""


def arguments(kind: type[Frozen], subject: str, **given: Any) -> Any:
    """The checked arguments of a function. Raises one ConfigError with every mistake."""
    mistakes: list[Mistake] = []
    found = validated(kind, given, "", mistakes)
    if mistakes:
        raise ConfigError(subject, [Problem(mistake.key, shown(mistake)) for mistake in mistakes])
    return found
