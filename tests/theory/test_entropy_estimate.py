"""Appendix C of Mathieu et al., ICML 2019: the entropy of q(z) estimated from a batch tends to log n + E H[q(z|x)]."""

import math

import numpy as np
import pytest
from scipy import stats


def naive(some, batch, rng):
    """Eq. 10 by loops over scipy's densities, with the same draws."""
    n, d = some.means.shape
    means = some.means[rng.choice(n, batch, replace=False)]
    z = means + some.deviation * rng.standard_normal((batch, d))
    total = 0.0
    for i in range(batch):
        densities = [stats.norm(mean, some.deviation).pdf(z[i]).prod() for mean in means]
        others = sum(densities) - densities[i]
        total -= math.log(densities[i] / n + (n - 1) / (n * (batch - 1)) * others)
    return total / batch


def test_the_estimate_is_that_of_equation_10(theory):
    some = theory.posteriors(n=50, d=3, deviation=0.4)
    found = theory.entropy_estimate(some, 7, np.random.default_rng(3))
    assert found == pytest.approx(naive(some, 7, np.random.default_rng(3)), rel=1e-10)


def test_a_batch_of_everything_has_no_bias(theory):
    """Then the estimate is a plain mean of -log q(z) over draws from q(z)."""
    some = theory.posteriors(n=256, d=3, deviation=0.4)
    found = theory.estimates(some, 256, repeats=20)
    error = found.std(ddof=1) / math.sqrt(20)
    assert found.mean() == pytest.approx(theory.entropy(some, draws=20_000), abs=5 * error)


def test_posteriors_that_do_not_overlap_give_the_limit_in_any_batch(theory):
    some = theory.posteriors(n=256, d=6, deviation=0.01)
    for batch in (2, 16, 128):
        found = theory.estimates(some, batch, repeats=30)
        assert found.mean() == pytest.approx(some.limit, abs=5 * found.std(ddof=1) / math.sqrt(30))


def test_small_batches_come_out_too_large_and_never_above_the_limit(theory):
    some = theory.posteriors(n=512, d=4, deviation=0.3)
    truth = theory.entropy(some, draws=4000)
    means = [theory.estimates(some, batch, repeats=40).mean() for batch in (4, 16, 64, 256)]
    assert means == sorted(means, reverse=True)
    assert means[0] > truth + 0.5
    assert means[0] < some.limit + 0.2


def test_the_limit_is_log_n_above_the_mean_entropy_of_the_posteriors(theory):
    some = theory.posteriors(n=100, d=5, deviation=0.3)
    assert some.limit == pytest.approx(math.log(100) + 5 * stats.norm(0, 0.3).entropy())
