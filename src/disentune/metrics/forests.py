"""Random forests of scikit-learn, cut at several depths.

A tree that may only grow to some depth is the top of one that may grow deeper: a node's split does not depend on what
is below it. So one forest, grown once, is read at every depth.
"""

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

LEAF = -1
"""The child of a leaf."""


def grown(codes: np.ndarray, targets: np.ndarray, depth: int, trees: int, ordered: bool, seed: int) -> Any:
    """A forest that predicts targets (n,) from codes (n, d): ordered numbers, or labels."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    kind = RandomForestRegressor if ordered else RandomForestClassifier
    return kind(n_estimators=trees, max_depth=depth, random_state=seed).fit(codes.astype(np.float32), targets)


def predictions(forest: Any, codes: np.ndarray, depths: Sequence[int]) -> np.ndarray:
    """What the forest predicts for codes (m, d) if it is cut at each of these growing depths, (depths, m)."""
    rows = codes.astype(np.float32)
    values = (np.stack(list(_values(one.tree_, rows, depths))) for one in forest.estimators_)
    total: np.ndarray = reduce(np.add, values)
    if not hasattr(forest, "classes_"):
        return np.asarray(total[:, :, 0] / len(forest.estimators_))
    found: np.ndarray = forest.classes_[total.argmax(axis=2)]
    return found


def _values(tree: Any, rows: np.ndarray, depths: Sequence[int]) -> Iterator[np.ndarray]:
    """Mean target, or share of each class, in the node of each row at each depth: (m, 1) or (m, classes)."""
    node, depth, all_rows = np.zeros(len(rows), np.int64), 0, np.arange(len(rows))
    for wanted in depths:
        while depth < min(wanted, tree.max_depth):
            inner, feature = tree.children_left[node] != LEAF, np.maximum(tree.feature[node], 0)
            below = np.where(
                rows[all_rows, feature] <= tree.threshold[node], tree.children_left[node], tree.children_right[node]
            )
            node, depth = np.where(inner, below, node), depth + 1
        yield tree.value[node, 0]


def importance(forest: Any, depth: int) -> np.ndarray:
    """Share of the reduction of impurity by splits on each code, (d,), if cut at a depth; all 0 if nothing is split."""
    shares = [_importance(one.tree_, depth) for one in forest.estimators_]
    total = np.sum(shares, axis=0)
    found: np.ndarray = total / total.sum() if total.any() else total
    return found


def _importance(tree: Any, depth: int) -> np.ndarray:
    """Of one tree, as scikit-learn computes it."""
    left, right = tree.children_left, tree.children_right
    inner = np.flatnonzero((left != LEAF) & (_depths(tree) < depth))
    mass = tree.weighted_n_node_samples * tree.impurity
    reduction = (mass - mass[left] - mass[right])[inner]
    found = np.bincount(tree.feature[inner], reduction, minlength=tree.n_features)
    return found / found.sum() if found.sum() > 0 else np.zeros(tree.n_features)


def _depths(tree: Any) -> np.ndarray:
    """Depth of each node; children have larger numbers than their parents."""
    found = np.zeros(tree.node_count, np.int64)
    for node in np.flatnonzero(tree.children_left != LEAF):
        found[[tree.children_left[node], tree.children_right[node]]] = found[node] + 1
    return found
