"""Small ledgers for tests: real folders, made-up rows."""

import gc
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from disentune.cli import app, terminal
from disentune.files import documents, lease, storage
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import Status
from disentune.spec.config import TrialConfig, nested
from layers import SlowTests, deselect, rank
from object_store import Store, served, use_store

sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
"""Hundreds of processes import the same files: compiling them once and for all takes a tenth off the tests."""

TRIAL = {
    "dataset.name": "xysquares",
    "model.name": "mlp",
    "model.latents": 9,
    "framework.name": "beta_vae",
    "framework.beta": 0.001,
    "recon.name": "mse",
    "training.steps": 1500,
    "training.batch_size": 64,
    "training.learning_rate": 0.001,
    "evaluation.metrics": ["mig"],
    "evaluation.every": 300,
    "evaluation.table": 1000,
    "loss_scale": "mean",
    "seed": 0,
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "fuzz":
            item.add_marker("fuzz")
    deselect(config, items)
    items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Freezes the modules and the ten thousand tests, so that no collection of garbage visits them again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> SlowTests | None:
    return SlowTests(config, log) if config.option.dist == "loadgroup" else None


def trial_config(**changes: Any) -> TrialConfig:
    """The usual trial with `framework__beta=4` for framework.beta; `...` removes a key."""
    tree = TRIAL | {key.replace("__", "."): value for key, value in changes.items()}
    return TrialConfig.parse(nested({key: value for key, value in tree.items() if value is not ...}))


class RunMaker:
    """Builds one run folder, trial by trial."""

    def __init__(self, path: Path):
        self.run = Run(path)
        path.mkdir(parents=True, exist_ok=True)

    def sweep(self, arms: Sequence[str] = ("all",), **settings: Any) -> None:
        trial = {key: value for key, value in TRIAL.items() if key != "seed"}
        with open(self.run.sweep_path, "w") as file:
            documents.dump({"trial": trial, "arms": {arm: {} for arm in arms}, **settings}, file)

    def trial(
        self,
        rows: Sequence[Mapping[str, Any]],
        arms: Sequence[str] = ("all",),
        status: str = "done",
        **changes: Any,
    ) -> str:
        """Adds a trial and gives its id. A row is {"step": ..., metric: value, ...}, with its metrics flat."""
        config = trial_config(**changes)
        folder = self.run.trial(config.id)
        folder.create(config, tuple(arms))
        folder.set_status(Status(state=status))  # type: ignore[arg-type]
        for row in rows:
            folder.append_row({"step": row["step"], "metrics": {k: v for k, v in row.items() if k != "step"}})
        return config.id


@pytest.fixture(autouse=True, scope="session")
def no_waiting_for_disks() -> Iterator[None]:
    """No test cuts the power: what is written is there for the next reader, synced or not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def no_data_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that reads files says where; what a command sets is gone after it."""
    monkeypatch.setenv("DISENTUNE_DATA", "")


@pytest.fixture(autouse=True)
def no_storage(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a command or a trial tells its process of the storage is gone after the test."""
    monkeypatch.setenv("DISENTUNE_STORAGE", "")
    monkeypatch.delenv("DISENTUNE_STORAGE")


@pytest.fixture
def disentune(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[int, str, str]]:
    """Runs a command in a temporary folder and gives (exit code, what it printed, what it complained)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(terminal.out, "width", 300)  # whatever the terminal of whoever runs the tests

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["disentune", *map(str, arguments)])
        with pytest.raises(SystemExit) as exit_:
            app.main()
        printed = capsys.readouterr()
        return exit_.value.code or 0, printed.out, printed.err

    return call


@pytest.fixture
def make_run(tmp_path: Path) -> Callable[[str], RunMaker]:
    """`make_run()` gives an empty run with a sweep; another name gives another run."""

    def make(name: str = "main") -> RunMaker:
        maker = RunMaker(tmp_path / "runs" / "demo" / name)
        maker.sweep()
        return maker

    return make


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Store]:
    """An S3 server with an empty bucket, `bucket`, which the real client reaches at s3://bucket; leases are short."""
    with served() as store:
        use_store(store, monkeypatch.setenv)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        monkeypatch.setattr(lease, "SETTLE_S", 0.05)
        monkeypatch.setattr(lease, "LOOK_S", 0.05)
        storage._clock_offsets.clear()
        yield store
        storage._clock_offsets.clear()


@pytest.fixture(autouse=True)
def _denormals_as_usual() -> Iterator[None]:
    """A trial flushes denormals in its whole process; the next test must not notice."""
    yield
    torch.set_flush_denormal(False)


@pytest.fixture
def trial_with() -> Callable[..., TrialConfig]:
    """`trial_with(framework__beta=4)`: the usual trial with some keys changed."""
    return trial_config
