"""Compiled boosting of depth-3 trees; only `trees.py` imports it, and late, because numba takes a second to load.

Friedman, Annals of Statistics 29 (2001), algorithms 5 and 6, with scikit-learn's choices: trees fit the residuals by
least squares, leaves take one Newton step, a round with more than two classes has a tree for each. It is fast because
columns are sorted once: a node keeps its rows in the order of every column, and a split keeps these orders.

Splits that are equal up to rounding are common, so the same seed gives scikit-learn's trees only because random
numbers are drawn and sums are rounded in the same way; that is why comments below say "in this order".
"""

from typing import NamedTuple

import numpy as np

from disentune.metrics.compiled import compiled
from disentune.metrics.trees import BINS, NEARLY_EQUAL

DEPTH = 3
INNER = 2**DEPTH - 1
NODES = 2 * INNER + 1
DEPTH_FIRST = (0, 1, 3, 4, 2, 5, 6)
LEARNING_RATE = 0.1
PURE = np.finfo(np.float64).eps
"""A node with at most this variance is a leaf."""
SMALLEST_CURVATURE = 1e-150
NEARLY_BEST = 1 - 1e-12
"""Maximum relative error of gains computed with reciprocals."""
WORD = 2**32 - 1
BLOCK, LANES = 128, 8
"""Pairwise summation: up to this many values are added in this many partial sums."""


class Columns(NamedTuple):
    """Codes to fit, shared by all factors. `bins` has no column if splits are exact."""

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
    square: np.ndarray
    """(NODES,): sum of their squares."""
    impurity: np.ndarray
    """(NODES,): their variance."""
    rows: np.ndarray
    """(n,) uint32: rows of each node, in the order in which its residuals are summed."""
    of_row: np.ndarray
    """(n,) uint8: deepest node so far."""
    sums: np.ndarray
    """(INNER, d or 0, BINS, 2): residuals and rows in each bin."""
    low: np.ndarray
    """(d,) float32: the smallest value of each column in the node."""
    high: np.ndarray
    """(d,) float32: the largest one, or the smallest of the last bin."""
    features: np.ndarray
    """(d,): columns, those known to be constant first; drawing moves them about."""
    constant: np.ndarray
    """(d,): columns that are constant in the node and those above it, as they were found."""
    known: np.ndarray
    """(NODES,): how many columns are constant in the node above."""
    sorting: np.ndarray
    """(INNER,): the column drawn last that has several values in the node."""
    state: np.ndarray
    """(1,): of the random numbers."""


@compiled
def boosted(
    columns: Columns, test: np.ndarray, labels: np.ndarray, first: np.ndarray, seeds: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Importance (d,), and scores of rows to fit (trees, n) and to test (trees, m), where trees are those of a round.

    `test` is (m, d) float32, `labels` (n,) count classes from 0; `first` (trees,) are the scores to begin with, and
    `seeds` (rounds, trees) break ties between columns.
    """
    rounds, trees = seeds.shape
    raw, raw_test = np.empty((trees, labels.size)), np.empty((trees, test.shape[0]))
    for k in range(trees):
        raw[k], raw_test[k] = first[k], first[k]
    residual = np.empty_like(raw)
    importance = np.zeros(columns.values.shape[0])
    tree = Tree(np.empty(INNER, np.int64), np.empty(INNER), np.empty(NODES))
    nodes = _nodes(columns)
    for i in range(rounds):
        _residuals(raw, labels, residual)
        for k in range(trees):
            _grow(columns, residual[k], tree, nodes, importance, seeds[i, k])
            own, factor = (1, 1.0) if trees == 1 else (k, (trees - 1) / trees)
            _newton(tree, nodes, residual[k], labels == own, factor)
            _add(tree, nodes.of_row, raw[k])
            _predict(tree, test, raw_test[k])
    return importance, raw, raw_test


@compiled
def _nodes(columns: Columns) -> Nodes:
    d, n = columns.values.shape
    return Nodes(
        np.zeros(NODES, np.int64),
        np.zeros(NODES, np.int64),
        np.zeros(NODES),
        np.zeros(NODES),
        np.zeros(NODES),
        np.zeros(n, np.uint32),
        np.zeros(n, np.uint8),
        np.zeros((INNER, columns.bins.shape[0], BINS, 2)),
        np.zeros(d, np.float32),
        np.zeros(d, np.float32),
        np.arange(d),
        np.zeros(d, np.int64),
        np.zeros(NODES, np.int64),
        np.zeros(INNER, np.int64),
        np.zeros(1, np.int64),
    )


# ---- losses


@compiled
def _residuals(raw: np.ndarray, labels: np.ndarray, residual: np.ndarray) -> None:
    """1 for the row's class, 0 for others, less their probability."""
    trees, n = raw.shape
    if trees == 1:
        for row in range(n):
            residual[0, row] = _binary_residual(raw[0, row], labels[row])
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


@compiled
def _binary_residual(score: float, label: int) -> float:
    """Below -37 the probability equals the odds; exp(-score) would overflow eventually."""
    if score <= -37:
        small: float = label - np.exp(score)
        return small
    odds_against: float = np.exp(-score)
    return (label * odds_against - (1 - label)) / (1 + odds_against)


@compiled
def _newton(tree: Tree, nodes: Nodes, residual: np.ndarray, of_class: np.ndarray, factor: float) -> None:
    """One step in each leaf, of means over its rows in their order; `factor` is Friedman's (classes - 1) / classes."""
    slope, curvature = np.empty_like(residual), np.empty_like(residual)
    places = nodes.start.copy()
    for row in range(residual.size):
        node, probability = nodes.of_row[row], of_class[row] - residual[row]
        slope[places[node]] = residual[row]
        curvature[places[node]] = probability * (1 - probability)
        places[node] += 1
    for node in range(NODES):
        start, end = nodes.start[node], places[node]
        tree.value[node] = _step(slope[start:end], curvature[start:end], factor) if end > start else 0.0


@compiled
def _step(slope: np.ndarray, curvature: np.ndarray, factor: float) -> float:
    mean = _sum_by_pairs(curvature) / curvature.size
    return 0.0 if abs(mean) < SMALLEST_CURVATURE else _sum_by_pairs(slope) / slope.size * factor / mean


@compiled
def _sum_by_pairs(values: np.ndarray) -> float:
    """The sum in the order in which NumPy adds."""
    half = values.size // 2
    if values.size > BLOCK:
        half -= half % LANES
        return _sum_by_pairs(values[:half]) + _sum_by_pairs(values[half:])
    whole, total = values.size - values.size % LANES, 0.0
    if whole:
        s = values[:LANES].copy()
        for i in range(LANES, whole):
            s[i % LANES] += values[i]
        total = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    for value in values[whole:]:
        total += value
    return total


@compiled
def _add(tree: Tree, of_row: np.ndarray, raw: np.ndarray) -> None:
    for row in range(raw.size):
        raw[row] += LEARNING_RATE * tree.value[of_row[row]]


@compiled
def _predict(tree: Tree, test: np.ndarray, raw: np.ndarray) -> None:
    """Sends every row all the way down, which is faster than checking at each node whether it is a leaf."""
    _extend(tree)
    for row in range(raw.size):
        node = 0
        for _ in range(DEPTH):
            node = 2 * node + 1 + (test[row, tree.feature[node]] > tree.threshold[node])
        raw[row] += LEARNING_RATE * tree.value[node]


@compiled
def _extend(tree: Tree) -> None:
    """A leaf above the bottom sends all rows left, to a leaf of the same value."""
    for node in range(INNER):
        if tree.feature[node] < 0:
            tree.feature[node], tree.threshold[node] = 0, np.inf
            tree.value[2 * node + 1] = tree.value[node]


# ---- growth


@compiled
def _grow(columns: Columns, residual: np.ndarray, tree: Tree, nodes: Nodes, importance: np.ndarray, seed: int) -> None:
    """Grows a least-squares tree, and adds the variance reduction of each split to `importance` (d,)."""
    _plant(columns, residual, nodes, seed)
    for node in DEPTH_FIRST:
        feature, threshold = _best_split(columns, residual, nodes, node)
        if feature >= 0:
            feature = _divide(columns, residual, nodes, node, feature, threshold)
        tree.feature[node], tree.threshold[node] = feature, threshold
        if feature >= 0:
            importance[feature] += _improvement(nodes, node)
            _hand_down(columns, residual, nodes, node)


@compiled
def _plant(columns: Columns, residual: np.ndarray, nodes: Nodes, seed: int) -> None:
    n = residual.size
    nodes.state[0] = seed
    nodes.start[:], nodes.end[:] = 0, 0
    nodes.end[0] = n
    nodes.of_row[:] = 0
    for feature in range(nodes.features.size):
        nodes.features[feature] = feature
    for row in range(n):
        nodes.rows[row] = row
    _sum(nodes, 0, residual)
    nodes.impurity[0] = _variance(nodes.total[0], nodes.square[0], n)
    if columns.bins.shape[0]:
        _gather(columns, residual, nodes, 0)


@compiled
def _sum(nodes: Nodes, node: int, residual: np.ndarray) -> None:
    """Sums the residuals and their squares in the order of the node's rows."""
    total = square = 0.0
    for row in nodes.rows[nodes.start[node] : nodes.end[node]]:
        total += residual[row]
        square += residual[row] * residual[row]
    nodes.total[node], nodes.square[node] = total, square


@compiled
def _variance(total: float, square: float, size: int) -> float:
    mean = total / size
    return square / size - mean * mean


@compiled
def _best_split(columns: Columns, residual: np.ndarray, nodes: Nodes, node: int) -> tuple[int, float]:
    """Column and threshold; the column is -1 if the node is a leaf. Ties go to the first column tried."""
    if nodes.end[node] - nodes.start[node] < 2 or nodes.impurity[node] <= PURE:
        return -1, np.inf
    varied = nodes.features[_draw(columns, nodes, node) :][::-1]
    if columns.bins.shape[0]:
        return _best_edge(columns, nodes, node, varied)
    return _best_gap(columns, residual, nodes, node, varied)


@compiled
def _draw(columns: Columns, nodes: Nodes, node: int) -> int:
    """Draws columns one by one; returns the position in `features` where the varying columns start, the first drawn
        last.

    `features` has the columns known to be constant, of which some are drawn, then those found to be constant, then
    those left to draw, then those that vary. Known ones are drawn too, only to use up the same random numbers.
    """
    _measure(columns, nodes, node)
    features, known, state = nodes.features, nodes.known[node], nodes.state
    drawn, constant, varied = 0, known, features.size
    while varied > constant:
        place = drawn + _random(state) % (varied - (constant - known) - drawn)
        if place < known:
            features[place], features[drawn] = features[drawn], features[place]
            drawn += 1
            continue
        place += constant - known
        low, high = nodes.low[features[place]], nodes.high[features[place]]
        if high > low:
            nodes.sorting[node] = features[place]
        if high > low + NEARLY_EQUAL:
            varied -= 1
            features[place], features[varied] = features[varied], features[place]
        else:
            features[place], features[constant] = features[constant], features[place]
            constant += 1
    _copy(nodes.constant, features, 0, known)
    _copy(features, nodes.constant, known, constant)
    nodes.known[2 * node + 1 : 2 * node + 3] = constant
    return varied


@compiled
def _random(state: np.ndarray) -> int:
    """Xorshift of 32 bits (Marsaglia, Journal of Statistical Software 8, 14, 2003), without the highest bit."""
    x: int = max(state[0], 1)
    x ^= (x << 13) & WORD
    x ^= x >> 17
    x ^= (x << 5) & WORD
    state[0] = x
    return x & (WORD >> 1)


@compiled
def _copy(source: np.ndarray, target: np.ndarray, start: int, end: int) -> None:
    """Copies in a loop, because numba takes two seconds to compile the error message of slice assignment."""
    for place in range(start, end):
        target[place] = source[place]


@compiled
def _measure(columns: Columns, nodes: Nodes, node: int) -> None:
    """The range of each column in the node."""
    level, start, last = _level(node), nodes.start[node], nodes.end[node] - 1
    for feature in range(columns.values.shape[0]):
        if columns.bins.shape[0]:
            first, final = _filled(nodes.sums[node, feature])
            nodes.low[feature], nodes.high[feature] = columns.low[feature, first], columns.low[feature, final]
        else:
            rows, values = columns.lists[level, feature], columns.values[feature]
            nodes.low[feature], nodes.high[feature] = values[rows[start]], values[rows[last]]


@compiled
def _level(node: int) -> int:
    return 0 if node == 0 else 1 if node < 3 else 2


@compiled
def _best_gap(columns: Columns, residual: np.ndarray, nodes: Nodes, node: int, varied: np.ndarray) -> tuple[int, float]:
    """Column and threshold of the largest gain between any two neighbours; the column is -1 if none varies."""
    start, end = nodes.start[node], nodes.end[node]
    best, best_feature, threshold = -np.inf, -1, 0.0
    for feature in varied:
        rows = columns.lists[_level(node), feature, start:end]
        values = columns.values[feature]
        gain, place = _scan(rows, values, residual, columns.inverse, nodes.total[node], best)
        if gain > best:
            best, best_feature = gain, feature
            threshold = values[rows[place - 1]] / 2.0 + values[rows[place]] / 2.0
    return best_feature, threshold


@compiled
def _scan(
    rows: np.ndarray, values: np.ndarray, residual: np.ndarray, inverse: np.ndarray, total: float, best: float
) -> tuple[float, int]:
    """The largest gain above `best`, and how many rows are left of it: (left sum)^2 / rows + (right sum)^2 / rows.

    Reciprocals are faster, and show which gains are worth an exact division.
    """
    size = rows.size
    place, left, enough = 0, 0.0, best * NEARLY_BEST
    for i in range(1, size):
        row = rows[i - 1]
        left += residual[row]
        right = total - left
        nearly = left * left * inverse[i] + right * right * inverse[size - i]
        if nearly > enough and values[rows[i]] > values[row] + NEARLY_EQUAL:
            gain = left * left / i + right * right / (size - i)
            if gain > best:
                best, place, enough = gain, i, gain * NEARLY_BEST
    return best, place


@compiled
def _divide(columns: Columns, residual: np.ndarray, nodes: Nodes, node: int, feature: int, threshold: float) -> int:
    """Creates the children and returns the column, or -1 if they are worse because of rounding and the node is a
    leaf."""
    start, end, left = nodes.start[node], nodes.end[node], 2 * node + 1
    column = 0 if columns.bins.shape[0] else nodes.sorting[node]
    _copy(columns.lists[_level(node), column], nodes.rows, start, end)
    middle = start + _partition(nodes.rows[start:end], columns.values[feature], threshold)
    nodes.start[left], nodes.end[left] = start, middle
    nodes.start[left + 1], nodes.end[left + 1] = middle, end
    _sum(nodes, left, residual)
    _sum(nodes, left + 1, residual)
    total = _left_total(nodes, node, residual)
    square = nodes.square[node] - nodes.square[left]
    nodes.impurity[left] = _variance(total, nodes.square[left], middle - start)
    nodes.impurity[left + 1] = _variance(nodes.total[node] - total, square, end - middle)
    if _improvement(nodes, node) >= -PURE:
        return feature
    nodes.end[left], nodes.start[left + 1] = start, end
    return -1


@compiled
def _partition(rows: np.ndarray, values: np.ndarray, threshold: float) -> int:
    """Swaps rows until those that go left come first, and returns their number; the order is that of scikit-learn."""
    left, right = 0, rows.size
    while left < right:
        if values[rows[left]] <= threshold:
            left += 1
        else:
            right -= 1
            rows[left], rows[right] = rows[right], rows[left]
    return left


@compiled
def _left_total(nodes: Nodes, node: int, residual: np.ndarray) -> float:
    """The sum of the left child: its own if it is the smaller child, else the node's minus that of the right child."""
    left, right = 2 * node + 1, 2 * node + 2
    if nodes.end[left] - nodes.start[left] <= nodes.end[right] - nodes.start[right]:
        own: float = nodes.total[left]
        return own
    total: float = nodes.total[node]
    for place in range(nodes.end[right] - 1, nodes.start[right] - 1, -1):
        total -= residual[nodes.rows[place]]
    return total


@compiled
def _improvement(nodes: Nodes, node: int) -> float:
    """The split's reduction of the variance of all rows, in this order."""
    left, right = 2 * node + 1, 2 * node + 2
    size = nodes.end[node] - nodes.start[node]
    rest = nodes.impurity[node] - (nodes.end[right] - nodes.start[right]) / size * nodes.impurity[right]
    off: float = size / nodes.rows.size * (rest - (nodes.end[left] - nodes.start[left]) / size * nodes.impurity[left])
    return off


@compiled
def _hand_down(columns: Columns, residual: np.ndarray, nodes: Nodes, node: int) -> None:
    """Assigns rows to the children, and prepares the children for splitting."""
    for child in (2 * node + 1, 2 * node + 2):
        for row in nodes.rows[nodes.start[child] : nodes.end[child]]:
            nodes.of_row[row] = child
    if 2 * node + 1 < INNER:
        _part(columns.lists, nodes, node)
        if columns.bins.shape[0]:
            _gather_children(columns, residual, nodes, node)


@compiled
def _part(lists: np.ndarray, nodes: Nodes, node: int) -> None:
    """Rows of the children in the order of every column, one level below."""
    start, end, middle = nodes.start[node], nodes.end[node], nodes.end[2 * node + 1]
    level = _level(node)
    for column in range(lists.shape[1]):
        above, below = lists[level, column], lists[level + 1, column]
        left, right = np.uint64(start), np.uint64(middle)  # unsigned indices need no check for negative ones
        for place in range(start, end):
            row = above[place]
            goes_left = np.uint64(nodes.of_row[row] & np.uint8(1))  # a left child has an odd number
            below[left if goes_left else right] = row
            left += goes_left
            right += np.uint64(1) - goes_left


# ---- bins


@compiled
def _gather(columns: Columns, residual: np.ndarray, nodes: Nodes, node: int) -> None:
    """Residuals and rows of the node in each bin of each column."""
    rows = columns.lists[_level(node), 0, nodes.start[node] : nodes.end[node]]
    for feature in range(columns.bins.shape[0]):
        sums, bins = nodes.sums[node, feature], columns.bins[feature]
        sums[:] = 0
        for row in rows:
            sums[bins[row], 0] += residual[row]
            sums[bins[row], 1] += 1


@compiled
def _gather_children(columns: Columns, residual: np.ndarray, nodes: Nodes, node: int) -> None:
    """Counts the smaller child; the larger one is the remainder."""
    left, right = 2 * node + 1, 2 * node + 2
    smaller_left = nodes.end[left] - nodes.start[left] < nodes.end[right] - nodes.start[right]
    small, large = (left, right) if smaller_left else (right, left)
    _gather(columns, residual, nodes, small)
    above, counted, rest = nodes.sums[node].ravel(), nodes.sums[small].ravel(), nodes.sums[large].ravel()
    for i in range(above.size):
        rest[i] = above[i] - counted[i]


@compiled
def _filled(sums: np.ndarray) -> tuple[int, int]:
    """The first and last bin that have rows."""
    first, final = 0, BINS - 1
    while sums[first, 1] == 0:
        first += 1
    while sums[final, 1] == 0:
        final -= 1
    return first, final


@compiled
def _best_edge(columns: Columns, nodes: Nodes, node: int, varied: np.ndarray) -> tuple[int, float]:
    """Like `_best_gap`, but between neighbouring bins that have rows of the node."""
    total, size = nodes.total[node], nodes.end[node] - nodes.start[node]
    best, best_feature, threshold = -np.inf, -1, 0.0
    for feature in varied:
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
