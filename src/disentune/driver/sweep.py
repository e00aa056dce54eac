"""Runs a sweep on Ray: a new Tuner runs what the ledger lists as unfinished, and holds no state of its own."""

import logging
import math
import os
import re
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from disentune.driver import local_ray, ray_internals
from disentune.driver.joining import join
from disentune.driver.nodes import is_dead
from disentune.environment import without_secrets
from disentune.errors import ConfigError
from disentune.files.storage import OWNER, Place, owner, owner_in, without_password
from disentune.learn import cuda, process
from disentune.plugin import Source
from disentune.runs.choice import Choice, selection_of
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.segment import TIME_IS_UP
from disentune.runs.transfers import Transfers
from disentune.spec.settings import Resources
from disentune.spec.space import SweepPoints
from disentune.spec.sweepfile import Domain, Entry, SweepFile
from disentune.tracking.connection import Connection
from disentune.tracking.streaming import Streaming

_PENDING_LOCAL, _PENDING_CLUSTER = 2, 64
"""How many trials wait for a free slot: a few hide the start-up time, many make an autoscaler add nodes."""
SAME_SIGNAL_S = 1.0
STOP_POLL_S = 0.5
"""Time between two looks for a request of `disentune stop`; longer in an object store."""
SCRATCH = "disentune-ray-"
"""Prefix of the folder that Tune requires and nobody reads."""


class StopRequest:
    """Polled for whether to stop: after SIGINT, SIGTERM or `disentune stop`, or when the time limit is reached.

    Workers see the file in the run folder, write a checkpoint and end. A second signal ends the driver immediately,
    which loses only the work since the last checkpoints.
    """

    def __init__(
        self,
        run: Run,
        wall_time_s: float | None,
        is_deleted: Callable[[], bool] = lambda: False,
        is_drawn: Callable[[], bool] = lambda: False,
    ):
        self.run, self.reason, self.is_deleted, self.is_drawn = run, "", is_deleted, is_drawn
        self.wall_time_s, self.deadline, self.asked_at = wall_time_s, math.inf, -math.inf

    def __call__(self) -> bool:
        if not self.reason and time.monotonic() > self.deadline:
            self.stop(f"{TIME_IS_UP} is over")
        if not self.reason and self.is_deleted():
            self.stop("the run was deleted")
        return bool(self.reason)

    def start_clock(self) -> None:
        """Starts the time limit, after Ray has started."""
        if self.wall_time_s is not None:
            self.deadline = time.monotonic() + self.wall_time_s

    def stop(self, reason: str) -> None:
        self.reason = reason
        with suppress(FileNotFoundError):  # the run was deleted, which its workers see too
            self.run.ask_to_stop(reason)

    def _handle(self, number: int, frame: Any) -> None:
        if self.reason and time.monotonic() - self.asked_at > SAME_SIGNAL_S:
            raise KeyboardInterrupt
        if self.reason:  # the same request, passed on by a supervisor whose process group got the signal too
            return
        self.asked_at = time.monotonic()
        self.stop(signal.Signals(number).name)
        self._say("\nstopping: trials are writing their checkpoints; press Ctrl-C again to stop immediately\n")

    def _say(self, text: str) -> None:
        if self.is_drawn():  # text in the middle of a live display would shift it; the display says it itself
            return
        with suppress(OSError):  # stderr is closed
            os.write(2, text.encode())

    def _watch(self, ended: threading.Event) -> None:
        """Follows requests of other processes, which may be on other machines, in a thread, because storage that does
        not answer must not hold up the driver."""
        while not self.reason and not ended.wait(max(STOP_POLL_S, self.run.poll_s)):
            with suppress(OSError):
                asked = self.run.stop_reason()
                if asked is not None and not self.reason:
                    self.reason = asked or "disentune stop"
                    self._say(f"\nstopping ({without_secrets(self.reason)}): trials are writing their checkpoints\n")

    def listen(self) -> dict[int, Any]:
        """Installs the signal handlers and returns the previous ones. Ray replaces them when it starts: call it again
        then."""
        return {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}

    @contextmanager
    def listening(self) -> Iterator[None]:
        before, ended = self.listen(), threading.Event()
        watching = threading.Thread(target=self._watch, args=(ended,), name="stop requests", daemon=True)
        watching.start()
        try:
            yield
        finally:
            ended.set()
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True)
class Ending:
    """How a session ended; `interrupted` is the reason when it did not run to the end."""

    interrupted: str
    failed: int


@dataclass(frozen=True)
class LaunchRequest:
    """What a session runs, where, and who receives the reports."""

    run: Run
    asked: SweepPoints
    choice: Choice
    listener: Callable[[Planner, str, dict[str, Any]], None]
    """Receives the planner, a trial's id and its news."""
    address: str | None = None
    """The address of the cluster to join; None starts a local Ray."""
    retry_failed: bool = False
    connection: Connection | None = None
    """The connection to W&B, if trials are streamed there."""
    say: Callable[[str], None] = lambda text: None
    sources: Sequence[Source] = ()
    """Prepared data sets; on a cluster, trials prefer nodes that have them."""
    transfers: Transfers = field(default_factory=Transfers)
    """Trials that are moved before training starts."""
    beat: Callable[[], None] = lambda: None
    """Called many times per second while trials run or wait, even without news."""
    is_drawn: Callable[[], bool] = lambda: False
    """Whether a live display is on the terminal now, which shows that the session is stopping."""


def launch(request: LaunchRequest) -> Ending:
    """Runs what is unfinished. Raises ConfigError when another driver holds the run, or no machine can hold a trial."""
    run, sweep, address, say = request.run, request.asked.sweep, request.address, request.say
    if address is not None:
        _assert_address(address)
    else:
        _assert_enough({"CPU": os.cpu_count() or 1, "GPU": cuda.device_count()}, sweep.settings.resources)
        _assert_compiler(sweep)
        _assert_mps(sweep)
    with run.locked() as session, _deletion(run.path) as is_deleted:
        _clear_scratch()
        request.transfers.carry_out(run, say)
        run.record(sweep)
        if request.retry_failed:
            _reopen_failed(run)
        planner = Planner(run, request.asked, session, request.choice, is_dead=is_dead)
        for note in planner.notes:
            say(note)
        ended = sum(trial.history.ended for trial in planner.trials.values())
        selection = selection_of(request.choice, request.asked.points, ended)
        run.record_selection(session, asdict(selection) if selection else None)
        stop = StopRequest(run, sweep.settings.stop.wall_time_s, is_deleted, request.is_drawn)
        trouble = None
        if not planner.finished:
            joins = f"joining the Ray cluster at {without_password(address)}" if address else "starting Ray"
            say(f"{joins} ...")
            with Streaming(run, request.connection, say) as streaming, stop.listening():

                def notify(trial_id: str, news: dict[str, Any]) -> None:
                    request.listener(planner, trial_id, news)
                    streaming.hint(trial_id)

                trouble = _run_on_ray(planner, stop, notify, request)
        if is_deleted():
            raise ConfigError(f"{run.path} was deleted during the run; the sweep stopped and its results are gone")
        if trouble:
            raise trouble
        run.stop_path.unlink(missing_ok=True)
        failed = sum(trial.status.state == "failed" for trial in planner.trials.values())
        return Ending("" if planner.finished else stop.reason or "the session ended early", failed)


@contextmanager
def _deletion(path: Place) -> Iterator[Callable[[], bool]]:
    """A function that returns whether a run's folder was deleted, not just unreachable for a while."""
    if not isinstance(path, Path):
        yield lambda: False
        return
    handle = os.open(path, os.O_RDONLY)

    def is_deleted() -> bool:
        with suppress(OSError):
            return not path.exists() and os.fstat(handle).st_nlink == 0
        return False

    try:
        yield is_deleted
    finally:
        os.close(handle)


def _run_on_ray(
    planner: Planner,
    stop: StopRequest,
    listener: Callable[[str, dict[str, Any]], None],
    request: LaunchRequest,
) -> ConfigError | None:
    """Why the session had to end early; None if it did not, or if it was asked to stop."""
    address, say = request.address, request.say
    try:
        with _ray(address, planner.settings.resources, say) as tune:
            stop.listen()
            stop.start_clock()
            if address:
                from disentune.driver.placement import assert_shared

                assert_shared(planner.run, planner.session)
            if not stop():
                sources = request.sources if address else ()
                return _fit(tune, planner, stop, listener, say, sources, alone=not address, beat=request.beat)
    except SystemExit:  # raised by Ray on SIGTERM during its start
        stop.stop(signal.SIGTERM.name)
    except FileNotFoundError:
        if not stop.is_deleted():
            raise
    return None


def _clear_scratch() -> None:
    """Removes the folders of sweeps that were killed. The owner of a folder from an earlier boot is gone; the owner of
    a folder from another container, whose processes are not visible here, may be alive."""
    for entry in os.scandir(tempfile.gettempdir()):
        found = re.fullmatch(f"{SCRATCH}{OWNER}-.*", entry.name)
        whose = owner_in(found) if found else None
        if whose is None or not (whose.is_dead or not whose.is_of_this_boot):
            continue
        if entry.is_dir(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid == os.getuid():
            shutil.rmtree(entry.path, ignore_errors=True)


def _reopen_failed(run: Run) -> None:
    for trial in run.trials():
        if trial.status().state == "failed":
            trial.update_status(state="pending", cause="", faults={})


def _fit(
    tune: Any,
    planner: Planner,
    stop: StopRequest,
    listener: Callable[[str, dict[str, Any]], None],
    say: Callable[[str], None],
    sources: Sequence[Source],
    alone: bool,
    beat: Callable[[], None] = lambda: None,
) -> ConfigError | None:
    from disentune.driver.placement import JOIN_S, RETURN_S, Alone, Waiting, assert_feasible, homes
    from disentune.driver.search import Beat, Causes, Ends, LedgerSearch, Silent
    from disentune.driver.trainable import SegmentTrainable

    settings = planner.settings
    assert_feasible(settings.resources, RETURN_S if planner.has_begun else JOIN_S, say, stop)
    home = homes(sources, settings.data.root).of
    search = LedgerSearch(planner, stop, listener, home, settings.resources.concurrent)
    causes = Causes(search)
    callbacks = [causes, Beat(beat), Waiting(settings.resources, say), *([Alone(search.give_up)] if alone else [])]
    scratch = tempfile.mkdtemp(prefix=f"{SCRATCH}{owner()}-")
    try:
        tuner = tune.Tuner(
            SegmentTrainable,
            tune_config=tune.TuneConfig(
                search_alg=search,
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=str,
                trial_dirname_creator=lambda trial: trial.trial_id,
            ),
            run_config=tune.RunConfig(
                name="run",  # a folder in `scratch`
                storage_path=scratch,
                stop=Ends(search),
                callbacks=callbacks,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=0),
                verbose=0,
                progress_reporter=Silent(),
            ),
        )
        with causes.listening():
            tuner.fit()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return search.trouble


@contextmanager
def _ray(address: str | None, resources: Resources, say: Callable[[str], None]) -> Iterator[Any]:
    """Ray's tune module, connected to the cluster at an address, or by default to a new local Ray."""
    ray_internals.set_variables(_PENDING_CLUSTER if address else _PENDING_LOCAL)
    logging.getLogger("ray.widgets").setLevel(logging.CRITICAL)  # in a notebook, its import asks for ipywidgets
    import ray

    for name in ("ray", "ray.tune", "ray.train", "ray.data"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    mine = not ray.is_initialized()
    if mine:
        _connect(ray, address, say)
    try:
        from ray import tune

        ray_internals.assert_variables()
        ray_internals.give_workers_no_keys(local=not address)
        if not address:  # in a container, Ray may see fewer cores than the machine has
            _assert_enough(ray.cluster_resources(), resources)
        yield tune
    finally:
        if mine:
            ray.shutdown() if address else local_ray.end(ray)


def _assert_address(address: str) -> None:
    """Raises ConfigError for an address that Ray accepts but a driver cannot join."""
    shown = without_password(address)
    if address != "auto" and "://" not in address and not re.fullmatch(r"\S+:\d+", address):
        raise ConfigError(f"--address '{shown}': must be auto or HOST:PORT; omit it for a local Ray")
    if address.startswith(("http://", "https://")):
        raise ConfigError(f"--address {shown}: is the address for jobs; use: disentune submit SWEEP --address {shown}")
    if address.startswith("ray://"):
        raise ConfigError(
            f"--address {shown}: Ray's client cannot drive a sweep; run it on a node of the cluster with "
            "--address auto, or send it there with: disentune submit"
        )


def _connect(ray: Any, address: str | None, say: Callable[[str], None] = lambda text: None) -> None:
    if address:
        join(ray, address)
    else:
        local_ray.start_patiently(ray, _load_what_comes_next, say)


def _load_what_comes_next() -> None:
    """Imports what drives the trials and what draws the figure at the end, which takes two seconds."""
    import disentune.driver.search
    import disentune.driver.trainable
    import disentune.report.summary  # noqa: F401


def _assert_compiler(sweep: SweepFile) -> None:
    """torch.compile generates C++ code and needs a compiler for it."""
    wanted = _entries(sweep, "training.compile", True)
    if wanted and not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++")):
        raise ConfigError(
            f"{wanted[0].where} training.compile: torch.compile needs a C++ compiler, and this machine has none; "
            "install g++, or set training.compile: false"
        )


def _assert_mps(sweep: SweepFile) -> None:
    wanted = _entries(sweep, "training.device", "mps")
    if wanted and not process.has("mps"):
        text = "mps needs a Mac with Apple's GPU, and this machine has none; use cpu or cuda"
        raise ConfigError(f"{wanted[0].where} training.device: {text}")


def _entries(sweep: SweepFile, key: str, value: Any) -> list[Entry]:
    """The entries of arms in which a key has this value, perhaps among others."""
    entries = [arm[key] for arm in sweep.arms.values() if key in arm]
    return [e for e in entries if value in (e.value.values if isinstance(e.value, Domain) else [e.value])]


def _assert_enough(available: dict[str, float], wanted: Resources) -> None:
    for kind, amount in (("CPU", wanted.cpu), ("GPU", wanted.gpu)):
        if amount > available.get(kind, 0):
            raise ConfigError(
                f"resources.{kind.lower()}: a trial needs {amount:g}, but this machine has {available.get(kind, 0):g}; "
                f"lower it with --set resources.{kind.lower()}=..., or use --address to join a cluster"
            )
