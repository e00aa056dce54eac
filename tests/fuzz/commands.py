"""Commands in this process, as a shell would call them: nothing of Ray, of a network or of W&B is ever reached."""

import contextlib
import io
import sys
import traceback
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
import typer

from disentune.cli import app, inspect
from disentune.errors import ConfigError, DataError

DOERS = [
    "disentune.driver.sweep.launch", "disentune.cli.train._trained", "disentune.report.page.write",
    "disentune.cluster.submission.connected", "disentune.cluster.verify.verify", "disentune.tracking.sending.Tracker",
    "disentune.dashboard.serving.serve",
]  # fmt: skip
REACHED = "would be done now"
"""What a command says that has checked all it was given."""


class Called(NamedTuple):
    code: Any
    out: str
    err: str


def called(*arguments: str) -> Called:
    """Standard output takes no half of a character and standard error spells it out, as on a terminal."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="")
    err = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="backslashreplace", newline="")
    before, sys.argv = sys.argv, ["disentune", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = _exit_code(err)
    finally:
        sys.argv = before
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return Called(code, *texts)


def _exit_code(err: io.TextIOWrapper) -> Any:
    try:
        app.main()
    except SystemExit as end:
        return end.code or 0
    except BaseException:
        traceback.print_exc(file=err)
        return "an exception"
    return 0


def complaint(made: Called) -> str:
    """What is wrong with how a command ended; nothing when it ended as commands may."""
    if made.code not in (0, 1, 2):
        return f"exit code {made.code}"
    if "Traceback" in made.out + made.err:
        return "a traceback"
    if made.code == 2 and not (made.out + made.err).strip():
        return "no word about why"
    return ""


def sheltered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a command would start or send something, it says so instead."""

    def reached(*arguments: Any, **named: Any) -> Any:
        raise ConfigError(REACHED)

    def no_download(file: Any, *arguments: Any) -> Any:
        raise DataError(f"{file.name}: {REACHED}")

    for name in DOERS:
        monkeypatch.setattr(name, reached)
    monkeypatch.setattr("disentune.data.prepared.preparing.download", no_download)
    monkeypatch.setattr(inspect, "_draw", lambda folder, *drawn: inspect._saved(folder, {}))
    for name in ("WANDB_API_KEY", "DISENTUNE_STORAGE", "RAY_API_SERVER_ADDRESS", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    for name in ("NETRC", "WANDB_CONFIG_DIR", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, "/nonexistent")
    monkeypatch.setattr(app.signal, "signal", lambda *arguments: None)
    monkeypatch.setattr(sys, "path", list(sys.path))


# ---- what commands there are


class Option(NamedTuple):
    """Of a command; an argument has no name."""

    command: tuple[str, ...]
    name: str | None
    is_flag: bool


def options() -> list[Option]:
    """Every option and argument of every command, so that a new one is met without a word here."""
    return list(_options(typer.main.get_command(app.app), ()))


def _options(command: Any, name: tuple[str, ...]) -> Iterator[Option]:
    for below, one in getattr(command, "commands", {}).items():
        yield from _options(one, (*name, below))
    if hasattr(command, "commands"):
        return
    for parameter in command.params:
        is_option = parameter.opts[0].startswith("-")
        if "--help" not in parameter.opts:
            yield Option(name, parameter.opts[0] if is_option else None, bool(getattr(parameter, "is_flag", False)))
