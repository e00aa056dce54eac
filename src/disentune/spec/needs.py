"""`needs:` of a sweep file: the files of the sweeps that must be finished before it."""

import os
from collections.abc import Sequence
from pathlib import Path

SUFFIXES = (".yaml", ".yml")
DEEPEST = 8
"""Sweeps that need one another, one after the other."""
RULE = "must be the path of a sweep file (.yaml), or a sweep as a mapping"


def candidates(text: str, file: Path) -> list[Path]:
    """Where a needed file may be: below the folder of the sweep or one of the folders above it, then below the working
    folder."""
    return [*dict.fromkeys(folder / text for folder in (*file.resolve().parents, Path.cwd()))]


def found(text: str, file: Path) -> Path | None:
    return next((path for path in candidates(text, file) if path.is_file()), None)


def cycle(path: Path, above: Sequence[Path]) -> str:
    """`a.yaml -> b.yaml -> a.yaml` if the file is among those that need it; else empty."""
    real = [Path(os.path.realpath(one)) for one in (*above, path)]
    if real[-1] not in real[:-1]:
        return ""
    return " -> ".join(one.name for one in real[real.index(real[-1]) :])
