"""`disentune quickstart`: the example sweep that needs no clone, no download and no account."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from disentune.cli.options import Storage
from disentune.cli.terminal import out, quoted
from disentune.errors import ConfigError
from disentune.files.storage import DEFAULT_STORAGE

PACKAGE = Path(__file__).parents[1]
SWEEP = Path("sweeps", "quickstart.yaml")


def quickstart(
    copy: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Only copy the example sweeps and search spaces to this folder, to edit."),
    ] = None,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Runs a small study in two to three minutes on two cores: does pixel overlap decide whether a VAE disentangles?

    Examples: disentune quickstart; disentune quickstart --copy my_project
    """
    from disentune.cli.sweeps import run

    if copy is None:
        run(examples() / SWEEP, storage=storage)
    else:
        _copy(copy)


def examples() -> Path:
    """The folder with sweeps/, search_spaces/ and schemas/: in the installed package, or the clone."""
    packaged = PACKAGE / "examples"
    found = packaged if packaged.is_dir() else PACKAGE.parents[1]
    if not (found / SWEEP).is_file():
        raise ConfigError("this installation has no example sweeps; install disentune from its wheel or its repository")
    return found


def _copy(folder: Path) -> None:
    source = examples()
    files = [path for part in ("sweeps", "search_spaces", "schemas") for path in sorted((source / part).rglob("*.*"))]
    copies = {path: folder / path.relative_to(source) for path in files}
    taken = next((target for target in copies.values() if target.exists()), None)
    if taken is not None:
        raise ConfigError(f"{taken} already exists; nothing was copied. Choose another folder")
    for path, target in copies.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    out.print(f"copied {len(copies)} files to {folder}\n\nnext:", markup=False)
    sweep = quoted(folder / SWEEP)
    out.print(f"  disentune plan {sweep}\n  disentune run {sweep}", markup=False)
