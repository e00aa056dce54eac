"""`disentune archive` and `restore`: move a run between machines as one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from disentune.cli.options import RunName, Storage
from disentune.cli.terminal import out, patient_progress, quoted
from disentune.files.storage import DEFAULT_STORAGE, shown


def archive(
    run: RunName,
    file: Annotated[Path, typer.Argument(help="The archive to write; its name ends in .tar.zst.")],
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Packs a run into one compressed file, with the hash of every file in it. The run must not be running.

    `disentune restore` reads the archive on another machine; `tar --zstd -tf` lists it.

    Example: disentune archive runs/quickstart/main quickstart.tar.zst
    """
    from disentune.cli.display import size
    from disentune.runs.archive import pack
    from disentune.runs.ledger import find_run

    found = find_run(run, storage)
    with patient_progress() as say:
        packed = pack(found, file, say)
    text = f"{packed.files} files, {size(packed.size)}; the archive takes {size(file.stat().st_size)}"
    out.print(f"archived {shown(found.path)} to {shown(file)}: {text}", markup=False)
    out.print(f"next: disentune restore {quoted(file)} --storage STORAGE", markup=False)


def restore(
    file: Annotated[Path, typer.Argument(help="An archive that `disentune archive` wrote.")],
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Restores an archived run under its name and verifies the hash of every file; an existing run is never changed.

    Example: disentune restore quickstart.tar.zst --storage runs
    """
    from disentune.cli.display import size
    from disentune.files.storage import place
    from disentune.runs.archive import unpack

    with patient_progress() as say:
        found = unpack(file, place(storage).absolute(), say)
    text = f"{found.files} files, {size(found.size)}, every hash verified"
    out.print(f"restored {shown(found.run.path)}: {text}", markup=False)
    out.print(f"next: disentune status {quoted(found.run.path)}", markup=False)
