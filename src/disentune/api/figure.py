"""The figures of the report as notebooks show them."""

from matplotlib.figure import Figure

from disentune.report import canvas


class ReportFigure(Figure):
    """A figure that a notebook shows, whichever backend is in use."""

    def _repr_png_(self) -> bytes:
        with canvas.style():
            return canvas.png(self)


def empty() -> Figure:
    """An empty figure, to be drawn inside `canvas.style()`."""
    return canvas.figure(kind=ReportFigure)
