"""The KL of the latent that each factor is matched with."""

import itertools

import numpy as np
import pytest

from disentune.metrics import METRICS, scored
from disentune.metrics.kl_per_factor import matched
from disentune.metrics.kl_per_latent import kl_to_prior
from disentune.metrics.table import table_of
from metric_examples import factors_of


def details(codes, factors, logvars, **params):
    metric = METRICS["kl_per_factor"]
    return scored(metric, table_of(codes, factors, logvars), 0, metric.params(**params)).details


def test_each_factor_gets_the_kl_of_its_own_latent():
    factors = factors_of()
    codes = np.column_stack([factors[:, 2], np.zeros(len(factors)), factors[:, 0], factors[:, 1]]).astype(float)
    logvars = np.tile([-1.0, 0.0, -2.0, -3.0], (len(codes), 1))
    kl = kl_to_prior(codes, logvars)
    found = details(codes, factors, logvars)
    np.testing.assert_allclose(found["kl_per_factor_values"], kl[[2, 3, 0]])
    assert found["kl_per_factor_names"].tolist() == ["factor 0", "factor 1", "factor 2"]


@pytest.mark.parametrize(("d", "k"), [(4, 3), (3, 3), (2, 3)])
def test_the_match_has_the_largest_sum_of_information(d, k):
    """By trying every assignment."""
    rng = np.random.default_rng(0)
    information, kl = rng.random((d, k)), np.arange(1.0, d + 1)
    if d >= k:
        options = [dict(enumerate(latents)) for latents in itertools.permutations(range(d), k)]
    else:
        options = [{factor: latent for latent, factor in enumerate(own)} for own in itertools.permutations(range(k), d)]
    best = max(options, key=lambda one: sum(information[latent, factor] for factor, latent in one.items()))
    expected = [kl[best[factor]] if factor in best else 0 for factor in range(k)]
    np.testing.assert_array_equal(matched(information, kl), expected)


def test_the_number_is_the_mean_over_factors():
    factors = factors_of()
    metric, table = METRICS["kl_per_factor"], table_of(factors * 1.0, factors, np.full(factors.shape, -1.0))
    found = scored(metric, table, 0, metric.params())
    assert found.numbers["kl_per_factor"] == pytest.approx(found.details["kl_per_factor_values"].mean())
