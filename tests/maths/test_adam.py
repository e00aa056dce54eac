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


def test_its_bits_and_its_state_are_those_of_torch():
    ours, theirs = parameters(), parameters()
    mine, torchs = Adam(ours, RATE, BETAS), torch.optim.Adam(theirs, lr=RATE, betas=BETAS, fused=True)
    advance(mine, ours, range(7))
    advance(torchs, theirs, range(7))
    assert all(torch.equal(one, other) for one, other in zip(ours, theirs, strict=True))
    state, expected = tensors(mine.state_dict()["state"]), tensors(torchs.state_dict()["state"])
    assert state.keys() == expected.keys()
    assert all(torch.equal(state[key], expected[key]) for key in state)


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
