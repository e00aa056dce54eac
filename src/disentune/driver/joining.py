"""Joins a running Ray cluster as a driver."""

import logging
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from disentune.driver.ray_internals import refuses_token
from disentune.errors import ConfigError, first_line

CONNECT_S = 10.0


@contextmanager
def joined(address: str) -> Iterator[Any]:
    import ray

    mine = not ray.is_initialized()
    if mine:
        join(ray, address)
    try:
        yield ray
    finally:
        if mine:
            ray.shutdown()


def join(ray: Any, address: str) -> None:
    """Joins the cluster that this machine is part of, as a driver. Raises ConfigError with a one-line reason instead of
    Ray's many lines."""
    _assert_answers(address)
    said: list[str] = []
    try:
        with _quietly(said):
            ray.init(address=address, log_to_driver=False, logging_level=logging.CRITICAL)
    except (ray.exceptions.RayError, ConnectionError, RuntimeError, ValueError, OSError) as error:
        if isinstance(error, ray.exceptions.AuthenticationError) or any(map(refuses_token, said)):
            text = "the cluster refuses this machine's token; copy the head's ~/.ray/auth_token here and set"
            raise ConfigError(f"--address {address}: {text} RAY_AUTH_MODE=token on every node") from None
        raise ConfigError(
            f"--address {address}: no Ray cluster answers there ({first_line(error)}); run this command on a node of "
            "the cluster, or use disentune submit, which reaches the cluster through its dashboard"
        ) from None


def _assert_answers(address: str) -> None:
    """Fails fast: Ray itself waits for minutes before it gives up on an address where nothing listens."""
    host, colon, port = address.rpartition(":")
    if not colon:
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise ConfigError(f"--address {address}: no Ray cluster answers there ({error})") from None


@contextmanager
def _quietly(said: list[str]) -> Iterator[None]:
    """Captures what Ray's C++ code writes to stderr, one line per second, because it may contain the reason."""
    sys.stderr.flush()
    stderr = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
            file.seek(0)
            said.append(file.read().decode(errors="replace"))
