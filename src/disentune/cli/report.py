"""disentune report: the page and the figures of a run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from disentune.cli.options import AsJson, OnlyTrials, RunName, Storage
from disentune.cli.terminal import err, out, print_json, progress_bar
from disentune.errors import ConfigError, counted_trials
from disentune.files.storage import DEFAULT_STORAGE, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from disentune.report.page import Drawing, WrittenPage
    from disentune.results.tables import Results
    from disentune.tracking.reports import Made


def report(
    run: RunName,
    figures: Annotated[
        Path | None, typer.Option(help="Take `figures:` from this YAML file, for example a sweep file.")
    ] = None,
    only: OnlyTrials = None,
    wandb: Annotated[bool, typer.Option("--wandb", help="Also create a W&B Report over the run's group.")] = False,
    storage: Storage = DEFAULT_STORAGE,
    as_json: AsJson = False,
) -> None:
    """Writes the page of a run, report/index.html in its folder, and its figures as PNG and SVG.

    The page is one file that needs no server, account or network. It can be made while the
    run is training, and again at any time. The figures come from --figures;
    else from `figures:` in the sweep file, if the file still describes the trials
    of the run; else they are chosen from the design of the sweep.

    \b
    Examples:
    disentune report quickstart
    disentune report runs/quickstart/main --json
    disentune report quickstart --figures my_figures.yaml
    disentune report quickstart --only "active_units >= 6"
    disentune report quickstart --wandb
    """
    from datetime import UTC, datetime

    from disentune.files.storage import place
    from disentune.report import page
    from disentune.report.sources import source_of
    from disentune.results.tables import only as selected
    from disentune.results.tables import read
    from disentune.runs.ledger import find_run

    every = read(find_run(run, storage))
    source, results = source_of(every.run, figures), selected(every, only)
    if only is not None:
        if not results.records:
            raise ConfigError(f"--only {only!r}: keeps none of the {counted_trials(len(every.records))} of {run}")
        err.print(f"note: --only keeps {len(results.records)} of {len(every.records)} trials")
    for note in results.notes:
        err.print(f"note: {note}", markup=False)
    with progress_bar() as say:
        made = page.write(results, shown(results.run.path), datetime.now(UTC), say, source)
    at_wandb = _wandb_report(results, made.drawings) if wandb else None
    if as_json:
        print_json(_as_json(made) | ({"wandb": asdict(at_wandb)} if at_wandb else {}))
        return
    _show(made)
    if at_wandb and at_wandb.url:
        out.print(f"W&B:     {at_wandb.url}", markup=False)
    elif at_wandb:
        out.print(f"W&B:     {shown(place(at_wandb.file))} (not sent: {at_wandb.reason})", markup=False)


def _wandb_report(results: Results, drawn: Sequence[Drawing]) -> Made:
    """A W&B Report over the runs that were or would be streamed to W&B, with the figures of the page."""
    from disentune.spec.settings import Wandb
    from disentune.tracking.connection import connection
    from disentune.tracking.reports import make

    sweep = results.run.sweep()
    asked = sweep.settings.wandb or Wandb()
    tried = (asked.model_copy(update={"mode": mode}) for mode in ("auto", "offline"))
    places = (connection(one, sweep.name, results.run.name) for one in tried)
    return make(results, next(place for place in places if place is not None), drawn)


def _as_json(made: WrittenPage) -> dict[str, Any]:
    drawn = [one for one in made.drawings if not one.reason]
    return {
        "page": shown(made.page),
        "source": made.source.text,
        "figures": [
            {"name": one.name, "title": one.title, **{end: shown(made.figure(one, end)) for end in ("png", "svg")}}
            for one in drawn
        ],
        "left_out": [{"name": one.name, "reason": one.reason} for one in made.drawings if one.reason],
    }


def _show(made: WrittenPage) -> None:
    for one in made.drawings:
        if one.reason:
            out.print(f"note: {one.title}: {one.reason}", markup=False)
    count = sum(not one.reason for one in made.drawings)
    plural = "" if count == 1 else "s"
    out.print(f"page:    {shown(made.page)}", markup=False)
    out.print(f"figures: {shown(made.run.figures_folder)} ({count} figure{plural}, PNG and SVG)", markup=False)
    out.print(f"         {made.source.text}", markup=False)
