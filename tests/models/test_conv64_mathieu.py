"""Network 1a of Mathieu et al., ICML 2019."""

import pytest
import torch
from torch import nn

from disentune.models.conv64_mathieu import ARCHITECTURE, MODEL, Params


def built(shape=(1, 64, 64), latents=10):
    return MODEL.build(shape, shape[0], Params(latents=latents), torch.Generator().manual_seed(0))


def test_parameters_are_as_many_as_the_table_says():
    """Convolutions 4x4: inputs * outputs * 16 + outputs; dense: inputs * outputs + outputs."""
    convolutions = [1 * 32, 32 * 32, 32 * 64, 64 * 64]
    encoder = 16 * sum(convolutions) + (32 + 32 + 64 + 64) + (1024 * 128 + 128) + (128 * 20 + 20)
    decoder = 16 * (64 * 64 + 64 * 32 + 32 * 32 + 32 * 1) + (64 + 32 + 32 + 1) + (10 * 128 + 128) + (128 * 1024 + 1024)
    model = built()
    assert [sum(p.numel() for p in part.parameters()) for part in (model.encoder, model.decoder)] == [encoder, decoder]


def test_the_dense_layer_of_the_encoder_has_no_activation_and_those_of_the_decoder_have():
    model = built()
    kinds = [type(layer) for layer in model.encoder]
    assert kinds[-3:] == [nn.Flatten, nn.Linear, nn.Linear]
    assert [type(layer) for layer in model.decoder][:4] == [nn.Linear, nn.ReLU, nn.Linear, nn.ReLU]
    assert model.encoder[-2].out_features == model.decoder[0].out_features == 128


def test_the_head_is_linear_in_the_last_features():
    model = built()
    head = model.encoder[-2:]
    a, b, zero = torch.randn(3, 1, 1024, generator=torch.Generator().manual_seed(1)).unbind()
    zero = torch.zeros_like(zero)
    torch.testing.assert_close(head(a + b) + head(zero), head(a) + head(b), atol=1e-5, rtol=1e-4)


def test_feature_maps_halve_exactly():
    assert ARCHITECTURE.features((1, 64, 64)) == 1024
    assert built((1, 32, 32)).decode(torch.zeros(1, 10)).shape == (1, 1, 32, 32)
    with pytest.raises(ValueError, match="conv64_mathieu needs a height and width that are multiples of 16"):
        MODEL.check((1, 60, 60), Params())
