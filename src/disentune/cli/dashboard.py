"""`disentune dashboard`: every run of a storage in the browser."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from disentune.cli.terminal import out
from disentune.errors import DONE
from disentune.files.storage import DEFAULT_STORAGE, shown


def dashboard(
    storage: Annotated[
        str,
        typer.Argument(
            envvar="DISENTUNE_STORAGE",
            help="Where the runs are: a folder, s3://BUCKET/FOLDER or gs://BUCKET/FOLDER; or one run.",
        ),
    ] = DEFAULT_STORAGE,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; default: the first free one from 8270 on.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
) -> None:
    """Shows every run of a storage in the browser, live, until Ctrl-C.

    Progress and time left, curves that grow, a table of trials to sort and
    filter, the figures of the report, comparisons with intervals, and sliders
    for the latents of a trained model. The page is served to this machine only,
    to anyone who has the token in its address; it changes nothing in a run and
    runs no code that a run names.

    Examples: disentune dashboard; disentune dashboard runs/quickstart/main --no-browser
    """
    from disentune.dashboard.serving import serve
    from disentune.dashboard.shelf import opened

    shelf = opened(storage)
    count = len(shelf.known)

    def say(address: str) -> None:
        out.print(f"{count} run{'' if count == 1 else 's'} in {shown(shelf.storage)}; stop with Ctrl-C", markup=False)
        print(address, flush=True)  # noqa: T201 (the console would take the token for a key and hide it)

    serve(shelf, port, browser, say)
    os._exit(DONE)  # a figure that is still being drawn must not keep the command alive; nothing was written
