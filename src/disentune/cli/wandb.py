"""`disentune sync`: sends what W&B does not have yet from the run's folder."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from disentune.cli.options import AsJson, RunName, Storage
from disentune.cli.terminal import err, out, print_json
from disentune.files.storage import DEFAULT_STORAGE

if TYPE_CHECKING:
    from disentune.files.storage import Place
    from disentune.parameters import Mistake
    from disentune.runs.ledger import Run
    from disentune.tracking.connection import Connection


def sync(
    run: RunName,
    project: Annotated[str | None, typer.Option(help="Send to this project instead of the sweep's.")] = None,
    entity: Annotated[str | None, typer.Option(help="Send to this user or team instead of the sweep's.")] = None,
    storage: Storage = DEFAULT_STORAGE,
    as_json: AsJson = False,
) -> None:
    """Sends the rows of a run that W&B does not have: after an outage, an offline run, or a run without W&B.

    Safe to repeat: it asks the server how far each trial got, and sends only newer rows.
    Needs WANDB_API_KEY, or a login with: wandb login

    Examples: disentune sync quickstart; disentune sync runs/quickstart/main --project my-study
    """
    from disentune.cli.progress import followed
    from disentune.runs.ledger import find_run

    found = find_run(run, storage)
    place = place_of(found, project, entity)
    from disentune.tracking.sending import Tracker, unsent

    with found.tracked(patience_s=2):
        before = unsent(found, place)
        if not as_json:
            out.print(f"{place.line(found.name)}: {len(before)} of {len(found.trials())} trials to send", markup=False)
        tracker = Tracker(found, place)
        tracker.finish(follow=lambda trials: followed(err, trials, "sending"))
        left = unsent(found, place)
    if as_json:
        print_json({"sent": len(before) - len(left), "unsent": left, "trouble": tracker.trouble})
    elif left:
        out.print(f"W&B has not confirmed {len(left)} trials: {tracker.trouble}", markup=False)
        out.print(f"nothing is lost; try again with: disentune sync {shlex.quote(run)}", markup=False)
    else:
        out.print("W&B has every row" if found.trials() else "the run has no trials yet", markup=False)
    raise typer.Exit(1 if left else 0)


def show_arrival(run: Run, place: Connection, shown: str) -> None:
    """After a session, prints whether W&B has every row, and what to do if not. Reads only the ledger."""
    known = run.known_trials("wandb.json", "status.json", "rows.jsonl")
    left = [id for id, folder in known.items() if not folder.has_arrived(place.place)]
    if place.online and left:
        cause = f" ({last_words(run.tracking_log)})" if run.tracking_log.exists() else ""
        out.print(f"W&B has not confirmed {len(left)} of {len(known)} trials{cause}", markup=False)
        out.print(f"nothing is lost; send them with: disentune sync {shown}", markup=False)
    elif place.online:
        out.print("W&B has every row", markup=False)


def last_words(log: Place) -> str:
    """The newest line in the log of the process that sends to W&B."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no reason given"


def place_of(run: Run, project: str | None, entity: str | None) -> Connection:
    """The connection for `sync`: always online, whatever mode the sweep asks for."""
    from disentune.errors import ConfigError
    from disentune.parameters import validated, worded
    from disentune.spec.settings import Wandb
    from disentune.tracking.connection import connection

    sweep = run.sweep()
    mistakes: list[Mistake] = []
    said = sweep.settings.wandb.model_dump() if sweep.settings.wandb else {}
    given = {"project": project, "entity": entity, "mode": "online"}
    asked = validated(Wandb, said | {key: value for key, value in given.items() if value}, "--", mistakes)
    if mistakes:
        raise ConfigError(worded(mistakes[0]).replace("--.", "--"))
    found = connection(asked, sweep.name, run.name)
    assert found is not None, "an online connection exists, or connection() has raised an error"
    return found
