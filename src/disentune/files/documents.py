"""Reads YAML 1.2 files as plain values with line numbers. Constructs only scalars, lists and mappings."""

import io
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.representer import SafeRepresenter

from disentune.errors import ConfigError, Problem
from disentune.files.storage import Place, opened

LARGEST_FILE = 1_000_000
MOST_VALUES = 50_000
"""Aliases can expand a short file to billions of values; no real sweep needs more than this."""
DEEPEST = 50
TOO_MUCH = f"has more than {MOST_VALUES:,} values with its aliases expanded, or is nested deeper than {DEEPEST} levels"
STANDARD = "tag:yaml.org,2002:"
LONGEST_TAG = 8
"""The longest tag that an error message repeats: `!include`, `!!binary`."""

Path_ = tuple[str | int, ...]


@dataclass
class Document:
    """A file's value, and the line of each part of it."""

    file: str
    value: Any = None
    lines: dict[Path_, int] = field(default_factory=dict)
    elsewhere: dict[Path_, str] = field(default_factory=dict)
    """Parts that were set outside the file, and where."""

    def where(self, path: Path_) -> str:
        """`file:line` of the deepest known part of this path."""
        while path and path not in self.lines and path not in self.elsewhere:
            path = path[:-1]
        return self.elsewhere.get(path) or f"{self.file}:{self.lines.get(path, 1)}"

    def part(self, path: Path_) -> "Document":
        """The value at a path as a document, which still knows its lines."""
        depth = len(path)
        lines = {place[depth:]: line for place, line in self.lines.items() if place[:depth] == path}
        elsewhere = {place[depth:]: where for place, where in self.elsewhere.items() if place[:depth] == path}
        return replace(self, value=_at(self.value, path), lines=lines, elsewhere=elsewhere)


@dataclass
class Values(Document):
    """Values that were given in Python: each is known by the path of its keys."""

    above: Path_ = ()
    """The path of this document in the whole one."""

    def where(self, path: Path_) -> str:
        return ".".join(map(str, (*self.above, *path))) or self.file

    def part(self, path: Path_) -> "Document":
        return replace(self, value=_at(self.value, path), above=(*self.above, *path))


def _at(value: Any, path: Path_) -> Any:
    for key in path:
        value = value[key]
    return value


class Missing(ConfigError):
    """A file that does not exist."""


class _Composer(Composer):
    """Stops at a size or depth that no real file has, before it costs time and memory."""

    def __init__(self, loader: Any = None):
        super().__init__(loader)
        self.warn_double_anchors = False  # YAML allows a later anchor to reuse a name
        self.nodes = 0

    def compose_document(self) -> Any:
        start = self.parser.peek_event()
        if start.version not in (None, (1, 2)):
            text = "must be YAML 1.2; remove the %YAML line (older versions read numbers and words differently)"
            raise ComposerError(None, None, text, start.start_mark)
        return super().compose_document()

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.nodes += 1
        if self.nodes > 2 * MOST_VALUES or self.depth > DEEPEST:
            raise ComposerError(None, None, f"{TOO_MUCH}; simplify it", self.parser.peek_event().start_mark)
        return super().compose_node(parent, index)


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
            raise _unreadable(self.document.file, line, f"{TOO_MUCH}; simplify it")
        if isinstance(node, ScalarNode):
            return self._scalar(node, line)
        if node.tag not in (f"{STANDARD}map", f"{STANDARD}seq"):
            self._complain(line, f"{_spelled(node)} is a tag, and tags are not supported; write the value without it")
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        assert isinstance(node, SequenceNode)
        return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]

    def _mapping(self, node: MappingNode, path: Path_) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, ScalarNode):
                self._complain(line, "a key must be a plain word")
                continue
            key = str(key_node.value)
            self._assert_text(key, line)
            if key in mapping:
                self._complain(line, f"'{key:.60}' occurs twice; keep one")
            if key_node.tag == f"{STANDARD}merge":
                self._complain(line, "'<<' is not part of YAML 1.2; write the keys out")
            self.document.lines[(*path, key)] = line
            mapping[key] = self.value(value_node, (*path, key))
        return mapping

    def _scalar(self, node: ScalarNode, line: int) -> Any:
        kind, text = str(node.tag).removeprefix(STANDARD), str(node.value)
        self._assert_text(text, line)
        if kind not in _CONSTRUCT and kind not in _WITHOUT_TAG:
            self._complain(line, f"{_spelled(node)} is a tag, and tags are not supported; write the value without it")
            return text
        try:
            return _CONSTRUCT[kind](text)
        except (KeyError, ValueError):
            self._complain(line, f"'{text:.60}' is not a string, number, true, false or null; put quotes around it")
            return text

    def _assert_text(self, text: str, line: int) -> None:
        """Refuses half a character (a lone surrogate from an escape), which no file or terminal accepts."""
        if found := _HALVES.search(text):
            self._complain(line, f"character U+{ord(found[0]):04X} is not allowed in a string; remove it")

    def _complain(self, line: int, text: str) -> None:
        self.problems.append(Problem(f"{self.document.file}:{line}", text))


def _unreadable(file: str, line: int, text: str) -> ConfigError:
    return ConfigError(f"{file} cannot be read", [Problem(f"{file}:{line}", text)])


def _spelled(node: Node) -> str:
    """The tag, or only its beginning if it is long: it may be a secret key."""
    tag = str(node.tag).replace(STANDARD, "!!")
    return tag if len(tag) <= LONGEST_TAG else f"{tag[:5]}***"


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
    "bool": lambda text: {"true": True, "false": False}[text.lower()],
    "null": lambda text: {"null": None, "~": None, "": None}[text.lower()],
}
_WITHOUT_TAG = ("timestamp", "merge", "value")
"""YAML's types of plain words such as 2020-01-01, << and =, which we do not support."""
_HALVES = re.compile("[\ud800-\udfff]")


def _said(error: MarkedYAMLError) -> str:
    said = ": ".join(str(part) for part in (error.context, error.problem) if part)
    return said.replace("but got '<stream end>'", "but the file ends")


def _code(character: Any) -> int:
    return character if isinstance(character, int) else ord(character)


def parse(text: str, file: str) -> Document:
    """The document in a text. Raises ConfigError with every problem at once."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _Composer
    try:
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _unreadable(file, mark.line + 1 if mark else 1, _said(error)) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        text = f"character U+{_code(error.character):04X} is not allowed in YAML; remove it"
        raise _unreadable(file, line, text) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise _unreadable(file, 1, f"is not YAML: {error}") from None
    reader = _Reader(file)
    if node is not None:
        reader.document.value = reader.value(node, ())
    if reader.problems:
        raise ConfigError(f"{file} cannot be read", reader.problems)
    return reader.document


# ---- values from Python


def of_values(tree: Mapping[str, Any], name: str) -> Values:
    """A document of plain values, as if they had been read. Raises ConfigError with every value that no file can
    have."""
    reader = _Converter()
    value = reader.converted(tree, ())
    if reader.problems:
        raise ConfigError(f"{name} cannot be read", reader.problems)
    return Values(name, value)


class _Converter:
    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.values = 0

    def converted(self, value: Any, path: Path_) -> Any:
        """Tuples, ranges and arrays (of NumPy, torch or pandas) as lists, and their numbers as Python's."""
        self.values += 1
        if self.values > MOST_VALUES or len(path) > DEEPEST:
            text = f"more than {MOST_VALUES:,} values, or nested deeper than {DEEPEST} levels; simplify it"
            raise ConfigError("the values cannot be read", [Problem(".".join(map(str, path[:3])), text)])
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, Mapping):
            return {self._key(key, path): self.converted(one, (*path, key)) for key, one in value.items()}
        if isinstance(value, list | tuple | range):
            return [self.converted(one, (*path, number)) for number, one in enumerate(value)]
        return self._scalar(value, path)

    def _key(self, key: Any, path: Path_) -> str:
        if not isinstance(key, str):
            self._complain(path, f"a key must be a string, got {key!r:.60}")
        return self._scalar(key, path) if isinstance(key, str) else str(key)

    def _scalar(self, value: Any, path: Path_) -> Any:
        for kind in (bool, int, float, str):
            if isinstance(value, kind):
                value = kind(value)  # without what a subclass adds
                break
        else:
            if value is not None:
                kinds = "a string, a number, True, False, None, a list or a dict"
                self._complain(path, f"must be {kinds}, got {type(value).__name__}: {value!r:.60}")
        if isinstance(value, str) and (found := _HALVES.search(value)):
            self._complain(path, f"character U+{ord(found[0]):04X} is not allowed in a string; remove it")
        return value

    def _complain(self, path: Path_, text: str) -> None:
        self.problems.append(Problem(".".join(map(str, path)) or "the values", text))


def read(path: Place) -> Document:
    """The document in a file. Raises ConfigError for a missing, huge or binary file."""
    try:
        data = _beginning(path) if isinstance(path, Path) else path.read_bytes()
    except FileNotFoundError:
        raise Missing(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{path} is too large: a sweep or search space has at most {LARGEST_FILE:,} bytes")
    try:
        return parse(data.decode(), str(path))
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise _unreadable(str(path), line, "is not text in UTF-8") from None


def _beginning(path: Path) -> bytes:
    with opened(path) as file:
        return file.read(LARGEST_FILE + 1)


class _Representer(SafeRepresenter):
    """Writes shared values in full, and quotes every string except plain words, some of which ruamel reads as
    syntax."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> Any:
        return self.represent_scalar(f"{STANDARD}str", data, style=None if _PLAIN.fullmatch(data) else '"')


_PLAIN = re.compile(r"[A-Za-z]([A-Za-z0-9_./ -]*[A-Za-z0-9])?")
_Representer.add_representer(str, _Representer.represent_str)


def dump(value: Any, stream: Any) -> None:
    """Writes plain values as YAML, keys in their given order."""
    writer = YAML(typ="safe", pure=True)
    writer.Representer = _Representer
    writer.default_flow_style = None
    writer.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    writer.width = 120
    writer.dump(value, stream)


def dumped(value: Any) -> bytes:
    """The same as the bytes of a file."""
    stream = io.StringIO()
    dump(value, stream)
    return stream.getvalue().encode()
