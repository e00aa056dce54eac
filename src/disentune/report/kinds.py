"""Every kind of figure that a page may show."""

from disentune.report import (
    analysis,
    capacity,
    correlations,
    curves,
    density,
    grouped,
    heat_map,
    history,
    importance,
    learning_order,
    manipulation,
    parallel,
    pictures,
    planes,
    rungs,
    scatter,
    strength,
    summary,
    trend,
    violins,
)
from disentune.report.kind import Kind

_IN_ORDER = (
    summary,
    history,
    rungs,
    violins,
    trend,
    strength,
    grouped,
    heat_map,
    scatter,
    curves,
    capacity,
    learning_order,
    importance,
    analysis,
    parallel,
    correlations,
    manipulation,
    planes,
    density,
    pictures,
)
KINDS: dict[str, Kind] = {module.KIND.name: module.KIND for module in _IN_ORDER}
"""Every kind of figure by its name, in the order in which a page shows them."""
