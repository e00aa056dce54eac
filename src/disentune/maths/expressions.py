"""Formulas of factors in Python syntax, parsed as data and never executed: `shape == 1 and colour >= 0.5`.

A factor stands for its place in its range, from 0.0 for the first value to 1.0 for the last. Compared with a whole
number, or with a list of whole numbers, it stands for the index of its value, from 0. So `colour >= 5` holds from the
sixth value on, and `colour >= 0.5` in the upper half.
"""

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from disentune.errors import unknown

LONGEST = 1000
"""In characters; this also keeps the nesting far below Python's limit."""
EXAMPLE = "shape == 1 and colour >= 0.5"
CLOSE = 1e-9
"""Places that differ by less are equal."""
FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "abs": (1, np.abs), "sqrt": (1, np.sqrt), "exp": (1, np.exp), "log": (1, np.log), "sin": (1, np.sin),
    "cos": (1, np.cos), "min": (2, np.minimum), "max": (2, np.maximum),
}  # fmt: skip
"""The functions that a formula may call, each with its number of arguments."""
ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: np.divide, ast.Pow: np.power,
}  # fmt: skip
ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
}  # fmt: skip


def axes(names: Iterable[str], sizes: Iterable[int]) -> dict[str, np.ndarray]:
    """The indices of each factor's values along an axis of its own, so that arrays of all factors broadcast to the
    shape of the grid."""
    found = np.meshgrid(*(np.arange(size) for size in sizes), indexing="ij", sparse=True)
    return dict(zip(names, found, strict=True))


def place(index: np.ndarray) -> np.ndarray:
    """Indices of all values of a factor as places from 0.0 to 1.0; 0.0 where there is one value."""
    found: np.ndarray = index / max(index.size - 1, 1)
    return found


def evaluated(formula: str, factors: Mapping[str, np.ndarray]) -> np.ndarray:
    """The value of a formula for the factors' `axes`: bool or float64, of a shape that broadcasts to the grid.

    Raises ValueError if the text is not a formula of these factors.
    """
    if not formula.strip():
        raise ValueError(f"is empty; write for example: {EXAMPLE}")
    if len(formula) > LONGEST:
        raise ValueError(f"has {len(formula):,} characters, but a formula may have at most {LONGEST:,}")
    try:
        tree = ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ValueError(f"{formula!r} cannot be read ({reason}); write for example: {EXAMPLE}") from None
    with np.errstate(all="ignore"):  # numbers that are not finite are refused where they are used
        return np.asarray(_Reader(formula.strip(), factors).value(tree))


class _Reader:
    """Evaluates each allowed kind of syntax; every other kind is refused."""

    def __init__(self, formula: str, factors: Mapping[str, np.ndarray]):
        self.formula, self.factors = formula, factors

    def value(self, node: ast.expr) -> Any:
        match node:
            case ast.BoolOp():
                together = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
                terms = [self._truth(one) for one in node.values]
                for term in terms[1:]:
                    terms[0] = together(terms[0], term)
                return terms[0]
            case ast.UnaryOp(op=ast.Not()):
                return np.logical_not(self._truth(node.operand))
            case ast.UnaryOp(op=ast.USub()):
                return -self._number(node.operand)
            case ast.BinOp() if type(node.op) in ARITHMETIC:
                return ARITHMETIC[type(node.op)](self._number(node.left), self._number(node.right))
            case ast.Compare():
                return self._comparison(node)
            case ast.Call():
                return self._call(node)
            case ast.Name():
                return place(self._factor(node.id))
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return np.float64(number)
        raise self._not_allowed(node)

    def _factor(self, name: str) -> np.ndarray:
        if name not in self.factors:
            raise ValueError(unknown("factor", name, self.factors))
        return self.factors[name]

    def _truth(self, node: ast.expr) -> np.ndarray:
        found = np.asarray(self.value(node))
        if found.dtype != bool:
            raise ValueError(f"'{self._text(node)}' is neither true nor false; compare it, for example: {EXAMPLE}")
        return found

    def _number(self, node: ast.expr) -> np.ndarray:
        found: np.ndarray = np.asarray(self.value(node)).astype(np.float64)
        return found

    def _comparison(self, node: ast.Compare) -> np.ndarray:
        sides = [node.left, *node.comparators]
        found = np.asarray(True)
        for op, left, right in zip(node.ops, sides, sides[1:], strict=False):
            found = np.logical_and(found, self._holds(op, left, right))
        return found

    def _holds(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> np.ndarray:
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(right, ast.List | ast.Tuple):
                raise ValueError(f"`in` must be followed by a list, got '{self._text(right)}'")
            among = np.asarray(False)
            for item in right.elts:
                among = np.logical_or(among, self._holds(ast.Eq(), left, item))
            return among if isinstance(op, ast.In) else np.logical_not(among)
        if isinstance(op, ast.Is | ast.IsNot):
            raise ValueError(f"'is' is not allowed; write for example: {EXAMPLE}")
        one, other = self._side(left, right), self._side(right, left)
        if isinstance(op, ast.Eq | ast.NotEq):
            equal: np.ndarray = np.isclose(one, other, rtol=0, atol=CLOSE)
            return equal if isinstance(op, ast.Eq) else np.logical_not(equal)
        ordered: np.ndarray = ORDERS[type(op)](one, other)
        return ordered

    def _side(self, node: ast.expr, other: ast.expr) -> np.ndarray:
        """A factor beside a whole number is its index."""
        if isinstance(node, ast.Name) and _is_whole(other):
            return self._factor(node.id).astype(np.float64)
        return self._number(node)

    def _call(self, node: ast.Call) -> np.ndarray:
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name not in FUNCTIONS or node.keywords:
            raise ValueError(f"'{self._text(node)}' is not allowed; functions: {', '.join(FUNCTIONS)}")
        count, function = FUNCTIONS[name]
        if len(node.args) != count:
            raise ValueError(f"'{self._text(node)}': {name} takes {count} argument{'s' * (count > 1)}, "
                             f"got {len(node.args)}")  # fmt: skip
        found: np.ndarray = function(*(self._number(one) for one in node.args))
        return found

    def _text(self, node: ast.expr) -> str:
        return ast.get_source_segment(self.formula, node) or self.formula

    def _not_allowed(self, node: ast.expr) -> ValueError:
        return ValueError(f"'{self._text(node)}' is not allowed; write for example: {EXAMPLE}")


def _is_whole(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _is_whole(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool)
