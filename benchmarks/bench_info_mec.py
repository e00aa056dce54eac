"""InfoMEC against the mutual information of scikit-learn that its published code calls: CPU time, one thread.

10,000 rows with the factor sizes of 3D Shapes and 10 codes: the factors, turned by pairs, and codes of noise. The
rival's time is that of `mutual_info_classif` for every code and factor, without the probes of explicitness; ours is the
whole metric, with its guard against noise.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from ratios import LONG, Bench, cpu_seconds, interleaved
from sklearn.feature_selection import mutual_info_classif

from disentune.metrics import METRICS, scored
from disentune.metrics.neighbours import nearest_information
from disentune.metrics.table import table_of
from disentune.metrics.udr import standardised

SIZES = (10, 10, 10, 8, 4, 15)
ROWS, CODES = 10_000, 10
NEIGHBOURS = 10
LIMIT_S = 10
DIFFERENCE_LIMIT = 1e-9
ROUNDS = 5 if LONG else 1


def representation() -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, 10) and factors (n, 6)."""
    rng = np.random.default_rng(0)
    factors = rng.integers(0, SIZES, size=(ROWS, len(SIZES)))
    codes = factors / np.array(SIZES) + 0.01 * rng.normal(size=factors.shape)
    cos, sin = np.cos(np.deg2rad(15)), np.sin(np.deg2rad(15))
    for first in range(0, len(SIZES), 2):
        codes[:, first : first + 2] @= np.array([[cos, -sin], [sin, cos]])
    return np.hstack([codes, rng.normal(size=(ROWS, CODES - len(SIZES)))]), factors


def published(codes: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """(d, k), by trees of neighbours."""
    unit = standardised(codes)
    pairs = [
        [mutual_info_classif(code[:, None], labels, n_neighbors=NEIGHBOURS, random_state=0)[0] for labels in factors.T]
        for code in unit.T
    ]
    return np.array(pairs)


def main() -> None:
    bench = Bench("scoring")
    codes, factors = representation()
    table, metric = table_of(codes, factors), METRICS["info_mec"]

    def whole() -> None:
        scored(metric, table, 0, metric.params())

    def estimate() -> np.ndarray:
        return nearest_information(codes, factors, NEIGHBOURS, np.random.default_rng(0))

    difference = float(np.abs(estimate() - published(codes, factors)).max())
    mine, theirs, ratio = interleaved(estimate, lambda: published(codes, factors), ROUNDS)
    bench.ratio(
        "information of 10 codes about 6 factors: scikit-learn's neighbours / ours",
        ratio.inverse(),
        ours=mine,
        rival=theirs,
        unit="s",
    )
    bench.number(
        "information of 10 codes about 6 factors: largest difference", difference, "", at_most=DIFFERENCE_LIMIT
    )
    seconds = cpu_seconds(whole)
    note = "the rival only estimates the information"
    bench.ratio("InfoMEC, 10,000 rows: scikit-learn's neighbours / all of ours", theirs / seconds, ours=seconds,
                rival=theirs, unit="s", note=note)  # fmt: skip
    bench.number("InfoMEC of 10,000 rows, 10 codes and 6 factors", seconds, "s", at_most=LIMIT_S)
    bench.close()


if __name__ == "__main__":
    main()
