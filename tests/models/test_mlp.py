"""The multi-layer perceptron."""

import pytest
import torch
from torch import nn

from disentune.models.mlp import MODEL, Params


def widths(network):
    return [(layer.in_features, layer.out_features) for layer in network if isinstance(layer, nn.Linear)]


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_layers_have_the_asked_widths(depth):
    model = MODEL.build((2, 5, 7), 2, Params(latents=3, width=11, depth=depth), torch.Generator())
    middle = [(11, 11)] * (depth - 1)
    assert widths(model.encoder) == [(70, 11), *middle, (11, 6)]
    assert widths(model.decoder) == [(3, 11), *middle, (11, 70)]


def test_activations_are_between_layers_and_not_at_the_end():
    model = MODEL.build((1, 4, 4), 1, Params(latents=2), torch.Generator())
    assert [type(layer).__name__ for layer in model.encoder] == ["Flatten", *["Linear", "ReLU"] * 2, "Linear"]
    assert [type(layer).__name__ for layer in model.decoder] == [*["Linear", "ReLU"] * 2, "Linear", "Unflatten"]


def test_any_shape_fits():
    MODEL.check((1, 3, 9), Params(latents=2))
    model = MODEL.build((1, 3, 9), 1, Params(latents=2), torch.Generator())
    assert model.decode(torch.zeros(4, 2)).shape == (4, 1, 3, 9)
