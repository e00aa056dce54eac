"""The output streams of commands."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.progress import Progress, TaskID
from rich.text import Text

from disentune.environment import cleaned_values, cleaner, without_secrets
from disentune.files.storage import shown

if TYPE_CHECKING:
    from disentune.files.storage import Place

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Terminal control characters, and marks that change the direction of text."""


def spelled_out(text: str) -> str:
    """The text with control characters written as escapes, such as `\\x1b`; line ends and tabs are kept."""
    return _CONTROL.sub(_spelled, text)


class PlainConsole(Console):
    """Text may come from anywhere, so control characters are escaped and secrets are removed."""

    clean: Callable[[str], str] = staticmethod(without_secrets)

    def print(self, *objects: Any, **settings: Any) -> None:
        """Looks the secrets up once for all cells of a table."""
        self.clean = cleaner()
        super().print(*objects, **settings)

    def render_str(self, text: str, **settings: Any) -> Text:
        return super().render_str(spelled_out(self.clean(text)), **settings)

    def on_broken_pipe(self) -> None:
        """Handled as for any other stream: rich would end the command as if it had failed."""
        raise BrokenPipeError


def _spelled(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


out = PlainConsole(highlight=False, soft_wrap=True)
if not out.is_terminal and "COLUMNS" not in os.environ:
    out.width = 300  # a file or pipe has no width limit
err = PlainConsole(stderr=True, highlight=False, soft_wrap=True)


class Lasting:
    """Standard output or error of a sweep. The sweep must survive if they cannot be written, because a pipe broke, a
    disk is full or the shell closed them; the text is then appended to a log instead."""

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
        self._note(f"{time.strftime('%Y-%m-%d %H:%M:%S')} the output cannot be written ({why}); its text follows\n")

    def _note(self, text: str) -> None:
        with suppress(OSError), self.log.open("a", errors="backslashreplace") as file:
            file.write(_STYLES.sub("", text))

    def flush(self) -> None:
        """Every write is flushed."""

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
    """Discards what a stream that cannot be written still holds, and everything later."""
    if stream is not None:
        with suppress(OSError, ValueError), open(os.devnull, "wb") as null:
            os.dup2(null.fileno(), stream.fileno())


@contextmanager
def lasting_output(log: Path) -> Iterator[None]:
    """While a sweep runs, text that cannot be printed goes to a log."""
    out.file, err.file = Lasting(sys.stdout, log), Lasting(sys.stderr, log)  # type: ignore[assignment]
    try:
        with _something_to_write_to("stdout"), _something_to_write_to("stderr"):
            yield
    finally:
        out._file = err._file = None


@contextmanager
def _something_to_write_to(name: str) -> Iterator[None]:
    """Libraries such as Ray need a stream even if the shell has closed it."""
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
    """A stream whose errors name it, so that a full disk behind standard output is not taken for the storage of a
    run."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OSError(error.errno, error.strerror, OUTPUT) from None


def name_standard_output() -> None:
    """Characters that cannot be encoded are escaped: a file name may not be text, and the terminal may not be UTF-8."""
    stream = sys.stdout
    if stream is sys.__stdout__ and isinstance(stream, io.TextIOWrapper):
        raw = io.BufferedWriter(_Named(stream.fileno(), "w", closefd=False))
        lines = stream.line_buffering
        sys.stdout = io.TextIOWrapper(raw, stream.encoding, "backslashreplace", line_buffering=lines)
    elif isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def open_standard_streams() -> None:
    """Opens descriptors that the shell has closed (`2>&-`). Otherwise the next opened file would get their numbers, and
    libraries would print into it."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


class SpelledOut:
    """Standard output for text from a run, such as CSV, that another program may show on a terminal."""

    def write(self, text: str) -> int:
        print(spelled_out(text), end="")  # noqa: T201
        return len(text)


def print_json(value: object) -> None:
    print(json.dumps(cleaned_values(value), indent=1, allow_nan=False))  # noqa: T201


def quoted(path: Place) -> str:
    """A path for a command that the user may copy."""
    return shlex.quote(shown(path))


PLAIN_INTERVAL_S = 10.0
"""Seconds between progress lines without a terminal."""


@contextmanager
def progress_bar() -> Iterator[_Bars | _Lines]:
    """Yields `say(what, done, total)`, which draws a bar for each `what` on a terminal and else prints occasional
    lines."""
    if err.is_terminal:
        with Progress(*Progress.get_default_columns(), console=err, transient=True) as bar:
            yield _Bars(bar)
    else:
        yield _Lines()


QUIET_S = 2.0
"""Work that takes less time is not reported."""


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


MOST_ITEMS = 1000
"""Up to this many items are shown as a count; larger totals are bytes or points and are shown as a percentage."""


class _Lines:
    """Prints a line at the start, then one per tenth of the work (at most one per second), or every few seconds."""

    def __init__(self) -> None:
        self.said: dict[str, tuple[float, int]] = {}

    def __call__(self, what: str, done: int, total: int | None) -> None:
        now = time.monotonic()
        if self._is_due(what, done, total, now):
            self.said[what] = now, done
            counted = total is not None and total <= MOST_ITEMS
            share = f"{what}: {done} of {total}" if counted else f"{what}: {done / total:.0%}" if total else what
            err.print(share, markup=False)

    def _is_due(self, what: str, done: int, total: int | None, now: float) -> bool:
        if what not in self.said:
            return True
        when, before = self.said[what]
        steps = 1.0 if total and (done - before) * 10 >= total else PLAIN_INTERVAL_S
        return now - when >= steps
