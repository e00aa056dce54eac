"""Optuna's suggestions for one arm, kept in Optuna's own journal; no Ray.

The study moves through one fixed sequence: ask for points until `in_flight` are out, then tell the oldest, ask for
one more, and so on. Every suggestion is thus a function of earlier results alone, and a driver that dies goes on where
the journal ends.
"""

import io
import json
import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, TrialState

from disentune.errors import ConfigError, first_line
from disentune.randomness import torch_seed
from disentune.settings import Objective, OptunaSearch
from disentune.storage import Place, RemotePath, read_if_there
from disentune.sweepfile import Domain

ASKED = "asked"
"""Set once all values of a suggestion are in the journal."""
_CREATE_TRIAL = 4
"""Optuna's code for the journal entry that begins a trial."""


def journal(path: Place) -> BaseStorage:
    """The run's journal; a suggestion that a dying driver left half written is taken back first."""
    data = read_if_there(path) or b""
    sound = data[: _sound_length(data)]
    if isinstance(path, RemotePath):
        return JournalStorage(_Backend(sound, lambda before, new: path.write_bytes(b"".join([*before, new]))))
    for stale in path.parent.glob(f"{path.name}.lock*"):  # of Optuna's own backend, which earlier versions used
        stale.unlink(missing_ok=True)
    if data:
        os.truncate(path, len(sound))
    return JournalStorage(_Backend(sound, lambda before, new: _append(path, new)))


class _Backend(BaseJournalBackend):
    """The journal's lines; `write` makes new ones last, given all lines before them. It has no lock of its own, as only
    the driver that holds the run opens it: Optuna's is a link, which stays behind when the driver is killed."""

    def __init__(self, data: bytes, write: Callable[[list[bytes], bytes], None]):
        self.lines, self.write = data.splitlines(keepends=True), write

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        return (json.loads(line) for line in self.lines[log_number_from:])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines = [(json.dumps(log, separators=(",", ":")) + "\n").encode() for log in logs]
        self.write(self.lines, b"".join(lines))
        self.lines += lines


def _append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sound_length(data: bytes) -> int:
    """Up to the end of the last suggestion that is whole."""
    data = data[: data.rfind(b"\n") + 1]
    begun, offset = None, 0
    for line in data.splitlines(keepends=True):
        entry = json.loads(line)
        if entry["op_code"] == _CREATE_TRIAL:
            begun = offset
        elif ASKED in entry.get("user_attr", {}):
            begun = None
        offset += len(line)
    return len(data) if begun is None else begun


def distribution(domain: Domain) -> BaseDistribution:
    if domain.kind in ("grid", "choice"):
        return CategoricalDistribution(domain.values)
    low, high = domain.values
    if domain.kind == "int":
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=domain.kind == "log_uniform")


def _sampler(search: OptunaSearch, arm: str, number: int) -> optuna.samplers.BaseSampler:
    """A fresh sampler for each suggestion: its past is in the journal, its chance in the seed of this number."""
    seed = torch_seed(search.seed, f"suggest/{arm}/{number}") % 2**31
    fixed_seed = torch_seed(search.seed, f"suggest/{arm}") % 2**31
    samplers = optuna.samplers
    match search.sampler:
        case "tpe":
            return samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
        case "random":
            return samplers.RandomSampler(seed=seed)
        case "gp":
            return samplers.GPSampler(seed=seed, deterministic_objective=False)
        case "qmc":  # one low-discrepancy sequence, whose place is in the journal
            return samplers.QMCSampler(
                seed=fixed_seed, scramble=True, warn_asynchronous_seeding=False, warn_independent_sampling=False
            )
        case "nsgaii":
            return samplers.NSGAIISampler(seed=seed)
        case "cmaes":
            return _CmaEs(seed=seed, warn_independent_sampling=False)


_STATE = {
    ("cmaes._cma", "CMA"), ("numpy", "ndarray"), ("numpy", "dtype"),
    ("numpy._core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "scalar"),
}  # fmt: skip
"""All that a state of CMA-ES is made of."""


class _CmaEs(optuna.samplers.CmaEsSampler):
    """Optuna keeps its state pickled in the journal, which may have come with someone else's run: nothing but numbers
    and the optimiser itself is made of one."""

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> Any:
        for trial in reversed(completed_trials):
            parts = {key: part for key, part in trial.system_attrs.items() if key.startswith(self._attr_key_optimizer)}
            if parts:
                return _read_state(self._concat_optimizer_attrs(parts))
        return None


def _read_state(text: str) -> Any:
    try:
        return _StateReader(io.BytesIO(bytes.fromhex(text))).load()
    except Exception as error:  # damage of all kinds
        raise ConfigError(
            f"study.journal: a state of the sampler in it is damaged, or not of Optuna's making ({first_line(error)}); "
            "restore the file from a backup, or run under another --name"
        ) from None


class _StateReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STATE:
            raise ValueError(f"{module}.{name} is no part of a state")
        return super().find_class(module, name)


class Suggestions:
    """One arm's study. `points` are the suggestions so far, in order."""

    def __init__(
        self, storage: BaseStorage, arm: str, search: OptunaSearch, objective: Objective, domains: Mapping[str, Domain]
    ):
        self.arm, self.search = arm, search
        self.distributions = {key: distribution(domain) for key, domain in domains.items()}
        direction: Literal["maximize", "minimize"] = "maximize" if objective.mode == "max" else "minimize"
        with _quiet():
            self.study = optuna.create_study(storage=storage, study_name=arm, direction=direction, load_if_exists=True)
        self.trials: list[FrozenTrial] = self.study.get_trials(deepcopy=False)

    @property
    def points(self) -> list[dict[str, Any]]:
        return [dict(trial.params) for trial in self.trials]

    @property
    def complete(self) -> bool:
        return len(self.trials) >= self.search.points

    def waits_for(self) -> int | None:
        """The point whose result the next step of the sequence needs; None when it can ask, or nothing is left."""
        told = sum(trial.state.is_finished() for trial in self.trials)
        asked = len(self.trials)
        if asked < self.search.points and asked - told < self.search.in_flight:
            return None
        return told if told < asked else None

    def ask(self) -> dict[str, Any]:
        """The next point."""
        assert not self.complete
        assert self.waits_for() is None
        number = len(self.trials)
        with _quiet():
            self.study.sampler = _sampler(self.search, self.arm, number)
            trial = self.study.ask(self.distributions)
            trial.set_user_attr(ASKED, number)
        self.trials = self.study.get_trials(deepcopy=False)
        return dict(trial.params)

    def tell(self, value: float | None, step: int, stopped: bool) -> None:
        """The result of the oldest point that has none: None when no seed has one, `stopped` when it was cut short."""
        number = self.waits_for()
        assert number is not None
        with _quiet():
            if value is None:
                self.study.tell(number, state=TrialState.FAIL)
            elif stopped:
                optuna.trial.Trial(self.study, self.trials[number]._trial_id).report(value, step)
                self.study.tell(number, state=TrialState.PRUNED)
            else:
                self.study.tell(number, value)
        self.trials = self.study.get_trials(deepcopy=False)


class _quiet(warnings.catch_warnings):
    """Optuna's remarks on experimental options are not for our users."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
