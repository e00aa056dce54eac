"""What is imported is declared, and what is declared is imported."""

import ast
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS = packages_distributions()
NEVER_IMPORTED = {"cmaes", "disentune", "ipykernel", "mypy", "pre-commit", "ruff", "setuptools"}
"""cmaes: Optuna imports it for its CMA-ES sampler. disentune: its extra for the documentation, which has commands.
ipykernel runs the notebooks, setuptools builds the wheel. The others are commands."""


@cache
def imported(folder: str) -> set[str]:
    """The top-level modules of others that files of this folder import, also inside functions."""
    paths = list((ROOT / folder).rglob("*.py"))
    own = {"disentune"} | {path.relative_to(ROOT / folder).parts[0].removesuffix(".py") for path in paths}
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {str(node.args[0].value) for node in nodes if _imports_or_skips(node)}
    return {name.partition(".")[0] for name in names} - own - set(sys.stdlib_module_names)


def _imports_or_skips(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "importorskip"


def distributions(module: str) -> set[str]:
    """Those that install a module; several share a namespace such as `google`."""
    return {canonicalize_name(name) for name in DISTRIBUTIONS.get(module, [module])}


def declared(*extras: str) -> set[str]:
    lists = [PROJECT["dependencies"], *(PROJECT["optional-dependencies"][extra] for extra in extras)]
    return {canonicalize_name(Requirement(line).name) for lines in lists for line in lines}


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "extras"), [("src", ["onnx"]), ("tests", ["dev", "onnx"])])
def test_every_package_that_is_imported_is_declared(folder, extras):
    modules = imported(folder)
    assert len(modules) > 15
    assert {module for module in modules if not distributions(module) & declared(*extras)} == set()


def test_every_package_that_is_declared_is_imported():
    used = {name for folder in ("src", "tests") for module in imported(folder) for name in distributions(module)}
    assert declared("dev", "onnx") - used == NEVER_IMPORTED


def test_what_only_tests_import_is_not_a_dependency_of_the_package():
    used = {name for module in imported("src") for name in distributions(module)}
    assert declared() - used == {"cmaes"}
