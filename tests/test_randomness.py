"""Streams depend on their name alone."""

import hashlib

import numpy as np

from disentune.randomness import metric_rng, stream, torch_seed


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
