"""The trees of DCI against scikit-learn's `GradientBoostingClassifier`: CPU time and scores, one thread.

10 000 rows to fit and 5 000 to test; six factors of eight values, whose codes are turned by pairs, and three codes of
noise. A ratio is that of one factor, compiled code at hand; how long it takes to compile is told apart.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import statistics
import tempfile

import numpy as np
from ratios import LONG, Bench, cpu_seconds, ratio_of_neighbours, taking_turns

from disentune.metrics.dci import completeness, disentanglement
from disentune.metrics.trees import Fitted, Trees, prepared

SPEED_GOAL = 15
DIFFERENCE_LIMIT = 5e-3
TRAIN, TEST = 10_000, 5_000
DEGREES = (15, 45) if LONG else (15,)
FACTORS = (0, 1)
ROUNDS = 2


def representation(degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """Codes (n, 9) and factors (n, 6)."""
    rng = np.random.default_rng(0)
    factors = rng.integers(0, 8, size=(TRAIN + TEST, 6))
    codes = (factors - 3.5) / 8 + 0.01 * rng.normal(size=factors.shape)
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    for first in range(0, 6, 2):
        codes[:, first : first + 2] @= np.array([[cos, -sin], [sin, cos]])
    return np.hstack([codes, rng.normal(size=(len(codes), 3))]), factors


def fits(codes: np.ndarray, factors: np.ndarray, trees: Trees) -> list[Fitted]:
    """Of some factors, all with one preparation."""
    fit = prepared(codes[:TRAIN], codes[TRAIN:], trees)
    return [fit(factors[:TRAIN, factor], 1) for factor in FACTORS]


def scores(fitted: list[Fitted], factors: np.ndarray) -> np.ndarray:
    """Disentanglement, completeness, informativeness on rows to fit and to test, and then all importances."""
    importance = np.stack([one.importance for one in fitted], axis=1)
    hidden = factors[:, FACTORS]
    told = [np.stack([getattr(one, part) for one in fitted], axis=1) for part in ("train", "test")]
    accuracies = [np.mean(told[0] == hidden[:TRAIN]), np.mean(told[1] == hidden[TRAIN:])]
    return np.array([disentanglement(importance), completeness(importance), *accuracies, *importance.ravel()])


def agreement(bench: Bench, degrees: float) -> None:
    codes, factors = representation(degrees)
    ours, rival = (scores(fits(codes, factors, trees), factors) for trees in ("exact", "sklearn"))
    print(
        f"turned by {degrees} degrees: D, C, I to fit, I to test {ours[:4].round(4)}, scikit-learn {rival[:4].round(4)}"
    )
    difference = float(np.abs(ours - rival).max())
    name = f"DCI: largest difference from scikit-learn's trees, codes turned by {degrees} degrees"
    bench.number(name, difference, "", at_most=DIFFERENCE_LIMIT)


def speed(bench: Bench) -> None:
    codes, factors = representation(15)
    engines: tuple[Trees, ...] = ("exact", "histogram", "sklearn")
    ready = {trees: prepared(codes[:TRAIN], codes[TRAIN:], trees) for trees in engines}
    timers = {trees: lambda fit=fit: cpu_seconds(lambda: fit(factors[:TRAIN, 0], 1)) for trees, fit in ready.items()}
    for trees in ("exact", "histogram"):  # scikit-learn's have nothing to warm up
        timers[trees]()
    times = taking_turns(timers, ROUNDS, warm=False)
    medians = {trees: statistics.median(times[trees]) for trees in engines}
    for trees in engines:
        print(f"a factor of eight values, {trees}: {medians[trees]:.2f} s")
    for trees, goal in (("exact", SPEED_GOAL), ("histogram", None)):
        ratio = ratio_of_neighbours(times["sklearn"], times[trees])
        sides = {"ours": medians[trees], "rival": medians["sklearn"], "unit": "s"}
        bench.ratio(f"DCI's trees of one factor: scikit-learn / ours ({trees})", ratio, at_least=goal, **sides)


def compile_seconds() -> float:
    """Of the first fit ever; later processes load what it leaves on disk."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        few = np.random.default_rng(0).normal(size=(20, 2))
        return cpu_seconds(lambda: prepared(few, few)(np.arange(20) % 3, 0))


def main() -> None:
    bench = Bench("scoring")
    print(f"to compile: {compile_seconds():.1f} s")
    speed(bench)
    for degrees in DEGREES:
        agreement(bench, degrees)
    bench.close()


if __name__ == "__main__":
    main()
