"""Checkpoints as bytes: whole or refused, and weights that are named by their contents."""

import pytest
import torch

from disentune.errors import TrialError
from disentune.files.checkpoint import packed, unpacked, weights_hash

WEIGHTS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.zeros(2)}


def test_a_state_comes_back_as_it_was():
    found = unpacked(packed({"step": 3, "model": WEIGHTS}), "file")
    assert found["step"] == 3
    assert all(torch.equal(found["model"][name], WEIGHTS[name]) for name in WEIGHTS)


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: b"x" + data, lambda data: data + b"x"])
def test_damaged_bytes_are_refused_by_the_files_name(damage):
    with pytest.raises(TrialError, match="some/file is damaged"):
        unpacked(damage(packed({"step": 3})), "some/file")


def test_weights_are_named_by_names_kinds_shapes_and_values():
    others = [
        {**WEIGHTS, "a.bias": torch.ones(2)},
        {**WEIGHTS, "a.bias": torch.zeros(2, dtype=torch.float64)},
        {**WEIGHTS, "a.weight": WEIGHTS["a.weight"].reshape(3, 2)},
        {"b.weight": WEIGHTS["a.weight"], "a.bias": WEIGHTS["a.bias"]},
    ]
    assert len({weights_hash(weights) for weights in [WEIGHTS, *others]}) == 5


def test_the_order_and_layout_of_weights_do_not_matter():
    turned = WEIGHTS["a.weight"].T.contiguous().T
    assert weights_hash(dict(reversed(WEIGHTS.items()))) == weights_hash(WEIGHTS)
    assert weights_hash({**WEIGHTS, "a.weight": turned}) == weights_hash(WEIGHTS)
