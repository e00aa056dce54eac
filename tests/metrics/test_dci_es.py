"""DCI-ES: its curves by hand, its forests against scikit-learn's, and representations of known score."""

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

from disentune.errors import DataError
from disentune.maths.randomness import metric_rng
from disentune.metrics import METRICS, scored
from disentune.metrics.dci import completeness, disentanglement
from disentune.metrics.dci_es import DEPTHS, KEYS, Params, explicitness, probed
from disentune.metrics.table import split, table_of
from metric_examples import GRID, factors_of, known_codes, noisy

SMALL = {"trees": 10, "depths": [1, 2, 4, 8]}


def scores_of(codes, factors=GRID, **params):
    metric = METRICS["dci_es"]
    return scored(metric, table_of(codes, factors), 0, metric.params(**{**SMALL, **params}))


# ---- explicitness


@pytest.mark.parametrize(
    ("losses", "guess", "expected"),
    [
        ([0, 0, 0, 0, 0], 1, 1),
        ([1, 0.75, 0.5, 0.25, 0], 1, 0),
        ([1, 1, 1, 1, 0], 1, -0.75),
        ([1, 0, 0, 0, 0], 1, 0.75),
        ([1, 0.4, 0.4, 0.4, 0.4], 1, 0.85),
        ([1, 1, 1, 1, 1], 1, 1),
        ([0.5, 0.6, 0.2, 0.3, 0.1], 5 / 6, 0.52),
    ],
)
def test_curves_of_known_explicitness(losses, guess, expected):
    assert explicitness(np.array(losses, float), range(5), guess) == pytest.approx(expected)


def test_the_axis_of_capacity_is_linear():
    """Half of the loss is gone after a tenth of the range: the area is .1 * .75 + .9 * .25."""
    assert explicitness(np.array([1, 0.5, 0]), [0, 1, 10], 1) == pytest.approx(1 - 2 * (0.1 * 0.75 + 0.9 * 0.25))


def test_the_published_depths_are_the_default():
    assert tuple(Params().depths) == DEPTHS == (1, 2, 3, 4, 8, 10, 12, 14, 16, 18, 20, 32)


# ---- probes


@pytest.mark.parametrize("ordered", [False, True])
def test_losses_are_those_of_scikit_learn_s_forests(ordered):
    """One code, so that scikit-learn draws nothing for a split and a cut forest equals a shallow one."""
    factors = factors_of()
    codes, values = noisy(factors)[:, 2:], factors[:, 2] * 1.0 if ordered else factors[:, 2]
    train, test = np.arange(300), np.arange(300, 480)
    found = probed(codes, values, train, test, Params(**SMALL), ordered, seed=5)
    kind = RandomForestRegressor if ordered else RandomForestClassifier
    forests = [kind(n_estimators=10, max_depth=depth, random_state=5) for depth in SMALL["depths"]]
    rows = codes.astype(np.float32)
    expected = [1 - forest.fit(rows[train], values[train]).score(rows[test], values[test]) for forest in forests]
    np.testing.assert_allclose(found.losses, expected)
    assert found.guess == pytest.approx(1 if ordered else 4 / 5)
    assert found.learned


def test_numbers_are_those_of_the_best_depth():
    factors, codes = factors_of(), noisy(factors_of())
    rng = metric_rng(0, "dci_es")
    train, test = split(len(codes), 10_000, 5_000, rng)
    fits = [
        probed(codes, column, train, test, Params(**SMALL), False, int(rng.integers(2**31))) for column in factors.T
    ]
    losses = np.stack([one.losses for one in fits])
    best = SMALL["depths"][losses.mean(axis=0).argmin()]
    assert best == 8
    importance = np.stack([one.forest.feature_importances_ for one in fits], axis=1)  # it is the greatest depth
    found = scores_of(codes, factors)
    assert found.numbers["dci_es_disentanglement"] == pytest.approx(disentanglement(importance))
    assert found.numbers["dci_es_completeness"] == pytest.approx(completeness(importance))
    assert found.numbers["dci_es_informativeness"] == pytest.approx(1 - losses.mean(axis=0).min())
    curves = [explicitness(one.losses, SMALL["depths"], one.guess) for one in fits]
    assert found.numbers["dci_es_explicitness"] == pytest.approx(np.mean(curves))
    np.testing.assert_allclose(found.details["dci_es_losses"], losses)


# ---- known codes


def test_exact_codes_are_informative_and_explicit():
    numbers = scores_of(known_codes()["exact"]).numbers
    assert numbers["dci_es_informativeness"] == 1
    assert numbers["dci_es_explicitness"] > 0.6
    assert numbers["dci_es_size"] == 1


def test_codes_that_need_deep_trees_are_less_explicit():
    turned = scores_of(known_codes()["turned"]).numbers
    assert turned["dci_es_explicitness"] < scores_of(GRID).numbers["dci_es_explicitness"] - 0.03
    assert turned["dci_es_informativeness"] == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("codes", [np.random.default_rng(0).normal(size=GRID.shape), np.ones(GRID.shape)])
def test_what_no_forest_learns_is_not_explicit(codes):
    """The equation alone gives 1, because every depth is as bad; noise has the informativeness of a guess."""
    found = scores_of(codes)
    assert found.numbers["dci_es_explicitness"] == 0
    assert found.numbers["dci_es_informativeness"] == pytest.approx(np.mean([1 / 4, 1 / 3, 1 / 5]), abs=0.06)
    assert found.numbers["dci_es_disentanglement"] < 0.1
    assert "no forest predicts factors 0, 1, 2 (counted from 0) better than a constant guess" in found.caution


def test_only_the_factors_that_are_not_learned_are_named():
    half = np.column_stack([GRID[:, [0, 2]], np.random.default_rng(0).normal(size=len(GRID))])
    assert "predicts factor 1 (counted from 0)" in scores_of(half).caution
    assert scores_of(GRID).caution == ""


def test_explicitness_never_comes_without_informativeness():
    assert {"dci_es_informativeness", "dci_es_explicitness"} <= set(KEYS)


def test_the_size_is_factors_over_codes():
    assert scores_of(np.hstack([GRID, GRID])).numbers["dci_es_size"] == 0.5
    assert scores_of(GRID[:, :1]).numbers["dci_es_size"] == 3


def test_factors_with_one_value_are_left_out():
    constant = np.column_stack([GRID, np.full(len(GRID), 3)])
    assert scores_of(GRID, constant).numbers == scores_of(GRID).numbers
    assert set(scores_of(GRID, constant[:, -1:]).numbers.values()) == {0.0}


def test_ordered_factors_are_scored_by_how_much_of_their_variance_is_told():
    codes = np.column_stack([GRID[:, 0] // 2, GRID[:, 1:]])
    ordered = scores_of(codes, ordered=[0]).details["dci_es_losses"][0]
    labels = scores_of(codes).details["dci_es_losses"][0]
    assert ordered.min() == pytest.approx(0.2, abs=0.05)  # of the variance 1.25 of four values, halves leave 0.25
    assert labels.min() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("depths", [[4, 2], [1, 1], [0, 3]])
def test_depths_that_do_not_grow_are_refused(depths):
    with pytest.raises(ValidationError, match="must be growing whole numbers >= 1"):
        Params(depths=depths)


def test_ordered_factors_must_exist():
    with pytest.raises(DataError, match="ordered: factor 3 does not exist; the table has factors 0 to 2"):
        scores_of(GRID, ordered=[3])
