"""How every figure looks: colours, words, axes, and the files that a drawing becomes."""

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by every kind of colour vision
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C564B")
INK = "#262626"
GREY = "#666666"
FAINT = "#E5E5E5"
SHADES = "cividis"
"""Colour map of ordered numbers: even in lightness, also without red or green."""
DIVERGING = "RdBu_r"
"""Of numbers with a sign."""
WIDTH = 7.0
"""Inches of a usual figure; a phone shows it whole, a page two beside each other."""
ABBREVIATIONS = ("mig", "dci", "sap", "irs", "kl", "tc", "mcc", "mse", "bce", "vae", "gvae", "ae", "udr")
MISSING = "(none)"
"""Where trials stand that do not have a key: another plug-in's parameter, or null."""
LOG_SPAN = 20
"""Numbers above 0 whose largest is more than so many times their smallest stand on a logarithmic axis."""

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


def figure(width: float = WIDTH, height: float = 4.2) -> Figure:
    """An empty one; drawn and saved inside `style()`."""
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def style() -> AbstractContextManager[None]:
    """Within it everything is drawn in our way."""
    return mpl.rc_context(_SETTINGS)


def png(drawn: Figure) -> bytes:
    buffer = io.BytesIO()
    with _missing_signs_as_boxes():
        drawn.savefig(buffer, format="png", facecolor="white")
    return buffer.getvalue()


def svg(drawn: Figure) -> str:
    """Without the date, so that equal rows give equal files, and without a background."""
    buffer = io.StringIO()
    with _missing_signs_as_boxes():
        drawn.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return re.sub(r"<!--.*?-->\n?", "", text[text.index("<svg") :], flags=re.DOTALL)


@contextmanager
def _missing_signs_as_boxes() -> Iterator[None]:
    """A sign that the font lacks is drawn as a box, which needs no warning."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph \d+")
        yield


def words(key: str) -> str:
    """A key as a reader says it: `dci_disentanglement` is DCI disentanglement, `dataset.spacing` is spacing."""
    last = key.rsplit(".", 1)[-1] if not key.endswith(".name") else key.removesuffix(".name")
    return " ".join(part.upper() if part in ABBREVIATIONS else part for part in last.split("_"))


def colours(names: Sequence[object]) -> dict[object, str]:
    return {name: PALETTE[i % len(PALETTE)] for i, name in enumerate(names)}


def tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color=FAINT, linewidth=0.7)
    axes.set_axisbelow(True)


def tilted(axes: Axes, labels: Sequence[str]) -> None:
    """Names below an axis, tilted where they would run into each other."""
    long = max(map(len, labels), default=0) * len(labels) > 70
    how = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axes.set_xticks(range(len(labels)), labels, **how)  # type: ignore[arg-type]


def log_where_wide(axes: Axes, places: Sequence[float]) -> None:
    """A logarithmic x axis for numbers over several magnitudes, and few of them as ticks."""
    distinct = sorted(set(places))
    if distinct and distinct[0] > 0 and distinct[-1] / distinct[0] > LOG_SPAN:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda place, _: f"{place:g}")  # the usual one writes mathematics
    if 0 < len(distinct) <= 10:
        axes.set_xticks(distinct, [f"{place:g}" for place in distinct], minor=False)
        axes.set_xticks([], minor=True)
