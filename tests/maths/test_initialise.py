"""Weights of a network from a generator alone."""

import math

import pytest
import torch
from torch import nn

from disentune.maths import initialise
from disentune.maths.initialise import initialised


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(300, 200), nn.Conv2d(16, 32, 3))


def drawn(seed: int = 0) -> nn.Sequential:
    return initialised(network, torch.Generator().manual_seed(seed))


def test_weights_are_xavier_normal_and_biases_zero():
    made = drawn()
    for layer, fans in ((made[0], 300 + 200), (made[1], (16 + 32) * 9)):
        assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / fans), rel=0.05)  # of 4,608 draws at least
        assert layer.weight.mean().abs() < 0.05 * layer.weight.std()
        assert not layer.bias.any()
        assert layer.weight.requires_grad


def test_they_depend_on_the_generator_alone_and_leave_the_global_one_as_it_was():
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    one = drawn()
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(2)
    assert torch.equal(one[0].weight, drawn()[0].weight)
    assert not torch.equal(one[0].weight, drawn(seed=1)[0].weight)


def test_a_network_that_no_machine_would_hold_is_refused_before_it_takes_memory(monkeypatch):
    monkeypatch.setattr(initialise, "MOST_WEIGHTS", 100)
    with pytest.raises(ValueError, match="may have at most 100 weights, but this one has 64,840; make it smaller"):
        drawn()


class WithBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scales", torch.arange(3.0))


def test_a_network_whose_buffers_would_be_lost_is_refused():
    with pytest.raises(ValueError, match=r"buffers \(1.scales\)"):
        initialised(lambda: nn.Sequential(nn.BatchNorm1d(3), WithBuffer()), torch.Generator())


@pytest.mark.parametrize(
    "layer", [lambda: nn.BatchNorm2d(5), lambda: nn.BatchNorm1d(4, affine=False), lambda: nn.LayerNorm(6),
              lambda: nn.GroupNorm(2, 4)]
)  # fmt: skip
def test_normalisations_begin_as_torch_makes_them_buffers_too(layer):
    made, torchs = initialised(lambda: nn.Sequential(layer()), torch.Generator()), nn.Sequential(layer())
    assert made.state_dict().keys() == torchs.state_dict().keys()
    for name, tensor in torchs.state_dict().items():
        assert torch.equal(made.state_dict()[name], tensor)
        assert made.state_dict()[name].dtype == tensor.dtype


def test_a_normalisation_changes_no_weight_beside_it():
    plain = initialised(lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)), torch.Generator().manual_seed(0))
    between = initialised(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), torch.Generator().manual_seed(0)
    )
    assert torch.equal(plain[0].weight, between[0].weight)
    assert torch.equal(plain[1].weight, between[2].weight)
