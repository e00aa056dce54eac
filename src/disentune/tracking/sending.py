"""Sends the rows of each trial in the ledger to W&B with the real wandb client, each row once.

The ledger is the spool and the server the watermark. W&B's step is the training step, so a run that is opened again
reports how far it got, and only newer rows are sent. Through outages, kills and resumes no row is missing or doubled,
and no file of ours has to record what was sent. Without a server, a trial's offline file is written as a whole. Trials
know nothing about this; see docs/decisions/0009.
"""

import glob
import io
import math
import os
import re
import select
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import wandb

from disentune.environment import without_secrets
from disentune.errors import ConfigError, DataError
from disentune.files.storage import Place, RemotePath, place
from disentune.learn import pictures
from disentune.learn.process import USED
from disentune.results import tables
from disentune.results.ranking import BROKEN, evaluated
from disentune.runs.ledger import Run
from disentune.runs.rows import RowReader, with_end
from disentune.runs.trial_folder import ARRIVED, END, FINAL, FINISHED, ROWS, STATUS, Status, TrialFolder
from disentune.spec.config import flattened
from disentune.spec.sweepfile import SweepFile
from disentune.tracking.connection import Connection, connection, trouble

INIT_S, FINISH_S = 20.0, 30.0
"""How long a server may take to answer before it counts as unreachable."""
PATIENCE_S = (15.0, 600.0)
"""The first and the longest wait for an unreachable server; waits double in between."""
MOST_OPEN = 100
"""W&B runs that are open at the same time; the least recently used one is closed and can be reopened."""
LOOK_S = 2.0
"""How often to look for news without a hint."""
SETTLE_S = 3.0
"""How long a server may take to process what it received before it is asked for it."""
MOST_SENDS, MOST_FAILURES, MOST_ROUNDS = 3, 2, 8

LOST = re.compile(r"onnection ?(lost|reset)|MailboxClosed|HandleAbandoned|Broken ?pipe", re.IGNORECASE)
"""What the client says when its background process has died."""
IN_USE = "is in use"
"""What the client says about a run that it is still closing in the background."""


class Away(Exception):
    """The server does not answer."""


class Failed(Exception):
    """The client could not do something for one trial."""


class Busy(Exception):
    """The client is still closing an earlier opening of this run."""


# ---- what a row becomes


@dataclass
class Telling:
    """Turns a trial's rows, in order, into what W&B receives."""

    maxima: tables.Maxima = field(default_factory=tables.Maxima)
    before: tuple[int, float] = (0, 0.0)
    """Step and seconds of the previous row."""

    def told(self, row: dict[str, Any]) -> dict[str, float]:
        metrics = self.maxima.taken_in(row)["metrics"]
        numbers = {key: math.nan if value is None else value for key, value in metrics.items()}
        return {**numbers, **self._pace(row), **_overrides(row), **_system(row), "step": row["step"]}

    def _pace(self, row: Mapping[str, Any]) -> dict[str, float]:
        seconds = row.get("clock", {}).get("seconds")
        if seconds is None:
            return {}
        (step, then), self.before = self.before, (row["step"], seconds)
        passed = seconds - then
        pace = {"clock/steps_per_second": (row["step"] - step) / passed} if passed > 0 else {}
        return {"clock/seconds": seconds, **pace}


def _overrides(row: Mapping[str, Any]) -> dict[str, float]:
    """Values that population based training has set."""
    return {f"now/{key}": value for key, value in row.get("overrides", {}).items()}


def _system(row: Mapping[str, Any]) -> dict[str, float]:
    """What the trial's worker used, if `wandb.system` asks for it."""
    clock = row.get("clock", {})
    return {f"system/{key}": clock[key] for key in USED if key in clock}


def _scores_table(row: Mapping[str, Any]) -> dict[str, Any]:
    if not row.get("scored"):
        return {}
    data = [[key, row["metrics"][key]] for key in evaluated(row["metrics"])]
    return {"evaluation/scores": wandb.Table(columns=["metric", "score"], data=data)}


def _images(folder: TrialFolder, step: int) -> dict[str, Any]:
    """Empty if the pictures cannot be read: a damaged picture must not cost a row."""
    try:
        data = folder.read_pictures(step)
        if data is None:
            return {}
        drawn = pictures.from_bytes(data)
        sheets, moving = pictures.sheets(drawn), pictures.animation(drawn)
    except (DataError, OSError):
        return {}
    found: dict[str, Any] = {f"evaluation/{name}": wandb.Image(sheet) for name, sheet in sheets.items()}
    return found | ({"evaluation/animation": wandb.Video(io.BytesIO(moving), format="gif")} if moving else {})


# ---- one trial


class Stream:
    """The open W&B run of one trial."""

    def __init__(self, folder: TrialFolder, connection: Connection, sweep: SweepFile, run: Run):
        self.folder, self.connection = folder, connection
        self.reader, self.telling = RowReader(folder.rows_path), Telling()
        self.seen = self.told = 0
        if not connection.online:  # an offline file is written as a whole, from the first row
            shutil.rmtree(folder.wandb_folder, ignore_errors=True)
        self.run = opened(_identity(folder, connection, sweep, run), connection.url)
        self.start = self.run.starting_step if connection.online else 0
        """The first step that the server does not have."""
        self.run.define_metric("step")
        self.run.define_metric("*", step_metric="step")
        self.used = time.monotonic()

    def tell(self) -> None:
        for row in self._with_end(self.reader.rows()):
            told, step = self.telling.told(row), row["step"]
            if step >= self.start and step > self.told:
                images = _images(self.folder, step)
                self.run.log({**told, **_scores_table(row), **images}, step=step, commit=True)
                self.told, self.used = step, time.monotonic()
            self.seen = step
        if self.reader.flaw:
            raise ConfigError(f"{self.folder.rows_path}: {self.reader.flaw}; resume the run, which computes it again")

    def _with_end(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """New rows with the scores of the trial's end. Scores of a step that was already sent go to the summary."""
        end = self.folder.end()  # written before the row of its step, so it exists if the row does
        last = rows[-1]["step"] if rows else self.seen
        if end is None or end["step"] < last or (end["step"] == last and not rows):
            return rows
        return [*rows, end] if end["step"] > last else [*rows[:-1], with_end(rows[-1], end)]

    @property
    def complete(self) -> bool:
        """Whether the server had every row when the run was opened."""
        return self.told == 0

    def send_left_media(self) -> None:
        """Sends the files that an earlier opening left: it removes a file once it is sent."""
        own = Path(self.run.dir).resolve()
        for files in sorted(self.folder.wandb_folder.glob("run-*/files")):
            for path in (files / "media").rglob("*") if files.resolve() != own else ():
                if path.is_file() and path.resolve().is_relative_to(files.resolve()):  # not the target of a link
                    self.run.save(glob.escape(str(path)), base_path=str(files), policy="now")

    def send_checkpoint(self, name: str, step: int, about: dict[str, Any]) -> bool:
        """Whether W&B confirms the upload; W&B stores equal content as one version."""
        self.folder.checkpoints.load(step)  # raises TrialError if it is not a checkpoint, for example a link
        artifact = wandb.Artifact(name, type="model", metadata=about)
        for path in (self.folder.checkpoints.path(step), self.folder.config_path):
            artifact.add_file(str(self._file(path)), name=path.name)
        logged = self.run.log_artifact(artifact, aliases=["best"])
        try:
            logged.wait(timeout=int(FINISH_S))
        except Exception as error:
            # a refused upload is a bare ValueError; after a good one the client only queries what we do not need
            return not (type(error) is ValueError or "timed out" in str(error))
        return True

    def _file(self, path: Place) -> Path:
        """The file on this machine: the client cannot read object stores."""
        if isinstance(path, Path):
            return path
        file = self.folder.wandb_home / path.name
        file.write_bytes(path.read_bytes())
        return file

    def close(self, status: Status) -> None:
        """Raises Failed when the server does not accept everything in time."""
        cause = without_secrets((status.cause.splitlines() or [""])[0])
        self.run.summary.update({**self._end_scores(), "state": status.state, "cause": cause})
        if not status.final:
            self.run.mark_preempting()
        try:
            self.run.finish(exit_code=0 if status.state in FINISHED else 1)
        except Exception as error:  # the client raises many kinds
            raise Failed(f"{type(error).__name__}: {error}") from error

    def _end_scores(self) -> dict[str, float]:
        end = self.folder.end()
        return end["metrics"] if end is not None and end["step"] >= self.seen else {}


def opened(identity: dict[str, Any], url: str) -> wandb.Run:
    """Raises Busy or Failed."""
    try:
        return wandb.init(**identity, settings=_settings(url))
    except Exception as error:  # the client raises many kinds
        kind = Busy if IN_USE in str(error) else Failed
        raise kind(f"{type(error).__name__}: {error}") from error


def _identity(folder: TrialFolder, connection: Connection, sweep: SweepFile, run: Run) -> dict[str, Any]:
    tree, arms = folder.tree(), "+".join(sorted(folder.arms()))
    names = [tree[section]["name"] for section in ("framework", "dataset", "recon")]
    return {
        "id": folder.id,
        "project": connection.project,
        "entity": connection.entity,
        "group": connection.group,
        "name": f"{' '.join(names)} seed {tree['seed']} {folder.id[:6]}",
        "job_type": arms[:64],
        "tags": list(connection.tags),
        "notes": sweep.question,
        # flat as everywhere in disentune, and nested for W&B's panels
        "config": {**flattened(tree), **tree, "arm": arms, "sweep": sweep.name, "run": run.name},
        "allow_val_change": True,
        "mode": "online" if connection.online else "offline",
        "resume": "allow" if connection.online else None,
        "dir": str(folder.wandb_home),
        "reinit": "create_new",
    }


def _settings(url: str) -> wandb.Settings:
    """Keeps the console, source, git state and memory of this process out of the trial's run, and sets the server, so
    that a settings file in the working folder cannot send the key elsewhere."""
    return wandb.Settings(
        base_url=url,
        console="off",
        disable_code=True,
        disable_git=True,
        finish_timeout=FINISH_S,
        finish_timeout_raises=True,
        init_timeout=INIT_S,
        program="disentune",
        silent=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )


# ---- all trials of a run


def unsent(run: Run, connection: Connection) -> list[str]:
    known = run.known_trials(ARRIVED, STATUS, ROWS, END)
    return [id for id, folder in known.items() if not folder.has_arrived(connection.place)]


class Tracker:
    """Keeps W&B up to date with a run folder. An unreachable server only delays this."""

    def __init__(self, run: Run, connection: Connection, say: Callable[[str], None] = lambda text: None):
        self.run, self.connection, self.say = run, connection, say
        self.sweep = run.sweep()
        self.open: dict[str, Stream] = {}
        self.due: dict[str, float] = {}
        """When to look at each trial that has news; oldest news first."""
        self.sends: Counter[tuple[str, int]] = Counter()
        """How often the rows of a trial were sent, by trial and first step."""
        self.failures: Counter[str] = Counter()
        """Failures per trial while the server answered."""
        self.written: dict[str, Any] = {}
        """For a run in an object store: what the offline files on this machine hold for each trial."""
        self.away_until, self.patience = 0.0, PATIENCE_S[0]
        self.trouble = ""

    # while the run is running

    def follow(self, hints: Iterator[list[str]]) -> None:
        """Sends the trials that are hinted at until the hints end; then all the others."""
        for ids in hints:
            self.due |= {trial_id: 0.0 for trial_id in ids if trial_id not in self.due}
            self._work_off()
        self.finish()

    def _work_off(self) -> None:
        now = time.monotonic()
        for trial_id in [trial_id for trial_id, when in self.due.items() if when <= now]:
            if now < self.away_until:
                return
            del self.due[trial_id]
            again = self.bring_up_to_date(trial_id)
            if again is not None:
                self.due[trial_id] = again
            now = time.monotonic()

    def bring_up_to_date(self, trial_id: str, close: bool = False) -> float | None:
        """Sends all rows of a trial to W&B; returns when to try again, or None if there is nothing left to do.

        A trial that has ended is closed; with `close`, every trial is. A server rejects data silently, so a trial has
        arrived only when its run, opened again a moment later, reports every row.
        """
        folder = self.run.trial(trial_id)
        try:
            status = folder.status()  # before the rows: a final status means that all rows exist
            stream = self._stream(folder)
            stream.tell()
            if not (close or status.final) or self._close(folder, status):
                return None
            if self.sends[trial_id, stream.start] >= MOST_SENDS:
                self._note(f"{trial_id}: W&B accepted its rows {MOST_SENDS} times but has not stored them")
                return None
            return time.monotonic() + SETTLE_S
        except Busy:
            return time.monotonic() + SETTLE_S
        except Away as error:
            return self._went_away(error)
        except Exception as error:  # of this trial only: damage in its folder, or an error of the client
            return self._dropped(trial_id, error)

    def _dropped(self, trial_id: str, error: Exception) -> float | None:
        """Closes the run after an error; the next attempt opens it again and asks what it has. Limited to a few
        attempts."""
        stream = self.open.pop(trial_id, None)
        if stream is not None:
            with suppress(Exception):  # otherwise the client would keep the run open
                stream.run.finish(exit_code=1)
        if LOST.search(f"{error!r} {error.__cause__!r}"):
            self._restart_client()
        if self.connection.online and (text := trouble(self.connection)):
            return self._went_away(Away(text))
        self.failures[trial_id] += 1
        self._note(f"{trial_id}: {error}")
        return None if self.failures[trial_id] >= MOST_SENDS else time.monotonic() + SETTLE_S

    def _restart_client(self) -> None:
        """Restarts the client after its background process has died; open runs are opened again at their next news."""
        self.due |= dict.fromkeys(self.open, 0.0)
        self.open.clear()
        with suppress(Exception):
            wandb.teardown()

    def _stream(self, folder: TrialFolder) -> Stream:
        if folder.id not in self.open:
            if self.connection.online and (text := trouble(self.connection)):
                raise Away(text)  # asked first, because a client that failed to open a run keeps it
            self._make_room()
            self.open[folder.id] = Stream(folder, self.connection, self.sweep, self.run)
            self.patience = PATIENCE_S[0]
            self.open[folder.id].send_left_media()
        return self.open[folder.id]

    def _make_room(self) -> None:
        while len(self.open) >= MOST_OPEN:
            quietest = min(self.open.values(), key=lambda stream: stream.used)
            self._close(quietest.folder, quietest.folder.status())

    def _close(self, folder: TrialFolder, status: Status) -> bool:
        """Closes a run; returns whether W&B has confirmed all of it."""
        stream = self.open.pop(folder.id)
        if self.connection.online and not stream.complete:
            self.sends[folder.id, stream.start] += 1
        stream.close(status)
        if self.connection.online:
            shutil.rmtree(Path(stream.run.dir).parent, ignore_errors=True)  # remaining files have not been sent
        if self.connection.online and not stream.complete:
            return False
        if not self.connection.online and isinstance(folder.path, RemotePath):
            self.written[folder.id] = [stream.seen, status.state]
            return True
        folder.note_arrival(self.connection.place, [stream.seen, status.state])
        if self.connection.online and status.final:
            shutil.rmtree(folder.wandb_folder, ignore_errors=True)  # the ledger has everything
        return True

    def _went_away(self, error: BaseException) -> float:
        self._note(str(error))
        self.away_until = time.monotonic() + self.patience
        self.patience = min(2 * self.patience, PATIENCE_S[1])
        return self.away_until

    def _note(self, text: str) -> None:
        self.trouble = without_secrets(" ".join(text.split()))[:500]
        self.say(self.trouble)

    # at the end

    def finish(self, follow: Callable[[list[str]], Iterable[str]] = iter) -> bool:
        """Sends everything that has not arrived, and returns whether it has now. Gives up if the server does not answer
        for several trials in a row. `follow` wraps the list of trials to show the progress."""
        failures = MOST_FAILURES - 1 if time.monotonic() < self.away_until else 0
        for _ in range(MOST_ROUNDS):
            again = False
            left = [trial_id for trial_id in unsent(self.run, self.connection) if trial_id not in self.written]
            for trial_id in follow(left):
                self.away_until = 0.0
                again = self.bring_up_to_date(trial_id, close=True) is not None or again
                failures = failures + 1 if self.away_until else 0
                if failures >= MOST_FAILURES:
                    return False
            if not again:
                break
            time.sleep(SETTLE_S)
        if self.connection.best_checkpoint:
            self._send_best()
        self._keep_written()
        return not unsent(self.run, self.connection)

    def _keep_written(self) -> None:
        """Copies offline files to the object store; the client finishes writing them only when it ends."""
        if not self.written:
            return
        wandb.teardown()
        for trial_id, what in self.written.items():
            folder = self.run.trial(trial_id)
            folder.keep_wandb_files()
            folder.note_arrival(self.connection.place, what)
        self.written = {}

    def _send_best(self) -> None:
        """Sends the best trial's checkpoint and config as an artifact of its run, once all trials have ended."""
        try:
            found = _best_checkpoint(self.run)
        except ConfigError as error:  # an unreadable ledger has no best trial
            return self._note(str(error))
        if found is None:
            return None
        folder, step, about = found
        place = f"{self.connection.place} artifact"
        if folder.arrived().get(place) == step:
            return None
        try:
            stream = self._stream(folder)
            stream.tell()
            arrived = stream.send_checkpoint(f"{self.sweep.name}-best", step, about)
            self._close(folder, folder.status())
        except Away as error:
            self._went_away(error)
        except Exception as error:
            self._dropped(folder.id, error)
        else:
            if arrived:
                folder.note_arrival(place, step)
            else:
                self._note("W&B has not confirmed the artifact with the best checkpoint")
        return None


def _best_checkpoint(run: Run) -> tuple[TrialFolder, int, dict[str, Any]] | None:
    """If all trials have ended: the best trial's folder, its checkpoint nearest to the best score, and metadata."""
    loaded = tables.read(run)
    objective = tables.objective_or_default(loaded)
    trials = tables.ranked(loaded, objective.metric, objective.mode, tables.at_of(objective))
    sound = trials[~trials["status"].isin(BROKEN) & trials[objective.metric].notna()]
    if sound.empty or not trials["status"].isin(FINAL).all():
        return None
    trial_id, score = sound.iloc[0]["trial_id"], float(sound.iloc[0][objective.metric])
    folder = run.trial(trial_id)
    at = [row["step"] for row in folder.rows_to_end() if row["metrics"].get(objective.metric) == score][-1:] or [0]
    steps = folder.checkpoints.steps()
    if not steps:
        return None
    step = min(steps, key=lambda kept: (abs(kept - at[0]), -kept))
    return folder, step, {"trial": trial_id, "step": step, objective.metric: score}


# ---- the process that runs beside a driver


def hints() -> Iterator[list[str]]:
    """Trial ids from standard input as they come, or an empty list after a while; ends with the input."""
    torn = b""
    while True:
        data = b""
        if select.select([0], [], [], LOOK_S)[0]:
            data = os.read(0, 1 << 16)
            if not data:
                return
        *lines, torn = (torn + data).split(b"\n")
        yield list(dict.fromkeys(line.decode() for line in lines))


def main() -> None:
    """`python -m disentune.tracking RUN`, with hints on standard input; prints errors to standard output."""
    run = Run(place(sys.argv[1]))
    sweep = run.sweep()
    there = connection(sweep.settings.wandb, sweep.name, run.name)
    if there is None:
        return
    with run.tracked(patience_s=3600):  # an earlier process may still be sending
        tracker = Tracker(run, there, say=lambda text: print(text, flush=True))  # noqa: T201
        tracker.follow(hints())
    os._exit(0)  # runs of an unreachable server stay as they are; the next process continues from there
