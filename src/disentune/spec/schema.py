"""JSON Schema of sweep and search-space files for editors, built from the classes that check the files.

`python -m disentune.spec.schema` writes both into `schemas/`. A schema sees one file at a time, so it cannot require a
key that another layer may set; `disentune plan` checks the merged sweep.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from disentune.maths.ramps import Scheduled
from disentune.metrics import METRICS
from disentune.plugin import Catalogue, Frozen
from disentune.spec.config import LOSS_SCALES, PLAIN_SECTIONS, PLUGIN_SECTIONS, When
from disentune.spec.figures import FIGURES
from disentune.spec.needs import SUFFIXES
from disentune.spec.pixels import Pixels
from disentune.spec.settings import SCHEDULERS, SEARCHES, Settings
from disentune.spec.sweepfile import DOMAINS, MOST_SEEDS, NAME, SPACE_NAME, Domain

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
OWN = {"type": "string", "pattern": ":"}
"""The import path of a user's own plug-in, whose keys no schema can know."""
LISTS = ("grid", "choice")
TAGS = ("name", "schedule")
"""Keys that choose one of several mappings."""
LAYER = {"$ref": "#/$defs/layer", "unevaluatedProperties": False}
SECTION_NOTES = {
    "dataset": "the images, by name, and the parameters of the data set",
    "model": "encoder and decoder, by name, and their parameters",
    "framework": "what is minimised, by name, and its parameters",
    "recon": "the reconstruction loss, by name, and its parameters",
    "training": "how the model is trained",
    "evaluation": "which metrics are computed, on what, and when",
}
NEEDS_NOTE = (
    "sweeps that are carried out first, by a name of your own: {donors: sweeps/donors.yaml}; a data set that is made "
    "from trained models names one of them"
)
LOSS_SCALE_NOTE = "sum: nats per image (Locatello, Mathieu, Zietlow); mean: over pixels and latents (Michlo)"
# pydantic uses its own names for the bounds of an optional number
BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


# ---- pydantic's schemas, tidied


def _properties(params: type[BaseModel]) -> dict[str, Schema]:
    return {key: _tidied(value) for key, value in _inlined(params)["properties"].items()}


def _inlined(params: type[BaseModel]) -> Schema:
    """pydantic's schema without references, so that its parts can be used anywhere."""
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
    """Without titles, which only repeat the keys, and with the standard's names of bounds."""
    if isinstance(schema, list):
        return [_tidied(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {BOUNDS.get(key, key): _tidied_part(key, value) for key, value in schema.items() if key != "title"}


def _tidied_part(key: str, value: Any) -> Any:
    if key in ("default", "enum", "const"):
        return value
    if key == "description":
        return " ".join(value.split())  # the line breaks of a docstring have no meaning
    return {name: _tidied(part) for name, part in value.items()} if key == "properties" else _tidied(value)


def _object(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    needed = {"required": sorted(required)} if required else {}
    return {"type": "object", "properties": dict(properties), "additionalProperties": False, **needed}


def _any_of(options: Iterable[Schema]) -> Schema:
    """The options without duplicates; a single option is returned as it is."""
    distinct = list({json.dumps(option, sort_keys=True): option for option in options}.values())
    return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}


def _any_described(options: Mapping[str, Schema]) -> Schema:
    """A schema that accepts any of the named options; if descriptions differ, each is given with its names."""
    names: dict[str, list[str]] = {}
    for name, option in options.items():
        names.setdefault(option.get("description", ""), []).append(name)
    texts = [text if len(names) == 1 else f"{', '.join(some)}: {text}" for text, some in names.items()]
    bare = [{key: value for key, value in option.items() if key != "description"} for option in options.values()]
    return {"description": " | ".join(texts), **_any_of(bare)}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


# ---- leaves: a value, or a domain to search


def _domains(kinds: Iterable[str]) -> Schema:
    described = {key: schema for key, schema in _properties(Domain).items() if key in kinds}
    possible = {key: {"description": schema["description"], **schema["anyOf"][0]} for key, schema in described.items()}
    return {**_object(possible), "minProperties": 1, "maxProperties": 1}


def _is_number(leaf: Schema) -> bool:
    return leaf.get("type") in ("integer", "number") or any(_is_number(part) for part in leaf.get("anyOf", ()))


def _searchable(key: str, leaf: Schema, below: Iterable[str] = ()) -> Schema:
    """The values of a list to choose from are checked like a single value; only numbers have ranges.

    With keys `below`, a mapping of these may replace the value: a schedule, or a named choice with its parameters.
    """
    notes = {part: schema for part, schema in leaf.items() if part in ("description", "default")}
    value = _short({part: schema for part, schema in leaf.items() if part not in notes})
    values = [value, _object({part: {"$ref": f"#/$defs/{key}.{part}"} for part in below})] if below else [value]
    items = {"items": _any_of({"$ref": f"#/$defs/{key}/anyOf/{number}"} for number in range(len(values)))}
    domain = "domain" if _is_number(leaf) else "list"
    return {**notes, "anyOf": [*values, {"$ref": f"#/$defs/{domain}", "properties": {"grid": items, "choice": items}}]}


def _short(leaf: Schema) -> Schema:
    """A named choice, given only by its name, or by another string if the choice has a short form."""
    names = [name for kind in _kinds(leaf) for name in _constants(kind["properties"].get("name", {}))]
    if names and _accepts_text(leaf):
        return {"type": "string"}
    return {"enum": list(dict.fromkeys(names))} if names else leaf


def _accepts_text(leaf: Schema) -> bool:
    return leaf.get("type") == "string" or any(_accepts_text(option) for option in leaf.get("anyOf", ()))


def _kinds(leaf: Schema) -> list[Schema]:
    """The mappings that may replace a leaf."""
    if leaf.get("type") == "object" and "properties" in leaf:
        return [leaf]
    return [kind for word in ("anyOf", "oneOf") for option in leaf.get(word, ()) for kind in _kinds(option)]


def _constants(leaf: Schema) -> list[Any]:
    return [leaf["const"]] if "const" in leaf else leaf.get("enum", [])


def _below(section: str, leaf: Schema) -> dict[str, Schema]:
    """The keys of the mappings that may replace a leaf; any number of a framework may follow a schedule."""
    if section == "framework" and _is_fraction(leaf):
        kinds = _kinds(_properties(Scheduled)["value"])
        return {key: {"$ref": f"#/$defs/schedule.{key}"} for key in _union(kinds)}
    return _union(_kinds(leaf))


def _union(kinds: Iterable[Schema]) -> dict[str, Schema]:
    """The keys of several mappings, each with the values that any of the mappings accepts."""
    options: dict[str, dict[str, Schema]] = {}
    for kind in kinds:
        constants = [value for tag in TAGS for value in _constants(kind["properties"].get(tag, {}))]
        for key, part in kind["properties"].items():
            options.setdefault(key, {})["/".join(map(str, constants))] = part
    return {key: _tag(key, parts) if key in TAGS else _any_described(parts) for key, parts in options.items()}


def _tag(key: str, options: Mapping[str, Schema]) -> Schema:
    """The key that chooses one of several mappings."""
    values = [value for option in options.values() for value in _constants(option)]
    return {"description": f"which {'one' if key == 'name' else key}", "enum": values}


def _is_fraction(leaf: Schema) -> bool:
    return leaf.get("type") == "number" or any(_is_fraction(part) for part in leaf.get("anyOf", ()))


# ---- sections


def _name(catalogue: Catalogue) -> Schema:
    text = f"a {catalogue.kind} by its name, or the import path of your own (package.module:NAME)"
    return {"description": text, "anyOf": [{"enum": catalogue.names()}, OWN]}


def _metric() -> Schema:
    """A metric with parameters; a list is one value, so nothing in it is searched."""
    shared = {"name": {"description": "the metric"}, **_properties(When)}
    closed = [_when_named(metric.name, _object({**shared, **_properties(metric.params)})) for metric in METRICS]
    return {"type": "object", "properties": {"name": _name(METRICS)}, "required": ["name"], "allOf": closed}


def _when_named(name: str, schema: Schema) -> Schema:
    return {"if": {"required": ["name"], "properties": {"name": {"const": name}}}, "then": schema}


def _keys(section: str, plugin: Any) -> list[str]:
    return ["name", *plugin.params.model_fields, *(Pixels.model_fields if section == "dataset" else ())]


def _leaves(section: str) -> dict[str, Schema]:
    """Each key that a section can have; if plug-ins share a key, its value may be what any of them accepts."""
    if section in PLAIN_SECTIONS:
        leaves = _properties(PLAIN_SECTIONS[section])
        if "metrics" in leaves:
            leaves["metrics"]["items"] = {"anyOf": [_name(METRICS), _metric()]}
        return leaves
    options: dict[str, dict[str, Schema]] = {}
    for plugin in PLUGIN_SECTIONS[section]:
        for key, leaf in _properties(plugin.params).items():
            options.setdefault(key, {})[plugin.name] = leaf
    shared = _properties(Pixels) if section == "dataset" else {}
    own = {key: _any_described(leaves) for key, leaves in options.items()}
    return {"name": _name(PLUGIN_SECTIONS[section]), **own, **shared}


def _dotted(section: str) -> dict[str, Schema]:
    """The section's keys, and the keys of the mappings that may replace their values."""
    leaves = _leaves(section)
    nested = {f"{key}.{part}": below for key, leaf in leaves.items() for part, below in _below(section, leaf).items()}
    return leaves | nested


def _section(section: str) -> Schema:
    """With a plug-in's name, the keys of that plug-in; without one, of any plug-in; with a user's own, any key."""
    properties = {key: {"$ref": f"#/$defs/{section}.{key}"} for key in _leaves(section)}
    if section in PLAIN_SECTIONS:
        return _object(properties)
    named = [
        _when_named(plugin.name, {"propertyNames": {"enum": _keys(section, plugin)}})
        for plugin in PLUGIN_SECTIONS[section]
    ]
    some = {"if": {"not": _names_own("name")}, "then": {"propertyNames": {"enum": list(properties)}}}
    return _or_list(section, {"type": "object", "properties": properties, "allOf": [*named, some]})


def _or_list(section: str, mapping: Schema) -> Schema:
    """A section, or a list of whole sections to choose from: `recon: {grid: [{name: mse}, {name: overlap, ...}]}`."""
    items = {"items": {"$ref": f"#/$defs/{section}/else"}}
    is_list = {"type": "object", "anyOf": [{"required": [kind]} for kind in LISTS]}
    return {"if": is_list, "then": {"$ref": "#/$defs/list", "properties": dict.fromkeys(LISTS, items)}, "else": mapping}


def _names_own(key: str) -> Schema:
    """A condition: `key` names a user's own plug-in, directly or in a list to choose from."""
    lists = [
        {"type": "object", "required": [kind], "properties": {kind: {"type": "array", "contains": OWN}}}
        for kind in LISTS
    ]
    return {"type": "object", "required": [key], "properties": {key: {"anyOf": [OWN, *lists]}}}


# ---- layers: the mappings that hold sections


def _layer() -> Schema:
    """Sections nested or dotted, side by side. Unknown dotted keys are allowed only with a user's own plug-in."""
    sections = [*PLUGIN_SECTIONS, *PLAIN_SECTIONS]
    keys = ["loss_scale", *sections, *(f"{section}.{key}" for section in sections for key in _dotted(section))]
    return {
        "type": "object",
        "properties": {key: {"$ref": f"#/$defs/{key}"} for key in keys},
        "patternProperties": {f"^{section}[.]": {} for section in PLUGIN_SECTIONS},
        "allOf": [_refuses_dotted(section) for section in PLUGIN_SECTIONS],
    }


def _refuses_dotted(section: str) -> Schema:
    nested = {"required": [section], "properties": {section: _names_own("name")}}
    known = {"enum": [f"{section}.{key}" for key in _dotted(section)]}
    strange = {"propertyNames": {"anyOf": [known, {"not": {"pattern": f"^{section}[.]"}}]}}
    return {"if": {"not": {"anyOf": [_names_own(f"{section}.name"), nested]}}, "then": strange}


def _definitions() -> dict[str, Schema]:
    definitions = {
        "layer": _layer(),
        "domain": _domains(DOMAINS),
        "list": _domains(LISTS),
        "loss_scale": _searchable("loss_scale", {"description": LOSS_SCALE_NOTE, "enum": list(LOSS_SCALES)}),
    }
    for section in (*PLUGIN_SECTIONS, *PLAIN_SECTIONS):
        definitions[section] = {"description": SECTION_NOTES[section], **_section(section)}
        for key, leaf in _dotted(section).items():
            below = () if "." in key else _below(section, leaf)
            definitions[f"{section}.{key}"] = leaf if "$ref" in leaf else _searchable(f"{section}.{key}", leaf, below)
    for key, leaf in _union(_kinds(_properties(Scheduled)["value"])).items():
        definitions[f"schedule.{key}"] = _searchable(f"schedule.{key}", leaf)
    return definitions


# ---- files


def _choice(kinds: Mapping[str, Any]) -> Schema:
    """A mapping with a name, or only the name if nothing else is required."""
    mappings = [{**_tidied(_inlined(kind)), "required": ["name", *_required(kind)]} for kind in kinds.values()]
    return {"anyOf": [{"enum": [name for name, kind in kinds.items() if not _required(kind)]}, *mappings]}


def _required(kind: type[Frozen]) -> list[str]:
    return [key for key, field in kind.model_fields.items() if field.is_required() and key != "name"]


def _settings() -> dict[str, Schema]:
    properties = _properties(Settings)
    objective = next(option for option in properties["objective"]["anyOf"] if option.get("type") == "object")
    changed = {
        "search": _choice(SEARCHES),
        "scheduler": _choice(SCHEDULERS),
        "objective": objective,
        "figures": {"type": "array", "items": _choice(FIGURES)},
        "pictures": {"anyOf": [properties["pictures"]["properties"]["when"], properties["pictures"]]},
    }
    notes = {key: {"description": schema["description"]} for key, schema in properties.items()}
    return {key: notes[key] | changed.get(key, schema) for key, schema in properties.items()}


def _exactly(pattern: Any) -> Schema:
    return {"type": "string", "pattern": f"^{pattern.pattern}$"}


def _seeds() -> Schema:
    numbers = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "uniqueItems": True}
    return {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST_SEEDS}, numbers]}


def _arms() -> Schema:
    space = _exactly(SPACE_NAME)
    spaces = {"anyOf": [space, {"type": "array", "items": space}], "description": "file names in search_spaces/"}
    arm = _or_null({**LAYER, "properties": {"search_space": spaces}})
    return {"type": "object", "propertyNames": _exactly(NAME), "minProperties": 1, "additionalProperties": arm}


def _needs() -> Schema:
    """A path, or a sweep of its own, as a run folder keeps it."""
    file = {"type": "string", "pattern": f"({'|'.join(SUFFIXES)})$".replace(".", "[.]")}
    return {"type": "object", "propertyNames": _exactly(NAME), "additionalProperties": {"anyOf": [file, {"$ref": "#"}]}}


def sweep_schema() -> Schema:
    """The schema of files in sweeps/."""
    properties = {
        "name": {"description": "name of the run's folder; default: the name of the file", **_exactly(NAME)},
        "question": {"description": "what the study asks; shown in the report", "type": "string"},
        "needs": {"description": NEEDS_NOTE, **_or_null(_needs())},
        "trial": {**_or_null(LAYER), "description": "what all arms have in common"},
        "arms": {"description": "search spaces by name: a product inside an arm, a union across arms", **_arms()},
        "seeds": {"description": "how many seeds, or a list of them; every point is trained with each", **_seeds()},
        **_settings(),
    }
    return {"$schema": DIALECT, "title": "disentune sweep", **_object(properties), "$defs": _definitions()}


def search_space_schema() -> Schema:
    """The schema of files in search_spaces/."""
    return {"$schema": DIALECT, "title": "disentune search space", **LAYER, "$defs": _definitions()}


def texts() -> dict[str, str]:
    """The content of each schema file, by file name."""
    schemas = {"sweep.schema.json": sweep_schema(), "search_space.schema.json": search_space_schema()}
    return {name: json.dumps(schema, indent=1) + "\n" for name, schema in schemas.items()}


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    write(Path("schemas"))
