"""Tables of keys: what a class of parameters accepts, with type, default, bounds and description."""

import types
import typing
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic import BaseModel
from pydantic.fields import FieldInfo

SIGNS = {Ge: "≥", Gt: ">", Le: "≤", Lt: "<"}
PLURALS = {"whole number": "whole numbers", "number": "numbers", "text": "texts", "anything": "values"}
NAMES = {int: "whole number", float: "number", bool: "true or false", str: "text", Any: "anything"}


def table(params: type[BaseModel], omit: Iterable[str] = ("name",)) -> str:
    """A Markdown table of the keys of one class; one sentence where it has none."""
    fields = {key: field for key, field in params.model_fields.items() if key not in omit}
    if not fields:
        return "No parameters.\n"
    rows = [row(key, field) for key, field in fields.items()]
    return "\n".join(["| key | type | default | what it does |", "|---|---|---|---|", *rows, ""])


def row(key: str, field: FieldInfo) -> str:
    bounds = limits(field)
    kind = ", ".join([worded(field.annotation), *([bounds] if bounds else [])])
    return f"| `{key}` | {kind} | {default(field)} | {cell(field.description or '')} |"


def cell(text: str) -> str:
    return escaped(" ".join(text.split())).replace("|", "\\|")


def default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return written(field.get_default(call_default_factory=True))


def written(value: Any) -> str:
    """A default as one would write it in YAML; a mapping by its name, if it has one."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, BaseModel):
        return f"`{value.name}`" if hasattr(value, "name") else ""
    return f"`{value}`" if value != [] else "`[]`"


def limits(field: FieldInfo) -> str:
    """The bounds of a number or of the length of a list."""
    found = [f"{SIGNS[type(one)]} {number(bound(one))}" for one in field.metadata if type(one) in SIGNS]
    low = next((one.min_length for one in field.metadata if isinstance(one, MinLen)), None)
    high = next((one.max_length for one in field.metadata if isinstance(one, MaxLen)), None)
    return ", ".join([*found, f"{low} values"] if low is not None and low == high else found)


def bound(limit: Any) -> float:
    value: float = getattr(limit, type(limit).__name__.lower())
    return value


def number(value: float) -> str:
    return f"{value:,}" if abs(value) < 1e10 and value == int(value) else f"{value:g}"


def worded(kind: Any) -> str:
    """A type in words: `whole number`, `mean` or `sampled`, list of texts."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return worded(arguments[0])
    if origin is Literal:
        return alternatives([f"`{value}`" for value in arguments])
    if origin in (typing.Union, types.UnionType):
        return alternatives([worded(option) for option in arguments if option is not type(None)])
    if origin is list:
        item = worded(arguments[0])
        return f"list of {PLURALS.get(item, item)}"
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return choice(kind)
    return NAMES.get(kind, getattr(kind, "__name__", str(kind)))


def choice(params: type[BaseModel]) -> str:
    """A mapping by its name where it has one."""
    name = params.model_fields.get("name")
    return worded(name.annotation) if name else "mapping"


def alternatives(options: list[str]) -> str:
    options = list(dict.fromkeys(options))
    return " or ".join(filter(None, [", ".join(options[:-1]), options[-1]]))


def sentence(text: str | None) -> str:
    """A docstring as Markdown paragraphs."""
    return "\n\n".join(escaped(" ".join(part.split())) for part in (text or "").split("\n\n"))


def escaped(text: str) -> str:
    """Without emphasis and tags by accident: `63**2`, `<name>`."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", "\\*").replace("<", "&lt;") for part in parts[::2]]
    return "`".join(parts)
