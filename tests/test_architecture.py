"""Imports point one way, and only Ray's edge knows Ray."""

import ast
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import disentune

ROOT = Path(disentune.__file__).parent
LAYERS = [layer["packages"] for layer in tomllib.loads((ROOT.parents[1] / "docs/layers.toml").read_text())["layer"]]
"""From the bottom up. A module imports from its own package and from layers below, never from beside or above."""
EDGE = {"driver", "cluster", "tracking"}
FORBIDDEN = {"utils", "util", "helpers", "common", "misc", "base", "manager", "core"}

FILES = sorted(ROOT.rglob("*.py"))
HEIGHT = {name: height for height, layer in enumerate(LAYERS) for name in layer}


def top(path: Path) -> str:
    """`data` for data/xysquares.py, `space` for space.py."""
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def imported(path: Path) -> set[str]:
    """Every module that a file imports at any depth, functions included."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def our_modules(path: Path) -> set[str]:
    return {name.split(".")[1] for name in imported(path) if name.startswith("disentune.")}


def test_every_module_has_its_layer_and_only_one():
    assert {top(path) for path in FILES} <= HEIGHT.keys()
    assert len(HEIGHT) == sum(map(len, LAYERS))


def test_imports_point_down():
    pairs = {(path, name) for path in FILES for name in our_modules(path) & HEIGHT.keys() if name != top(path)}
    assert [f"{path} imports {name}" for path, name in pairs if HEIGHT[name] >= HEIGHT[top(path)]] == []


def who_imports(*packages: str) -> set[str]:
    return {top(path) for path in FILES if any(name.split(".")[0] in packages for name in imported(path))}


def test_only_the_edge_imports_ray():
    assert who_imports("ray") <= EDGE


def test_only_its_own_edge_imports_wandb():
    assert who_imports("wandb", "wandb_workspaces") <= {"tracking"}


def test_the_edge_knows_nothing_of_vaes():
    inside = {"data", "models", "recon", "frameworks", "metrics", "maths"}
    for path in FILES:
        if top(path) in EDGE:
            assert not our_modules(path) & inside


def test_no_module_is_named_for_what_it_is_not():
    assert not {path.stem for path in FILES} & FORBIDDEN
    assert not {path.parent.name for path in FILES} & FORBIDDEN


def test_plugins_do_not_know_each_other():
    for folder in ("models", "recon", "frameworks", "metrics"):
        for path in (ROOT / folder).glob("*.py"):
            others = {"data", "models", "recon", "frameworks", "metrics"} - {folder}
            assert not our_modules(path) & others


def test_what_trains_plans_and_reads_never_loads_ray():
    """Also not through another package; a second import of the command line stays quick."""
    modules = [
        f"disentune.{'.'.join(path.relative_to(ROOT).with_suffix('').parts)}"
        for package in ("spec", "learn", "runs", "results", "report", "cli")
        for path in sorted((ROOT / package).glob("[a-z]*.py"))
    ]
    code = f"import sys, importlib; [importlib.import_module(name) for name in {modules}]; print('ray' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_importing_the_package_loads_nothing_heavy():
    code = (
        "import sys, disentune; print([m for m in ('torch', 'pandas', 'ray', 'numpy', 'pydantic') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
