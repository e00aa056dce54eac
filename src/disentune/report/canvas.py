"""The style of every figure: colours, labels, axes, and the files that it is saved to."""

import io
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from disentune.results.tables import short_title

# Okabe and Ito's colours, which can be distinguished with every kind of colour vision
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B")
INK = "#262626"
GREY = "#666666"
FAINT = "#E5E5E5"
SHADES = "cividis"
"""Colour map of ordered numbers: uniform in lightness, also for colour-blind readers."""
DIVERGING = "RdBu_r"
"""Colour map of signed numbers."""
WIDTH = 7.0
"""Width and height of a typical figure in inches; a phone shows it whole, a page shows two side by side."""
ABBREVIATIONS = ("mig", "dci", "sap", "irs", "kl", "tc", "mcc", "mse", "bce", "vae", "gvae", "ae", "udr")
MISSING = "(none)"
"""The label of trials that lack a key: a parameter of another plug-in, or null."""
LOG_SPAN = 20
"""Positive numbers whose maximum is more than this many times their minimum get a logarithmic axis."""
GROWS = 1.5
"""The smallest ratio between neighbouring values of a grid that counts as geometric."""
LINES = LinearSegmentedColormap.from_list("lines", ["#3B78C4", "#9A7B9C", "#E0703A"])
"""Colour map of thin lines: visible on white and on black from end to end."""

_SETTINGS: dict[Any, Any] = {
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a name may have a dollar in it
    "text.usetex": False,  # whatever a matplotlibrc in the working folder says
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "path",
    "svg.hashsalt": "disentune",
}


def figure(width: float = WIDTH, height: float = 4.2, kind: type[Figure] = Figure) -> Figure:
    """An empty figure; draw and save it inside `style()`."""
    return kind(figsize=(width, height), dpi=150, layout="constrained")


def style() -> AbstractContextManager[None]:
    """Sets our drawing style within the block."""
    return mpl.rc_context(_SETTINGS)


def png(drawn: Figure) -> bytes:
    buffer = io.BytesIO()
    with _missing_signs_as_boxes():
        drawn.savefig(buffer, format="png", facecolor="white")
    return buffer.getvalue()


def svg(drawn: Figure) -> str:
    """Saves without the date, so that equal rows give equal files, and without a background."""
    buffer = io.StringIO()
    with _missing_signs_as_boxes():
        drawn.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return re.sub(r"<!--.*?-->\n?", "", text[text.index("<svg") :], flags=re.DOTALL)


@contextmanager
def _missing_signs_as_boxes() -> Iterator[None]:
    """Hides warnings about characters that the font lacks; they are drawn as boxes."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+")
        yield


def words(key: str) -> str:
    """A key as tables name it (`dataset.spacing` is `spacing`, `framework.name` stays whole); a metric as a reader says
    it: `dci_disentanglement` is DCI disentanglement."""
    if "." in key or key == "loss_scale":
        return short_title(key)
    return " ".join(part.upper() if part in ABBREVIATIONS else part for part in key.split("_"))


def colours(names: Sequence[object]) -> dict[object, str]:
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)


def tilted(axes: Axes, labels: Sequence[str]) -> None:
    """Names below an axis, tilted if they would overlap."""
    long = max(map(len, labels), default=0) * len(labels) > 70
    how = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axes.set_xticks(range(len(labels)), labels, **how)  # type: ignore[arg-type]


def wants_log(places: Iterable[float]) -> bool:
    """Whether numbers span several magnitudes, or are a geometric grid: 1, 4, 16."""
    distinct = sorted(set(places))
    if not distinct or distinct[0] <= 0:
        return False
    ratios = [after / before for before, after in pairwise(distinct)]
    is_geometric = len(ratios) > 1 and max(ratios) <= 1.01 * min(ratios) and min(ratios) >= GROWS
    return distinct[-1] / distinct[0] > LOG_SPAN or is_geometric


def log_ticks(low: float, high: float, most: int) -> list[float]:
    """Round numbers from low to high for a logarithmic axis: 1, 2 and 5 times a power of ten if they are at most
    `most`, else only some of these."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found: list[float] = []
    for factors in ((1, 2, 5), (1, 3), (1,)):
        found = [place for power in decades for factor in factors if low <= (place := factor * 10.0**power) <= high]
        if len(found) <= most:
            return found
    return found[:: math.ceil(len(found) / max(1, most))]


def log_where_wide(axes: Axes, places: Sequence[float]) -> None:
    """Sets a logarithmic x axis where it suits the numbers; if there are few numbers, they are the ticks."""
    distinct = sorted(set(places))
    if wants_log(distinct):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda place, _: f"{place:g}")  # the default formatter writes formulas
    if 0 < len(distinct) <= 10:
        axes.set_xticks(distinct, [f"{place:g}" for place in distinct], minor=False)
        axes.set_xticks([], minor=True)
