"""`disentune new`: a commented sweep file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disentune.cli.terminal import out, quoted
from disentune.errors import ConfigError

TEMPLATE = Path(__file__).with_name("sweep_template.yaml")


def new(name: Annotated[str, typer.Argument(help="Name of the sweep and of its file, for example my_study.")]) -> None:
    """Writes a commented sweep to start from: sweeps/NAME.yaml, or NAME.yaml if there is no folder sweeps/.

    Example: disentune new my_study
    """
    path = _path(name.removesuffix(".yaml"))
    try:
        with path.open("x") as file:  # never overwrites, even when two commands run at once
            file.write(TEMPLATE.read_text().replace("SWEEP_NAME", path.stem))
    except FileExistsError:
        raise ConfigError(f"{path} already exists; choose another name or delete the file") from None
    out.print(f"wrote {path}\n\nnext:", markup=False)
    out.print(f"  disentune plan {quoted(path)}\n  disentune run {quoted(path)}", markup=False)


def _path(name: str) -> Path:
    from disentune.spec.sweepfile import NAME

    if not NAME.fullmatch(name):
        rule = "a name may have only letters, digits, '_', '-' and '.', and must begin with a letter or digit"
        raise ConfigError(f"new {name!r}: {rule}; the file is written to sweeps/ or to this folder")
    folder = Path("sweeps")
    return (folder if folder.is_dir() else Path()) / f"{name}.yaml"
