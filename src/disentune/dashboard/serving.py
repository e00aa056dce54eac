"""Starts the server on this machine only, opens the browser, and ends at Ctrl-C without leaving anything behind."""

import html
import os
import socket
import tempfile
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import uvicorn

from disentune.dashboard.app import app
from disentune.dashboard.desk import Desk
from disentune.dashboard.guard import new_token
from disentune.dashboard.shelf import Shelf
from disentune.errors import ConfigError

HOST, PORT, TRIES = "127.0.0.1", 8270, 20
PATIENCE_S = 2
"""How long answers that are under way may take at the end."""


def serve(shelf: Shelf, port: int | None, browser: bool, say: Callable[[str], None]) -> None:
    """Returns when the user ends it. `port` 0 takes any free one, None the first free one from 8270 on."""
    token = new_token()
    with _listening(port) as listener:
        address = f"http://{HOST}:{listener.getsockname()[1]}/?token={token}"
        server = uvicorn.Server(uvicorn.Config(
            app(Desk(shelf), token), log_level="critical", access_log=False, server_header=False, lifespan="off",
            timeout_graceful_shutdown=PATIENCE_S,
        ))  # fmt: skip
        say(address)
        with _opened(address) if browser else nullcontext(), suppress(KeyboardInterrupt):
            server.run(sockets=[listener])


@contextmanager
def _listening(port: int | None) -> Iterator[socket.socket]:
    ports = range(PORT, PORT + TRIES) if port is None else [port]
    for number in ports:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, number))
            listener.listen()  # from now on a connection waits until the server accepts it
        except OSError as error:
            listener.close()
            failure = error
            continue
        with listener:
            yield listener
        return
    named = str(port) if port is not None else f"{PORT} to {PORT + TRIES - 1}"
    raise ConfigError(f"--port {named}: {failure.strerror}; choose another one, or 0 for any that is free")


@contextmanager
def _opened(address: str) -> Iterator[None]:
    """Opens the browser on a file that leads to the address: a command line with the token in it could be read by every
    user of this machine."""
    handle, name = tempfile.mkstemp(prefix="disentune-", suffix=".html")
    with os.fdopen(handle, "w") as file:
        file.write(f'<!doctype html><meta http-equiv="refresh" content="0;url={html.escape(address)}">')
    try:
        with suppress(webbrowser.Error, OSError):
            webbrowser.open(Path(name).as_uri())
        yield
    finally:
        os.unlink(name)
