"""Laws of sampling: their weights by loops over all combinations, their draws by their closed form, and refusals."""

import itertools
import math

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy import stats

from disentune.errors import DataError
from disentune.maths import laws, pairs
from disentune.maths.laws import HeldOut, Law, LawError, dependence, partners, sampling, try_partners

NAMES, SIZES = ("shape", "colour", "x"), (3, 5, 4)
SHAPES3D = {"floor": 10, "wall": 10, "object": 10, "scale": 8, "shape": 4, "orientation": 15}
DSPRITES = {"shape": 3, "scale": 6, "orientation": 40, "x": 32, "y": 32}
MPI3D = {"colour": 6, "shape": 6, "size": 2, "camera": 3, "background": 3, "horizontal": 40, "vertical": 40}
_LAW, _HELD_OUT = TypeAdapter(Law), TypeAdapter(HeldOut)


def of(law=None, held_out=None, names=NAMES, sizes=SIZES):
    law = None if law is None else _LAW.validate_python(law)
    held_out = None if held_out is None else _HELD_OUT.validate_python(held_out)
    return sampling(law, held_out, tuple(names), tuple(sizes))


def correlated(first="shape", second="colour", sigma=0.3, **more):
    return {"name": "correlated", "factors": [first, second], "sigma": sigma, **more}


def by_loop(weight, names=NAMES, sizes=SIZES):
    """Probabilities (n,) from a function of indices by name and of places by name."""
    found = []
    for index in itertools.product(*map(range, sizes)):
        places = [i / (size - 1) for i, size in zip(index, sizes, strict=True)]
        found.append(weight(dict(zip(names, index, strict=True)), dict(zip(names, places, strict=True))))
    return np.array(found, float) / np.sum(found)


def gauss(distance, sigma):
    return math.exp(-(distance**2) / (2 * sigma**2))


# ---- laws


@pytest.mark.parametrize(
    ("law", "weight"),
    [
        (correlated(), lambda i, p: gauss(p["shape"] - p["colour"], 0.3)),
        (correlated(inverse=True), lambda i, p: gauss(p["shape"] - (1 - p["colour"]), 0.3)),
        (correlated("x", "shape"), lambda i, p: gauss(p["x"] - p["shape"], 0.3)),
        ({"name": "confounded", "factor": "colour", "sigma": 0.4},
         lambda i, p: gauss(p["colour"] - p["shape"], 0.4) * gauss(p["colour"] - p["x"], 0.4)),
        ({"name": "weighted", "weight": "1 + 9 * (shape == 1) + x"}, lambda i, p: 1 + 9 * (i["shape"] == 1) + p["x"]),
        ({"name": "joint", "factors": ["x", "shape"], "table": [[1, 0, 2], [3, 1, 1], [0, 0, 5], [1, 2, 4]]},
         lambda i, p: [[1, 0, 2], [3, 1, 1], [0, 0, 5], [1, 2, 4]][i["x"]][i["shape"]]),
        ({"name": "product", "laws": [correlated(), {"name": "weighted", "weight": "x >= 1"}]},
         lambda i, p: gauss(p["shape"] - p["colour"], 0.3) * (i["x"] >= 1)),
        ({"name": "as_released", "factors": ["shape", "x"], "width": 1}, lambda i, p: 1),
    ],
)  # fmt: skip
def test_a_law_weighs_each_combination_as_its_formula_says(law, weight):
    found = of(law)
    np.testing.assert_allclose(found.weights / found.weights.sum(), by_loop(weight), rtol=1e-12)


def test_the_rows_of_a_gaussian_law_are_those_computed_by_hand():
    """3 x 3 values, sigma 0.4: 0.2033 on the diagonal, 0.0931 beside it, 0.0089 in the corners."""
    table = of(correlated(sigma=0.4), sizes=(3, 3, 4)).table(0, 1)
    np.testing.assert_allclose(table[0], [0.2033, 0.0931, 0.0089], atol=5e-5)
    np.testing.assert_allclose(table, table.T)


@pytest.mark.parametrize(
    ("sizes", "rows"),
    [
        ((8, 15), [(0.950, 1.078), (0.808, 0.500), (0.455, 0.114), (0.188, 0.018)]),
        ((40, 32), [(0.942, 1.013), (0.781, 0.448), (0.414, 0.093), (0.166, 0.014)]),
        ((40, 40), [(0.941, 1.011), (0.780, 0.445), (0.412, 0.092), (0.165, 0.014)]),
        ((10, 8), [(0.952, 1.098), (0.815, 0.514), (0.466, 0.120), (0.194, 0.019)]),
        ((10, 15), [(0.948, 1.066), (0.803, 0.490), (0.447, 0.109), (0.183, 0.017)]),
    ],
)
def test_dependence_under_the_gaussian_law_at_the_sizes_of_the_paper(sizes, rows):
    for sigma, expected in zip((0.1, 0.2, 0.4, 0.7), rows, strict=True):
        found = of(correlated("a", "b", sigma=sigma), names=("a", "b"), sizes=sizes)
        np.testing.assert_allclose(found.dependences["a", "b"], expected, rtol=0, atol=6e-4)


def test_marginals_of_a_gaussian_law_are_lower_at_the_edges():
    table = of(correlated("a", "b", sigma=0.2), names=("a", "b"), sizes=(40, 40)).table(0, 1)
    marginal = table.sum(axis=1) * 40
    np.testing.assert_allclose((marginal[0], marginal.max()), (0.622, 1.172), atol=6e-4)


def test_the_strongest_named_law_still_draws_every_combination():
    found = of(correlated("a", "b", sigma=0.04), names=("a", "b"), sizes=(10, 10))
    assert found.count == 100
    assert math.log(found.weights.min()) == pytest.approx(-312.5)


def test_the_order_of_factors_in_the_data_set_does_not_matter():
    one, other = of(correlated("colour", "shape")), of(correlated("shape", "colour"))
    np.testing.assert_array_equal(one.weights, other.weights)


def test_dependence_of_two_coins():
    """Joint table of two coins that agree with probability p: correlation 2p - 1, information ln 2 - H(p)."""
    p = 0.9
    entropy = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    found = dependence(np.array([[p, 1 - p], [1 - p, p]]) / 2)
    np.testing.assert_allclose(found, (2 * p - 1, math.log(2) - entropy))


# ---- held-out sets


@pytest.mark.parametrize(
    ("factors", "formula", "rows"),
    [
        (SHAPES3D, "floor >= 5", 240_000),
        (SHAPES3D, "shape == 3 and object >= 0.5", 60_000),
        (SHAPES3D, "shape == 3 and floor >= 5", 60_000),
        (SHAPES3D, "object >= 8 and wall <= 2", 28_800),
        (SHAPES3D, "shape == 3 and object <= 2", 36_000),
        (SHAPES3D, "shape == 3 and 2 < object < 8", 60_000),
        (SHAPES3D, "shape == 3 and object == 2", 12_000),
        (SHAPES3D, "object in [1, 3, 5, 7, 9]", 240_000),
        (SHAPES3D, "not (object in [0, 2, 4, 6, 8] and wall in [0, 2, 4, 6, 8])", 360_000),
        (DSPRITES, "x > 0.5", 368_640),
        (DSPRITES, "shape == 0 and x > 0.5", 122_880),
        (DSPRITES, "shape == 0 and 7 < x < 24", 122_880),
        (MPI3D, "horizontal > 20", 492_480),
        (MPI3D, "colour > 3", 345_600),
        (MPI3D, "shape == 3 and horizontal < 20", 86_400),
        (MPI3D, "shape >= 4 and background == 2", 115_200),
        (
            MPI3D,
            "colour == 0 and shape == 0 and size == 0 and camera == 0 and background == 0 and horizontal > 35 and "
            "vertical > 35",
            16,
        ),
    ],
)
def test_conditions_of_published_studies_hold_out_as_many_images_as_theirs(factors, formula, rows):
    found = of(held_out=formula, names=factors, sizes=factors.values())
    assert len(found.outside) == rows
    assert found.count == math.prod(factors.values()) - rows
    assert found.is_even


@pytest.mark.parametrize(
    ("held_out", "is_held_out"),
    [
        ("interpolation", lambda i: i["shape"] == 1 or i["colour"] in (1, 3) or i["x"] == 1),
        ({"name": "interpolation", "factors": ["colour"]}, lambda i: i["colour"] in (1, 3)),
        ("extrapolation", lambda i: i["shape"] == 2 or i["colour"] >= 3 or i["x"] >= 2),
        ({"name": "extrapolation", "factors": ["x"], "share": 0.25}, lambda i: i["x"] == 3),
        ({"name": "composition", "factors": ["shape", "x"], "share": 0.34}, lambda i: i["shape"] == 2 and i["x"] == 3),
        ("composition", lambda i: (i["shape"] == 2) + (i["colour"] >= 3) + (i["x"] >= 2) >= 2),
    ],
)
def test_a_split_by_name_holds_out_what_its_docstring_says(held_out, is_held_out):
    found = of(held_out=held_out)
    np.testing.assert_array_equal(found.weights == 0, by_loop(lambda i, p: is_held_out(i)) > 0)


def test_a_composition_split_trains_on_every_value_of_each_factor():
    found = of(held_out="composition")
    shown = np.stack(np.unravel_index(found.inside, SIZES), axis=1)
    assert [len(np.unique(column)) for column in shown.T] == list(SIZES)


def test_a_random_split_holds_out_its_share_and_depends_only_on_its_seed():
    split = {"name": "random", "share": 0.7}
    assert len(of(held_out=split).outside) == 42
    np.testing.assert_array_equal(of(held_out=split).weights, of(held_out=split).weights)
    assert (of(held_out=split).weights != of(held_out={**split, "split_seed": 1}).weights).any()


def test_a_law_and_a_held_out_set_multiply():
    both = of(correlated(), "x == 3")
    weights = by_loop(lambda i, p: gauss(p["shape"] - p["colour"], 0.3) * (i["x"] != 3))
    np.testing.assert_allclose(both.weights / both.weights.sum(), weights)
    assert (both.count, both.is_even) == (45, False)


# ---- draws

DRAWS = 60_000


@pytest.mark.parametrize(("law", "held_out"), [(correlated(), None), (None, "x >= 2"), (correlated(), "shape == 1")])
def test_draws_follow_the_closed_form(law, held_out):
    """Pearson's chi-squared over all combinations; a wrong law of these sizes has p below 1e-9."""
    found = of(law, held_out)
    drawn = np.bincount(found.draw(np.random.default_rng(0), DRAWS), minlength=60)
    expected = DRAWS * found.weights / found.weights.sum()
    assert not drawn[expected == 0].any()
    kept = expected > 5
    assert kept.sum() > 25
    rest = [drawn[~kept].sum(), expected[~kept].sum()]
    seen, hoped = (np.append(one[kept], other) for one, other in zip((drawn, expected), rest, strict=True))
    seen, hoped = (seen[:-1], hoped[:-1]) if rest[1] == 0 else (seen, hoped)
    assert stats.chisquare(seen, hoped).pvalue > 1e-3


def test_every_number_between_0_and_1_draws_a_combination_above_0():
    """The first and the last combination have weight 0: a draw of 0 or of almost 1 must not give them."""

    class Ends:
        def random(self, size):
            return np.array([0.0, np.nextafter(1, 0)])

    found = of({"name": "weighted", "weight": "x * (1 - x) * (1 + shape)"})
    assert found.draw(Ends(), 2).tolist() == [found.inside[0], found.inside[-1]]
    assert found.inside[0] == 1


def test_draws_without_replacement_are_distinct_and_inside():
    found = of(held_out="x >= 2")
    drawn = found.draw(np.random.default_rng(0), 30, replacement=False)
    assert sorted(drawn) == found.inside.tolist()


# ---- pairs

ORDERED = np.ones(3, bool)
PAIR_LAWS = [pairs.Original(), pairs.UniformK(), pairs.FixedK(k=1), pairs.FixedK(k=2), pairs.Laplace()]


@pytest.mark.parametrize("law", PAIR_LAWS, ids=str)
def test_partners_are_never_held_out(law):
    found = of(correlated(), "shape == 1 and colour >= 3")
    rng = np.random.default_rng(0)
    images = found.draw(rng, 2000)
    assert found.weights[partners(law, images, found, ORDERED, rng)].min() > 0


def test_a_partner_follows_the_pair_law_times_the_weights():
    """`fixed_k` with k = 1 from one image: each of its 2 + 4 + 3 neighbours, in proportion to its weight."""
    found, rng = of(correlated()), np.random.default_rng(0)
    start = np.ravel_multi_index((1, 2, 3), SIZES)
    drawn = partners(pairs.FixedK(k=1), np.full(DRAWS, start), found, ORDERED, rng)
    # The factor is chosen before its value, each with probability 1/3.
    proposals = {(v, 2, 3): 1 / 6 for v in (0, 2)} | {(1, v, 3): 1 / 12 for v in (0, 1, 3, 4)}
    proposals |= {(1, 2, v): 1 / 9 for v in (0, 1, 2)}
    expected = np.zeros(60)
    for index, share in proposals.items():
        expected[np.ravel_multi_index(index, SIZES)] = share * found.weights[np.ravel_multi_index(index, SIZES)]
    expected *= DRAWS / expected.sum()
    counts = np.bincount(drawn, minlength=60)
    assert not counts[expected == 0].any()
    assert stats.chisquare(counts[expected > 0], expected[expected > 0]).pvalue > 1e-3


def test_an_unlikely_image_among_unlikely_ones_has_partners_by_their_weights(monkeypatch):
    """Weights near 1e-9 on one side, of 1 on the other: proposals are almost never kept, yet the law is the same."""
    monkeypatch.setattr(laws, "ROUNDS", 5)
    monkeypatch.setattr(laws, "PROPOSALS", 500)
    rng = np.random.default_rng(0)
    ends = of({"name": "weighted", "weight": "(x < 0.5) * (1 + colour) / 1000000000 + (x == 1.0)"})
    start = np.ravel_multi_index((1, 2, 0), SIZES)
    law = pairs.FixedK(k=1)
    drawn = np.array([partners(law, np.array([start]), ends, ORDERED, rng)[0] for _ in range(300)])
    # x changes with probability 1/3, to its last value with 1/3 of that: its weight outweighs all others
    assert (np.stack(np.unravel_index(drawn, SIZES), axis=1)[:, 2] == 3).all()
    without = of({"name": "weighted", "weight": "(x < 0.5) * (1 + colour) / 1000000000 + (x == 1.0) * (shape == 0)"})
    drawn = np.array([partners(law, np.array([start]), without, ORDERED, rng)[0] for _ in range(300)])
    places = np.stack(np.unravel_index(drawn, SIZES), axis=1)
    proposals = {(v, 2, 0): 1 / 6 for v in (0, 2)} | {(1, v, 0): 1 / 12 for v in (0, 1, 3, 4)} | {(1, 2, 1): 1 / 9}
    weights = np.array([share * without.weights[np.ravel_multi_index(i, SIZES)] for i, share in proposals.items()])
    counts = np.array([(places == i).all(axis=1).sum() for i in proposals])
    assert counts.sum() == 300
    assert stats.chisquare(counts, 300 * weights / weights.sum()).pvalue > 1e-3


def test_without_a_weight_partners_are_those_of_the_pair_law():
    """A law that is even everywhere accepts the first proposal, so the generator is used as without a law."""
    even = of({"name": "weighted", "weight": "1"})
    images = np.arange(60)
    ours = partners(pairs.UniformK(), images, even, ORDERED, np.random.default_rng(5))
    factors = np.stack(np.unravel_index(images, SIZES), axis=-1)
    theirs = pairs.UniformK().draw(factors, SIZES, ORDERED, np.random.default_rng(5))
    np.testing.assert_array_equal(ours, np.ravel_multi_index(tuple(theirs.T), SIZES))


def test_a_pair_law_that_can_find_no_partner_is_refused_with_the_image():
    alone = of(held_out="not (shape == x == colour)", names=("shape", "colour", "x"), sizes=(2, 2, 2))
    assert alone.count == 2
    with pytest.raises(ValueError, match=r"'fixed_k' finds no partner for the image with shape \d, colour \d, x \d"):
        try_partners(pairs.FixedK(k=1), alone)
    with pytest.raises(DataError):
        partners(pairs.FixedK(k=2), alone.inside, alone, ORDERED, np.random.default_rng(0))
    try_partners(pairs.FixedK(k=3), alone)


# ---- refusals


@pytest.mark.parametrize(
    ("law", "held_out", "key", "reason"),
    [
        (correlated("shap"), None, "law", "unknown factor 'shap'. Did you mean 'shape'?"),
        (correlated("shape", "shape"), None, "law", "factors must be different, got shape, shape"),
        ({"name": "weighted", "weight": "x - 0.5"}, None, "law", "finite and >= 0, but it gives a combination"),
        ({"name": "weighted", "weight": "1 / x"}, None, "law", "the weight inf"),
        ({"name": "weighted", "weight": "0 * x"}, None, "law", "nothing is left to train on"),
        ({"name": "joint", "factors": ["shape", "x"], "table": [[1, 2]]}, None, "law", "must have 3 rows"),
        ({"name": "as_released", "factors": ["shape", "x"], "width": 0.2}, None, "law", "one pixel thick"),
        (None, "x > 1.0", "held_out", "holds out nothing: no combination of shape, colour, x fits it"),
        (None, "x >= 0", "held_out", "holds out every combination of factors, so nothing is left to train on"),
        (None, "x + 1", "held_out", "neither true nor false"),
        (None, "x == 1 and", "held_out", "cannot be read"),
        (None, {"name": "composition", "factors": ["x"]}, "held_out", "needs two or more factors"),
        ({"name": "weighted", "weight": "x == 1"}, "x == 1", "held_out", "that the law draws, so nothing is left"),
    ],
)
def test_a_law_that_cannot_be_used_is_refused_by_its_key(law, held_out, key, reason):
    with pytest.raises(LawError) as caught:
        of(law, held_out)
    assert caught.value.key == key
    assert reason in str(caught.value)


def test_a_factor_of_one_value_cannot_be_correlated():
    with pytest.raises(LawError, match="factor 'x' has one value"):
        of(correlated("shape", "x"), sizes=(3, 5, 1))


def test_an_interpolation_needs_three_values():
    with pytest.raises(LawError, match="factor 'x' has 2 values, but this split needs 3 or more"):
        of(held_out={"name": "interpolation", "factors": ["x"]}, sizes=(3, 5, 2))
