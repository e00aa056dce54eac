"""Streams depend on their name alone."""

import hashlib

import numpy as np
import pytest
import torch

from disentune.maths.randomness import metric_rng, scrambled, stream, torch_seed


def test_values_are_the_same_on_every_machine_and_in_every_process():
    assert stream(0, "noise").integers(2**63, size=2).tolist() == [9111142843814214756, 313796413731515117]
    assert stream(0, "noise", 5).integers(2**63, size=1).tolist() == [2189000204862878156]
    assert torch_seed(0, "weights") == 4194789700723333633


def test_key_is_the_hash_of_seed_and_purpose():
    key = stream(7, "data").bit_generator.state["state"]["key"]
    assert key.tobytes() == hashlib.sha256(b"7/data").digest()[:16]


def test_counter_fills_the_high_word_so_streams_never_overlap():
    state = stream(0, "noise", 3).bit_generator.state["state"]
    assert state["counter"].tolist() == [0, 0, 0, 3]


def test_seed_purpose_and_counter_each_change_the_stream():
    streams = [stream(0, "a"), stream(1, "a"), stream(0, "b"), stream(0, "a", 1), metric_rng(0, "a")]
    assert len({generator.integers(2**63) for generator in streams}) == len(streams)


def test_torch_seeds_have_63_bits_and_depend_on_both_parts():
    seeds = [torch_seed(seed, purpose) for seed in range(100) for purpose in ("a", "b")]
    assert len(set(seeds)) == 200
    assert 2**62 < max(seeds) < 2**63


def test_a_stream_is_normal_where_it_should_be():
    draws = stream(0, "noise").standard_normal(100_000)
    assert abs(draws.mean()) < 4 / np.sqrt(100_000)
    assert abs(draws.var() - 1) < 4 * np.sqrt(2 / 100_000)


# ---- one sequence for each key

KEYS = [0, 1, 2, 12345, 2**40 + 1, 2**63 - 1, -1, -(2**63)]


def mixed(word):
    """SplitMix64's output function (Steele et al. 2014) with Vigna's constants, in Python's own integers."""
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB % 2**64
    return word ^ (word >> 31)


def split_mix(seed, count):
    return [mixed((seed + i * 0x9E3779B97F4A7C15) % 2**64) for i in range(1, count + 1)]


def words(keys, count):
    """As whole numbers from 0 to 2**64 - 1."""
    return scrambled(torch.tensor(keys), count).numpy().view(np.uint64)


def test_the_oracle_has_the_published_values():
    assert split_mix(0, 3) == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert split_mix(1234567, 2) == [6457827717110365317, 3203168211198807973]


def test_the_key_zero_gives_the_published_sequence():
    assert words([0], 3).tolist() == [[0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]]


def test_a_row_is_split_mix_from_the_scrambled_key():
    assert words(KEYS, 20).tolist() == [split_mix(mixed(key % 2**64), 20) for key in KEYS]


def test_a_row_depends_on_its_key_alone():
    together = words(KEYS, 5)
    for key, row in zip(KEYS, together, strict=True):
        assert words([key], 5).tolist() == [row.tolist()]
        assert words([7, key, key], 9)[1:, :5].tolist() == [row.tolist()] * 2


def test_keys_are_left_as_they_were():
    keys = torch.arange(5)
    scrambled(keys, 3)
    assert keys.tolist() == [0, 1, 2, 3, 4]


def bits(keys, count):
    """float64 (n, 64 count) of 0 and 1."""
    return np.unpackbits(words(keys, count).view(np.uint8), axis=1).astype(float)


@pytest.mark.parametrize("step", [1, 2**32, 0x9E3779B97F4A7C15 - 2**64])
def test_neighbouring_keys_have_bits_that_know_nothing_of_each_other(step):
    """Agreements of n fair bits have deviation sqrt(n) / 2; 5 of them happen to 1 row in 1.7 million, and 399 are seen.

    The last step is that of SplitMix64 itself: without scrambled keys, a row would be its neighbour's, moved by one.
    """
    keys = [(i * step + 2**63) % 2**64 - 2**63 for i in range(200)]
    rows = bits(keys, 64)
    length = rows.shape[1]
    agreements = (rows[1:] == rows[:-1]).sum(axis=1)
    moved = (rows[1:, :-64] == rows[:-1, 64:]).sum(axis=1)
    assert np.abs(agreements - length / 2).max() < 5 * length**0.5 / 2
    assert np.abs(moved - (length - 64) / 2).max() < 5 * (length - 64) ** 0.5 / 2
    assert np.abs(rows.mean(axis=0) - 0.5).max() < 6 * 0.5 / 200**0.5  # of 4096 places: 1 in 120,000 by chance


def test_each_of_the_256_octets_comes_as_often_as_chance_has_it():
    """Chi-square with 255 degrees of freedom has mean 255 and deviation 22.6: beyond 390 lies 1e-7."""
    for column in (0, 1, 7):
        octets = words(list(range(20_000)), 1).view(np.uint8)[:, column]
        counts = np.bincount(octets, minlength=256)
        expected = 20_000 / 256
        assert ((counts - expected) ** 2 / expected).sum() < 390
