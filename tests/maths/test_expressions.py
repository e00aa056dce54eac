"""Formulas of factors: against Python's own arithmetic, value by value."""

import itertools
import math
import re

import numpy as np
import pytest

from disentune.maths.expressions import axes, evaluated, place

NAMES, SIZES = ("shape", "colour", "x"), (3, 5, 2)
FACTORS = axes(NAMES, SIZES)


def each(formula, function):
    """What the formula gives, and what a function of indices and places gives, for each combination."""
    found = np.broadcast_to(evaluated(formula, FACTORS), SIZES)
    combinations = itertools.product(*map(range, SIZES))
    expected = [
        function(index, [i / max(size - 1, 1) for i, size in zip(index, SIZES, strict=True)]) for index in combinations
    ]
    return found.ravel(), np.array(expected)


@pytest.mark.parametrize(
    ("formula", "function"),
    [
        ("shape == 1 and colour >= 0.5", lambda i, p: i[0] == 1 and p[1] >= 0.5),
        ("colour >= 3", lambda i, p: i[1] >= 3),
        ("colour >= 1.0", lambda i, p: i[1] == 4),
        ("1 < colour <= 3", lambda i, p: 1 < i[1] <= 3),
        ("3 >= colour", lambda i, p: i[1] <= 3),
        ("not (shape == 0 or x != 1)", lambda i, p: not (i[0] == 0 or i[2] != 1)),
        ("shape in [0, 2]", lambda i, p: i[0] in (0, 2)),
        ("colour not in (0, 4)", lambda i, p: i[1] not in (0, 4)),
        ("colour in [0.25, 1.0]", lambda i, p: i[1] in (1, 4)),
        ("colour > x", lambda i, p: p[1] > p[2]),
        ("colour == 0.25", lambda i, p: i[1] == 1),
        ("colour > -1", lambda i, p: True),
        ("exp(-(shape - colour) ** 2 / 0.02)", lambda i, p: math.exp(-((p[0] - p[1]) ** 2) / 0.02)),
        ("1 + 9 * (shape == 1)", lambda i, p: 1 + 9 * (i[0] == 1)),
        ("min(x, 0.5) + max(shape, colour) + abs(x - 1)", lambda i, p: min(p[2], 0.5) + max(p[:2]) + abs(p[2] - 1)),
        ("sqrt(colour) * cos(x) / 2", lambda i, p: math.sqrt(p[1]) * math.cos(p[2]) / 2),
    ],
)
def test_a_formula_gives_what_python_gives_for_each_combination(formula, function):
    found, expected = each(formula, function)
    np.testing.assert_allclose(found.astype(float), expected.astype(float), rtol=1e-14)


def test_a_threshold_between_values_is_met_by_the_place_that_equals_it():
    """6 values lie at 0, 0.2, ..., 1.0; `>= 0.6` includes the fourth."""
    assert evaluated("a >= 0.6", axes(["a"], [6])).tolist() == [False, False, False, True, True, True]


def test_a_factor_of_one_value_lies_at_zero():
    assert place(np.arange(1)).tolist() == [0.0]


@pytest.mark.parametrize(
    ("formula", "reason"),
    [
        ("", "is empty"),
        ("shap == 1", "unknown factor 'shap'. Did you mean 'shape'?"),
        ("shape ==", "cannot be read"),
        ("shape == 'ball'", "''ball'' is not allowed"),
        ("shape and colour", "'shape' is neither true nor false"),
        ("shape is 1", "'is' is not allowed"),
        ("colour in 3", "`in` must be followed by a list"),
        ("open('/etc/passwd')", "is not allowed; functions: abs"),
        ("exp(1, 2)", "exp takes 1 argument, got 2"),
        ("shape.real == 1", "'shape.real' is not allowed"),
        ("(lambda: 1)()", "is not allowed"),
        ("shape[0]", "is not allowed"),
        ("True", "'True' is not allowed"),
        ("1 if shape == 0 else 2", "is not allowed"),
        ("shape == 1 " + "or shape == 1 " * 100, "may have at most 1,000"),
    ],
)
def test_what_is_not_a_formula_is_refused_with_the_reason(formula, reason):
    with pytest.raises(ValueError, match=re.escape(reason)):
        evaluated(formula, FACTORS)


def test_powers_of_powers_do_not_hang():
    assert not np.isfinite(evaluated("9 ** 9 ** 9", FACTORS)).all()
