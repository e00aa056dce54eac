"""Options and arguments that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

SweepPath = Annotated[Path, typer.Argument(help="The sweep file, for example sweeps/quickstart.yaml.")]
RunName = Annotated[str, typer.Argument(help="A run: its folder, sweep/run, or the sweep's name.")]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="Change a key: training.steps=100, seeds=1. May be repeated.")
]
Only = Annotated[
    str | None,
    typer.Option(help="Only trials that match: \"framework.name == 'beta_vae' and seed < 2\"."),
]
OnlyTrials = Annotated[
    str | None,
    typer.Option("--only", help='Only trials that match; metrics are allowed: "mig > 0.3 and seed < 2".'),
]
Limit = Annotated[int | None, typer.Option(min=1, help="At most this many unfinished trials.")]
Name = Annotated[str, typer.Option(help="Name of the run; the same name continues it.")]
Address = Annotated[
    str | None, typer.Option(help="Ray cluster to join: auto, or an address. Default: start a local Ray.")
]
Retry = Annotated[bool, typer.Option("--retry-failed", help="Run failed trials again.")]
Drop = Annotated[
    bool, typer.Option("--drop", help="Set aside trials that are no longer in the sweep; the old file restores them.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for other programs.")]
Storage = Annotated[
    str,
    typer.Option(
        envvar="DISENTUNE_STORAGE", help="Where runs are stored: a folder, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER."
    ),
]
