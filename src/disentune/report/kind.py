"""The contract of every kind of figure in this folder."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from disentune.report.scores import RunScores


@dataclass(frozen=True)
class Caption:
    """`title` says what is shown, `text` explains in a few sentences how to read it; both are plain text. `question` is
    the question that the figure answers if it is more precise than that of its kind."""

    title: str
    text: str
    question: str = ""


@dataclass(frozen=True)
class Kind:
    """One kind of figure. `choose` returns the specs that suit a run (possibly none); `draw` fills an empty figure (and
    may resize it) from the rows, and raises NothingToDraw if a spec cannot be drawn."""

    name: str
    question: str
    """The question that the figure answers, in one sentence; the first line of its caption."""
    choose: Callable[[RunScores], list[Any]]
    draw: Callable[[Figure, RunScores, Any], Caption]
