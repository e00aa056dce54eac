"""Where commands print, and how."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from disentune.environment import cleaned_values, without_secrets
from disentune.files.storage import shown

if TYPE_CHECKING:
    from disentune.files.storage import Place

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Commands to a terminal, and marks that turn the direction of a text."""


def spelled_out(text: str) -> str:
    """With what would command a terminal as an escape, such as `\\x1b`; line ends and tabs stay."""
    return _CONTROL.sub(_spelled, text)


class PlainConsole(Console):
    """A text may have come from anywhere: what would command the terminal is spelled out, and no key is shown."""

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(spelled_out(without_secrets(text)), **settings)

    def on_broken_pipe(self) -> None:
        """As for any other text: the command decides, where rich would end it as if it had failed."""
        raise BrokenPipeError


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


out = PlainConsole(highlight=False, soft_wrap=True)
if not out.is_terminal and "COLUMNS" not in os.environ:
    out.width = 300  # a file or pipe has no edge at 80
err = PlainConsole(stderr=True, highlight=False, soft_wrap=True)


class Lasting:
    """Standard output or error of a sweep, which must not end with them: once nobody can read any more, because a pipe
    broke, a disk is full or the shell had closed them, what is printed goes to the end of a log instead."""

    def __init__(self, stream: TextIO | None, log: Path):
        self.stream, self.log, self.is_lost = stream, log, False

    def write(self, text: str) -> int:
        if not self.is_lost:
            try:
                if self.stream is None:
                    raise ValueError("closed from the start")
                self.stream.write(text)
                self.stream.flush()
            except (OSError, ValueError) as error:
                self._lose(str(getattr(error, "strerror", None) or error))
        if self.is_lost:
            self._note(text)
        return len(text)

    def _lose(self, why: str) -> None:
        self.is_lost = True
        discard(self.stream)
        self._note(f"{time.strftime('%Y-%m-%d %H:%M:%S')} an output cannot be written ({why}); its text follows\n")

    def _note(self, text: str) -> None:
        with suppress(OSError), self.log.open("a", errors="backslashreplace") as file:
            file.write(_STYLES.sub("", text))

    def flush(self) -> None:
        """Every text is written through."""

    def isatty(self) -> bool:
        return not self.is_lost and self.stream is not None and self.stream.isatty()

    def fileno(self) -> int:
        if self.stream is None:
            raise OSError("closed from the start")
        return self.stream.fileno()

    @property
    def encoding(self) -> str:
        return getattr(self.stream, "encoding", None) or "utf-8"


_STYLES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def discard(stream: TextIO | None) -> None:
    """Lets a stream that cannot be written end in nothing, also what it still holds."""
    if stream is not None:
        with suppress(OSError, ValueError), open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), stream.fileno())


@contextmanager
def lasting_output(log: Path) -> Iterator[None]:
    """While a sweep runs, its text goes to a log where it cannot be printed."""
    out.file, err.file = Lasting(sys.stdout, log), Lasting(sys.stderr, log)  # type: ignore[assignment]
    try:
        with _something_to_write_to("stdout"), _something_to_write_to("stderr"):
            yield
    finally:
        out._file = err._file = None


@contextmanager
def _something_to_write_to(name: str) -> Iterator[None]:
    """Libraries such as Ray need a stream also where the shell had closed it."""
    if getattr(sys, name) is not None:
        yield
        return
    with open(os.devnull, "w") as null:
        setattr(sys, name, null)
        try:
            yield
        finally:
            setattr(sys, name, None)


OUTPUT = "standard output"


class _Named(io.FileIO):
    """Whose errors say where they are from: a full disk behind it is not the storage of a run."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, OUTPUT) from None


def name_standard_output() -> None:
    """What cannot be encoded is spelled out: a file's name need not be text, nor the terminal UTF-8."""
    stream = sys.stdout
    if stream is sys.__stdout__ and isinstance(stream, io.TextIOWrapper):
        raw = io.BufferedWriter(_Named(stream.fileno(), "w", closefd=False))
        lines = stream.line_buffering
        sys.stdout = io.TextIOWrapper(raw, stream.encoding, "backslashreplace", line_buffering=lines)
    elif isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def open_standard_streams() -> None:
    """A shell may have closed them (`2>&-`): the next file to be opened would get their numbers, and what libraries
    print would be written into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


class SpelledOut:
    """Standard output for text from a run that another program may show on a terminal, such as CSV."""

    def write(self, text: str) -> int:
        print(spelled_out(text), end="")  # noqa: T201
        return len(text)


def print_json(value: object) -> None:
    print(json.dumps(cleaned_values(value), indent=1, allow_nan=False))  # noqa: T201


def quoted(path: Place) -> str:
    """A path for a command that the user may copy."""
    return shlex.quote(shown(path))


PLAIN_INTERVAL_S = 10.0
"""How often progress is said where there is no terminal to draw on."""


@contextmanager
def progress_bar() -> Iterator[_Bars | _Lines]:
    """Gives `say(what, done, total)`: a bar for each `what` on a terminal, else a line now and then."""
    if err.is_terminal:
        with Progress(*Progress.get_default_columns(), console=err, transient=True) as bar:
            yield _Bars(bar)
    else:
        yield _Lines()


QUIET_S = 2.0
"""Nothing is said of what takes less."""


@contextmanager
def patient_progress() -> Iterator[_Patient]:
    """As `progress_bar`, but silent unless the work takes a while."""
    with ExitStack() as stack:
        yield _Patient(stack)


class _Patient:
    def __init__(self, stack: ExitStack):
        self.stack, self.began = stack, time.monotonic()
        self.say: _Bars | _Lines | None = None

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if self.say is None and time.monotonic() - self.began >= QUIET_S:
            self.say = self.stack.enter_context(progress_bar())
        if self.say is not None:
            self.say(what, done, total)


class _Bars:
    def __init__(self, bar: Progress):
        self.bar, self.tasks = bar, dict[str, TaskID]()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what not in self.tasks:
            self.tasks[what] = self.bar.add_task(what, total=total)
        self.bar.update(self.tasks[what], completed=done, total=total)


class _Lines:
    def __init__(self) -> None:
        self.said: dict[str, float] = {}

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if now - self.said.get(what, -PLAIN_INTERVAL_S) >= PLAIN_INTERVAL_S:
            self.said[what] = now
            err.print(f"{what}: {done / total:.0%}" if total else what, markup=False)
