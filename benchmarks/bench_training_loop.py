"""Our training loop against a bare PyTorch loop: same model, same batch size, same data call, one thread.

The bare loop is what a researcher would write by hand: it draws indices and noise from one generator, builds the
batch, computes the beta-VAE loss and steps the same optimiser. It keeps no rows, no state and no exact resume.
"""

from collections.abc import Callable

import numpy as np
import torch
from ratios import Bench, interleaved

from disentune.learn import process
from disentune.learn.training import Training
from disentune.spec.config import TrialConfig

LIMIT = 1.05
WORLDS = {
    "mlp, 24 pixels, batch 64": ({"image_size": 24, "square_size": 4, "grid_size": 6}, "mlp", 64, 10, 200),
    "conv64, 64 pixels, batch 64": ({}, "conv64", 64, 1, 40),
}


def config(dataset: dict, model: str, batch_size: int) -> TrialConfig:
    return TrialConfig.parse(
        {
            "dataset": {"name": "xysquares", **dataset},
            "model": {"name": model, "latents": 9},
            "framework": {"name": "beta_vae", "beta": 1e-3},
            "recon": {"name": "mse"},
            "training": {"steps": 10**9, "batch_size": batch_size, "learning_rate": 1e-3, "log_every": 100},
            "evaluation": {},
            "loss_scale": "mean",
            "seed": 0,
        }
    )


def bare_loop(trial: TrialConfig, steps: int) -> Callable[[], None]:
    """A loop with nothing of ours but the data set's images and the network's layers."""
    data = trial.dataset.plugin.open(trial.dataset.params)
    model = trial.model.plugin.build(data.shape, data.shape[0], trial.model.params, torch.Generator().manual_seed(0))
    encoder, decoder = model.encoder, model.decoder
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    mean, std = (torch.tensor(values).reshape(1, -1, 1, 1).float() for values in (data.mean, data.std))
    rng, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)

    def run() -> None:
        for _ in range(steps):
            indices = rng.integers(len(data), size=trial.training.batch_size)
            x = (torch.from_numpy(data.images(indices)).float() / 255 - mean) / std
            mu, logvar = encoder(x).chunk(2, dim=1)
            z = mu + torch.exp(logvar / 2) * torch.randn(mu.shape, generator=generator)
            recon = torch.nn.functional.mse_loss(decoder(z), x)
            kl = 0.5 * (mu.square() + logvar.exp() - 1 - logvar).mean()
            optimiser.zero_grad(set_to_none=True)
            (recon + 1e-3 * kl).backward()
            optimiser.step()

    return run


def our_loop(trial: TrialConfig, steps: int) -> Callable[[], None]:
    progress = Training(trial).run()

    def run() -> None:
        for _ in range(steps):
            next(progress)

    return run


def main() -> None:
    process.prepare(threads=1, device="cpu")
    bench = Bench("step")
    for name, (dataset, model, batch_size, steps, rounds) in WORLDS.items():
        trial = config(dataset, model, batch_size)
        ours, rival, ratio = interleaved(our_loop(trial, steps), bare_loop(trial, steps), rounds)
        print(f"{name}: ours {1000 * ours / steps:.2f} ms, bare {1000 * rival / steps:.2f} ms a step")
        times = {"ours": 1000 * ours / steps, "rival": 1000 * rival / steps, "unit": "ms"}
        bench.ratio(f"our training loop / a bare PyTorch loop ({name})", ratio, at_most=LIMIT, **times)
    bench.close()


if __name__ == "__main__":
    main()
