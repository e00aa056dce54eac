"""The overlap loss: what it adds to a training step, and against the FFT convolution of the paper's code.

1. A whole beta-VAE step of conv64 at batch 256 with the paper's loss (box, radius 31, alpha 63**2) against the same
   step with squared error.
2. The loss alone, forward and backward, against disent's way: the output and the target each convolved by FFT with
   the 2-d kernel, zero-padded to the full size, then squared error. Decoder's output by rows and channels last.
"""

from collections.abc import Callable

import torch
from ratios import Bench, interleaved
from torch import Tensor

from disentune.learn import process
from disentune.learn.training import Training
from disentune.recon import RECONS
from disentune.spec.config import TrialConfig

STEP_LIMIT = 1.08
FFT_GOAL = 5
RADIUS = 31
OVERLAP = {"name": "overlap", "kernel": "box", "radius": RADIUS, "alpha": (2 * RADIUS + 1) ** 2}
BATCH = (256, 3, 64, 64)
LAYOUTS = {"by rows": torch.contiguous_format, "channels last": torch.channels_last}


def step(recon: dict) -> Callable[[], object]:
    trial = TrialConfig.parse(
        {
            "dataset": {"name": "xysquares"},
            "model": {"name": "conv64", "latents": 9},
            "framework": {"name": "beta_vae", "beta": 1e-3},
            "recon": recon,
            "training": {"steps": 10**9, "batch_size": BATCH[0], "learning_rate": 1e-3, "log_every": 10**6},
            "evaluation": {},
            "loss_scale": "mean",
            "seed": 0,
        }
    )
    progress = Training(trial).run()
    return lambda: next(progress)


def convolved(images: Tensor, kernel: Tensor) -> Tensor:
    """Same size, zero padding: the middle of the full convolution of two sides n and k, n + k - 1 pixels a side."""
    side, reach = images.shape[-1], kernel.shape[-1]
    full = (side + reach - 1,) * 2
    spectrum = torch.fft.rfft2(images, s=full) * torch.fft.rfft2(kernel, s=full)
    start = (reach - 1) // 2
    return torch.fft.irfft2(spectrum, s=full)[..., start : start + side, start : start + side]


def by_fft(output: Tensor, target: Tensor) -> Tensor:
    width = 2 * RADIUS + 1
    kernel = torch.full((width, width), 1 / width**2)
    blurred = (convolved(output, kernel) - convolved(target, kernel)).square()
    return ((output - target).square() + OVERLAP["alpha"] * blurred).sum(dim=(1, 2, 3))


def by_matrices(output: Tensor, target: Tensor) -> Tensor:
    recon = RECONS["overlap"]
    params = recon.params(**{key: value for key, value in OVERLAP.items() if key != "name"})
    return recon.per_image(output, target, params)


def forward_backward(loss: Callable[[Tensor, Tensor], Tensor], layout: torch.memory_format) -> Callable[[], Tensor]:
    """The loss of a fixed batch; returns its gradient."""
    generator = torch.Generator().manual_seed(0)
    output, target = (torch.rand(BATCH, generator=generator) for _ in range(2))
    output = output.contiguous(memory_format=layout).requires_grad_()
    return lambda: torch.autograd.grad(loss(output, target).sum(), output)[0]


def whole_step(bench: Bench) -> None:
    ours, rival, ratio = interleaved(step(OVERLAP), step({"name": "mse"}), rounds=40)
    print(f"step of conv64 at batch 256: overlap {1000 * ours:.0f} ms, mse {1000 * rival:.0f} ms")
    times = {"ours": 1000 * ours, "rival": 1000 * rival, "unit": "ms"}
    bench.ratio("step with the overlap loss / step with squared error, batch 256", ratio, at_most=STEP_LIMIT, **times)


def loss_alone(bench: Bench, layout: str) -> None:
    functions = [forward_backward(loss, LAYOUTS[layout]) for loss in (by_matrices, by_fft)]
    torch.testing.assert_close(functions[0](), functions[1](), rtol=1e-3, atol=1e-3)
    ours, rival, ratio = interleaved(*functions, rounds=15)
    print(f"loss and gradient, output {layout}: {1000 * ours:.1f} ms, by FFT {1000 * rival:.0f} ms")
    times = {"ours": 1000 * ours, "rival": 1000 * rival, "unit": "ms"}
    bench.ratio(f"the overlap loss by FFT / ours, output {layout}", ratio.inverse(), at_least=FFT_GOAL, **times)


def main() -> None:
    process.prepare(threads=1, device="cpu")
    bench = Bench("loss")
    whole_step(bench)
    for layout in LAYOUTS:
        loss_alone(bench, layout)
    bench.close()


if __name__ == "__main__":
    main()
