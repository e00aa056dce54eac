"""`disentune verify`: checks that a run is as it was written."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from disentune.cli.options import RunName, Storage
from disentune.cli.terminal import out
from disentune.errors import counted_trials
from disentune.files.storage import DEFAULT_STORAGE, shown

PASSES = 2
"""The table can be compared only once the rows are in order."""


def verify(
    run: RunName,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Repair what can be computed again; damaged files are kept as NAME.damaged."),
    ] = False,
    storage: Storage = DEFAULT_STORAGE,
) -> None:
    """Checks every file of a run: rows, configs and checkpoints against their hashes, statuses against rows, and
    results.parquet against the rows.

    Only looks unless --repair is given. Exits with 1 if something is damaged or,
    after --repair, still has to be computed again by `resume`.

    Examples: disentune verify quickstart; disentune verify quickstart --repair
    """
    from disentune.results.soundness import repair as repaired
    from disentune.results.soundness import verify as verified
    from disentune.runs.ledger import find_run

    found = find_run(run, storage)
    seen = verified(found)
    where = shown(found.path)
    if repair and any(damage.repair for damage in seen.damages):
        with found.locked():
            for _ in range(PASSES):
                for text in repaired(seen):
                    out.print(text, markup=False)
                seen = verified(found)
    for damage in seen.damages:
        out.print(damage.text, markup=False)
    counts = f"{counted_trials(seen.trials)}, {seen.rows:,} rows, {seen.checkpoints:,} checkpoints"
    if not seen.damages:
        out.print(f"{where}: {counts}: sound", markup=False)
        return
    problems = f"{len(seen.damages)} problem{'s'[: len(seen.damages) != 1]}"
    resume = shlex.join(["disentune", "resume", where])
    can_repair = any(damage.repair for damage in seen.damages)
    what = f"repair with: {shlex.join(['disentune', 'verify', where, '--repair'])}" if can_repair else f"then: {resume}"
    out.print(f"{where}: {counts}: {problems}; {what}", markup=False)
    raise typer.Exit(1)
