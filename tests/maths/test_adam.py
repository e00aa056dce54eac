"""Adam without torch.optim's class: Algorithm 1 of the paper, torch's own bits, and a state that passes on."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from disentune.maths.adam import Adam

SHAPES, RATE, BETAS = [(3, 4), (5,), ()], 0.01, (0.8, 0.99)


def parameters(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(shape, generator=generator, dtype=dtype)) for shape in SHAPES]


def gradients(step, dtype=torch.float32):
    """The second parameter gets none at every third step."""
    generator = torch.Generator().manual_seed(step)
    drawn = [torch.randn(shape, generator=generator, dtype=dtype) for shape in SHAPES]
    return [None if step % 3 == 2 and number == 1 else one for number, one in enumerate(drawn)]


def advance(optimiser, moved, steps):
    for step in steps:
        for parameter, gradient in zip(moved, gradients(step, moved[0].dtype), strict=True):
            parameter.grad = gradient
        optimiser.step()


def tensors(state):
    return {(number, name): value for number, one in state.items() for name, value in one.items()}


def test_it_is_algorithm_1_of_the_paper():
    ours, naive = parameters(torch.float64), [one.detach().clone() for one in parameters(torch.float64)]
    advance(Adam(ours, RATE, BETAS), ours, range(7))
    first, second, times = ([0.0] * len(naive) for _ in range(3))
    for step in range(7):
        for i, gradient in enumerate(gradients(step, torch.float64)):
            if gradient is None:
                continue
            times[i] += 1
            first[i] = BETAS[0] * first[i] + (1 - BETAS[0]) * gradient
            second[i] = BETAS[1] * second[i] + (1 - BETAS[1]) * gradient**2
            unbiased = first[i] / (1 - BETAS[0] ** times[i]), second[i] / (1 - BETAS[1] ** times[i])
            naive[i] = naive[i] - RATE * unbiased[0] / (unbiased[1].sqrt() + 1e-8)
    torch.testing.assert_close([one.detach() for one in ours], naive)


def test_another_epsilon_gives_the_bits_of_torch_with_it():
    ours, theirs, usual = parameters(), parameters(), parameters()
    advance(Adam(ours, RATE, BETAS, epsilon=1e-3), ours, range(7))
    advance(torch.optim.Adam(theirs, lr=RATE, betas=BETAS, eps=1e-3, fused=True), theirs, range(7))
    advance(Adam(usual, RATE, BETAS), usual, range(7))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], usual[0])


def test_its_bits_and_its_state_are_those_of_torch():
    ours, theirs = parameters(), parameters()
    mine, torchs = Adam(ours, RATE, BETAS), torch.optim.Adam(theirs, lr=RATE, betas=BETAS, fused=True)
    advance(mine, ours, range(7))
    advance(torchs, theirs, range(7))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    state, expected = tensors(mine.state_dict()["state"]), tensors(torchs.state_dict()["state"])
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key], expected[key]) for key in state)


CHOICES = [{"amsgrad": True}, {"weight_decay": 0.3}, {"amsgrad": True, "weight_decay": 0.3}]


@pytest.mark.parametrize("chosen", CHOICES)
def test_with_its_choices_too_its_bits_and_its_state_are_those_of_torch(chosen):
    ours, theirs = parameters(), parameters()
    mine, torchs = (
        Adam(ours, RATE, BETAS, **chosen),
        torch.optim.Adam(theirs, lr=RATE, betas=BETAS, fused=True, **chosen),
    )
    advance(mine, ours, range(7))
    advance(torchs, theirs, range(7))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    state, expected = tensors(mine.state_dict()["state"]), tensors(torchs.state_dict()["state"])
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key], expected[key]) for key in state)


def test_amsgrad_divides_by_the_largest_mean_of_squares_so_far_and_decay_pulls_at_weights():
    """Reddi et al., ICLR 2018, Alg. 2, with Adam's correction of both means, as torch has it."""
    ours, (naive, *_) = parameters(torch.float64), [one.detach().clone() for one in parameters(torch.float64)]
    advance(Adam(ours, RATE, BETAS, amsgrad=True, weight_decay=0.3), ours, range(7))
    first = second = largest = torch.zeros_like(naive)
    for step in range(7):
        gradient = gradients(step, torch.float64)[0] + 0.3 * naive
        first = BETAS[0] * first + (1 - BETAS[0]) * gradient
        second = BETAS[1] * second + (1 - BETAS[1]) * gradient**2
        largest = torch.maximum(largest, second)
        unbiased = first / (1 - BETAS[0] ** (step + 1)), largest / (1 - BETAS[1] ** (step + 1))
        naive = naive - RATE * unbiased[0] / (unbiased[1].sqrt() + 1e-8)
    torch.testing.assert_close(ours[0].detach(), naive)


@pytest.mark.parametrize("chosen", CHOICES)
def test_its_state_passes_on_to_the_bit_with_its_choices(chosen):
    whole, parts = parameters(), parameters()
    advance(Adam(whole, RATE, **chosen), whole, range(8))
    early, late = Adam(parts, RATE, **chosen), Adam(parts, RATE, **chosen)
    advance(early, parts, range(5))
    late.load_state_dict(early.state_dict())
    advance(late, parts, range(5, 8))
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))


def test_a_state_without_amsgrads_part_is_refused():
    moved = parameters()
    plain = Adam(moved, RATE)
    advance(plain, moved, range(2))
    with pytest.raises(KeyError, match="max_exp_avg_sq"):
        Adam(moved, RATE, amsgrad=True).load_state_dict(plain.state_dict())


@pytest.mark.parametrize("before", [Adam, lambda moved, rate: torch.optim.Adam(moved, lr=rate, fused=True)])
def test_a_state_passes_on_to_the_bit(before):
    whole, parts = parameters(), parameters()
    advance(Adam(whole, RATE), whole, range(8))
    early = before(parts, RATE)
    advance(early, parts, range(5))
    late = Adam(parts, RATE)
    late.load_state_dict(early.state_dict())
    advance(late, parts, range(5, 8))
    assert all(torch.equal(one, other) for one, other in zip(whole, parts, strict=True))


@pytest.mark.parametrize(
    "spoilt",
    [lambda state: state[0] | {"exp_avg": torch.zeros(2)}, lambda state: {"step": torch.tensor(1.0)}],
    ids=["of another shape", "without moments"],
)
def test_a_state_that_does_not_fit_is_refused(spoilt):
    moved = parameters()
    optimiser = Adam(moved, RATE)
    advance(optimiser, moved, range(2))
    state = optimiser.state_dict()["state"]
    with pytest.raises((ValueError, KeyError)):
        optimiser.load_state_dict({"state": state | {0: spoilt(state)}})


@pytest.mark.long
def test_training_loads_neither_the_compiler_nor_symbolic_maths():
    """Together three seconds of every process that trains."""
    code = """
import sys
from disentune.spec.config import TrialConfig
from disentune.learn.training import Training
for framework in ({"name": "beta_vae", "beta": 1}, {"name": "factor_vae", "gamma": 1}):
    config = TrialConfig.parse({
        "dataset": {"name": "xysquares", "image_size": 12, "square_size": 2, "grid_size": 3},
        "model": {"name": "mlp", "latents": 3}, "framework": framework, "recon": {"name": "mse"},
        "training": {"steps": 2, "batch_size": 4, "learning_rate": 1e-3},
        "evaluation": {}, "loss_scale": "sum", "seed": 0,
    })
    rows = [progress.row for progress in Training(config).run()]
    assert rows[-1]
print([name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


# ---- decoupled decay, and clipping


def test_a_decoupled_decay_gives_the_bits_of_torchs_adamw():
    ours, theirs = parameters(), parameters()
    advance(Adam(ours, RATE, BETAS, weight_decay=0.3, decoupled=True), ours, range(7))
    advance(torch.optim.AdamW(theirs, lr=RATE, betas=BETAS, weight_decay=0.3, fused=False, foreach=False), theirs,
            range(7))  # fmt: skip
    torch.testing.assert_close([*ours], [*theirs])


def test_a_decoupled_decay_shrinks_weights_and_leaves_moments_alone():
    """Loshchilov & Hutter, Alg. 2: with a gradient of 0 only the decay moves a weight: w (1 - rate * decay)^steps."""
    (one, *_), plain = parameters(torch.float64), parameters(torch.float64)[0].detach()
    optimiser = Adam([one], RATE, BETAS, weight_decay=0.3, decoupled=True)
    for _ in range(5):
        one.grad = torch.zeros_like(one)
        optimiser.step()
    torch.testing.assert_close(one.detach(), plain * (1 - RATE * 0.3) ** 5)
    assert not any(moment.any() for name, moment in optimiser.state[0].items() if name != "step")


def test_parameters_that_are_listed_do_not_decay():
    decayed, some, plain = parameters(), parameters(), parameters()
    advance(Adam(decayed, RATE, weight_decay=0.3, decoupled=True), decayed, range(4))
    advance(Adam(some, RATE, weight_decay=0.3, decoupled=True, undecayed=[1]), some, range(4))
    advance(Adam(plain, RATE), plain, range(4))
    assert torch.equal(some[0], decayed[0])
    assert torch.equal(some[1], plain[1])
    assert not torch.equal(some[0], plain[0])


def test_a_parameter_without_a_gradient_does_not_decay():
    (one, *_) = parameters()
    before = one.detach().clone()
    Adam([one], RATE, weight_decay=0.3, decoupled=True).step()
    assert torch.equal(one, before)


def test_gradients_are_cut_element_by_element():
    """Adam with a clip is Adam on gradients that were cut by hand."""
    ours, theirs = parameters(), parameters()
    clipped, plain = Adam(ours, RATE, clip=0.5), Adam(theirs, RATE)
    for step in range(6):
        advance(clipped, ours, [step])
        for parameter, gradient in zip(theirs, gradients(step), strict=True):
            parameter.grad = None if gradient is None else torch.clamp(gradient, -0.5, 0.5)
        plain.step()
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    unclipped = parameters()
    advance(Adam(unclipped, RATE), unclipped, range(6))
    assert not torch.equal(ours[0], unclipped[0])
