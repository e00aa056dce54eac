"""YAML 1.2 files as plain values that remember their lines. Nothing is constructed but scalars, lists and mappings."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from disentune.errors import ConfigError, Problem

LARGEST_FILE = 1_000_000
MOST_VALUES = 200_000
"""Aliases let a short file mean billions of values; no honest sweep needs more than this."""
DEEPEST = 50

Path_ = tuple[str | int, ...]


@dataclass
class Document:
    """A file's value, and the line on which each part of it stands."""

    file: str
    value: Any = None
    lines: dict[Path_, int] = field(default_factory=dict)

    def where(self, path: Path_) -> str:
        """`file:line` of the deepest known part of this path."""
        while path and path not in self.lines:
            path = path[:-1]
        return f"{self.file}:{self.lines.get(path, 1)}"


class _Reader:
    def __init__(self, file: str):
        self.document = Document(file)
        self.problems: list[Problem] = []
        self.values = 0

    def value(self, node: Node, path: Path_) -> Any:
        line = node.start_mark.line + 1
        self.document.lines.setdefault(path, line)
        self.values += 1
        if self.values > MOST_VALUES or len(path) > DEEPEST:
            raise ConfigError(
                f"{self.document.file}:{line} holds more than {MOST_VALUES:,} values (aliases counted out) "
                f"or is nested deeper than {DEEPEST} levels; write it out plainly"
            )
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node, line)

    def _mapping(self, node: MappingNode, path: Path_) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._complain(line, "a key must be a plain word")
                continue
            key = str(key_node.value)
            if key in mapping:
                self._complain(line, f"'{key}' stands here twice; keep one")
            self.document.lines[(*path, key)] = line
            mapping[key] = self.value(value_node, (*path, key))
        return mapping

    def _scalar(self, node: ScalarNode, line: int) -> Any:
        kind, text = str(node.tag).rsplit(":", 1)[-1].rsplit("'")[0], str(node.value)
        try:
            return _CONSTRUCT[kind](text)
        except (KeyError, ValueError):
            self._complain(line, f"'{text}' is not a text, number, true, false or null; put quotes around it")
            return text

    def _complain(self, line: int, text: str) -> None:
        self.problems.append(Problem(f"{self.document.file}:{line}", text))


def _integer(text: str) -> int:
    return int(text.replace("_", ""), 0 if text.lower().lstrip("+-").startswith(("0x", "0o")) else 10)


def _float(text: str) -> float:
    word = text.replace("_", "").lower()
    if word.lstrip("+-") in (".inf", ".nan"):
        return math.nan if "nan" in word else math.copysign(math.inf, -1 if word[0] == "-" else 1)
    return float(word)


_CONSTRUCT: dict[str, Any] = {
    "str": str,
    "int": _integer,
    "float": _float,
    "bool": lambda text: text.lower() == "true",
    "null": lambda text: None,
}


def parse(text: str, file: str) -> Document:
    """The document in a text; every problem in it at once as a ConfigError."""
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except RecursionError:
        raise ConfigError(f"{file} is nested too deeply to be read") from None
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ConfigError(f"{file} is not YAML", [Problem(f"{file}:{line}", str(error.problem))]) from None
    except (YAMLError, ValueError) as error:
        raise ConfigError(f"{file} is not YAML: {error}") from None
    reader = _Reader(file)
    if node is not None:
        reader.document.value = reader.value(node, ())
    if reader.problems:
        raise ConfigError(f"{file} cannot be read", reader.problems)
    return reader.document


def read(path: Path) -> Document:
    """The document in a file; a missing, huge or binary file is a ConfigError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{path} has {len(data):,} bytes; a sweep or search space has at most {LARGEST_FILE:,}")
    try:
        return parse(data.decode(), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file in UTF-8 (byte {error.start})") from None


def dump(value: Any, stream: Any) -> None:
    """Writes plain values as YAML, keys in their given order."""
    writer = YAML(typ="safe", pure=True)
    writer.default_flow_style = None
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.width = 120
    writer.dump(value, stream)
