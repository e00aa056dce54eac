"""What a session shows in a notebook, in a terminal, or not at all."""

from __future__ import annotations

import html
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from disentune.cli import wandb
from disentune.cli.progress import LiveProgress
from disentune.cli.terminal import err, out, patient_progress, progress_bar, quoted, spelled_out
from disentune.cli.watching import line
from disentune.environment import without_secrets
from disentune.errors import first_line
from disentune.files.storage import shown
from disentune.results.watch import Snapshot, Watcher
from disentune.sessions.session import stopped_line

if TYPE_CHECKING:
    from disentune.data.prepared.download import Progress
    from disentune.driver.sweep import Ending
    from disentune.runs.ledger import Run
    from disentune.runs.planner import Planner
    from disentune.runs.preview import Cost, Plan
    from disentune.sessions.session import Live, Say
    from disentune.spec.sweepfile import SweepFile
    from disentune.tracking.connection import Connection

REDRAW_S = 1.0


def notebook_display() -> Callable[..., Any] | None:
    """IPython's `display` in a kernel that draws it; None elsewhere."""
    ipython, display = sys.modules.get("IPython"), sys.modules.get("IPython.display")
    shell = ipython.get_ipython() if ipython is not None else None
    return display.display if display is not None and hasattr(shell, "kernel") else None


class Nothing:
    """Shows nothing."""

    def say(self, text: str) -> None: ...

    def waiting(self) -> AbstractContextManager[Say]:
        return nullcontext(_unheard)

    def preparing(self) -> AbstractContextManager[Progress]:
        return nullcontext(_unheard)

    def during(self, run: Run) -> AbstractContextManager[None]:
        return nullcontext()

    def plan(self, planned: Plan, estimate: Cost, run: Run, sweep: SweepFile) -> None: ...

    def place(self, connection: Connection, run: Run) -> None: ...

    def live(self, run: Run) -> AbstractContextManager[Live]:
        return nullcontext(_Deaf())

    def end(self, run: Run, ending: Ending, connection: Connection | None, is_stage: bool) -> None:
        if not ending.interrupted:
            _write_rows(run)


def _unheard(what: str, done: int, total: int | None) -> None:
    pass


class _Deaf:
    def __call__(self, planner: Planner, trial_id: str, news: dict[str, Any]) -> None: ...

    def beat(self) -> None: ...

    def is_drawn(self) -> bool:
        return False


def _write_rows(run: Run) -> None:
    from disentune.results import tables

    tables.write_parquet(tables.read(run))


class Screen(Nothing):
    """A few lines of text, and the progress of the trials: a bar in a notebook, else as on the command line."""

    def say(self, text: str) -> None:
        out.print(text, markup=False) if notebook_display() is None else _write(text)

    def waiting(self) -> AbstractContextManager[Say]:
        return patient_progress() if err.is_terminal else nullcontext(_unheard)

    def preparing(self) -> AbstractContextManager[Progress]:
        return progress_bar() if err.is_terminal else nullcontext(_Lines(self.say))

    def plan(self, planned: Plan, estimate: Cost, run: Run, sweep: SweepFile) -> None:
        self.say(f"{planned.in_words()}, in {shown(run.path)}")
        for warning in planned.warnings:
            self.say(f"note: {warning}")

    def place(self, connection: Connection, run: Run) -> None:
        self.say(connection.line(quoted(run.path)))

    @contextmanager
    def live(self, run: Run) -> Iterator[Live]:
        display = notebook_display()
        if display is not None:
            bar = Bar(run, display, self.say)
            yield bar
            bar.draw()
        else:
            with LiveProgress(out, run) as progress:
                yield progress

    def end(self, run: Run, ending: Ending, connection: Connection | None, is_stage: bool) -> None:
        super().end(run, ending, connection, is_stage)
        if connection is not None:
            wandb.show_arrival(run, connection, quoted(run.path))
        if ending.interrupted:
            self.say(f"{stopped_line(run, ending)}. Continue by calling run again, or with:\n"
                     f"  disentune resume {quoted(run.path)}")  # fmt: skip


def _write(text: str) -> None:
    sys.stdout.write(f"{spelled_out(without_secrets(text))}\n")


class _Lines:
    """One line for each kind of work."""

    def __init__(self, say: Callable[[str], None]):
        self.say, self.said = say, set[str]()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        if what not in self.said:
            self.said.add(what)
            self.say(f"{what} ...")


class Bar:
    """Follows a session in the output of a notebook's cell, in one line that changes."""

    def __init__(self, run: Run, display: Callable[..., Any], say: Callable[[str], None]):
        self.watcher, self.display, self.say = Watcher(run), display, say
        self.handle: Any = None
        self.due = -1.0

    def __call__(self, planner: Planner, trial_id: str, news: dict[str, Any]) -> None:
        if "lost" in news:
            self.say(f"note: {news['lost']}")
        if news.get("outcome") in ("diverged", "failed"):
            status = planner.trials[trial_id].status
            self.say(f"{news['outcome']} {trial_id} at step {status.step}: {first_line(status.cause)}")
        self.beat()

    def beat(self) -> None:
        """Draws again when it is time."""
        if time.monotonic() >= self.due:
            self.draw()

    def is_drawn(self) -> bool:
        return self.handle is not None

    def draw(self) -> None:
        began = time.monotonic()
        drawn = _Line(self.watcher.look())
        if self.handle is None:
            self.handle = self.display(drawn, display_id=True)
        else:
            self.handle.update(drawn)
        now = time.monotonic()
        self.due = now + max(REDRAW_S, 20 * (now - began))


class _Line:
    def __init__(self, picture: Snapshot):
        stopping = "; stopping: trials are writing their checkpoints" if picture.stopping else ""
        self.text = f"{line(picture).plain}{stopping}"
        self.share = picture.share

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        value = f' value="{self.share:.4f}"' if self.share is not None else ""
        return f'<progress max="1"{value} style="width: 20em"></progress> {html.escape(self.text)}'
