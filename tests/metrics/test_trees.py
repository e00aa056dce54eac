"""Boosted trees against scikit-learn: one tree, one step, whole fits; and what the bins of `histogram` keep."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, softmax
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.tree import DecisionTreeRegressor

from disentune.metrics import boosting, compiled
from disentune.metrics.trees import BINS, ROUNDS, _first_scores, _seeds, _shares, binned, prepared

ENGINES = ("exact", "sklearn", "histogram")
OURS = ("exact", "histogram")
CLOSE = 5e-3  # where equal splits are drawn otherwise; scikit-learn's own seeds differ by as much
SAME = 1e-9  # the same trees; one other split among equal ones makes 1e-4
EIGHTS, DSPRITES = (8,) * 6, (3, 6, 40, 32, 32)
ENTANGLED = {"0": (0, 0), "5": (5, 0), "15": (15, 0), "25": (25, 0), "45": (45, 0), "warped": (15, 0.1)}
"""Degrees by which pairs of codes are turned, and noise on codes that are then warped."""


def representation(n, sizes, degrees, noise=0.0, seed=0):
    """Codes (n, k + 3), of which three are noise, and factors (n, k)."""
    rng = np.random.default_rng(seed)
    factors = rng.integers(0, sizes, size=(n, len(sizes)))
    codes = (factors - (np.array(sizes) - 1) / 2) / sizes + 0.01 * rng.normal(size=factors.shape)
    cos, sin = np.cos(np.deg2rad(degrees)), np.sin(np.deg2rad(degrees))
    for first in range(0, len(sizes) - 1, 2):
        codes[:, first : first + 2] @= np.array([[cos, -sin], [sin, cos]])
    if noise:
        codes = np.sinh(2 * codes) + noise * rng.normal(size=codes.shape)
    return np.hstack([codes, rng.normal(size=(n, 3))]), factors


def cut(codes, factor, n):
    return codes[:n], codes[n:], factor[:n], factor[n:]


def all_of(rows, columns):
    return boosting.Columns(
        np.ascontiguousarray(columns.T),
        np.stack([rows, rows, rows]).astype(np.uint32),
        *(np.zeros((0, 0), kind) for kind in (np.uint8, np.float32, np.float32)),
        1 / np.maximum(np.arange(len(columns) + 1), 1),
    )


def columns_of(codes, engine):
    """What the compiled code is given."""
    if engine == "exact":
        return all_of(np.argsort(codes, axis=0, kind="stable").T, codes)
    bins, low, high = binned(codes)
    return all_of(np.arange(len(codes))[None], codes)._replace(bins=bins, low=low, high=high)


def grown(codes, residual, engine="exact", seed=0):
    """One tree of least squares: its nodes, its importance, and the nodes while it grew."""
    columns = columns_of(codes, engine)
    tree = boosting.Tree(np.zeros(7, np.int64), np.zeros(7), np.zeros(15))
    nodes, importance = boosting._nodes(columns), np.zeros(codes.shape[1])
    boosting._grow(columns, residual, tree, nodes, importance, _seeds(seed, (1, 1))[0, 0])
    return tree, importance, nodes


# ---- one tree


def table_of_one_tree(n, d):
    """Codes of at most 200 values. Many rows follow a smooth law, so that no two columns split a node equally."""
    rng = np.random.default_rng(n)
    codes = rng.integers(0, 200, size=(n, d)).astype(np.float32)
    return codes, np.sin(codes / 40 + np.arange(d)).sum(axis=1) + 0.1 * rng.normal(size=n)


@pytest.mark.parametrize("engine", OURS)
@pytest.mark.parametrize(("n", "d"), [(2, 1), (3, 1), (5, 1), (9, 1), (60, 1), (600, 3)])
def test_a_tree_has_the_splits_and_importances_of_scikit_learn(n, d, engine):
    codes, residual = table_of_one_tree(n, d)
    theirs = DecisionTreeRegressor(max_depth=3, random_state=0).fit(codes, residual)
    tree, importance, nodes = grown(codes, residual, engine)
    np.testing.assert_allclose(importance, theirs.tree_.compute_feature_importances(normalize=False), atol=1e-14)
    leaves = theirs.apply(codes)
    assert len(set(zip(leaves, nodes.of_row, strict=True))) == len(set(leaves)) == len(set(nodes.of_row))
    ours = sorted(tree.threshold[tree.feature >= 0])
    assert ours == sorted(theirs.tree_.threshold[theirs.tree_.feature >= 0])


def heap(theirs, node=0, place=0):
    """Place in our tree -> (column, threshold, impurity) of scikit-learn's; leaves have column -2."""
    tree = theirs.tree_
    here = {place: (tree.feature[node], tree.threshold[node], tree.impurity[node])}
    if tree.feature[node] < 0:
        return here
    left, right = tree.children_left[node], tree.children_right[node]
    return here | heap(theirs, left, 2 * place + 1) | heap(theirs, right, 2 * place + 2)


def table_of_equal_splits(n=150):
    """Codes (n, 8) of which some are alike, one is constant and two are nearly so in some nodes; and a residual."""
    rng = np.random.default_rng(3)
    free = rng.normal(size=(n, 3))
    low = free[:, 0] < -0.5
    near = np.where(low, 1e-9 * rng.uniform(size=n), 1 + rng.uniform(size=n))
    codes = np.column_stack([near, free[:, 1], free, np.ones(n), near, -free[:, 1]])
    return codes.astype(np.float32), np.where(low, 5.0, 0.0) + rng.normal(size=n)


@pytest.mark.parametrize("seed", range(12))
def test_equal_splits_are_drawn_and_sums_are_rounded_as_by_scikit_learn(seed):
    codes, residual = table_of_equal_splits()
    theirs = heap(DecisionTreeRegressor(max_depth=3, random_state=seed).fit(codes, residual))
    tree, _, nodes = grown(codes, residual, seed=seed)
    assert len(theirs) == 15
    for place, (feature, threshold, impurity) in theirs.items():
        assert nodes.impurity[place] == impurity
        if place < 7:
            assert (tree.feature[place], tree.threshold[place]) == (feature, threshold)


def test_a_split_that_rounding_makes_worse_is_none():
    """Residuals of which the mean is so large that their variance is a rounding error."""
    rng = np.random.default_rng(0)
    leaves = 0
    for seed in range(20):
        codes, residual = rng.normal(size=(60, 2)).astype(np.float32), 1e7 + rng.normal(size=60)
        theirs = heap(DecisionTreeRegressor(max_depth=3, random_state=seed).fit(codes, residual))
        tree, _, nodes = grown(codes, residual, seed=seed)
        assert {place for place in theirs if theirs[place][0] >= 0} == set(np.flatnonzero(tree.feature >= 0))
        assert set(nodes.of_row) == {place for place in theirs if theirs[place][0] < 0}
        leaves += min(theirs, key=lambda place: (theirs[place][0] >= 0, place)) < 7
    assert leaves > 0


@pytest.mark.parametrize("engine", OURS)
def test_nodes_know_their_rows_sum_and_variance(engine):
    rng = np.random.default_rng(0)
    codes, residual = rng.normal(size=(100, 3)).astype(np.float32), rng.normal(size=100)
    _, _, nodes = grown(codes, residual, engine)
    for node in range(7, 15):
        rows = residual[nodes.of_row == node]
        assert nodes.end[node] - nodes.start[node] == len(rows) > 1
        assert nodes.total[node] == pytest.approx(rows.sum())
        assert nodes.impurity[node] == pytest.approx(rows.var())


@pytest.mark.parametrize("engine", OURS)
def test_a_node_without_variance_is_a_leaf(engine):
    codes = np.arange(8, dtype=np.float32)[:, None]
    tree, importance, _ = grown(codes, np.repeat([1.0, -1.0], 4), engine)
    assert tree.feature.tolist() == [0] + [-1] * 6
    assert tree.threshold[0] == 3.5
    assert importance.tolist() == [1.0]
    assert grown(codes, np.full(8, 0.5), engine)[0].feature.tolist() == [-1] * 7
    tiny = np.array([1, -1] * 4) * np.sqrt(np.finfo(float).eps)
    assert grown(codes, 0.9 * tiny, engine)[0].feature[0] == -1
    assert grown(codes, 1.1 * tiny, engine)[0].feature[0] == 0


@pytest.mark.parametrize("engine", OURS)
@pytest.mark.parametrize(("gap", "splits"), [(5e-8, False), (2e-7, True)])
def test_values_that_are_nearly_equal_are_not_split(gap, splits, engine):
    codes = np.repeat(np.array([0, gap], np.float32), 4)[:, None]
    tree, _, _ = grown(codes, np.repeat([1.0, -1.0], 4), engine)
    assert (tree.feature[0] == 0) == splits


@pytest.mark.parametrize("engine", OURS)
def test_near_values_are_compared_in_single_precision(engine):
    """Above 1 neighbours in single precision are 1.2e-7 apart; adding 1e-7 rounds to the next one."""
    one = np.float32(1)
    codes = np.repeat(np.array([one, np.nextafter(one, np.float32(2))]), 4)[:, None]
    assert grown(codes, np.repeat([1.0, -1.0], 4), engine)[0].feature[0] == -1


@pytest.mark.parametrize("engine", OURS)
def test_equal_splits_are_drawn_evenly(engine):
    rng = np.random.default_rng(0)
    code, residual = rng.normal(size=(50, 1)).astype(np.float32), rng.normal(size=50)
    roots = [grown(np.repeat(code, 3, axis=1), residual, engine, seed)[0].feature[0] for seed in range(600)]
    assert np.bincount(roots, minlength=3).min() > 155  # 200 expected, four standard deviations of 11.5


# ---- one step


def test_first_scores_are_those_of_the_shares():
    labels = np.repeat([0, 1, 2], [2, 3, 5])
    shares = DummyClassifier(strategy="prior").fit(labels[:, None], labels).predict_proba([[0]])[0]
    np.testing.assert_allclose(_first_scores(shares), np.log(shares) - np.log(shares).mean(), atol=1e-15)
    np.testing.assert_allclose(_first_scores(np.array([0.4, 0.6])), [np.log(3 / 2)])


def test_seeds_are_drawn_tree_by_tree():
    rng = np.random.RandomState(5)
    expected = [[rng.randint(0, 2**31 - 1) for _ in range(3)] for _ in range(4)]
    assert _seeds(5, (4, 3)).tolist() == expected


def test_random_numbers_are_those_of_a_known_xorshift():
    """Of 1, and of 0 that stands for 1; computed by hand: 1 -> 8193 -> 8193 -> 270369."""
    state = np.array([0])
    assert [boosting._random(state) for _ in range(2)] == [270369, 67634689]
    state[0] = 1
    assert boosting._random(state) == 270369
    state[0] = 67634689
    assert boosting._random(state) == 2647435461 % 2**31
    assert state[0] == 2647435461


def test_residuals_are_labels_less_probabilities():
    rng = np.random.default_rng(0)
    raw, labels = 3000 * rng.normal(size=(4, 50)), rng.integers(0, 4, 50)
    residual = np.empty_like(raw)
    boosting._residuals(raw, labels, residual)
    np.testing.assert_allclose(residual, np.eye(4)[labels].T - softmax(raw, axis=0), atol=1e-14)
    boosting._residuals(raw[:1], labels % 2, residual[:1])
    np.testing.assert_allclose(residual[0], labels % 2 - expit(raw[0]), atol=1e-14)


def test_leaves_take_one_newton_step():
    rng = np.random.default_rng(0)
    labels, probabilities = rng.integers(0, 2, 60), rng.uniform(size=60)
    residual, leaf = labels - probabilities, rng.integers(7, 9, 60).astype(np.uint8)
    residual[leaf == 7], labels[leaf == 7] = 1e-160, 0  # so flat that there is no step
    tree, nodes = boosting.Tree(np.zeros(7, np.int64), np.zeros(7), np.ones(15)), nodes_of(leaf)
    boosting._newton(tree, nodes, residual, labels == 1, 0.75)
    p = probabilities[leaf == 8]
    expected = np.zeros(15)
    expected[8] = 0.75 * residual[leaf == 8].sum() / (p * (1 - p)).sum()
    np.testing.assert_allclose(tree.value, expected)


def nodes_of(leaf):
    nodes = boosting._nodes(columns_of(np.zeros((len(leaf), 1), np.float32), "exact"))
    nodes.of_row[:] = leaf
    nodes.start[8] = np.sum(leaf == 7)
    return nodes


@pytest.mark.parametrize("n", [*range(20), 127, 128, 129, 136, 137, 255, 256, 257, 1000, 2001])
def test_sums_are_rounded_as_by_numpy(n):
    values = np.random.default_rng(n).normal(size=n)
    assert boosting._sum_by_pairs(values) == values.sum()


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 3])
def test_a_few_rounds_give_the_scores_of_scikit_learn(classes):
    """No two splits are equal but in the first round, where residuals are few-valued: a code of 7 values avoids it."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 7, size=(300, 2)).astype(np.float32)
    labels = np.clip((codes @ [0.35, 0.1] + 0.4 * rng.normal(size=300)).astype(int), 0, classes - 1)
    theirs = GradientBoostingClassifier(n_estimators=5, random_state=0).fit(codes, labels)
    columns = columns_of(codes, "exact")
    first = _first_scores(np.bincount(labels) / 300)
    importance, raw, tested = boosting.boosted(columns, codes, labels, first, _seeds(0, (5, len(first))))
    np.testing.assert_allclose(raw.T.squeeze(), theirs.decision_function(codes), atol=1e-12)
    np.testing.assert_allclose(tested, raw, atol=1e-12)
    np.testing.assert_allclose(importance / importance.sum(), theirs.feature_importances_, atol=1e-12)


# ---- whole fits


def test_sizes_are_the_defaults_of_scikit_learn():
    theirs = GradientBoostingClassifier()
    assert theirs.n_estimators == ROUNDS
    assert theirs.learning_rate == boosting.LEARNING_RATE
    assert theirs.max_depth == boosting.DEPTH


def test_rounding_errors_are_no_importance():
    assert _shares(np.array([3.0, -1e-17, 1.0])).tolist() == [0.75, 0, 0.25]
    assert _shares(np.array([-1e-17, 0.0])).tolist() == [0, 0]


@pytest.mark.parametrize("classes", [2, 3, 8])
@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_a_seed_gives_the_trees_of_scikit_learn(classes, seed):
    assert_same_trees(*representation(200, (classes, 4), 20, 0.1 * (seed % 2)), [0], 130, seed)


def test_alike_and_constant_codes_give_the_trees_of_scikit_learn():
    codes, factors = representation(200, (2, 5), 20)
    assert_same_trees(
        np.hstack([np.ones((200, 1)), codes, codes[:, ::-1], np.zeros((200, 2)), -codes]), factors, [0, 1], 150
    )


def assert_same_trees(codes, factors, columns, n, seed=1):
    """Importances and labels told of factors are those of scikit-learn."""
    exact, sklearn = (prepared(codes[:n], codes[n:], engine) for engine in ("exact", "sklearn"))
    for column in columns:
        ours, theirs = exact(factors[:n, column], seed), sklearn(factors[:n, column], seed)
        np.testing.assert_allclose(ours.importance, theirs.importance, atol=SAME)
        np.testing.assert_array_equal(ours.train, theirs.train)
        np.testing.assert_array_equal(ours.test, theirs.test)


@pytest.mark.parametrize("classes", [2, 5])
def test_codes_with_equal_values_give_nearly_the_trees_of_scikit_learn(classes):
    codes, factors = representation(600, (classes, 4), 20, 0.1)
    train, test, labels, hidden = cut(codes.round(2), factors[:, 0], 400)
    ours, theirs = (prepared(train, test, engine)(labels, 1) for engine in ("exact", "sklearn"))
    np.testing.assert_allclose(ours.importance, theirs.importance, atol=CLOSE)
    assert np.mean(ours.train == labels) == pytest.approx(np.mean(theirs.train == labels), abs=CLOSE)
    assert np.mean(ours.test == hidden) == pytest.approx(np.mean(theirs.test == hidden), abs=0.02)  # 4 of 200 rows


def test_the_reference_is_scikit_learn():
    codes, factors = representation(150, (3, 3), 20)
    ours = prepared(codes[:100], codes[100:], "sklearn")(factors[:100, 0], 5)
    theirs = GradientBoostingClassifier(random_state=5).fit(codes[:100], factors[:100, 0])
    np.testing.assert_allclose(ours.importance, theirs.feature_importances_, atol=1e-15)
    np.testing.assert_array_equal(ours.train, theirs.predict(codes[:100]))
    np.testing.assert_array_equal(ours.test, theirs.predict(codes[100:]))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("classes", [2, 6])
def test_a_separable_code_is_predicted_without_error(engine, classes):
    """Test rows once went to the wrong leaves while rows to fit were right."""
    codes, factors = representation(360, (classes, 3), 0)
    train, test, labels, hidden = cut(codes, factors[:, 0], 240)
    told = prepared(train, test, engine)(labels, 0)
    np.testing.assert_array_equal(told.train, labels)
    np.testing.assert_array_equal(told.test, hidden)
    np.testing.assert_allclose(told.importance, np.eye(5)[0], atol=1e-9)


@pytest.mark.parametrize("engine", OURS)
def test_a_row_is_predicted_the_same_whether_fitted_or_tested(engine):
    codes, factors = representation(200, (4, 4), 30, 0.3)
    told = prepared(codes, codes, engine)(factors[:, 1], 3)
    np.testing.assert_array_equal(told.train, told.test)
    assert told.importance.sum() == pytest.approx(1)
    assert told.importance.min() >= 0


@pytest.mark.parametrize("engine", ENGINES)
def test_labels_keep_their_names_and_may_have_gaps(engine):
    codes, factors = representation(200, (3, 3), 10)
    names = np.array([-4, 7, 90])
    plain = prepared(codes[:150], codes[150:], engine)(factors[:150, 0], 0)
    named = prepared(codes[:150], codes[150:], engine)(names[factors[:150, 0]], 0)
    np.testing.assert_array_equal(named.test, names[plain.test])
    np.testing.assert_array_equal(named.train, names[plain.train])
    np.testing.assert_array_equal(named.importance, plain.importance)


@pytest.mark.parametrize("engine", ENGINES)
def test_one_value_to_fit_is_predicted_for_all_rows(engine):
    told = prepared(np.eye(4), np.eye(4)[:3], engine)(np.full(4, 7), 0)
    assert told.importance.tolist() == [0] * 4
    assert told.train.tolist() == [7] * 4
    assert told.test.tolist() == [7] * 3


@pytest.mark.parametrize("engine", ENGINES)
def test_constant_codes_tell_the_commonest_value(engine):
    told = prepared(np.ones((5, 2)), np.zeros((3, 2)), engine)(np.array([0, 2, 2, 1, 2]), 0)
    assert told.importance.tolist() == [0, 0]
    assert told.test.tolist() == [2, 2, 2]


@pytest.mark.parametrize("engine", ENGINES)
def test_of_two_equally_common_values_scikit_learn_takes_the_second_and_of_more_the_first(engine):
    fit = prepared(np.ones((6, 1)), np.ones((1, 1)), engine)
    assert fit(np.array([3, 5, 3, 5, 3, 5]), 0).test.tolist() == [5]
    assert fit(np.array([3, 5, 4, 5, 3, 4]), 0).test.tolist() == [3]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_value_between_two_goes_to_the_nearer_and_the_middle_to_the_left(engine):
    fit = prepared(np.array([[0.0], [1.0]]), np.array([[0.49], [0.5], [0.51]]), engine)
    assert fit(np.array([0, 1]), 0).test.tolist() == [0, 0, 1]


@pytest.mark.parametrize("engine", OURS)
def test_the_largest_codes_do_not_overflow(engine):
    codes = np.array([[-3e38], [-3e38], [3e38], [3e38]])
    assert prepared(codes, codes, engine)(np.array([0, 0, 1, 1]), 0).test.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("engine", OURS)
def test_equal_seeds_give_equal_bits_and_other_seeds_break_ties_otherwise(engine):
    codes, factors = representation(150, (4,), 0)
    fit = prepared(np.hstack([codes[:, :1], codes[:, :1]]), codes[:, :2], engine)
    first, again, other = (fit(factors[:, 0], seed).importance for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_factors_share_no_state():
    codes, factors = representation(150, (4, 3), 20)
    fit = prepared(codes, codes)
    before = fit(factors[:, 0], 1)
    fit(factors[:, 1], 1)
    np.testing.assert_array_equal(before.importance, fit(factors[:, 0], 1).importance)


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), engine=st.sampled_from(OURS))
def test_powers_of_two_do_not_matter(seed, engine):
    codes, factors = representation(80, (3, 3), 20, 0.2, seed)
    plain, scaled = (prepared(x, x[:40], engine)(factors[:, 0], 0) for x in (codes, 8 * codes))
    np.testing.assert_array_equal(plain.importance, scaled.importance)
    np.testing.assert_array_equal(plain.test, scaled.test)


# ---- bins


def test_few_values_have_a_bin_each():
    codes = np.random.default_rng(0).integers(-100, 100, size=(3000, 2)).astype(np.float32)
    bins, low, high = binned(codes)
    for column in range(2):
        np.testing.assert_array_equal(low[column, bins[column]], codes[:, column])
        np.testing.assert_array_equal(high[column, bins[column]], codes[:, column])


@pytest.mark.parametrize("values", [BINS, BINS + 1])
def test_the_largest_number_of_values_that_have_a_bin_each_is_that_of_bins(values):
    bins, _, _ = binned(np.arange(values, dtype=np.float32)[:, None])
    assert len(np.unique(bins)) == BINS


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 2000), digits=st.integers(0, 5))
def test_bins_are_in_order_and_know_their_extremes(seed, n, digits):
    codes = np.random.default_rng(seed).normal(size=(n, 1)).round(digits).astype(np.float32)
    bins, low, high = (array[0] for array in binned(codes))
    used = np.unique(bins)
    assert used.tolist() == list(range(len(used)))
    for bin in used:
        assert (low[bin], high[bin]) == (codes[bins == bin].min(), codes[bins == bin].max())
    assert (low[used[1:]] > high[used[:-1]]).all()


def test_no_bin_straddles_the_gap_between_clusters():
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 40, 5000)
    bins, _, _ = binned((clusters + 0.05 * rng.uniform(-1, 1, 5000)).astype(np.float32)[:, None])
    assert len(np.unique(bins)) > 200
    assert all(len(np.unique(clusters[bins[0] == bin])) == 1 for bin in np.unique(bins))


def test_bins_that_lose_nothing_give_nearly_the_trees_of_scikit_learn():
    codes, factors = representation(300, (4, 4), 20, 0.2)
    train, test, labels, _ = cut(codes.round(1), factors[:, 0], 200)
    ours, theirs = (prepared(train, test, engine)(labels, 0) for engine in ("histogram", "sklearn"))
    np.testing.assert_allclose(ours.importance, theirs.importance, atol=CLOSE)  # equal splits
    assert np.mean(ours.test == theirs.test) > 0.97  # equal splits


def test_bins_that_lose_something_come_near_the_exact_trees():
    codes, factors = representation(600, (4, 4), 20, 0.1)
    train, test, labels, hidden = cut(codes, factors[:, 0], 400)
    exact, histogram = (prepared(train, test, engine)(labels, 0) for engine in OURS)
    np.testing.assert_allclose(histogram.importance, exact.importance, atol=0.04)  # 1.6 rows a bin
    assert np.mean(histogram.test == hidden) == pytest.approx(np.mean(exact.test == hidden), abs=0.03)


# ---- how it loads


def test_exact_trees_of_few_values_are_those_of_lossless_bins():
    rng = np.random.default_rng(0)
    codes, labels = rng.integers(0, 9, size=(300, 3)) * 1.0, rng.integers(0, 4, size=300)
    exact, bins = (prepared(codes[:200], codes[200:], trees)(labels[:200], 3) for trees in OURS)
    np.testing.assert_array_equal(exact.importance, bins.importance)
    near = np.where(codes == 8, 7 + 5e-8, codes)  # the same value in single precision, or nearly
    assert np.isfinite(prepared(near[:200], near[200:])(labels[:200], 3).importance).all()


def test_metrics_load_without_numba():
    code = "import sys, disentune.metrics; print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_compiled_code_works_without_a_place_to_keep_it(monkeypatch):
    """What numba does in an installation that cannot be written to."""
    from numba.core import caching

    places = getattr(caching, "CacheImpl", None) or caching._CacheImpl  # before numba 0.62
    monkeypatch.setattr(places, "_locator_classes", [])
    with pytest.raises(RuntimeError, match="cannot cache"):
        compiled.njit(cache=True)(_double)
    assert compiled.compiled(_double)(3) == 6


def _double(x):
    return 2 * x


# ---- published sizes


@pytest.mark.long
@pytest.mark.parametrize("name", ENTANGLED)
def test_a_pair_of_entangled_factors_has_the_trees_of_scikit_learn(name):
    assert_same_trees(*representation(3000, EIGHTS, *ENTANGLED[name]), [0, 1], 2000)


@pytest.mark.long
def test_factors_of_forty_and_thirty_two_values_have_the_trees_of_scikit_learn():
    assert_same_trees(*representation(3000, DSPRITES, 15), [0, 2, 3], 2000)
