"""Running a sweep on Ray: a fresh Tuner over what the ledger says is unfinished, holding nothing worth saving."""

import logging
import math
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disentune.driver import local_ray, ray_internals
from disentune.driver.joining import join
from disentune.driver.nodes import is_dead
from disentune.errors import ConfigError
from disentune.files.storage import OWNER, Place, owner, owner_in, without_password
from disentune.learn import cuda
from disentune.plugin import Source
from disentune.runs.choice import Choice
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.segment import TIME_IS_UP
from disentune.spec.settings import Resources
from disentune.spec.space import SweepPoints
from disentune.spec.sweepfile import Domain, SweepFile
from disentune.tracking.connection import Connection
from disentune.tracking.streaming import Streaming

_PENDING_LOCAL, _PENDING_CLUSTER = 2, 64
"""Trials that wait for a free slot: a few hide the start-up, many make an autoscaler add nodes."""
SAME_SIGNAL_S = 1.0
SCRATCH = "disentune-ray-"
"""Begins the name of the folder that Tune wants and nobody reads."""


class StopRequest:
    """Asked again and again whether to stop: after SIGINT or SIGTERM, or when the time is up.

    Workers see the file in the run folder, checkpoint and end; a second signal ends the driver at once, which loses
    nothing but the work since the last checkpoints.
    """

    def __init__(self, run: Run, wall_time_s: float | None, is_deleted: Callable[[], bool] = lambda: False):
        self.run, self.reason, self.is_deleted = run, "", is_deleted
        self.wall_time_s, self.deadline, self.asked_at = wall_time_s, math.inf, -math.inf

    def __call__(self) -> bool:
        if not self.reason and time.monotonic() > self.deadline:
            self.stop(f"{TIME_IS_UP} is over")
        if not self.reason and self.is_deleted():
            self.stop("the run was deleted")
        return bool(self.reason)

    def start_clock(self) -> None:
        """The time that Ray takes to start is not the sweep's."""
        if self.wall_time_s is not None:
            self.deadline = time.monotonic() + self.wall_time_s

    def stop(self, reason: str) -> None:
        self.reason = reason
        with suppress(FileNotFoundError):  # of a run that is gone, as its workers see, too
            self.run.ask_to_stop(reason)

    def _handle(self, number: int, frame: Any) -> None:
        if self.reason and time.monotonic() - self.asked_at > SAME_SIGNAL_S:
            raise KeyboardInterrupt
        if self.reason:  # the same wish by another way: a supervisor passes on what its whole group got
            return
        self.asked_at = time.monotonic()
        self.stop(signal.Signals(number).name)
        with suppress(OSError):  # nobody reads it
            os.write(2, b"\nstopping: trials write their checkpoints and end; once more ends at once\n")

    def listen(self) -> dict[int, Any]:
        """Takes the signals over and returns who had them. Ray takes them too when it starts: listen again then."""
        return {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = self.listen()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


@dataclass(frozen=True)
class Ending:
    """How a session ended; `interrupted` is the reason when it did not run to the end."""

    interrupted: str
    failed: int


@dataclass(frozen=True)
class LaunchRequest:
    """What a session runs, where, and who hears of it."""

    run: Run
    asked: SweepPoints
    choice: Choice
    listener: Callable[[Planner, str, dict[str, Any]], None]
    """Receives the planner, a trial's id and its news."""
    address: str | None = None
    """Of the cluster to join; without one a local Ray is started."""
    retry_failed: bool = False
    connection: Connection | None = None
    """To W&B, where trials are streamed to."""
    say: Callable[[str], None] = lambda text: None
    sources: Sequence[Source] = ()
    """Prepared data: on a cluster trials prefer nodes that have it."""


def launch(request: LaunchRequest) -> Ending:
    """Runs what is unfinished. Raises ConfigError when another driver holds the run or no machine can hold a trial."""
    run, sweep, address, say = request.run, request.asked.sweep, request.address, request.say
    if address is not None:
        _assert_address(address)
    else:
        _assert_enough({"CPU": os.cpu_count() or 1, "GPU": cuda.device_count()}, sweep.settings.resources)
        _assert_compiler(sweep)
    with run.locked() as session, _deletion(run.path) as is_deleted:
        _clear_scratch()
        run.record(sweep)
        if request.retry_failed:
            _reopen_failed(run)
        planner = Planner(run, request.asked, session, request.choice, is_dead=is_dead)
        for note in planner.notes:
            say(note)
        stop = StopRequest(run, sweep.settings.stop.wall_time_s, is_deleted)
        trouble = None
        if not planner.finished:
            with Streaming(run, request.connection, say) as streaming, stop.listening():

                def told(trial_id: str, news: dict[str, Any]) -> None:
                    request.listener(planner, trial_id, news)
                    streaming.hint(trial_id)

                trouble = _run_on_ray(planner, stop, told, address, say, request.sources)
        if is_deleted():
            raise ConfigError(f"{run.path} was deleted while the sweep ran, so the sweep ends; its results are gone")
        if trouble:
            raise trouble
        run.stop_path.unlink(missing_ok=True)
        failed = sum(trial.status.state == "failed" for trial in planner.trials.values())
        return Ending("" if planner.finished else stop.reason or "the session ended early", failed)


@contextmanager
def _deletion(path: Place) -> Iterator[Callable[[], bool]]:
    """Tells whether a run's folder was deleted; one that is only out of reach for a while still has a name."""
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
    address: str | None,
    say: Callable[[str], None],
    sources: Sequence[Source],
) -> ConfigError | None:
    """Why the session had to end early, if not because it was asked to."""
    try:
        with _ray(address, planner.settings.resources, say) as tune:
            stop.listen()
            stop.start_clock()
            if address:
                from disentune.driver.placement import assert_shared

                assert_shared(planner.run, planner.session)
            if not stop():
                return _fit(tune, planner, stop, listener, say, sources if address else (), alone=not address)
    except SystemExit:  # Ray's own answer to SIGTERM while it starts
        stop.stop(signal.SIGTERM.name)
    except FileNotFoundError:
        if not stop.is_deleted():
            raise
    return None


def _clear_scratch() -> None:
    """Folders of sweeps that were killed. One of an earlier boot has no owner any more; one of another container, whose
    processes cannot be seen from here, may have."""
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
) -> ConfigError | None:
    from disentune.driver.placement import JOIN_S, RETURN_S, Alone, Waiting, assert_feasible, homes
    from disentune.driver.search import Causes, Ends, LedgerSearch
    from disentune.driver.trainable import SegmentTrainable

    settings = planner.settings
    assert_feasible(settings.resources, RETURN_S if planner.has_begun else JOIN_S, say, stop)
    home = homes(sources, settings.data.root).of
    search = LedgerSearch(planner, stop, listener, home, settings.resources.concurrent)
    causes = Causes(search)
    callbacks = [causes, Waiting(settings.resources, say), *([Alone(search.give_up)] if alone else [])]
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
                name="run",  # of a folder in `scratch`
                storage_path=scratch,
                stop=Ends(search),
                callbacks=callbacks,
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
                failure_config=tune.FailureConfig(max_failures=0),
                verbose=0,
            ),
        )
        with causes.listening():
            tuner.fit()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return search.trouble


@contextmanager
def _ray(address: str | None, resources: Resources, say: Callable[[str], None]) -> Iterator[Any]:
    """Ray's tune module, connected: a local Ray of our own by default, or the cluster at an address."""
    ray_internals.set_variables(_PENDING_CLUSTER if address else _PENDING_LOCAL)
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
        if not address:  # Ray may see fewer cores than there are, in a container
            _assert_enough(ray.cluster_resources(), resources)
        yield tune
    finally:
        if mine:
            ray.shutdown() if address else local_ray.end(ray)


def _assert_address(address: str) -> None:
    """What Ray takes for the address of a cluster, but cannot be one for a driver."""
    shown = without_password(address)
    if not address.strip() or address == "local":
        raise ConfigError(f"--address {address!r}: must be auto or HOST:PORT; leave it out for a local Ray")
    if address.startswith(("http://", "https://")):
        raise ConfigError(f"--address {shown}: takes jobs; send the sweep as one: disentune submit SWEEP ...")
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
    """Two seconds of imports: what drives the trials, and what draws the figure at the end."""
    import disentune.driver.search
    import disentune.driver.trainable
    import disentune.report.summary  # noqa: F401


def _assert_compiler(sweep: SweepFile) -> None:
    """torch.compile writes C++ and has it compiled."""
    entries = [arm["training.compile"] for arm in sweep.arms.values() if "training.compile" in arm]
    wanted = [e for e in entries if True in (e.value.values if isinstance(e.value, Domain) else [e.value])]
    if wanted and not any(shutil.which(name) for name in (os.environ.get("CXX", "g++"), "clang++")):
        raise ConfigError(
            f"{wanted[0].where} training.compile: torch.compile needs a C++ compiler, and this machine has none; "
            "install g++, or set training.compile: false"
        )


def _assert_enough(available: dict[str, float], wanted: Resources) -> None:
    for kind, amount in (("CPU", wanted.cpu), ("GPU", wanted.gpu)):
        if amount > available.get(kind, 0):
            raise ConfigError(
                f"resources.{kind.lower()}: a trial wants {amount:g}, but this machine has {available.get(kind, 0):g}; "
                f"lower it with --set resources.{kind.lower()}=..., or use --address to join a cluster"
            )
