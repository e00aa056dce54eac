"""`disentune clean`: frees space in a run that is not running."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from disentune.cli.options import RunName, Storage
from disentune.cli.terminal import out
from disentune.errors import ConfigError
from disentune.files.storage import DEFAULT_STORAGE, shown

if TYPE_CHECKING:
    from disentune.runs.cleaning import Found, Policy


class Keep(StrEnum):
    best_and_last = "best-and-last"
    none = "none"


WITHOUT_CHECKPOINTS = """without their checkpoints, trials that have ended
  - have no model: `score RUN`, `encode`, `export` and the sliders of the dashboard do not work for them, other sweeps
    cannot build on them or take them over, and scores that `score` stored are left out of the tables
  - start from their first step if a changed sweep asks for more steps"""
WITHOUT_PICTURES = (
    "without pictures, the report, the dashboard and W&B show no reconstructions, traversals or distances"
)


def clean(
    run: RunName,
    checkpoints: Annotated[
        Keep | None,
        typer.Option(help="Checkpoints to keep: the best and last of each trial, or none of trials that have ended."),
    ] = None,
    pictures: Annotated[bool, typer.Option("--pictures", help="Remove the pictures of every evaluation.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print what would be removed.")] = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Frees space in a run; rows, configs and statuses stay. The run must not be running.

    `results`, `report`, `compare` and `resume` work as before. What no longer
    works is printed. A trial that has not ended keeps the checkpoint from which it
    continues.

    Examples: disentune clean quickstart --checkpoints best-and-last --dry-run; disentune clean quickstart --pictures
    """
    from disentune.runs.cleaning import found_waste, remove
    from disentune.runs.ledger import find_run

    if checkpoints is None and not pictures:
        raise ConfigError(
            "nothing was named to remove; add --checkpoints best-and-last, --checkpoints none or --pictures"
        )
    found = find_run(run, storage)
    policy: Policy | None = None if checkpoints is None else checkpoints.value
    if dry_run:
        _show(found_waste(found, policy, pictures), checkpoints, shown(found.path), "would free")
        return
    with found.locked():
        waste = found_waste(found, policy, pictures)
        remove(waste)
    _show(waste, checkpoints, shown(found.path), "freed")


def _show(waste: Found, checkpoints: Keep | None, where: str, verb: str) -> None:
    from disentune.cli.display import size

    total = waste.size()
    out.print(f"{where}: {verb} {total:,} bytes ({size(total)})", markup=False)
    for kind, name in (("checkpoint", "checkpoints"), ("pictures", "files of pictures")):
        if count := waste.count(kind):
            out.print(f"  {count} {name}: {waste.size(kind):,} bytes", markup=False)
    if waste.unfinished:
        text = "have not ended and keep the checkpoint from which they continue"
        out.print(f"{waste.unfinished} trials {text}", markup=False)
    if checkpoints is Keep.none and waste.count("checkpoint"):
        out.print(WITHOUT_CHECKPOINTS, markup=False)
    if waste.count("pictures"):
        out.print(WITHOUT_PICTURES, markup=False)
