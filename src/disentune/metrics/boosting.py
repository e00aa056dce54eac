"""Compiled boosting of depth-3 trees; only `trees.py` imports it, and late, for numba takes a second to load.

Friedman, Annals of Statistics 29 (2001), algorithms 5 and 6, with scikit-learn's choices: trees fit the residuals by
least squares, leaves take one Newton step, a round of more than two classes has a tree for each. What makes it quick
is that columns are sorted once: a node keeps its rows in the order of every column, and a split keeps those orders.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from disentune.metrics.trees import BINS, NEARLY_EQUAL

DEPTH = 3
INNER = 2**DEPTH - 1
NODES = 2 * INNER + 1
LEARNING_RATE = 0.1
PURE = np.finfo(np.float64).eps
"""A node with no more variance than this is a leaf."""
SMALLEST_CURVATURE = 1e-150


class Columns(NamedTuple):
    """Codes to fit: what no factor changes. `bins` has no column when splits are exact."""

    values: np.ndarray
    """(d, n) float32."""
    lists: np.ndarray
    """(DEPTH, d or 1, n) uint32: rows in the order of each column; those below the first serve as work space."""
    bins: np.ndarray
    """(d or 0, n) uint8."""
    low: np.ndarray
    """(d or 0, BINS) float32: smallest value of each bin."""
    high: np.ndarray
    """(d or 0, BINS) float32: largest value of each bin."""
    inverse: np.ndarray
    """(n + 1,): 1 / i."""


class Tree(NamedTuple):
    """A heap: the children of node i are 2 i + 1 and 2 i + 2."""

    feature: np.ndarray
    """(INNER,), -1 at leaves."""
    threshold: np.ndarray
    """(INNER,): larger values go right."""
    value: np.ndarray
    """(NODES,)."""


class Nodes(NamedTuple):
    """Nodes while they grow; `start` to `end` are their places in the lists of their level."""

    start: np.ndarray
    end: np.ndarray
    total: np.ndarray
    """(NODES,): sum of residuals."""
    impurity: np.ndarray
    """(NODES,): variance of residuals."""
    of_row: np.ndarray
    """(n,) uint8: deepest node so far."""
    sums: np.ndarray
    """(INNER, d or 0, BINS, 2): residuals and rows in each bin."""
    features: np.ndarray
    """(d,): the order in which the node looks at columns."""


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Kept on disk where there is a place for it."""
    try:
        return njit(cache=True)(function)
    except RuntimeError:
        return njit(function)


@_compiled
def boosted(columns, test, labels, classes, rounds, rng):
    """Importance (d,), and scores of rows to fit (trees, n) and to test (trees, m), where trees are those of a round.

    `test` is (m, d) float32, `labels` (n,) count from 0 to `classes` - 1, each of which is there; ties between columns
    are broken by `rng`.
    """
    trees = 1 if classes == 2 else classes
    first = _first_scores(labels, classes)
    raw, raw_test = np.empty((trees, labels.size)), np.empty((trees, test.shape[0]))
    for k in range(trees):
        raw[k], raw_test[k] = first[k], first[k]
    residual = np.empty_like(raw)
    importance = np.zeros(columns.values.shape[0])
    tree = Tree(np.empty(INNER, np.int64), np.empty(INNER), np.empty(NODES))
    nodes = _nodes(columns)
    for _ in range(rounds):
        _residuals(raw, labels, residual)
        for k in range(trees):
            _grow(columns, residual[k], tree, nodes, importance, rng)
            _newton(tree, nodes.of_row, residual[k], (trees - 1) / trees if trees > 1 else 1.0)
            _add(tree, nodes.of_row, raw[k])
            _predict(tree, test, raw_test[k])
    return importance, raw, raw_test


@_compiled
def _nodes(columns):
    d, n = columns.values.shape
    return Nodes(
        np.zeros(NODES, np.int64),
        np.zeros(NODES, np.int64),
        np.zeros(NODES),
        np.zeros(NODES),
        np.zeros(n, np.uint8),
        np.zeros((INNER, columns.bins.shape[0], BINS, 2)),
        np.arange(d),
    )


# ---- losses


@_compiled
def _first_scores(labels, classes):
    """Those of the shares of the classes (classes,); of two classes the log odds of the second come first."""
    logs = np.log(np.bincount(labels, minlength=classes) / labels.size)
    return np.array([logs[1] - logs[0]]) if classes == 2 else logs - logs.mean()


@_compiled
def _residuals(raw, labels, residual):
    """1 for the row's class, 0 for others, less their probability."""
    trees, n = raw.shape
    if trees == 1:
        for row in range(n):
            residual[0, row] = labels[row] - 1 / (1 + np.exp(-raw[0, row]))
        return
    top, total = raw[0].copy(), np.zeros(n)
    for k in range(1, trees):
        for row in range(n):
            top[row] = max(top[row], raw[k, row])
    for k in range(trees):
        for row in range(n):
            residual[k, row] = np.exp(raw[k, row] - top[row])
            total[row] += residual[k, row]
    for k in range(trees):
        for row in range(n):
            residual[k, row] = (labels[row] == k) - residual[k, row] / total[row]


@_compiled
def _newton(tree, of_row, residual, factor):
    """One step in each leaf; `factor` is Friedman's (classes - 1) / classes. |r| (1 - |r|) is p (1 - p)."""
    slope, curvature = np.zeros(NODES), np.zeros(NODES)
    for row in range(residual.size):
        node, size = of_row[row], abs(residual[row])
        slope[node] += residual[row]
        curvature[node] += size * (1 - size)
    rows = np.bincount(of_row, minlength=NODES)
    for node in range(NODES):
        flat = curvature[node] < SMALLEST_CURVATURE * rows[node]
        tree.value[node] = 0.0 if rows[node] == 0 or flat else factor * slope[node] / curvature[node]


@_compiled
def _add(tree, of_row, raw):
    for row in range(raw.size):
        raw[row] += LEARNING_RATE * tree.value[of_row[row]]


@_compiled
def _predict(tree, test, raw):
    """Every row goes all the way down, which is quicker than to ask at each node whether it is a leaf."""
    _extend(tree)
    for row in range(raw.size):
        node = 0
        for _ in range(DEPTH):
            node = 2 * node + 1 + (test[row, tree.feature[node]] > tree.threshold[node])
        raw[row] += LEARNING_RATE * tree.value[node]


@_compiled
def _extend(tree):
    """A leaf above the bottom sends all rows left, to a leaf of the same value."""
    for node in range(INNER):
        if tree.feature[node] < 0:
            tree.feature[node], tree.threshold[node] = 0, np.inf
            tree.value[2 * node + 1] = tree.value[node]


# ---- growth


@_compiled
def _grow(columns, residual, tree, nodes, importance, rng):
    """A tree of least squares, and what each of its splits takes off the variance added to `importance` (d,)."""
    _plant(columns, residual, nodes)
    for node in range(INNER):
        feature, threshold = _best_split(columns, residual, nodes, node, rng)
        tree.feature[node], tree.threshold[node] = feature, threshold
        if feature >= 0:
            importance[feature] += _divide(columns, residual, nodes, node, feature, threshold)


@_compiled
def _best_split(columns, residual, nodes, node, rng):
    """Column and threshold; the column is -1 where the node is a leaf. Equal splits go to the first column tried."""
    if nodes.end[node] - nodes.start[node] < 2 or nodes.impurity[node] <= PURE:
        return -1, np.inf
    _shuffle(nodes.features, rng)
    if columns.bins.shape[0]:
        return _best_edge(columns, nodes, node)
    return _best_gap(columns, residual, nodes, node)


@_compiled
def _shuffle(features, rng):
    """By hand: numba takes eight seconds to compile the generator's own."""
    for last in range(features.size - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        features[last], features[other] = features[other], features[last]


@_compiled
def _plant(columns, residual, nodes):
    n = residual.size
    total = square = 0.0
    for row in range(n):
        total += residual[row]
        square += residual[row] ** 2
    nodes.start[:], nodes.end[:] = 0, 0
    nodes.end[0], nodes.total[0] = n, total
    nodes.impurity[0] = square / n - (total / n) ** 2
    nodes.of_row[:] = 0
    if columns.bins.shape[0]:
        _gather(columns, residual, nodes, 0)


@_compiled
def _level(node):
    return 0 if node == 0 else 1 if node < 3 else 2


@_compiled
def _best_gap(columns, residual, nodes, node):
    """Column and threshold of the largest gain, between any two neighbours; the column is -1 when all are constant."""
    start, end = nodes.start[node], nodes.end[node]
    best, best_feature, threshold = -np.inf, -1, 0.0
    for feature in nodes.features:
        rows = columns.lists[_level(node), feature, start:end]
        values = columns.values[feature]
        gain, place = _scan(rows, values, residual, columns.inverse, nodes.total[node], best)
        if gain > best:
            best, best_feature = gain, feature
            threshold = values[rows[place - 1]] / 2.0 + values[rows[place]] / 2.0
    return best_feature, threshold


@_compiled
def _scan(rows, values, residual, inverse, total, best):
    """The largest gain above `best`, and how many rows are left of it: (left sum)^2 / rows + (right sum)^2 / rows."""
    size = rows.size
    place, left = 0, 0.0
    for i in range(1, size):
        row = rows[i - 1]
        left += residual[row]
        right = total - left
        gain = left * left * inverse[i] + right * right * inverse[size - i]
        if gain > best and values[rows[i]] > values[row] + NEARLY_EQUAL:
            best, place = gain, i
    return best, place


@_compiled
def _divide(columns, residual, nodes, node, feature, threshold):
    """Hands the node's rows to its children; gives what the split takes off the sum of squares."""
    start, end = nodes.start[node], nodes.end[node]
    values, left = columns.values[feature], 2 * node + 1
    total, square, size = np.zeros(2), np.zeros(2), np.zeros(2, np.int64)
    for row in columns.lists[_level(node), 0, start:end]:
        right = values[row] > threshold
        nodes.of_row[row] = left + right
        size[int(right)] += 1
        total[int(right)] += residual[row]
        square[int(right)] += residual[row] ** 2
    nodes.start[left], nodes.end[left] = start, start + size[0]
    nodes.start[left + 1], nodes.end[left + 1] = start + size[0], end
    gain = (end - start) * nodes.impurity[node]
    for side in range(2):
        nodes.total[left + side] = total[side]
        nodes.impurity[left + side] = square[side] / size[side] - (total[side] / size[side]) ** 2
        gain -= size[side] * nodes.impurity[left + side]
    if left < INNER:
        _part(columns.lists, nodes, node)
        if columns.bins.shape[0]:
            _gather_children(columns, residual, nodes, node)
    return gain


@_compiled
def _part(lists, nodes, node):
    """Rows of the children in the order of every column, one level below."""
    start, end, middle = nodes.start[node], nodes.end[node], nodes.end[2 * node + 1]
    level = _level(node)
    for column in range(lists.shape[1]):
        above, below = lists[level, column], lists[level + 1, column]
        left, right = np.uint64(start), np.uint64(middle)  # unsigned places need no test for negative ones
        for place in range(start, end):
            row = above[place]
            goes_left = np.uint64(nodes.of_row[row] & np.uint8(1))  # a left child has an odd number
            below[left if goes_left else right] = row
            left += goes_left
            right += np.uint64(1) - goes_left


# ---- bins


@_compiled
def _gather(columns, residual, nodes, node):
    """Residuals and rows of the node in each bin of each column."""
    rows = columns.lists[_level(node), 0, nodes.start[node] : nodes.end[node]]
    for feature in range(columns.bins.shape[0]):
        sums, bins = nodes.sums[node, feature], columns.bins[feature]
        sums[:] = 0
        for row in rows:
            sums[bins[row], 0] += residual[row]
            sums[bins[row], 1] += 1


@_compiled
def _gather_children(columns, residual, nodes, node):
    """The smaller child is counted, the larger one is what remains."""
    left, right = 2 * node + 1, 2 * node + 2
    smaller_left = nodes.end[left] - nodes.start[left] < nodes.end[right] - nodes.start[right]
    small, large = (left, right) if smaller_left else (right, left)
    _gather(columns, residual, nodes, small)
    above, counted, rest = nodes.sums[node].ravel(), nodes.sums[small].ravel(), nodes.sums[large].ravel()
    for i in range(above.size):
        rest[i] = above[i] - counted[i]


@_compiled
def _best_edge(columns, nodes, node):
    """As `_best_gap`, between neighbouring bins that have rows of the node."""
    total, size = nodes.total[node], nodes.end[node] - nodes.start[node]
    best, best_feature, threshold = -np.inf, -1, 0.0
    for feature in nodes.features:
        sums = nodes.sums[node, feature]
        left, rows, last = 0.0, 0, -1
        for bin in range(BINS):
            if sums[bin, 1] == 0:
                continue
            if rows > 0:
                gain = left * left * columns.inverse[rows] + (total - left) ** 2 * columns.inverse[size - rows]
                if gain > best:
                    best, best_feature = gain, feature
                    threshold = columns.high[feature, last] / 2.0 + columns.low[feature, bin] / 2.0
            left += sums[bin, 0]
            rows += int(sums[bin, 1])
            last = bin
    return best_feature, threshold
