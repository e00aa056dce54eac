"""Copies the example sweeps, search spaces and schemas into the wheel. All other settings are in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

EXAMPLES = ("sweeps", "search_spaces", "schemas")


class BuildWithExamples(build_py):
    """An editable installation finds them in the clone."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            for name in EXAMPLES:
                copy = Path(self.build_lib, "disentune", "examples", name)
                shutil.rmtree(copy, ignore_errors=True)  # of an earlier build, with files that have since been removed
                shutil.copytree(name, copy)


setup(cmdclass={"build_py": BuildWithExamples})
