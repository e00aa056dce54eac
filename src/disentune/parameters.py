"""Checks parameters and turns pydantic's errors into readable messages, all mistakes at once."""

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from pydantic import BaseModel, ValidationError

from disentune.errors import DID_YOU_MEAN, ConfigError, Problem, did_you_mean
from disentune.plugin import Catalogue, Frozen, P


class Mistake(NamedTuple):
    """What is wrong with one dotted key. The value is shown after the text if `shows_value`."""

    key: str
    text: str
    value: Any = None
    shows_value: bool = False


_WORDING = {
    "missing": "is required but not set",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "string_type": "must be a string",
    "list_type": "must be a list",
    "dict_type": "must be a mapping",
    "model_type": "must be a mapping",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be >= {ge:g}",
    "greater_than": "must be > {gt:g}",
    "less_than_equal": "must be <= {le:g}",
    "less_than": "must be < {lt:g}",
    "literal_error": "must be one of {expected}",
    "string_too_short": "must have at least {min_length} character(s)",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} item(s)",
    "too_long": "must have at most {max_length} item(s)",
    "union_tag_not_found": "is required but not set",
    "union_tag_invalid": "must be one of {expected_tags}, got '{tag}'",
    "model_attributes_type": "must be a mapping",
}
_SAYS_ALL = ("missing", "extra_forbidden", "value_error", "union_tag_not_found", "union_tag_invalid")


def _mistake(error: Any, prefix: str, params: type[Frozen], tree: Any) -> Mistake:
    kind, context = error["type"], error.get("ctx", {})
    path = _path(error["loc"], tree)
    key = ".".join([prefix, *path]).strip(".")
    if kind == "extra_forbidden":
        known = _known(params, error["loc"][:-1])
        text = f"unknown key.{did_you_mean(path[-1], known)} Known: {', '.join(sorted(known))}"
    elif kind in ("union_tag_invalid", "union_tag_not_found"):
        key += f".{context['discriminator'].strip(chr(39))}"
        text = _WORDING[kind].format(**context)
    elif kind == "value_error":
        text = str(context["error"])
    else:
        text = _WORDING[kind].format(**context) if kind in _WORDING else error["msg"]
    if kind == "union_tag_invalid":
        near = did_you_mean(str(context["tag"]), [tag.strip(" '") for tag in context["expected_tags"].split(",")])
        text += f".{near}" if near else ""
    if kind == "float_type" and isinstance(error["input"], Mapping) and "schedule" in error["input"]:
        instead = "; learning_rate_schedule multiplies this one" if path[-1] == "learning_rate" else ""
        text += f" (only a framework's own numbers can follow a schedule{instead})"
    return Mistake(key, text, error["input"], kind not in _SAYS_ALL)


def _path(location: tuple[int | str, ...], tree: Any) -> list[str]:
    """The path of a mistake in the user's file; pydantic's path also has the variant that `name` or `schedule`
    chose."""
    path: list[str] = []
    for part in location:
        node = tree if isinstance(tree, Mapping) else {"name": tree}
        if part not in node and part in (node.get("name"), node.get("schedule")):
            continue
        path.append(str(part))
        tree = node.get(part)
    return path


def _known(params: type[BaseModel], location: tuple[int | str, ...]) -> list[str]:
    """The keys allowed at a location; as above, a part of the location may be the chosen variant."""
    models = [params]
    for part in location:
        models = [
            below
            for model in models
            for below in (_models(model.model_fields[part].annotation) if part in model.model_fields else [model])
            if part in model.model_fields or part in _kinds(model)
        ]
    return [key for model in models for key in model.model_fields]


def _models(annotation: Any) -> list[type[BaseModel]]:
    options = get_args(annotation) or (annotation,)
    return [option for option in options if isinstance(option, type) and issubclass(option, BaseModel)]


def _kinds(model: type[BaseModel]) -> list[str]:
    tags = [field for key, field in model.model_fields.items() if key in ("name", "schedule")]
    return [kind for field in tags for kind in get_args(field.annotation)]


def validated(params: type[Frozen], tree: Any, prefix: str, mistakes: list[Mistake]) -> Any:
    """An instance of `params`, or None with its mistakes appended."""
    try:
        return params.model_validate(tree)
    except ValidationError as error:
        found = [_mistake(detail, prefix, params, tree) for detail in error.errors()]
        mistakes += [mistake for mistake in found if not _is_misspelt(mistake, found)]
        return None


def _is_misspelt(missing: Mistake, found: list[Mistake]) -> bool:
    """Whether a key is missing only because it is misspelled in the file, which is reported as a separate mistake."""
    section, _, last = missing.key.rpartition(".")
    hint = f"unknown key.{DID_YOU_MEAN} '{last}'?"
    beside = (mistake for mistake in found if mistake.key.rpartition(".")[0] == section)
    return missing.text == _WORDING["missing"] and any(mistake.text.startswith(hint) for mistake in beside)


def shown(mistake: Mistake, origin: str = "got") -> str:
    """What must hold, and the actual value, without the key."""
    return f"{mistake.text}, {origin} {mistake.value!r}" if mistake.shows_value else mistake.text


def worded(mistake: Mistake, origin: str = "got") -> str:
    """The full message for one mistake."""
    return f"{mistake.key}: {shown(mistake, origin)}"


def chosen(catalogue: Catalogue[P], name: str, values: Mapping[str, Any]) -> tuple[P, Any]:
    """The named plug-in and its checked parameters; ConfigError holds every mistake."""
    subject = f"{catalogue.kind} '{name}' cannot be used"
    try:
        plugin = catalogue[name]
    except ValueError as error:
        raise ConfigError(subject, [Problem("name", str(error))]) from None
    mistakes: list[Mistake] = []
    params = validated(plugin.params, dict(values), "", mistakes)
    if mistakes:
        problems = [Problem(mistake.key or "parameters", shown(mistake)) for mistake in mistakes]
        raise ConfigError(subject, problems)
    return plugin, params
