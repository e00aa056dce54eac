"""The computations of docs/studies/theory.md, as its script has them."""

import importlib.util
import sys
from pathlib import Path

import matplotlib as mpl
import pytest

SCRIPT = Path(__file__).parents[2] / "docs" / "images" / "theory.py"


@pytest.fixture(scope="session")
def theory():
    mpl.use("Agg")
    spec = importlib.util.spec_from_file_location("docs_theory", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_theory"] = module  # so that its records can be made
    spec.loader.exec_module(module)
    return module
