"""The runs below a storage, by name. Only what a listing of the storage has found is ever opened."""

from dataclasses import dataclass, field
from threading import Lock

from disentune.errors import ConfigError, DisentuneError, did_you_mean
from disentune.files.storage import Place, place, shown
from disentune.results.listing import assert_storage, runs_below
from disentune.runs.ledger import Run, assert_own_files
from disentune.runs.trial_folder import TrialFolder
from disentune.spec.config import is_id


class Unknown(DisentuneError):
    """There is nothing of this name."""


class Forbidden(DisentuneError):
    """A name that is outside the storage, or an access without permission."""


@dataclass
class Shelf:
    """All runs below `storage`, or only the one that it is."""

    storage: Place
    known: dict[str, Run] = field(default_factory=dict)
    checked: set[str] = field(default_factory=set)
    """Runs whose folders were searched for links."""
    lock: Lock = field(default_factory=Lock)

    def names(self) -> list[str]:
        """Lists the storage again. OSError when it does not answer."""
        found = runs_below(self.storage)
        with self.lock:
            self.known = found
        return sorted(found)

    def run(self, name: str) -> Run:
        """Raises Forbidden for a name that leaves the storage and Unknown for one that is not in it."""
        refuse_escape(name)
        if name not in self.known:
            self.names()
        if name not in self.known:
            raise Unknown(f"no run '{name:.100}' in {shown(self.storage)}.{did_you_mean(name, sorted(self.known))}")
        run = self.known[name]
        self._check(name, run)
        return run

    def _check(self, name: str, run: Run) -> None:
        """A link inside a run that came from elsewhere would show files of this machine."""
        if name in self.checked:
            return
        try:
            assert_own_files(run)
        except ConfigError as error:
            raise Forbidden(str(error)) from None
        self.checked.add(name)

    def trial(self, name: str, trial_id: str) -> TrialFolder:
        refuse_escape(trial_id)
        folder = self.run(name).trial(trial_id)
        if not is_id(trial_id) or not folder.is_recorded:
            raise Unknown(f"no trial '{trial_id:.100}' in {name}")
        return folder


def opened(storage: str | Place) -> Shelf:
    """ConfigError when there is no such storage."""
    where = place(storage)
    return Shelf(where, assert_storage(where, "disentune dashboard"))


def refuse_escape(name: str) -> None:
    parts = name.split("/")
    if "\0" in name or name.startswith("/") or ".." in parts or "." in parts:
        raise Forbidden(f"'{name:.100}' is outside the storage; name a run as SWEEP/RUN")
