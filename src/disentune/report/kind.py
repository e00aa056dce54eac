"""What a kind of figure is: the one contract of the files beside this one."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.figure import Figure

from disentune.report.scores import RunScores


@dataclass(frozen=True)
class Caption:
    """`title` says what is shown, `text` how to read it in a sentence or two; both are plain text."""

    title: str
    text: str


@dataclass(frozen=True)
class Kind:
    """One kind of figure. `choose` gives the specs that suit a run (none when it has nothing of the kind); `draw` fills
    an empty figure (and may resize it) from the rows alone, and raises NothingToDraw where a spec cannot be met."""

    name: str
    choose: Callable[[RunScores], list[Any]]
    draw: Callable[[Figure, RunScores, Any], Caption]
