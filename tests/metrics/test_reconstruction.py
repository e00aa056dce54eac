"""Reconstruction is the mean of what the table says of its rows."""

from dataclasses import replace

import numpy as np
import pytest

from disentune.errors import DataError
from disentune.metrics import scores
from disentune.metrics.table import table_of


def scored(losses, size="full", seed=0, **params):
    asked = []

    def reconstruction(rows):
        asked.append(rows)
        return losses[rows]

    table = replace(table_of(np.zeros((len(losses), 2))), reconstruction=reconstruction)
    return scores("reconstruction", table, seed, size, params).numbers["reconstruction"], np.concatenate(asked)


def test_all_of_a_small_table_is_averaged():
    losses = np.random.default_rng(0).random(500)
    value, rows = scored(losses)
    assert value == pytest.approx(losses.mean(), abs=1e-12)
    assert sorted(rows) == list(range(500))


def test_of_a_large_table_distinct_rows_are_drawn_by_seed():
    losses = np.random.default_rng(0).random(12_000)
    value, rows = scored(losses)
    assert len(set(rows)) == 10_000
    assert value == pytest.approx(losses[rows].mean(), abs=1e-12)
    assert scored(losses, seed=1)[0] != value
    assert len(scored(losses, "fast")[1]) == 2000
    assert len(scored(losses, samples=7)[1]) == 7


def test_single_precision_losses_are_summed_in_double():
    losses = np.full(10_000, 0.1, np.float32)
    assert scored(losses)[0] == pytest.approx(float(np.float32(0.1)), rel=1e-12)


def test_a_loss_that_is_not_a_number_is_an_error():
    with pytest.raises(DataError, match="reconstruction is nan"):
        scored(np.array([1.0, np.nan]))
