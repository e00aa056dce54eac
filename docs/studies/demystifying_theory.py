"""The numbers of demystifying_theory.md: a linear VAE finds principal components, a nonlinear one the local structure.

Usage: python docs/studies/demystifying_theory.py [SEEDS]
"""

import math
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from disentune.frameworks.beta_vae import Params, loss
from disentune.plugin import AutoEncoder, Batch, Step

BATCH = 512
EIGENVALUES = (9.0, 5.0, 3.0, 1.5, 0.6, 0.2)


# ---- linear VAE = PCA


def optimum(beta: float, seed: int) -> tuple[float, float]:
    """The smallest expected loss that L-BFGS finds, and the largest angle (degrees) between an active column of the
    decoder and the principal direction of its rank."""
    rng, size = np.random.default_rng(seed), len(EIGENVALUES)
    axes = torch.linalg.qr(torch.from_numpy(rng.normal(size=(size, size))))[0]
    covariance = axes @ torch.diag(torch.tensor(EIGENVALUES, dtype=torch.float64)) @ axes.T
    weights = [torch.from_numpy(rng.normal(size=shape) / 3).requires_grad_() for shape in ((size, size),) * 2 + (size,)]
    optimiser = torch.optim.LBFGS(weights, max_iter=3000, tolerance_grad=1e-8, tolerance_change=1e-14,
                                  line_search_fn="strong_wolfe")  # fmt: skip

    def expected() -> Tensor:
        decoder, encoder, logvar = weights
        left = torch.eye(size, dtype=torch.float64) - decoder @ encoder
        recon = torch.trace(left @ covariance @ left.T) + logvar.exp() @ decoder.square().sum(dim=0)
        spreads = torch.diag(encoder @ covariance @ encoder.T)
        return recon + beta / 2 * (spreads + logvar.exp() - logvar - 1).sum()

    def closure() -> Tensor:
        optimiser.zero_grad()
        value = expected()
        value.backward()
        return value

    optimiser.step(closure)
    decoder = weights[0].detach()
    active = sum(value > beta / 2 for value in EIGENVALUES)
    columns = decoder[:, decoder.norm(dim=0).argsort(descending=True)][:, :active]
    cosines = (columns * axes[:, :active]).sum(dim=0).abs() / columns.norm(dim=0)
    return expected().item(), math.degrees(cosines.clamp(max=1).acos().max().item())


# ---- the two-dimensional cloud (Fig. 1)


def cloud(count: int, rng: np.random.Generator, side: int = 4, tilt: float = 0.3, spread: float = 0.1) -> np.ndarray:
    """Points (n, 2) around the places of a square lattice. Places of equal signs are more likely, so that the principal
    components are the diagonals while the lattice goes along the axes."""
    line = np.arange(side) - (side - 1) / 2
    places = np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)
    chances = np.exp(tilt * places.prod(axis=1))
    centres = places[rng.choice(len(places), size=count, p=chances / chances.sum())]
    points = centres + spread * rng.normal(size=(count, 2))
    found: np.ndarray = points - points.mean(axis=0)
    return found


@dataclass(frozen=True)
class Alignment:
    """Mean angles in degrees between the latent that moves a point most and the nearest axis: 0 is aligned, 22.5 is
    chance, 45 is as far as possible."""

    lattice: float
    principal: float


def network(name: str) -> AutoEncoder:
    """With as many latents as a point has numbers: linear, or with two hidden layers of 64 units and tanh."""

    def layers(outputs: int) -> list[nn.Module]:
        if name == "linear":
            return [nn.Linear(2, outputs)]
        hidden = [nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
        return [*hidden, nn.Linear(64, outputs)]

    encoder = nn.Sequential(nn.Flatten(), *layers(4))
    return AutoEncoder(encoder, nn.Sequential(*layers(2), nn.Unflatten(1, (1, 1, 2))), 2)


RATES = {"linear": 1e-1, "tanh": 3e-3}
"""Learning rates: a linear VAE turns towards its axes slowly."""


def trained(model: AutoEncoder, x: Tensor, beta: float, rate: float, steps: int, rng: Any) -> AutoEncoder:
    """By Adam with a falling learning rate, on our loss with squared errors."""
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for step in range(1, steps + 1):
        batch = Batch(x[rng.integers(len(x), size=BATCH)], None, _squares, population=len(x))
        found = loss(model, batch, Params(beta=beta), Step(step, steps, rng))
        optimiser.zero_grad()
        (found.recon + found.latent).backward()
        optimiser.step()
        scheduler.step()
    return model


def _squares(output: Tensor, target: Tensor) -> Tensor:
    return (output - target).square().sum() / len(target)


def alignment(model: AutoEncoder, x: Tensor) -> Alignment:
    """By the Jacobian of the decoder at the mean code of each point."""
    codes = model.encode(x).mean.detach()
    decoder: nn.Module = model.decoder

    def decode(code: Tensor) -> Tensor:
        found: Tensor = decoder(code[None]).flatten()
        return found

    jacobians = torch.func.vmap(torch.func.jacrev(decode))(codes).detach().numpy()  # (n, 2, latents)
    strongest = np.linalg.norm(jacobians, axis=1).argmax(axis=1)
    columns = np.take_along_axis(jacobians, strongest[:, None, None], axis=2)[..., 0]
    angles = np.degrees(np.arctan2(columns[:, 1], columns[:, 0]))
    _, vectors = np.linalg.eigh(np.cov(x.flatten(1).numpy().T))
    principal = math.degrees(math.atan2(vectors[1, 1], vectors[0, 1]))
    return Alignment(_to_axis(angles), _to_axis(angles - principal))


def _to_axis(degrees: np.ndarray) -> float:
    return float(np.abs((degrees + 45) % 90 - 45).mean())


def aligned(name: str, seed: int, steps: int = 3000, beta: float = 0.03) -> Alignment:
    """Of a linear VAE, or of one with hidden layers (`tanh`)."""
    rng = np.random.default_rng(seed)
    x = torch.from_numpy(cloud(4000, rng)).float().reshape(-1, 1, 1, 2)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = network(name)
    return alignment(trained(model, x, beta, RATES[name], steps, rng), x[:400])


def main(seeds: int) -> None:
    torch.set_num_threads(1)
    for beta in (1.0, 2.0):
        found = [optimum(beta, seed) for seed in range(seeds)]
        losses = ", ".join(f"{value:.6f}" for value, _ in found)
        largest = max(angle for _, angle in found)
        sys.stdout.write(f"linear, beta {beta:g}: losses {losses}; largest angle {largest:.5f} degrees\n")
    for name in RATES:
        for seed in range(seeds):
            angles = aligned(name, seed)
            text = f"to the lattice {angles.lattice:.1f}, to the principal components {angles.principal:.1f} degrees"
            sys.stdout.write(f"cloud, {name}, seed {seed}: {text}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
