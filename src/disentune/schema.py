"""JSON Schema of sweep and search-space files for editors, built from the classes that check the files.

`python -m disentune.schema` writes both into `schemas/`. A schema sees one file at a time, so it cannot require a key
that another layer may bring; `disentune plan` checks the whole.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from disentune.config import LOSS_SCALES, PLAIN_SECTIONS, PLUGIN_SECTIONS, TRANSFORMS
from disentune.metrics import METRICS
from disentune.plugin import Catalogue, Frozen
from disentune.settings import SCHEDULERS, SEARCHES, Settings
from disentune.sweepfile import DOMAINS, MOST_SEEDS, NAME, SPACE_NAME, Domain

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OWN = {"type": "string", "pattern": ":"}
"""The import path of a user's own plug-in, whose keys no schema can know."""
# pydantic leaves the bounds of an optional number under its own names
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


# ---- pydantic's schemas, tidied


def _properties(params: type[BaseModel]) -> dict[str, Schema]:
    return {key: _tidied(value) for key, value in _inlined(params)["properties"].items()}


def _inlined(params: type[BaseModel]) -> Schema:
    """pydantic's schema without references, so that its parts can stand anywhere."""
    schema = params.model_json_schema()
    parts = schema.pop("$defs", {})

    def inline(value: Any) -> Any:
        if isinstance(value, Mapping) and "$ref" in value:
            rest = {key: item for key, item in value.items() if key != "$ref"}
            return inline({**parts[value["$ref"].rsplit("/", 1)[-1]], **rest})
        if isinstance(value, Mapping):
            return {key: inline(item) for key, item in value.items()}
        return [inline(item) for item in value] if isinstance(value, list) else value

    return {"properties": {}, **inline(schema)}


def _tidied(schema: Any) -> Any:
    """Without titles, which only repeat the keys."""
    if isinstance(schema, list):
        return [_tidied(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept = {key: value for key, value in schema.items() if key != "title"}
    return {
        BOUNDS.get(key, key): {name: _tidied(part) for name, part in value.items()} if key == "properties" else value
        if key in ("default", "enum", "const") else _tidied(value)
        for key, value in kept.items()
    }  # fmt: skip


def _object(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    needed = {"required": sorted(required)} if required else {}
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **needed}


def _any_of(options: Iterable[Schema]) -> Schema:
    """Each option once; a single one as it is."""
    distinct = list({json.dumps(option, sort_keys=True): option for option in options}.values())
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


# ---- leaves


def _domain(leaf: Schema) -> Schema:
    """A mapping of one kind of domain; the values of a list are themselves leaves."""
    kinds = {kind: schema["anyOf"][0] for kind, schema in _properties(Domain).items()}
    listed = {kind: {**kinds[kind], "items": leaf} for kind in ("grid", "choice")}
    possible = kinds | listed if _is_number(leaf) else listed
    return {**_object({kind: possible[kind] for kind in DOMAINS if kind in possible}), "minProperties": 1,
            "maxProperties": 1}  # fmt: skip


def _is_number(leaf: Schema) -> bool:
    return leaf.get("type") in ("integer", "number") or any(_is_number(part) for part in leaf.get("anyOf", ()))


def _searchable(leaf: Schema) -> Schema:
    """A value, or where to look for it."""
    notes = {key: leaf[key] for key in ("description", "default") if key in leaf}
    plain = {key: value for key, value in leaf.items() if key not in notes}
    return {**notes, "anyOf": [plain, _domain(plain)]}


# ---- sections


def _name(catalogue: Catalogue) -> Schema:
    return {"anyOf": [{"enum": catalogue.names()}, OWN]}


def _params(plugin: Any, extra: Mapping[str, Schema]) -> dict[str, Schema]:
    return {**_properties(plugin.params), **extra}


def _union(catalogue: Catalogue, extra: Mapping[str, Schema]) -> dict[str, Schema]:
    """Each key that some plug-in has; its value may be what any of them takes."""
    options: dict[str, list[Schema]] = {}
    for plugin in catalogue:
        for key, leaf in _params(plugin, extra).items():
            options.setdefault(key, []).append(leaf)
    return {key: _any_of(leaves) for key, leaves in sorted(options.items())}


def _plugin_section(catalogue: Catalogue, extra: Mapping[str, Schema]) -> Schema:
    """With a name, the keys of that plug-in; without one, of any; with a user's own plug-in, all keys."""
    name = _searchable(_name(catalogue))
    closed = [
        _when_named(plugin.name, _object({"name": {}, **_all_searchable(_params(plugin, extra))}))
        for plugin in catalogue
    ]
    some = _object({"name": name, **_all_searchable(_union(catalogue, extra))})
    named = {"required": ["name"], "properties": {"name": {"type": "string"}}}
    return {
        "type": "object",
        "properties": {"name": name},
        "if": named,
        "then": {"allOf": closed},
        "else": {"if": _names_own("name"), "else": some},
    }


def _when_named(name: str, schema: Schema) -> Schema:
    return {"if": {"properties": {"name": {"const": name}}}, "then": schema}


def _names_own(key: str) -> Schema:
    """Holds when `key` names a user's own plug-in, alone or in a list to choose from."""
    lists = [{"type": "object", "required": [kind], "properties": {kind: {"contains": OWN}}} for kind in DOMAINS[:2]]
    return {"required": [key], "properties": {key: {"anyOf": [OWN, *lists]}}}


def _all_searchable(leaves: Mapping[str, Schema]) -> dict[str, Schema]:
    return {key: _searchable(leaf) for key, leaf in leaves.items()}


def _extra(section: str) -> dict[str, Schema]:
    return {"transform": {"enum": list(TRANSFORMS), "default": TRANSFORMS[0]}} if section == "dataset" else {}


def _plain_leaves(section: str, params: type[Frozen]) -> dict[str, Schema]:
    leaves = _properties(params)
    if section == "evaluation":
        leaves["metrics"] = {**leaves["metrics"], "items": {"anyOf": [_name(METRICS), _metric()]}}
    return leaves


def _metric() -> Schema:
    """A metric with parameters; a list is one value, so nothing in it is searched."""
    closed = [_when_named(metric.name, _object({"name": {}, **_properties(metric.params)})) for metric in METRICS]
    return {"type": "object", "properties": {"name": _name(METRICS)}, "required": ["name"], "allOf": closed}


# ---- layers: the mappings that hold sections


def _layer(extra: Mapping[str, Schema] | None = None) -> Schema:
    """Sections nested or dotted, side by side. Unknown dotted keys pass only beside the own plug-in they belong to."""
    properties: dict[str, Schema] = {"loss_scale": _searchable({"enum": list(LOSS_SCALES)}), **(extra or {})}
    own_keys = []
    for section, catalogue in PLUGIN_SECTIONS.items():
        leaves = {"name": _name(catalogue), **_union(catalogue, _extra(section))}
        properties[section] = {"$ref": f"#/$defs/{section}"}
        properties |= {f"{section}.{key}": _searchable(leaf) for key, leaf in leaves.items()}
        own_keys.append(_refuses_dotted(section, [f"{section}.{key}" for key in leaves]))
    for section, params in PLAIN_SECTIONS.items():
        properties[section] = {"$ref": f"#/$defs/{section}"}
        leaves = _plain_leaves(section, params)
        properties |= {f"{section}.{key}": _searchable(leaf) for key, leaf in leaves.items()}
    open_keys = {f"^{section}[.]": {} for section in PLUGIN_SECTIONS}
    return {"type": "object", "properties": properties, "patternProperties": open_keys, "additionalProperties": False,
            "allOf": own_keys}  # fmt: skip


def _refuses_dotted(section: str, known: list[str]) -> Schema:
    nested = {"required": [section], "properties": {section: _names_own("name")}}
    strange = {"propertyNames": {"anyOf": [{"enum": known}, {"not": {"pattern": f"^{section}[.]"}}]}}
    return {"if": {"not": {"anyOf": [_names_own(f"{section}.name"), nested]}}, "then": strange}


def _definitions() -> dict[str, Schema]:
    plugins = {section: _plugin_section(catalogue, _extra(section)) for section, catalogue in PLUGIN_SECTIONS.items()}
    plain = {key: _object(_all_searchable(_plain_leaves(key, params))) for key, params in PLAIN_SECTIONS.items()}
    return plugins | plain


# ---- files


def _choice(kinds: Mapping[str, type[Frozen]]) -> Schema:
    """A mapping with a name, or the name alone where nothing else is required."""
    mappings = [{**_tidied(_inlined(kind)), "required": ["name", *_required(kind)]} for kind in kinds.values()]
    return {"anyOf": [{"enum": [name for name, kind in kinds.items() if not _required(kind)]}, *mappings]}


def _required(kind: type[Frozen]) -> list[str]:
    return [key for key, field in kind.model_fields.items() if field.is_required() and key != "name"]


def _settings() -> dict[str, Schema]:
    properties = _properties(Settings)
    objective = next(option for option in properties["objective"]["anyOf"] if option.get("type") == "object")
    return properties | {"search": _choice(SEARCHES), "scheduler": _choice(SCHEDULERS), "objective": objective}


def _exactly(pattern: Any) -> Schema:
    return {"type": "string", "pattern": f"^{pattern.pattern}$"}


def _seeds() -> Schema:
    numbers = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "uniqueItems": True}
    return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_SEEDS}, numbers]}


def _arms() -> Schema:
    space = _exactly(SPACE_NAME)
    spaces = {"anyOf": [space, {"type": "array", "items": space}], "description": "file names in search_spaces/"}
    arm = {"anyOf": [_layer({"search_space": spaces}), {"type": "null"}]}
    return {"type": "object", "propertyNames": _exactly(NAME), "minProperties": 1, "additionalProperties": arm}


def sweep_schema() -> Schema:
    """Of the files in sweeps/."""
    properties = {
        "name": _exactly(NAME),
        "question": {"type": "string"},
        "trial": {"anyOf": [_layer(), {"type": "null"}], "description": "what all arms have in common"},
        "arms": _arms(),
        "seeds": _seeds(),
        **_settings(),
    }
    return {"$schema": DIALECT, "title": "disentune sweep", **_object(properties), "$defs": _definitions()}


def search_space_schema() -> Schema:
    """Of the files in search_spaces/."""
    return {"$schema": DIALECT, "title": "disentune search space", **_layer(), "$defs": _definitions()}


def texts() -> dict[str, str]:
    """Content of each schema file by its name."""
    schemas = {"sweep.schema.json": sweep_schema(), "search_space.schema.json": search_space_schema()}
    return {name: json.dumps(schema, indent=1) + "\n" for name, schema in schemas.items()}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    write(Path("schemas"))
