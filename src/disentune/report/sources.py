"""Where the figures of a page come from: a given file, the sweep file, the run's record, or the design of the sweep."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from disentune.errors import ConfigError
from disentune.files.storage import Place
from disentune.runs.ledger import Run
from disentune.spec.sweepfile import SweepFile, read_figures, read_sweep

FOLDER = Path("sweeps")
TRIALS = ("arms", "seeds", "search")
"""The keys of a sweep that determine its trials."""


@dataclass(frozen=True)
class Source:
    """`figures` is None if they are chosen from the design of the sweep; `text` describes the source in one line."""

    figures: list[Any] | None
    text: str


def source_of(run: Run, file: Place | None = None) -> Source:
    """From `file` if given; else from the sweep file if it is found and describes the trials of the run; else from the
    run's record."""
    if file is not None:
        return Source(read_figures(file), f"from {file}")
    recorded = run.sweep()
    for path, sweep in _sweep_files(recorded.name):
        same = sweep.settings.figures == recorded.settings.figures
        if not same and _trials(sweep) == _trials(recorded):
            return Source(sweep.settings.figures, _text(sweep.settings.figures, f"from {path}, changed since the run"))
        if not same:
            used = _text(recorded.settings.figures, "from the run's sweep")
            return Source(recorded.settings.figures, f"{used}; {path} has others, but describes other trials")
    return Source(recorded.settings.figures, _text(recorded.settings.figures, "from the run's sweep"))


def _text(figures: list[Any] | None, where: str) -> str:
    return "chosen from the design of the sweep" if figures is None else where


def _trials(sweep: SweepFile) -> list[Any]:
    resolved = sweep.resolved()
    return [resolved.get(key) for key in TRIALS]


def _sweep_files(name: str) -> Iterator[tuple[Path, SweepFile]]:
    """Readable files below `sweeps/`, or in the working folder, that describe a sweep of this name."""
    for path in [Path(f"{name}.yaml"), *sorted(FOLDER.rglob(f"{name}.yaml"))]:
        try:
            sweep = read_sweep(path)
        except (ConfigError, OSError):
            continue
        if sweep.name == name:
            yield path, sweep
