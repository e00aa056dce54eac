"""UDR against its definition written as loops over sklearn's Lasso and scipy's Spearman, and the published values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from sklearn.linear_model import Lasso
from sklearn.preprocessing import StandardScaler

from disentune.metrics import udr as module
from disentune.metrics.udr import agreement, lasso, standardised, udr

METHODS = ("lasso", "spearman")
pytestmark = pytest.mark.filterwarnings("error")


def gaussian(rows=1000, latents=10, seed=0):
    return np.random.default_rng(seed).normal(size=(rows, latents))


def signed_permutation(codes, seed=1):
    rng = np.random.default_rng(seed)
    signs = rng.choice([-1, 1], codes.shape[1])
    return codes[:, rng.permutation(codes.shape[1])] * signs


def mixed(codes, latents, seed):
    """Other latents that agree with some of the codes' a little."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(len(codes), latents))
    return codes @ rng.normal(size=(codes.shape[1], latents)) ** 3 + noise


def ones(*models):
    return [np.ones(codes.shape[1]) for codes in models]


# ---- the definition, slowly


def naive_relation(source, target, method):
    """(d_i, d_j) by the libraries that the published code uses."""
    if method == "spearman":
        return np.array([[abs(spearmanr(a, b).statistic) for b in target.T] for a in source.T])
    source, target = StandardScaler().fit_transform(source), StandardScaler().fit_transform(target)
    return np.abs(
        Lasso(alpha=0.1, tol=1e-12, max_iter=100_000).fit(source, target).coef_.T.reshape(-1, target.shape[1])
    )


def naive_score(relation):
    def part(lines):
        values = [max(line) ** 2 / sum(line) if sum(line) > 0 else 0.0 for line in lines]
        return sum(values) / len(values)

    return 0.5 * (part(relation.T.tolist()) + part(relation.tolist()))


def naive_udr(codes, kls, method, threshold):
    kept = [one[:, kl > threshold] for one, kl in zip(codes, kls, strict=True)]
    scores = []
    for i, target in enumerate(kept):
        others = [source for j, source in enumerate(kept) if j != i]
        scores.append(np.median([naive_score(naive_relation(source, target, method)) for source in others]))
    return scores


@pytest.mark.parametrize("method", METHODS)
def test_udr_is_its_definition_written_as_loops(method):
    z = gaussian(rows=200, latents=4)
    codes = [mixed(z, latents, seed) for seed, latents in enumerate((3, 5, 4, 2))]
    kls = [np.linspace(0, 1, one.shape[1]) for one in codes]  # each model's first latent is pruned
    assert udr(codes, kls, method).scores == pytest.approx(naive_udr(codes, kls, method, 0.01), abs=1e-6)
    assert udr(codes, kls, method, 0.4).scores == pytest.approx(naive_udr(codes, kls, method, 0.4), abs=1e-6)


def test_pairs_have_the_source_in_rows_and_the_target_in_columns():
    z = gaussian(rows=300, latents=3)
    codes = [mixed(z, 3, 0), mixed(z, 5, 1), mixed(z, 2, 2)]
    found = udr(codes, ones(*codes))
    for i, source in enumerate(codes):
        for j, target in enumerate(codes):
            expected = 0 if i == j else naive_score(naive_relation(source, target, "lasso"))
            assert found.pairs[i, j] == pytest.approx(expected, abs=1e-6)
    assert found.pairs[0, 1] != pytest.approx(found.pairs[1, 0], abs=1e-3), "the Lasso is not symmetric"
    assert found.scores[1] == pytest.approx((found.pairs[0, 1] + found.pairs[2, 1]) / 2)


def test_a_models_score_is_the_median_not_the_mean_over_the_others():
    z = gaussian(latents=3)
    found = udr([z, -z, z, gaussian(latents=3, seed=9)], [np.ones(3)] * 4)
    assert found.scores[:3] == pytest.approx([0.9, 0.9, 0.9], abs=1e-9)
    assert found.scores[3] == 0


# ---- the Lasso


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows", [30, 2000])
def test_lasso_of_all_targets_at_once_is_that_of_each(seed, rows):
    z = gaussian(rows, 6, seed)
    x, y = standardised(z @ np.random.default_rng(seed).normal(size=(6, 6))), standardised(mixed(z, 4, seed))
    weights = lasso(x, y)
    each = [Lasso(alpha=0.1, tol=1e-12, max_iter=100_000).fit(x, target).coef_ for target in y.T]
    expected = np.stack(each, axis=1)
    assert np.abs(weights - expected).max() < 1e-6
    assert np.count_nonzero(weights) == np.count_nonzero(expected)


def test_lasso_takes_the_same_of_two_equal_inputs_as_sklearn():
    x = standardised(gaussian(100, 2))
    x = np.column_stack([x, x[:, :1]])
    expected = Lasso(alpha=0.1, tol=1e-12, max_iter=100_000).fit(x, x[:, :1]).coef_
    assert lasso(x, x[:, :1])[:, 0] == pytest.approx(expected, abs=1e-6)


def test_lasso_ends_although_two_inputs_are_almost_equal(monkeypatch):
    monkeypatch.setattr(module, "SWEEPS", 50)
    x = gaussian(100, 1)
    x = standardised(np.column_stack([x, x + 1e-9 * gaussian(100, 1, seed=1)]))
    assert np.isfinite(lasso(x, x)).all()


# ---- published values


def test_models_equal_up_to_order_and_sign_score_nine_tenths():
    """Published: 0.8 to 1. Exactly 0.9 on the diagonal: the Lasso's penalty of 0.1 shrinks the one weight of 1. The
    other weights are 0, as no correlation of 1000 independent draws is near 0.1 * 10."""
    z = gaussian()
    found = udr([z, signed_permutation(z)], [np.ones(10)] * 2)
    assert found.scores == pytest.approx([0.9, 0.9], abs=1e-6)


def test_spearman_has_no_such_ceiling():
    z = gaussian(rows=5000, latents=1)
    assert udr([z, -(z**3)], ones(z, z), "spearman").scores == pytest.approx([1, 1])
    z = gaussian()
    sizes = udr([z, signed_permutation(z)], [np.ones(10)] * 2, "spearman").scores
    assert (sizes > 0.75).all()  # 1 / (1 + 9 * 0.025): chance correlations of 1000 draws, each about 0.025, dilute it


def test_one_live_latent_of_ten_counts_for_a_tenth_without_the_filter():
    """Published: 0 to 0.2 without, 0.8 to 1 with. By hand: 0.9 / 10 in both directions, and 0.9."""
    live = gaussian(latents=1)
    codes = [
        np.column_stack([live, gaussian(latents=9, seed=1)]),
        np.column_stack([gaussian(latents=9, seed=2), -live]),
    ]
    kls = [np.eye(10)[0], np.eye(10)[9]]
    assert udr(codes, kls, threshold=-1).scores == pytest.approx([0.09, 0.09], abs=0.002)  # one chance weight of 0.01
    assert udr(codes, kls).scores == pytest.approx([0.9, 0.9], abs=1e-6)
    assert udr(codes, kls, "spearman").scores == pytest.approx([1, 1])


# ---- agreement


@pytest.mark.parametrize(
    ("relation", "expected"),
    [
        (np.eye(3), 1.0),
        (np.eye(3)[[2, 0, 1]] * 0.9, 0.9),
        (np.ones((2, 2)), 0.5),
        ([[1.0, 1.0]], (1 + 0.5) / 2),  # each column has its one partner, the row has two
        ([[0.5], [0.0]], (0.5 + 0.25) / 2),  # a row without a partner counts 0
        ([[3.0, 1.0]], (2 + 9 / 4) / 2),
        (np.zeros((2, 3)), 0.0),
        (np.zeros((0, 3)), 0.0),
        (np.zeros((3, 0)), 0.0),
    ],
)
def test_agreement_is_the_mean_of_max_squared_over_sum_both_ways(relation, expected):
    assert agreement(np.asarray(relation, float)) == pytest.approx(expected)


# ---- latents that do not count


def test_a_latent_at_the_threshold_is_left_out():
    z = gaussian(rows=100, latents=3)
    at, above = np.array([1, 1, 0.01]), np.array([1, 1, 0.0101])
    assert udr([z, z[:, :2]], [at, np.ones(2)]).scores == pytest.approx([0.9, 0.9], abs=0.05)
    assert udr([z, z[:, :2]], [at, np.ones(2)]).pairs[0, 1] == udr([z[:, :2]] * 2, [np.ones(2)] * 2).pairs[0, 1]
    assert udr([z, z[:, :2]], [above, np.ones(2)]).scores[0] < 0.8


@pytest.mark.parametrize("method", METHODS)
def test_models_without_a_live_latent_score_zero(method):
    z = gaussian(rows=100, latents=2)
    assert udr([z, z], [np.zeros(2), np.zeros(2)], method).scores.tolist() == [0, 0]
    assert udr([z, z], [np.zeros(2), np.ones(2)], method).scores.tolist() == [0, 0]
    assert udr([z, z, z], [np.zeros(2), np.ones(2), np.ones(2)], method).scores[0] == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("constant", [0.0, 0.1, -3e38])
def test_a_constant_latent_that_stays_agrees_with_none(method, constant):
    z = gaussian(latents=1)
    codes = np.column_stack([z, np.full(len(z), constant)])
    top = 0.9 if method == "lasso" else 1.0
    assert udr([codes, codes], ones(codes, codes), method).scores == pytest.approx([top / 2, top / 2])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scale", [1e-300, 1e37])
def test_tiny_and_huge_codes_are_codes(method, scale):
    z = gaussian(rows=200, latents=3)
    expected = udr([z, mixed(z, 3, 0)], [np.ones(3)] * 2, method).scores
    assert udr([z * scale, mixed(z, 3, 0)], [np.ones(3)] * 2, method).scores == pytest.approx(expected)


def test_standardised_codes_have_mean_0_and_variance_1():
    unit = standardised(5 + 3 * gaussian(50, 3))
    np.testing.assert_allclose(unit, StandardScaler().fit_transform(5 + 3 * gaussian(50, 3)), atol=1e-12)


# ---- invariances

MODELS = st.integers(0, 2**32 - 1)


@given(seed=MODELS, method=st.sampled_from(METHODS))
@settings(max_examples=20, deadline=None)
def test_order_sign_shift_and_scale_of_latents_do_not_matter(seed, method):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, 3))
    codes = [mixed(z, latents, seed + latents) for latents in (2, 3, 4)]
    changed = [signed_permutation(one, seed) * rng.uniform(0.1, 9, one.shape[1]) + rng.normal() for one in codes]
    expected, found = udr(codes, ones(*codes), method), udr(changed, ones(*codes), method)
    np.testing.assert_allclose(found.pairs, expected.pairs, atol=1e-5)  # the descent ends within a tolerance


@given(seed=MODELS, method=st.sampled_from(METHODS))
@settings(max_examples=20, deadline=None)
def test_order_of_images_does_not_matter_and_order_of_models_orders_the_scores(seed, method):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(60, 3))
    codes = [mixed(z, latents, seed + latents) for latents in (2, 3, 4, 3)]
    rows, models = rng.permutation(60), rng.permutation(4)
    expected = udr(codes, ones(*codes), method)
    found = udr([codes[i][rows] for i in models], [np.ones(codes[i].shape[1]) for i in models], method)
    np.testing.assert_allclose(found.scores, expected.scores[models], atol=1e-7)
    np.testing.assert_allclose(found.pairs, expected.pairs[np.ix_(models, models)], atol=1e-7)


@given(seed=MODELS)
@settings(max_examples=10, deadline=None)
def test_spearman_sees_only_the_order_of_values(seed):
    z = np.random.default_rng(seed).normal(size=(50, 3))
    codes, curved = [z, mixed(z, 3, seed)], [np.exp(z), mixed(z, 3, seed) ** 3]
    np.testing.assert_allclose(
        udr(curved, ones(*curved), "spearman").scores, udr(codes, ones(*codes), "spearman").scores
    )


@given(seed=MODELS, method=st.sampled_from(METHODS))
@settings(max_examples=20, deadline=None)
def test_scores_lie_between_0_and_1_for_nearly_uncorrelated_latents(seed, method):
    rng = np.random.default_rng(seed)
    codes = [np.linalg.qr(rng.normal(size=(50, latents)))[0] for latents in (1, 3, 4)]
    scores = udr(codes, ones(*codes), method).scores
    assert ((scores >= 0) & (scores <= 1)).all()


def test_tied_values_share_their_mean_rank():
    codes = [np.array([[0], [0], [1], [2.0]]), np.array([[0], [1], [1], [2.0]])]
    expected = abs(spearmanr(codes[0][:, 0], codes[1][:, 0]).statistic)
    assert udr(codes, ones(*codes), "spearman").scores == pytest.approx([expected, expected])


# ---- what cannot be scored
