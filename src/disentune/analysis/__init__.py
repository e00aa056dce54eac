"""Statistics over the scores of trials: comparisons of arms, and the analyses of Locatello et al., ICML 2019.

Every function takes arrays or a DataFrame with one row per trial; none of them trains, scores or draws anything.
"""

from disentune.analysis.catalogue import ANALYSES
from disentune.analysis.comparison import compare
from disentune.analysis.correlation import agreement, downstream, unsupervised_selection
from disentune.analysis.selection import selection
from disentune.analysis.total_correlation import total_correlation
from disentune.analysis.transfer import transfer
from disentune.analysis.variance import variance_explained

__all__ = [
    "ANALYSES",
    "agreement",
    "compare",
    "downstream",
    "selection",
    "total_correlation",
    "transfer",
    "unsupervised_selection",
    "variance_explained",
]
