"""Hashes of the code of a user's plug-ins, which affects rows as our own code does. Reads files, imports nothing."""

import ast
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from disentune.environment import short_hash

OWN = "disentune"
INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages, which are independent of each other."""


def plugin_sources(plugins: Iterable[str]) -> dict[str, str]:
    """Hashes by module of plug-ins named by import path, `my_package.my_vae:FRAMEWORK`: the plug-in's module and what
    it imports from its own package or, if the package is not installed, from the same folder."""
    found: dict[str, str] = {}
    for plugin in plugins:
        if module := _located(plugin.partition(":")[0]):
            _take_in(module, found)
    return dict(sorted(found.items()))


class _Module(NamedTuple):
    name: str
    file: Path

    @property
    def is_package(self) -> bool:
        return self.file.name == "__init__.py"

    @property
    def root(self) -> Path:
        """The folder that contains its outermost package."""
        return self.file.parents[self.name.count(".") + self.is_package]

    def knows(self, name: str) -> bool:
        """Whether a module of this name can be part of the plug-in."""
        top = name.partition(".")[0]
        return top == self.name.partition(".")[0] or (self.root.name not in INSTALLED and top != OWN)


def _located(name: str) -> _Module | None:
    """The file that the module was, or would be, imported from."""
    imported = getattr(sys.modules.get(name), "__file__", None)
    if name.partition(".")[0] == OWN:  # covered by the hash of disentune itself
        return None
    places = [_Module(name, Path(imported))] if imported else []
    return next(filter(None, (*places, *(_below(Path(root or os.getcwd()), name) for root in (*sys.path, "")))), None)


def _below(root: Path, name: str) -> _Module | None:
    base = root.joinpath(*name.split("."))
    files = (base / "__init__.py", base.with_name(f"{base.name}.py"))
    return next((_Module(name, file) for file in files if file.is_file()), None)


def _take_in(module: _Module, found: dict[str, str]) -> None:
    around = [_below(module.root, name) for name in _with_packages(module.name)]
    waiting = [*filter(None, around), module]
    while waiting:
        one = waiting.pop()
        if one.name in found:
            continue
        with suppress(OSError, SyntaxError, ValueError):  # a source that cannot be read has no known imports
            data = one.file.read_bytes()
            found[one.name] = short_hash(data)
            names = {name for name in _imports(ast.parse(data), one) if one.knows(name)}
            waiting += filter(None, (_below(one.root, name) for name in sorted(names)))


def _imports(tree: ast.AST, module: _Module) -> Iterator[str]:
    """Names of possible modules in its import statements, at any depth, with the packages that contain them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{_base(node, module)}.{alias.name}".strip(".") for alias in node.names]
        else:
            continue
        for name in names:
            yield from _with_packages(name)


def _with_packages(name: str) -> list[str]:
    """`a`, `a.b` and `a.b.c` for `a.b.c`."""
    parts = name.split(".")
    return [".".join(parts[:length]) for length in range(1, len(parts) + 1)]


def _base(node: ast.ImportFrom, module: _Module) -> str:
    """The package that `from ... import` names; leading dots are relative to the module's package."""
    if not node.level:
        return node.module or ""
    around = module.name.split(".")
    around = around[: len(around) + module.is_package - node.level]
    return ".".join([*around, *([node.module] if node.module else [])])
