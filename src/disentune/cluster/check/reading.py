"""Cluster files as Ray and Kubernetes read them, YAML 1.1 by PyYAML, with the line of every part."""

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from disentune.errors import ConfigError, Problem, first_line
from disentune.files.documents import DEEPEST, LARGEST_FILE, MOST_VALUES, Document, Path_

MERGE = "tag:yaml.org,2002:merge"
_WORDS = ("true", "false")
_SIXTY, _OCTAL = re.compile(r"[-+]?\d+(:\d+)+(\.\d*)?"), re.compile(r"[-+]?0\d+")


@dataclass(frozen=True)
class Finding:
    """One finding about a cluster file: an error must be fixed first, a warning should be considered."""

    level: Literal["error", "warning"]
    where: str
    text: str


def error(where: str, text: str) -> Finding:
    return Finding("error", where, text)


def warning(where: str, text: str) -> Finding:
    return Finding("warning", where, text)


@dataclass
class Source:
    """A file's text and its parsed documents."""

    file: str
    text: str
    documents: list[Document] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def uncommented(self) -> Iterator[tuple[str, str]]:
        """`file:line` and text of each line, without its comment."""
        for number, line in enumerate(self.text.splitlines(), 1):
            yield f"{self.file}:{number}", re.sub(r"(^|\s)#.*", "", line)

    def line_of(self, fragment: str, where: str) -> str:
        """The line of a fragment in a multi-line block: the first line at or after `where` that contains it."""
        first = int(where.rpartition(":")[2])
        for number, line in enumerate(self.text.splitlines()[first - 1 :], first):
            if fragment in line:
                return f"{self.file}:{number}"
        return where


class _Walk:
    """One document's nodes as values; PyYAML builds the scalars, as it does for Ray."""

    def __init__(self, source: Source):
        self.source, self.document = source, Document(source.file)
        self.scalars = yaml.SafeLoader("")
        self.values = 0
        self.keys: dict[int, int] = {}

    def value(self, node: Any, path: Path_) -> Any:
        self.document.lines.setdefault(path, node.start_mark.line + 1)
        self.values += 1
        if self.values > MOST_VALUES or len(path) > DEEPEST:
            raise _unreadable(self.source.file, node.start_mark.line + 1, "is too large or nested too deeply")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        return self._scalar(node)

    def _mapping(self, node: Any, path: Path_) -> dict[str, Any]:
        own: set[str] = set()
        for key, _ in node.value:
            if key.tag != MERGE and str(key.value) in own:
                self._say(
                    error, key, f"'{key.value:.60}' occurs twice in one mapping, and Ray would use the last; keep one"
                )
            own.add(str(key.value))
        if self._keys(node) > MOST_VALUES:
            raise _unreadable(self.source.file, node.start_mark.line + 1, "merges too much")
        self.scalars.flatten_mapping(node)
        mapping = {}
        for key, value in node.value:
            name = str(key.value)
            self.document.lines[(*path, name)] = key.start_mark.line + 1
            mapping[name] = self.value(value, (*path, name))
        return mapping

    def _keys(self, node: Any) -> int:
        """The number of keys of a mapping including everything merged into it, recursively."""
        if not isinstance(node, yaml.MappingNode):
            return 0
        if id(node) not in self.keys:
            self.keys[id(node)] = 0  # for a mapping that merges itself
            merged = [value for key, value in node.value if key.tag == MERGE]
            parts = [part for one in merged for part in (one.value if isinstance(one, yaml.SequenceNode) else [one])]
            self.keys[id(node)] = len(node.value) + sum(map(self._keys, parts))
        return self.keys[id(node)]

    def _scalar(self, node: Any) -> Any:
        value = self.scalars.construct_object(node)
        plain = node.style is None and not isinstance(value, str | type(None))
        odd = isinstance(value, bool) and node.value.lower() not in _WORDS
        if plain and (odd or _SIXTY.fullmatch(node.value) or _OCTAL.fullmatch(node.value)):
            text = f"'{node.value:.60}' is read as {value!r} here (YAML 1.1); write {str(value).lower()}, or use quotes"
            self._say(warning, node, text)
        return value

    def _say(self, level: Any, node: Any, text: str) -> None:
        self.source.findings.append(level(f"{self.source.file}:{node.start_mark.line + 1}", text))


def _unreadable(file: str, line: int, text: str) -> ConfigError:
    return ConfigError(f"{file} cannot be read", [Problem(f"{file}:{line}", text)])


def beginning(path: Path) -> bytes:
    """The first bytes of a file, up to the size limit. Raises OSError for a device or a pipe."""
    if path.exists() and not path.is_file() and not path.is_dir():
        raise OSError(errno.EINVAL, "it is not a file")
    with open(path, "rb") as file:
        return file.read(LARGEST_FILE + 1)


def read(path: Path) -> Source:
    """All documents of a file. Raises ConfigError if there is no mapping in it."""
    try:
        data = beginning(path)
    except FileNotFoundError:
        raise ConfigError(f"{path} does not exist") from None
    except OSError as reason:
        raise ConfigError(f"{path} cannot be read: {reason.strerror or reason}") from None
    if len(data) > LARGEST_FILE:
        raise ConfigError(f"{path} is too large: a cluster file has at most {LARGEST_FILE:,} bytes")
    try:
        source = Source(str(path), data.decode())
        for node in yaml.compose_all(source.text, Loader=yaml.SafeLoader):
            walk = _Walk(source)
            walk.document.value = walk.value(node, ())
            source.documents.append(walk.document)
    except UnicodeDecodeError as reason:
        line = data.count(b"\n", 0, reason.start) + 1
        raise _unreadable(str(path), line, "is not text in UTF-8") from None
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        text = ": ".join(part for part in (reason.context, reason.problem) if part)
        raise _unreadable(str(path), mark.line + 1 if mark else 1, text) from None
    except (yaml.YAMLError, ValueError, RecursionError) as reason:
        raise _unreadable(str(path), 1, f"is not YAML: {first_line(reason)}") from None
    if not any(isinstance(document.value, dict) for document in source.documents):
        raise ConfigError(f"{path} is not a cluster file: it must be a mapping with `provider:`, or `kind: RayCluster`")
    return source
