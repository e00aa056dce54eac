"""What the best latent tells about each factor."""

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.metrics import mutual_info_score

from disentune.metrics import METRICS, score, scored
from disentune.metrics.information import binned
from disentune.metrics.table import table_of
from metric_examples import factors_of, noisy


def values(codes, factors, **params):
    metric = METRICS["factor_information"]
    return scored(metric, table_of(codes, factors), 0, metric.params(**params)).details["factor_information_values"]


def test_each_share_is_that_of_scikit_learn_and_scipy():
    factors = factors_of()
    codes = noisy(factors)
    bins = binned(codes, 7)
    expected = [
        max(mutual_info_score(code, labels) for code in bins.T) / entropy(np.bincount(labels)) for labels in factors.T
    ]
    np.testing.assert_allclose(values(codes, factors, bins=7), expected)


def test_a_latent_that_is_the_factor_tells_all_of_it_and_a_constant_one_nothing():
    factors = factors_of()
    codes = np.column_stack([factors[:, 2], np.zeros(len(factors))]).astype(float)
    found = values(codes, factors)
    assert found[2] == pytest.approx(1)
    np.testing.assert_allclose(found[:2], 0, atol=1e-12)  # every combination occurs equally often


def test_a_factor_of_one_value_counts_zero():
    factors = np.column_stack([factors_of()[:, 0], np.zeros(len(factors_of()), int)])
    assert values(factors * 1.0, factors).tolist() == [pytest.approx(1), 0]


def test_the_number_is_the_mean_over_factors():
    factors = factors_of()
    codes = noisy(factors)
    assert score("factor_information", codes, factors)["factor_information"] == values(codes, factors).mean()
