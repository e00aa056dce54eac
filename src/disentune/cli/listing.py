"""`disentune runs`: every run below a storage."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from disentune.cli.options import AsJson
from disentune.cli.terminal import err, out, patient_progress, print_json
from disentune.files.storage import DEFAULT_STORAGE, shown

if TYPE_CHECKING:
    from disentune.files.storage import Place


def runs(
    storage: Annotated[
        str,
        typer.Argument(
            envvar="DISENTUNE_STORAGE",
            help="Where the runs are: a folder, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER; or one run.",
        ),
    ] = DEFAULT_STORAGE,
    as_json: AsJson = False,
) -> None:
    """Lists every run of a storage, the newest first: its state, trials, best score, age and size.

    A run is running, stopping, finished, interrupted (`disentune resume` continues
    it) or unreadable.

    Examples: disentune runs; disentune runs s3://bucket/runs --json
    """
    from disentune.files.storage import place

    where = place(storage).resolve()
    listed = _listed(where)
    if as_json:
        print_json(listed)
        return
    if not listed:
        out.print(f"no runs in {shown(where)}", markup=False)
        return
    out.print(_table(listed))
    for one in listed:
        if one["problem"]:
            err.print(f"note: {one['path']}: {one['problem']}", markup=False)


def _listed(storage: Place) -> list[dict[str, Any]]:
    """One object per run, the one that changed last first."""
    from disentune.results.listing import assert_storage, told

    found = assert_storage(storage, "disentune runs")
    with patient_progress() as say:
        listed = []
        for done, (name, run) in enumerate(found.items()):
            say("reading runs", done, len(found))
            listed.append(told(name, run))
    return sorted(listed, key=lambda one: (-(one["changed"] or 0.0), one["path"]))


def _table(listed: list[dict[str, Any]]) -> Table:
    from disentune.cli.display import number, size
    from disentune.results.watch import duration

    table = Table(box=None, pad_edge=False)
    for title, justify in COLUMNS.items():
        table.add_column(title, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for one in listed:
        ended = "" if one["trials"] is None else f"{one['done']}/{one['trials']}"
        best = "" if one["best"] is None else f"{one['metric']} {number(one['best'])}"
        age = "" if one["age_s"] is None else duration(one["age_s"])
        bytes_ = "" if one["size_bytes"] is None else size(one["size_bytes"])
        failed = one["states"].get("failed", 0)
        state = f"{one['state']}, {failed} failed" if failed else one["state"]
        table.add_row(*map(escape, (one["sweep"], one["run"], state, ended, best, age, bytes_)))
    return table


COLUMNS = {"sweep": "left", "run": "left", "state": "left", "ended": "right", "best": "left", "age": "right",
           "size": "right"}  # fmt: skip
