"""The convolutional family: the same network as plain layers make, whatever way it is computed."""

import copy

import pytest
import torch
from torch import nn

from disentune.models import MODELS
from disentune.models.convolutional import Down, LastUp, Up

MULTIPLES = {"conv16": 4, "conv32": 8, "conv64": 16, "conv64_burgess": 16, "conv64_locatello": 16}
EXACT = {"rtol": 0, "atol": 1e-12}  # float64; only the order of sums differs


def built(name, shape, channels=None, seed=0):
    model = MODELS[name]
    generator = torch.Generator().manual_seed(seed)
    return model.build(shape, channels or shape[0], model.params(latents=3), generator)


def randoms(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def with_biases(model):
    """Biases start at 0, which would hide a wrong one."""
    for seed, parameter in enumerate(model.parameters()):
        if parameter.dim() == 1:
            parameter.data = randoms(*parameter.shape, seed=seed) / 10
    return model


def plain(layer):
    """The layer of torch that ours computes."""
    if isinstance(layer, Down):
        return nn.Conv2d(layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding)
    if isinstance(layer, Up):
        return nn.ConvTranspose2d(layer.in_channels, layer.out_channels, 4, stride=2, padding=1)
    return nn.ReLU() if isinstance(layer, nn.ReLU) else copy.deepcopy(layer)


def reference(model):
    """A network of torch's own layers with the same weights; loading fails unless names and shapes agree."""
    network = copy.deepcopy(model)
    network.encoder = nn.Sequential(*map(plain, model.encoder))
    network.decoder = nn.Sequential(*map(plain, model.decoder))
    network.to(next(model.parameters()).dtype).load_state_dict(model.state_dict())
    return network


def loss_and_gradients(model, x, target):
    model.zero_grad()
    q = model.encode(x)
    z = q.mean + torch.exp(q.logvar / 2) * randoms(*q.mean.shape, seed=2).to(x.dtype)
    loss = (model.decode(z) - target).square().mean() + (q.mean.square() + q.logvar.exp() - q.logvar).mean()
    loss.backward()
    return loss.detach(), {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("channels", [3, 6], ids=["as the image", "twice the image"])
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (4, 4), (2, 3)])
@pytest.mark.parametrize("name", MULTIPLES)
def test_loss_and_every_gradient_equal_those_of_plain_layers(name, rows, columns, channels):
    shape = (3, rows * MULTIPLES[name], columns * MULTIPLES[name])
    model = with_biases(built(name, shape, channels).double())
    x, target = randoms(2, *shape), randoms(2, channels, *shape[1:], seed=3)
    loss, gradients = loss_and_gradients(model, x, target)
    expected_loss, expected = loss_and_gradients(reference(model), x, target)
    torch.testing.assert_close(loss, expected_loss, **EXACT)
    torch.testing.assert_close(gradients, expected, **EXACT)


@pytest.mark.parametrize("name", MULTIPLES)
def test_an_activation_follows_every_layer_but_the_last(name):
    model = built(name, (3, 64, 64))
    for part in (model.encoder, model.decoder):
        layers = [layer for layer in part if not isinstance(layer, nn.Flatten | nn.Unflatten)]
        assert all(isinstance(layer, nn.ReLU) for layer in layers[1::2])
        assert all(layer.weight is not None for layer in layers[::2])
        assert len(layers) % 2 == 1


@pytest.mark.parametrize("name", MULTIPLES)
def test_parameters_are_laid_out_as_torch_lays_them_out(name):
    model = built(name, (3, 64, 64))
    assert {key: value.stride() for key, value in model.state_dict().items()} == {
        key: value.stride() for key, value in reference(model).state_dict().items()
    }


@pytest.mark.parametrize("name", MULTIPLES)
def test_decoded_images_have_the_layout_of_images(name):
    assert built(name, (3, 64, 64)).decode(torch.ones(2, 3)).is_contiguous()


@pytest.mark.parametrize("channels", [1, 3])
def test_maps_have_their_channels_last_and_features_their_channels_first(channels):
    stages, flatten = built("conv16", (channels, 16, 16)).encoder[:4], nn.Flatten()
    maps = torch.ones(1, channels, 16, 16)
    for layer in stages:
        maps = layer(maps)
        assert maps.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(flatten(maps)[0, :25], maps[0, 0].reshape(25))


def test_maps_of_a_single_pixel_grow_with_their_channels_last():
    assert Up(5, 6)(torch.ones(2, 5, 1, 1)).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("name", MULTIPLES)
def test_repeats_are_equal_to_the_bit_also_after_encoding_without_gradients(name):
    shape = (3, 64, 64)
    x = randoms(8, *shape).float()
    first = loss_and_gradients(built(name, shape), x, x)
    again = built(name, shape)
    with torch.no_grad():
        again.decode(again.encode(randoms(5, *shape).float()).mean)
    second = loss_and_gradients(again, x, x)
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(value, second[1][key]) for key, value in first[1].items())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the compiler's own
def test_tracing_for_the_compiler_changes_nothing():
    shape = (3, 16, 16)
    model = with_biases(built("conv16", shape).double())
    x = randoms(2, *shape)
    expected = loss_and_gradients(model, x, x)
    traced = copy.copy(model)
    traced._modules = {
        key: torch.compile(part, dynamic=False, fullgraph=True, backend="aot_eager")
        for key, part in model._modules.items()
    }
    loss, gradients = loss_and_gradients(traced, x, x)
    torch.testing.assert_close(loss, expected[0], **EXACT)
    torch.testing.assert_close([*gradients.values()], [*expected[1].values()], **EXACT)


@pytest.fixture(params=[1, 2, 3, 6], ids=lambda channels: f"{channels} channels")
def last(request):
    """The last layer, and torch's own with the same weights."""
    layer = with_biases(LastUp(5, request.param))
    layer.weight.data = randoms(*layer.weight.shape) / 10
    return layer, reference(nn.ModuleDict({"encoder": nn.Sequential(), "decoder": nn.Sequential(layer)})).decoder[0]


def test_the_last_layer_is_a_transposed_convolution(last):
    ours, torchs = last
    x = randoms(2, 5, 3, 4)
    torch.testing.assert_close(ours(x), torchs(x), **EXACT)
    assert ours(x).shape == (2, torchs.out_channels, 6, 8)


def test_the_last_layer_has_second_derivatives(last):
    ours, torchs = last
    x = randoms(2, 5, 3, 4).requires_grad_()

    def penalty(layer):
        (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), [x, layer.weight])

    torch.testing.assert_close(penalty(ours), penalty(torchs), **EXACT)


def test_the_last_layer_has_a_vectorised_jacobian(last):
    x = randoms(2, 1, 5, 2, 3)
    ours, torchs = (torch.func.vmap(torch.func.jacrev(layer))(x) for layer in last)
    torch.testing.assert_close(ours, torchs, **EXACT)


def test_the_last_layer_can_be_frozen(last):
    ours, torchs = last
    x = randoms(2, 5, 3, 4).requires_grad_()
    for layer in last:
        layer.requires_grad_(False)
    gradients = [torch.autograd.grad(layer(x).square().sum(), x)[0] for layer in (ours, torchs)]
    torch.testing.assert_close(*gradients, **EXACT)
