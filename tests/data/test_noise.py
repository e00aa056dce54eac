"""Noise that belongs to an image."""

import numpy as np
import pytest
from scipy import stats

from disentune.data.noise import fractions, noise_keys, octets

WORD = 0xE220A8397B1DCDAF
"""SplitMix64's first word of the seed 0, and so of the key 0."""


def test_octets_are_the_bytes_of_the_words_from_the_lowest():
    assert octets(np.array([0]), 8).tolist() == [list(WORD.to_bytes(8, "little"))]


def test_a_fraction_is_the_upper_53_bits_of_a_word():
    assert fractions(np.array([0]), 1).tolist() == [[(WORD >> 11) / 2**53]]


@pytest.mark.parametrize("count", [1, 7, 8, 9, 63])
@pytest.mark.parametrize("draw", [octets, fractions])
def test_fewer_numbers_are_the_first_of_more(draw, count):
    keys = np.array([3, 1, 4])
    drawn = draw(keys, count)
    assert drawn.shape == (3, count)
    np.testing.assert_array_equal(drawn, draw(keys, 64)[:, :count])


@pytest.mark.parametrize("draw", [octets, fractions])
def test_noise_is_fixed_by_its_key_whatever_is_drawn_with_it(draw):
    together = draw(np.array([5, 9, 5, -2]), 21)
    np.testing.assert_array_equal(together[0], together[2])
    for i, key in enumerate([5, 9, 5, -2]):
        np.testing.assert_array_equal(draw(np.array([key]), 21)[0], together[i])
    assert len(np.unique(together, axis=0)) == 3


def test_octets_are_uniform():
    counts = np.bincount(octets(np.arange(1000), 101).ravel(), minlength=256)
    assert octets(np.arange(2), 3).dtype == np.uint8
    assert stats.chisquare(counts).pvalue > 1e-6


def test_fractions_are_uniform_from_zero_to_one():
    drawn = fractions(np.arange(1000), 101)
    assert drawn.dtype == np.float64
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert stats.kstest(drawn.ravel(), "uniform").pvalue > 1e-6
    assert stats.kstest(drawn[:, 0], "uniform").pvalue > 1e-6


def test_without_a_generator_an_image_has_its_own_key():
    indices = np.arange(10, dtype=np.int32)[::-2]
    indices.setflags(write=False)
    keys = noise_keys(indices, None)
    assert keys.dtype == np.int64
    np.testing.assert_array_equal(octets(keys, 5)[1], octets(noise_keys(np.array([7]), None), 5)[0])
    assert len(np.unique(keys)) == 5


def test_the_noise_of_a_data_set_is_not_that_of_the_networks_input():
    """`transforms.disturbed` is keyed by the index itself."""
    indices = np.arange(10_000)
    own, other = (fractions(keys, 1)[:, 0] for keys in (noise_keys(indices, None), indices))
    assert abs(np.corrcoef(own, other)[0, 1]) < 0.05  # five standard errors


def test_the_order_of_images_changes_no_noise():
    there, back = np.arange(6), np.arange(6)[::-1]
    for draw in (octets, fractions):
        np.testing.assert_array_equal(draw(noise_keys(there, None), 5), draw(noise_keys(back, None), 5)[::-1])


def test_a_generator_gives_fresh_keys_to_every_draw_and_every_copy_of_an_image():
    rng = np.random.default_rng(0)
    first, second = (noise_keys(np.array([4, 4, 4]), rng) for _ in range(2))
    assert len({*first, *second, 4}) == 7
    assert min(*first, *second) >= 0
    np.testing.assert_array_equal(noise_keys(np.array([1, 2, 3]), np.random.default_rng(0)), first)
