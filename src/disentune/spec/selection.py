"""A filter of trials in Python syntax, parsed as data and never executed.

`framework.name == 'beta_vae' and seed < 2`, `arm in ['rescued', 'adversarial']`, `not recon.radius > 8`. Trials that
have trained can also be filtered by metrics: `active_units >= 6`.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from disentune.errors import ConfigError, did_you_mean
from disentune.metrics import METRICS
from disentune.spec.config import PLAIN_SECTIONS, PLUGIN_SECTIONS, SECTIONS, flattened
from disentune.spec.pixels import Pixels

EXAMPLE = "framework.name == 'beta_vae' and seed < 2"
ASSIGNMENT = re.compile(r"(?<![=!<>])=(?!=)")
LONGEST = 1000
"""Characters of an expression, which also keeps its nesting far below Python's limit."""
WORDS = {"true": True, "false": False, "null": None}
ORDERS: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}

SUFFIXES = ("_max", "_fast", "_sampled", "_normal", "_inside", "_outside")
"""Suffixes of the columns of a metric."""

Trial = Mapping[str, Any]
"""Values by key. Only `arm` is a tuple: a trial may belong to several arms."""
Term = Callable[[Trial], Any]


@dataclass(frozen=True)
class Selection:
    """Decides whether a trial, given as its nested config with `arm` (a name or a tuple of names), is selected."""

    expression: str
    term: Term
    keys: frozenset[str]
    known: frozenset[str]

    def __call__(self, trial: Mapping[str, Any], metrics: Mapping[str, float | None] | None = None) -> bool:
        """`metrics` holds the trial's numbers by key, if it has any; NaN counts as null."""
        flat = {key: _plain(value) for key, value in flattened(trial).items()}
        flat |= {key.removesuffix(".name"): value for key, value in flat.items() if _names_a_choice(key)}
        arm = trial.get("arm", ())
        flat["arm"] = (arm,) if isinstance(arm, str) else tuple(arm)
        flat = {key: _number(value) for key, value in (metrics or {}).items()} | flat
        if strange := sorted(self.keys - flat.keys() - self.known):
            raise _refused(self.expression, _unknown_key(strange[0], self.known | flat.keys()))
        return _truth(self.term(flat), self.expression)


def select(expression: str, known: Iterable[str] = ()) -> Selection:
    """A filter from its text. A key that a trial lacks is null there if a built-in plug-in or `known` has it;
    any other key is a ConfigError as soon as a trial is checked."""
    if not expression.strip():
        raise _refused(expression, f"is empty; omit it to take every trial, or write for example: {EXAMPLE}")
    if len(expression) > LONGEST:
        raise ConfigError(f"--only: has {len(expression):,} characters, but a filter may have at most {LONGEST:,}")
    reader = _Reader(expression)
    term = reader.term(_parsed(expression))
    return Selection(expression, term, frozenset(reader.keys), frozenset(known) | built_in_keys())


def assert_possible(expression: str) -> None:
    """Raises ConfigError for a filter that is wrong whatever the sweep: by its syntax, or by a key of no section."""
    selection = select(expression)
    for key in sorted(selection.keys - selection.known):
        if key.split(".")[0] not in SECTIONS:
            raise _refused(expression, _unknown_key(key, selection.known))


def built_in_keys() -> frozenset[str]:
    """Every dotted key that a trial made of built-in plug-ins can have."""
    keys = {"arm", "seed", "loss_scale", *(f"dataset.{key}" for key in Pixels.model_fields)}
    for section, catalogue in PLUGIN_SECTIONS.items():
        keys |= {f"{section}.{key}" for plugin in catalogue for key in ("name", *plugin.params.model_fields)}
    for section, params in PLAIN_SECTIONS.items():
        keys |= {f"{section}.{key}" for key in params.model_fields}
    return frozenset(keys)


def _names_a_choice(key: str) -> bool:
    """`framework.pairs.name`, as opposed to `framework.name`: the file may say just `pairs: laplace`."""
    return key.count(".") > 1 and key.endswith(".name")


# ---- errors


def _refused(expression: str, reason: str) -> ConfigError:
    return ConfigError(f"--only {expression!r}: {reason}")


def _unknown_key(key: str, known: Iterable[str]) -> str:
    known = sorted(known)
    if _is_metric(key):
        return (
            f"'{key}' is a metric, which a trial has only after training; filter by metrics in `results`, "
            "`report` and `figures`"
        )
    section = key.split(".")[0]
    near = [name for name in known if name.split(".")[0] == section] or ["arm", "seed", *SECTIONS]
    meant = did_you_mean(key, known)
    quotes = "" if "." in key or meant else " Strings need quotes."
    return f"unknown key '{key}'.{meant} Known: {', '.join(near)}.{quotes}"


def _is_metric(key: str) -> bool:
    for suffix in SUFFIXES:
        key = key.removesuffix(suffix)
    return key == "loss" or any(key in metric.keys for metric in METRICS)


def _parsed(expression: str) -> ast.expr:
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        if ASSIGNMENT.search(expression):
            reason = "write == to compare"
        raise _refused(expression, f"cannot be read ({reason}); write for example: {EXAMPLE}") from None


def _truth(value: Any, expression: str) -> bool:
    if value is None or isinstance(value, bool):
        return bool(value)
    raise _refused(expression, f"{value!r} is neither true nor false; compare it, for example: {EXAMPLE}")


# ---- from syntax to terms


class _Reader:
    """Turns each allowed kind of syntax into a term; every other kind is refused."""

    def __init__(self, expression: str):
        self.expression = expression
        self.keys: set[str] = set()

    def term(self, node: ast.expr) -> Term:
        match node:
            case ast.BoolOp():
                return self._junction(node)
            case ast.UnaryOp(op=ast.Not()):
                inner = self.term(node.operand)
                return lambda trial: not _truth(inner(trial), self.expression)
            case ast.Compare():
                return self._comparison(node)
            case ast.Name() | ast.Attribute():
                return self._key(node)
        return self._value(node)

    def _value(self, node: ast.expr) -> Term:
        match node:
            case ast.Constant(value=bool() | int() | float() | str() | None as value):
                return lambda trial: value
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return lambda trial: -number
            case ast.List() | ast.Tuple():
                items = [self.term(item) for item in node.elts]
                return lambda trial: [item(trial) for item in items]
        raise self._not_allowed(node)

    def _not_allowed(self, node: ast.expr) -> ConfigError:
        part = ast.get_source_segment(self.expression.strip(), node)
        return _refused(self.expression, f"'{part}' is not allowed; write for example: {EXAMPLE}")

    def _junction(self, node: ast.BoolOp) -> Term:
        terms = [self.term(value) for value in node.values]
        together = all if isinstance(node.op, ast.And) else any
        return lambda trial: together(_truth(term(trial), self.expression) for term in terms)

    def _comparison(self, node: ast.Compare) -> Term:
        terms = [self.term(side) for side in (node.left, *node.comparators)]
        links = list(zip(node.ops, terms, terms[1:], strict=False))
        return lambda trial: all(self._holds(op, left(trial), right(trial)) for op, left, right in links)

    def _holds(self, op: ast.cmpop, left: Any, right: Any) -> bool:
        match op:
            case ast.Eq() | ast.NotEq():
                return _equal(left, right) == isinstance(op, ast.Eq)
            case ast.In() | ast.NotIn():
                return self._among(left, right) == isinstance(op, ast.In)
            case ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE():
                return self._ordered(ORDERS[type(op)], left, right)
        raise _refused(self.expression, f"'is' is not allowed; write for example: {EXAMPLE}")

    def _among(self, left: Any, right: Any) -> bool:
        if not isinstance(right, list | tuple):
            raise _refused(self.expression, f"`in` must be followed by a list, got {right!r}")
        return any(item in right for item in left) if isinstance(left, tuple) else left in right

    def _ordered(self, order: Callable[[Any, Any], bool], left: Any, right: Any) -> bool:
        if left is None or right is None:
            return False
        try:
            return order(left, right)
        except TypeError:
            raise _refused(self.expression, f"{left!r} and {right!r} cannot be compared by size") from None

    def _key(self, node: ast.expr) -> Term:
        """A dotted name is looked up as one string; attributes of objects are never read."""
        key = _dotted(node)
        if key is None:
            raise self._not_allowed(node)
        if key in WORDS:
            return lambda trial: WORDS[key]
        self.keys.add(key)
        return lambda trial: trial.get(key)


def _dotted(node: ast.expr) -> str | None:
    """`framework.name`; None for an attribute of anything except a name. Iterative, so that a long name cannot overflow
    the stack."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        return left == right
    if isinstance(left, tuple) or isinstance(right, tuple):
        return left in right if isinstance(right, tuple) else right in left
    found: bool = left == right
    return found


def _number(value: float | None) -> float | None:
    return None if value is None or value != value else value


def _plain(value: Any) -> Any:
    """Metrics are compared by their names: `'mig' in evaluation.metrics`."""
    if isinstance(value, list):
        return [item.get("name") if isinstance(item, Mapping) else item for item in value]
    return value
