"""Every private part of Ray that disentune uses, each with its reason and a check that the installed Ray has it.

`python -m disentune.driver.ray_internals` runs every check against the installed Ray, and `make check-ray VERSION=x`
against another one. This file imports only the standard library and `errors`, and Ray where a function needs it.
"""

import inspect
import json
import mmap
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import wraps
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple

from disentune.errors import ConfigError

PINNED = "2.60.*"
"""As in pyproject.toml."""


class RayChanged(ConfigError):
    """The installed Ray lacks something that disentune uses; `missing` names it."""

    def __init__(self, name: str, why: str):
        self.missing = f"Ray {_version()} has no {name}"
        super().__init__(f"{self.missing}; disentune needs it to {why}; install ray=={PINNED} or report this")


def _version() -> str:
    with suppress(ImportError, AttributeError):
        import ray

        return ray.__version__
    return "(none)"


class Part(NamedTuple):
    """An attribute of a module, `module:attribute`, with the parameters that it must have if it is called or replaced,
    or the value that it must have."""

    target: str
    why: str
    parameters: tuple[str, ...] | None = None
    value: Any = None

    @property
    def name(self) -> str:
        shown = self.target.replace(":", ".")
        return shown if self.parameters is None else f"{shown}({', '.join(self.parameters)})"

    def get(self) -> Any:
        """Raises RayChanged."""
        try:
            found = resolve_name(self.target)
            if self.parameters is not None and tuple(inspect.signature(found).parameters) != self.parameters:
                raise RayChanged(self.name, self.why)
        except (ImportError, AttributeError, TypeError, ValueError) as error:  # no signature: no longer a function
            raise RayChanged(self.name, self.why) from error
        if self.value is not None and found != self.value:
            raise RayChanged(f"{self.name} = {self.value!r}", self.why)
        return found

    @contextmanager
    def replaced(self, wrap: Callable[[Any], Any]) -> Iterator[None]:
        """Replaces the part by `wrap(part)` within the context. Raises RayChanged."""
        original = self.get()
        owner, _, attribute = self.target.rpartition(".")
        holder = resolve_name(owner)
        setattr(holder, attribute, wrap(original))
        try:
            yield
        finally:
            setattr(holder, attribute, original)


class Word(NamedTuple):
    """A text in the source of a Python module, or of a function, `module:function`. This is the only way to check for
    an environment variable, an attribute of an instance or an option of a command."""

    target: str
    text: str
    why: str

    @property
    def name(self) -> str:
        return f"{self.text} in {self.target.replace(':', '.')}"

    def get(self) -> None:
        """Raises RayChanged."""
        try:
            source = inspect.getsource(resolve_name(self.target)) if ":" in self.target else _source(self.target)
        except (ImportError, AttributeError, TypeError, OSError) as error:
            raise RayChanged(self.name, self.why) from error
        if self.text not in source:
            raise RayChanged(self.name, self.why)


def _source(module: str) -> str:
    """The source of a module, without importing it."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(module)
    return Path(spec.origin).read_text()


class Message(NamedTuple):
    """A text in one of Ray's binaries, which appears in its error messages."""

    file: str
    text: str
    why: str

    @property
    def name(self) -> str:
        return f"the words '{self.text}' in ray/{self.file}"

    def get(self) -> None:
        """Raises RayChanged."""
        try:
            import ray

            path = Path(ray.__path__[0]) / self.file
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
                if content.find(self.text.encode()) < 0:
                    raise RayChanged(self.name, self.why)
        except (ImportError, OSError, ValueError) as error:
            raise RayChanged(self.name, self.why) from error


# ---- errors of workers, which pass through Tune

_UNEXPECTED = "continue when the memory monitor kills a worker or a node dies: Tune would give up the whole sweep"
_ACTOR_MANAGER = "ray.air.execution._internal:RayActorManager"
TASK_FAILED = Part(f"{_ACTOR_MANAGER}._actor_task_failed", _UNEXPECTED, ("self", "tracked_actor_task", "exception"))
START_FAILED = Part(f"{_ACTOR_MANAGER}._actor_start_failed", _UNEXPECTED, ("self", "tracked_actor", "exception"))
HANDLE_ERROR = Part(
    "ray.tune.experiment:Trial.handle_error",
    "know why a worker ended without unpickling a file that others may have written",
    ("self", "exc"),
)
PREEMPTION = Word(
    "ray.tune.experiment.trial",
    "RAY_TRAIN_COUNT_PREEMPTION_AS_FAILURE",
    "notice a pre-empted worker: Tune would restart its segment without notifying the searcher",
)


@contextmanager
def expected_errors(expected: Callable[[Exception], Exception]) -> Iterator[None]:
    """Passes every error of a worker through `expected` before Tune receives it. Tune handles only errors of actors and
    tasks: any other error ends the whole sweep, or is lost if it comes while a worker starts."""

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def handle(self: Any, *, exception: Exception, **what: Any) -> None:  # Ray passes them by name
            original(self, exception=expected(exception), **what)

        return handle

    with TASK_FAILED.replaced(wrap), START_FAILED.replaced(wrap):
        yield


@contextmanager
def heard_errors(hear: Callable[[str, Exception], None]) -> Iterator[None]:
    """Calls `hear` with Tune's id of a trial and the error that ended its worker. Tune gives its callbacks only a
    pickled file in a folder that every user of the machine can write to, and restarts the segment of a pre-empted node
    by itself unless pre-emptions count as failures."""
    PREEMPTION.get()
    os.environ.setdefault(PREEMPTION.text, "1")

    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        @wraps(original)
        def handle(self: Any, exc: Exception | None = None) -> None:
            if exc is not None:
                hear(self.trial_id, exc)
            original(self, exc)

        return handle

    with HANDLE_ERROR.replaced(wrap):
        yield


# ---- what Ray's errors say

NODE_IN_WORDS = Message("core/src/ray/gcs/gcs_server", "Node Id: ", "tell a worker's fault from that of its node")
TOKEN_IN_WORDS = Message("_raylet.so", "InvalidAuthToken", "say that a cluster refuses this machine's token")


AGENT_IN_WORDS = Word(
    "ray.dashboard.modules.job.job_head",
    "No available agent",
    "wait for the head's dashboard agent before sending a job",
)


def has_no_agent(message: str) -> bool:
    """Whether a cluster refused a job only because its dashboard agent is not up yet; Ray says so only in the
    message."""
    return AGENT_IN_WORDS.text in message


def named_node(message: str) -> str:
    """The node of a dead actor, which Ray names only in the message; empty if it names none."""
    found = re.search(r"Node Id: ([0-9a-f]{56})\b", message)
    return found[1] if found else ""


def refuses_token(log: str) -> bool:
    """Whether Ray's C++ log says that the cluster refuses this machine's token; the exception may not say so."""
    return "InvalidAuthToken" in log


# ---- variables

_LESS_NOISE = "keep Tune's tables and warnings off the terminal"
_OWN_FILES = "keep Tune from writing files that the ledger replaces"
VARIABLES = {
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}
PENDING = "TUNE_MAX_PENDING_TRIALS_PG"
NEEDED_VARIABLES = (
    Word("ray.train.constants", "RAY_CHDIR_TO_TRIAL_DIR", "let trials find files by relative paths"),
    Word("ray.tune.tune", "TUNE_DISABLE_SIGINT_HANDLER", "let trials write checkpoints after Ctrl-C"),
)
OTHER_VARIABLES = (
    Word("ray.tune.experimental.output", "RAY_AIR_NEW_OUTPUT", _LESS_NOISE),
    Word(
        "ray._private.accelerators.accelerator",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO",
        "hide the GPUs from trials that hold none (learn/cuda.py does it too)",
    ),
    Word("ray.train.constants", "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS", _LESS_NOISE),
    Word("ray._common.usage.usage_constants", "RAY_USAGE_STATS_ENABLED", "send no usage statistics"),
    Word("ray.tune.utils.callback", "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", _OWN_FILES),
    Word("ray.tune.execution.tune_controller", "TUNE_GLOBAL_CHECKPOINT_S", _OWN_FILES),
    Word(
        "ray.tune.execution.experiment_state",
        "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S",
        _LESS_NOISE,
    ),
    Word(
        "ray.tune.execution.tune_controller",
        PENDING,
        "hide the start of workers, and let waiting trials make an autoscaler add nodes",
    ),
)


def set_variables(pending: int) -> None:
    """Sets Ray's variables; call it before Ray is imported, which reads some of them. The ledger replaces Ray's
    loggers, snapshots and signal handling. At most `pending` trials wait for a free slot."""
    for name, value in {**VARIABLES, PENDING: str(pending)}.items():
        os.environ.setdefault(name, value)


def assert_variables() -> None:
    """Raises RayChanged when Ray no longer reads a variable that a sweep depends on."""
    for variable in NEEDED_VARIABLES:
        variable.get()


# ---- variables that Tune gives its workers

_KEYS = "keep AWS keys out of a log that everyone can read"
_CLASS_CACHE = "ray.tune.execution.class_cache"
GIVEN_ALWAYS = Part(f"{_CLASS_CACHE}:DEFAULT_ENV_VARS", _KEYS)
GIVEN_IF_SET = Part(f"{_CLASS_CACHE}:ENV_VARS_TO_PROPAGATE", _KEYS)
GIVES = tuple(Word(f"{_CLASS_CACHE}:_ActorClassCache.get", part.target.split(":")[1], _KEYS)
              for part in (GIVEN_ALWAYS, GIVEN_IF_SET))  # fmt: skip


def give_workers_no_keys(local: bool) -> None:
    """Stops Tune from passing AWS keys to its workers in a setting that Ray writes to a world-readable log. Nodes of a
    cluster have keys of their own, and local workers inherit all variables. Workers without a setting of their own can
    also use the processes that Ray keeps ready."""
    checks: tuple[Part | Word, ...] = (GIVEN_ALWAYS, GIVEN_IF_SET, *GIVES)
    for check in checks:
        check.get()
    from ray.tune.execution import class_cache

    class_cache.DEFAULT_ENV_VARS = {}
    class_cache.ENV_VARS_TO_PROPAGATE = set() if local else class_cache.ENV_VARS_TO_PROPAGATE & VARIABLES.keys()


# ---- a local Ray: quick to start and to end

_NODE = "ray._private.node:Node"
_QUICK_START = "start a local Ray seconds sooner"
_QUICK_END = "end a local Ray at once, with all of its processes"
START_ALL = Part(f"{_NODE}.start_ray_processes", _QUICK_START, ("self",))
NEEDLESS = (
    Part(f"{_NODE}.start_api_server", _QUICK_START, ("self", "include_dashboard", "raise_on_failure")),
    Part(f"{_NODE}.start_monitor", _QUICK_START, ("self",)),
    Part(f"{_NODE}.start_log_monitor", _QUICK_START, ("self",)),
)
"""The server of the dashboard and of jobs, the autoscaler, and the reader of workers' logs. A local sweep uses none of
them, and they cost three seconds of CPU time."""
GLOBAL_NODE = Part("ray._private.worker:_global_node", _QUICK_END)
KILL_ALL = Part(f"{_NODE}.kill_all_processes", _QUICK_END, ("self", "check_alive", "allow_graceful", "wait"))
ALL_PROCESSES = Word(f"{_NODE}.__init__", "all_processes", _QUICK_END)


def assert_lean_start() -> None:
    """Raises RayChanged when `lean_start` cannot work."""
    for part in (START_ALL, *NEEDLESS):
        part.get()


@contextmanager
def lean_start(meanwhile: Callable[[], None]) -> Iterator[None]:
    """A Ray started within skips the processes it does not need, and calls `meanwhile` while the others start."""

    def start_and_use_the_time(start: Callable[[Any], None]) -> Callable[[Any], None]:
        @wraps(start)
        def started(self: Any) -> None:
            start(self)
            meanwhile()

        return started

    with ExitStack() as stack:
        stack.enter_context(START_ALL.replaced(start_and_use_the_time))
        for part in NEEDLESS:
            stack.enter_context(part.replaced(_left_out))
        yield


def _left_out(original: Callable[..., None]) -> Callable[..., None]:
    @wraps(original)
    def left_out(self: Any, **settings: Any) -> None:
        pass

    return left_out


def end_without_waiting() -> list[int] | None:
    """Makes Ray kill its processes instead of waiting for them: processes that `driver.local_ray` starts ignore Ray's
    SIGTERM. Returns the ids of these processes, or None if no Ray is running. Raises RayChanged."""
    node = GLOBAL_NODE.get()
    if node is None:
        return None
    for check in (KILL_ALL, ALL_PROCESSES):
        check.get()
    kill_all = node.kill_all_processes
    node.kill_all_processes = lambda **asked: kill_all(check_alive=False, allow_graceful=False)
    return [info.process.pid for infos in node.all_processes.values() for info in infos]


# ---- a cluster

HEAD = "node:__internal_head__"
"""A resource that only the head of a cluster has."""
HEAD_RESOURCE = Part("ray._common.constants:HEAD_NODE_RESOURCE_NAME", "find the head of a cluster", value=HEAD)
_LOCAL = "tell a cluster from a Ray that a program has started for itself"
STARTED_BY_INIT = Part("ray._common.usage.usage_lib:is_ray_init_cluster", _LOCAL, ("gcs_client",))
WORKER = Part("ray._private.worker:global_worker", _LOCAL)
_HOME = "prefer nodes that have a trial's data"
TARGET = "_soft_target_node_id"
PLACEMENT_GROUP = Word("ray.util.placement_group:placement_group", TARGET, _HOME)
_MONITOR = "know what an autoscaler can add"
MONITOR_OPTIONS = tuple(
    Word("ray._private.services:start_monitor", text, _MONITOR)
    for text in ("--autoscaling-config=", "--gcs-address=", "monitor.py")
)


def is_started_by_a_program() -> bool:
    """Whether the Ray that this process has joined was started by `ray.init()` in another program, not by `ray start`.
    False if the installed Ray does not say."""
    try:
        started, worker = STARTED_BY_INIT.get(), WORKER.get()
    except RayChanged:
        return False
    return bool(started(worker.gcs_client))


def preferring(node_id: str) -> dict[str, Any]:
    """Settings of a placement group with one bundle that prefers a node but can use any other. Ray offers this only
    with this strategy. Empty if the installed Ray does not offer it."""
    try:
        PLACEMENT_GROUP.get()
    except RayChanged:
        return {}
    return {"strategy": "STRICT_PACK", TARGET: node_id}


def autoscaling_file(address: str, processes: Path = Path("/proc")) -> Path | None:
    """The file with which the autoscaler on this machine was started for the cluster at an address, if there is one. It
    appears only in the command line of that process. Raises RayChanged."""
    for word in MONITOR_OPTIONS:
        word.get()
    option = "--autoscaling-config="
    for path in processes.glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:  # the process has ended
            continue
        if f"--gcs-address={address}" in words and any(word.endswith("/monitor.py") for word in words):
            found = [word.removeprefix(option) for word in words if word.startswith(option)]
            return Path(found[0]).expanduser() if found and found[0] else None
    return None


# ---- the autoscaler and its files

_DEMAND = "ray.autoscaler._private.resource_demand_scheduler"
_FALLBACK = "let the autoscaler try another type of machine when the cloud refuses one"
SCORER = Part(f"{_DEMAND}:_resource_based_utilization_scorer", _FALLBACK,
              ("node_resources", "resources", "node_availability_summary"))  # fmt: skip
SCORER_VARIABLE = Part(
    f"{_DEMAND}:AUTOSCALER_UTILIZATION_SCORER_KEY", _FALLBACK, value="RAY_AUTOSCALER_UTILIZATION_SCORER"
)
_FILES = "check cluster files as `ray up` does"
PREPARE = Part("ray.autoscaler._private.util:prepare_config", _FILES, ("config",))
VALIDATE = Part("ray.autoscaler._private.util:validate_config", _FILES, ("config",))


def utilization_scorer() -> Callable[..., tuple[Any, ...] | None]:
    """The older autoscaler's rule for which type of machine to start, which ours extends. Raises RayChanged."""
    scorer: Callable[..., tuple[Any, ...] | None] = SCORER.get()
    return scorer


def prepared_cluster_file(config: Mapping[str, Any]) -> Any:
    """A cluster file with Ray's defaults filled in, as `ray up` reads it. Raises what Ray raises, and RayChanged."""
    return PREPARE.get()(config)


def validate_cluster_file(config: Mapping[str, Any]) -> None:
    """Raises what `ray up` raises about a prepared file, and RayChanged."""
    VALIDATE.get()(config)


def cluster_file_schema() -> Any:
    """The JSON schema that Ray checks cluster files against. Raises RayChanged."""
    try:
        import ray.autoscaler

        return json.loads((Path(ray.autoscaler.__path__[0]) / "ray-schema.json").read_text())
    except (ImportError, OSError) as error:
        raise RayChanged("ray/autoscaler/ray-schema.json", _FILES) from error


# ---- all of them

_NEEDED: tuple[Part | Word | Message, ...] = (
    TASK_FAILED, START_FAILED, HANDLE_ERROR, PREEMPTION, *NEEDED_VARIABLES, GIVEN_ALWAYS, GIVEN_IF_SET, *GIVES,
    SCORER, SCORER_VARIABLE, PREPARE, VALIDATE,
)  # fmt: skip
_OPTIONAL: tuple[Part | Word | Message, ...] = (
    NODE_IN_WORDS, TOKEN_IN_WORDS, AGENT_IN_WORDS, *OTHER_VARIABLES, START_ALL, *NEEDLESS, GLOBAL_NODE, KILL_ALL,
    ALL_PROCESSES, HEAD_RESOURCE, STARTED_BY_INIT, WORKER, PLACEMENT_GROUP, *MONITOR_OPTIONS,
)  # fmt: skip
CHECKS: list[tuple[str, str, Callable[[], Any]]] = [
    *((one.name, one.why, one.get) for one in (*_NEEDED, *_OPTIONAL)),
    ("ray/autoscaler/ray-schema.json", _FILES, cluster_file_schema),
]
"""(name, what disentune needs it for, a function that raises RayChanged when the installed Ray lacks it)."""
OPTIONAL = frozenset(one.name for one in _OPTIONAL)
"""Names of checks without which a sweep still runs, but slower or with fewer messages."""


def main() -> int:
    """Prints every check and returns 1 if a needed part is missing."""
    sys.stdout.write(f"Ray {_version()}, Python {sys.version.split()[0]}\n")
    missing = []
    for name, why, check in CHECKS:
        try:
            check()
            found = True
        except RayChanged:
            found = False
            missing.append(name)
        weight = "optional" if name in OPTIONAL else "needed"
        sys.stdout.write(f"{'ok' if found else 'MISSING':8} {name}\n         {weight}: to {why}\n")
    needed = [name for name in missing if name not in OPTIONAL]
    sys.stdout.write(f"{len(CHECKS) - len(missing)} of {len(CHECKS)} found; needed but missing: {len(needed)}\n")
    return 1 if needed else 0


if __name__ == "__main__":
    sys.exit(main())
