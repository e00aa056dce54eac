"""Every kind of figure that a page may show."""

from disentune.report import (
    correlations,
    curves,
    grouped,
    heat_map,
    importance,
    parallel,
    pictures,
    strength,
    trend,
    violins,
)
from disentune.report.kind import Kind

_IN_ORDER = (violins, trend, strength, grouped, heat_map, curves, importance, parallel, correlations, pictures)
KINDS: dict[str, Kind] = {module.KIND.name: module.KIND for module in _IN_ORDER}
"""Every kind of figure by its name, in the order in which a page shows them."""
