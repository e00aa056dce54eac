"""Optuna's suggestions for one arm, kept in Optuna's journal. Independent of Ray.

The study follows a fixed sequence: ask for points until `in_flight` are running, then report the result of the oldest,
ask for one more, and so on. Every suggestion is therefore a function of earlier results only, and a new driver
continues where the journal ends.
"""

import hashlib
import io
import json
import math
import os
import pickle
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
)
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import BaseJournalBackend
from optuna.trial import FrozenTrial, TrialState

from disentune.errors import ConfigError, first_line
from disentune.files.storage import Place, RemotePath, read_if_there
from disentune.maths.randomness import torch_seed
from disentune.spec.config import changed_keys
from disentune.spec.settings import Objective, OptunaSearch
from disentune.spec.sweepfile import Domain, SweepFile

ASKED = "asked"
"""Set when all values of a suggestion are in the journal."""
MEANING = "sweep"
"""Attribute of a study: the part of the sweep that it was started with."""
ENDS = ("steps", "plateau")
"""Keys of `stop` that decide at which step a point's result is taken. A time limit only interrupts trials."""
_CREATE_TRIAL = 4
"""Optuna's code for the journal entry that begins a trial."""


def journal(path: Place) -> BaseStorage:
    """The run's journal, after removing a suggestion that a killed driver left half written."""
    data = read_if_there(path) or b""
    lines = _sound_lines(path, data)
    if isinstance(path, RemotePath):
        return _storage(path, lines, lambda before, new: path.write_bytes(b"".join([*before, new])))
    for stale in path.parent.glob(f"{path.name}.lock*"):  # left by Optuna's own backend, which earlier versions used
        stale.unlink(missing_ok=True)
    if data:
        os.truncate(path, sum(map(len, lines)))
    return _storage(path, lines, lambda before, new: _append(path, new))


def rehearsal(path: Place) -> BaseStorage:
    """A copy of the run's journal in memory; additions are not saved."""
    return _storage(path, _sound_lines(path, read_if_there(path) or b""), lambda before, new: None)


def _append(path: Path, data: bytes) -> None:
    with open(path, "ab") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _storage(path: Place, lines: list[bytes], write: Callable[[list[bytes], bytes], None]) -> BaseStorage:
    try:
        return JournalStorage(_Backend(lines, write))
    except Exception as error:  # Optuna does not check what it reads
        raise _damaged(str(path), first_line(error)) from None


class _Backend(BaseJournalBackend):
    """The journal's lines; `write` saves new ones durably, given all earlier lines. It needs no lock, because only the
    driver that holds the run opens it; Optuna's own lock is a link, which remains when the driver is killed."""

    def __init__(self, lines: list[bytes], write: Callable[[list[bytes], bytes], None]):
        self.lines, self.write = lines, write
        self.digest = hashlib.sha256(b"".join(lines))

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        return (json.loads(line) for line in self.lines[log_number_from:])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        lines, digest = [], self.digest.copy()
        for log in logs:
            lines.append(_sealed(log, digest))
            digest.update(lines[-1])
        self.write(self.lines, b"".join(lines))
        self.lines, self.digest = [*self.lines, *lines], digest


_SEALED = re.compile(rb'(.*),"sum":"([0-9a-f]{16})"\}\n', re.DOTALL)
"""A line of the journal: Optuna's entry, and a hash of everything before the hash in the journal."""


def _sealed(log: dict[str, Any], before: Any) -> bytes:
    entry = json.dumps(log, separators=(",", ":")).encode()[:-1]
    return entry + b',"sum":"' + _sum(entry, before) + b'"}\n'


def _sum(entry: bytes, before: Any) -> bytes:
    digest = before.copy()
    digest.update(entry)
    found: bytes = digest.hexdigest()[:16].encode()
    return found


def _sound_lines(path: Place, data: bytes) -> list[bytes]:
    """The lines up to the last complete suggestion. Raises ConfigError if a line was changed; lines of earlier
    versions, which come first, have no hash."""
    lines = [line + b"\n" for line in data.split(b"\n")[:-1]]
    digest, has_seals, begun = hashlib.sha256(), False, None
    for number, line in enumerate(lines):
        try:
            entry, seal = _entry(line), _SEALED.fullmatch(line)
            if (seal or has_seals) and not (seal and seal[2] == _sum(seal[1], digest)):
                raise ValueError("it was changed after it was written")
        except (ValueError, RecursionError) as error:
            raise _damaged(f"{path}:{number + 1}", first_line(error)) from None
        digest.update(line)
        has_seals = bool(seal)
        if entry["op_code"] == _CREATE_TRIAL:
            begun = number
        elif ASKED in entry.get("user_attr", {}):
            begun = None
    return lines[:begun]


def _entry(line: bytes) -> dict[str, Any]:
    entry = json.loads(line)
    if not isinstance(entry, dict) or type(entry.get("op_code")) is not int:
        raise ValueError("an entry must have a code")
    if not isinstance(entry.get("user_attr", {}), dict):
        raise ValueError("attributes must be a mapping")
    return entry


def _damaged(where: str, why: str) -> ConfigError:
    return ConfigError(
        f"{where} is damaged ({why}); restore the file from a backup, or remove it, and the search makes its "
        "suggestions again from the results of the trials"
    )


def meanings(sweep: SweepFile) -> dict[str, dict[str, Any]]:
    """The parts of the sweep, by arm, that must not change during a search; the number of points may grow."""
    resolved = sweep.resolved()
    search = {key: value for key, value in resolved.get("search", {}).items() if key != "points"}
    stop = {key: value for key, value in resolved.get("stop", {}).items() if key in ENDS}
    common = {"search": search, **{key: resolved.get(key) for key in ("seeds", "objective", "scheduler")}, "stop": stop}
    plain = json.loads(json.dumps(common | {"arms": resolved["arms"]}))  # as read back from a journal
    return {arm: plain | {"arms": {arm: entries}} for arm, entries in plain["arms"].items()}


def arms_of(storage: BaseStorage) -> list[str]:
    """The arms that have a study in the journal."""
    return [study.study_name for study in storage.get_all_studies()]


def distribution(domain: Domain) -> BaseDistribution:
    if domain.kind in ("grid", "choice"):
        return CategoricalDistribution(domain.values)
    low, high = domain.values
    if domain.kind == "int":
        return IntDistribution(low, high)
    return FloatDistribution(low, high, log=domain.kind == "log_uniform")


def _sampler(search: OptunaSearch, arm: str, number: int) -> optuna.samplers.BaseSampler:
    """A new sampler for each suggestion: its history is in the journal, and its seed depends on the number."""
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
        case "qmc":  # one low-discrepancy sequence; its position is in the journal
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
"""All classes that a state of CMA-ES may contain."""


class _CmaEs(optuna.samplers.CmaEsSampler):
    """Unpickles Optuna's state from the journal, which may come from someone else's run; allows only numbers and the
    optimiser itself."""

    def _restore_optimizer(self, completed_trials: list[FrozenTrial]) -> Any:
        for trial in reversed(completed_trials):
            parts = {key: part for key, part in trial.system_attrs.items() if key.startswith(self._attr_key_optimizer)}
            if parts:
                return _read_state(self._concat_optimizer_attrs(parts))
        return None


def _read_state(text: str) -> Any:
    try:
        return _StateReader(io.BytesIO(bytes.fromhex(text))).load()
    except Exception as error:  # a damaged state can fail in any way
        raise ConfigError(
            f"study.journal: a sampler state in it is damaged, or was not written by Optuna ({first_line(error)}); "
            "restore the file from a backup, or run under another --name"
        ) from None


class _StateReader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STATE:
            raise ValueError(f"{module}.{name} is not allowed in a sampler state")
        return super().find_class(module, name)


class Suggestions:
    """One arm's study. `points` are the suggestions so far, in order."""

    def __init__(
        self,
        storage: BaseStorage,
        arm: str,
        search: OptunaSearch,
        objective: Objective,
        domains: Mapping[str, Domain],
        meaning: Mapping[str, Any] | None = None,
    ):
        """`meaning` is the part of the sweep with which the study must have been started."""
        self.arm, self.search = arm, search
        self.distributions = {key: distribution(domain) for key, domain in domains.items()}
        direction: Literal["maximize", "minimize"] = "maximize" if objective.mode == "max" else "minimize"
        with _quiet():
            self.study = optuna.create_study(storage=storage, study_name=arm, direction=direction, load_if_exists=True)
        self.trials: list[FrozenTrial] = self.study.get_trials(deepcopy=False)
        self.begun_with: dict[str, Any] | None = self.study.user_attrs.get(MEANING)
        """None for a new study, or one of an earlier version."""
        self.changes = [*self._changes(direction, meaning)]
        """How the sweep differs from the one with which the study was started."""
        if not self.changes and (strange := self._strange()):
            raise _damaged("study.journal", f"arm '{arm}': {strange}")
        if not self.changes and self.begun_with is None and meaning is not None:
            self.study.set_user_attr(MEANING, meaning)

    def _changes(self, direction: str, meaning: Mapping[str, Any] | None) -> Iterator[str]:
        if self.begun_with is not None and meaning is not None:  # earlier versions did not record every part
            yield from changed_keys(self.begun_with, {key: meaning[key] for key in meaning if key in self.begun_with})
            return
        before = self.study.direction.name.lower()
        if before != direction:
            yield f"objective.mode was '{before[:3]}', is '{direction[:3]}'"
        asked = self.trials[0].distributions if self.trials else self.distributions
        for key in dict.fromkeys([*asked, *self.distributions]):
            was, now = (distribution_to_json(one[key]) if key in one else "none" for one in (asked, self.distributions))
            if was != now:
                yield f"arms.{self.arm}.{key} has a different domain"

    def _strange(self) -> str:
        """Content that no driver writes; empty if the study is intact."""
        for number, trial in enumerate(self.trials):
            if trial.user_attrs.get(ASKED) != number or trial.params.keys() != self.distributions.keys():
                return f"suggestion {number} is incomplete"
            if not all(map(_is_finite, [*(trial.values or ()), *trial.intermediate_values.values()])):
                return f"the result of suggestion {number} is not a number"
            if trial.state == TrialState.COMPLETE and len(trial.values or ()) != 1:
                return f"suggestion {number} has no result"
        told = [trial.state.is_finished() for trial in self.trials]
        return "" if told == sorted(told, reverse=True) else "results are out of order"

    @property
    def points(self) -> list[dict[str, Any]]:
        return [dict(trial.params) for trial in self.trials]

    @property
    def complete(self) -> bool:
        return len(self.trials) >= self.search.points

    def waits_for(self) -> int | None:
        """The point whose result the next step of the sequence needs; None if it can ask, or if nothing is left."""
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
        """Reports the result of the oldest point without one: None if a seed has none, `stopped` if it was stopped
        early."""
        number = self.waits_for()
        assert number is not None
        with _quiet():
            if value is None:
                self.study.tell(number, state=TrialState.FAIL)
            elif stopped:
                if (
                    step not in self.trials[number].intermediate_values
                ):  # it is there after a crash before the next line
                    optuna.trial.Trial(self.study, self.trials[number]._trial_id).report(value, step)
                self.study.tell(number, state=TrialState.PRUNED)
            else:
                self.study.tell(number, value)
        self.trials = self.study.get_trials(deepcopy=False)


def _is_finite(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


class _quiet(warnings.catch_warnings):
    """Hides Optuna's warnings about experimental options."""

    def __enter__(self) -> None:
        super().__enter__()
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
