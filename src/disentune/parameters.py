"""A plug-in's parameters from keyword arguments, with every mistake worded for people."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from disentune.errors import ConfigError, Problem, did_you_mean
from disentune.plugin import Catalogue, Frozen, P


def _problem(error: Any, params: type[Frozen]) -> Problem:
    where = ".".join(map(str, error["loc"])) or "parameters"
    if error["type"] == "missing":
        return Problem(where, "is required, but not set")
    if error["type"] == "extra_forbidden":
        known = sorted(params.model_fields)
        listed = ", ".join(known) if known else "none"
        return Problem(where, f"unknown key.{did_you_mean(where, known)} Known: {listed}")
    if error["type"] == "value_error":
        return Problem(where, str(error["ctx"]["error"]))
    rule = error["msg"].replace("Input should be", "must be").replace("a valid integer", "a whole number")
    return Problem(where, f"{rule}, but is {error['input']!r}")


def chosen(catalogue: Catalogue[P], name: str, values: Mapping[str, Any]) -> tuple[P, Any]:
    """The named plug-in and its checked parameters; ConfigError holds every mistake."""
    subject = f"{catalogue.kind} '{name}' cannot be used"
    try:
        plugin = catalogue[name]
    except ValueError as error:
        raise ConfigError(subject, [Problem("name", str(error))]) from None
    try:
        return plugin, plugin.params.model_validate(dict(values))
    except ValidationError as error:
        problems = [_problem(detail, plugin.params) for detail in error.errors()]
        raise ConfigError(subject, problems) from None
