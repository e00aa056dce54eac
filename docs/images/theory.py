"""Computes what docs/studies/theory.md says of the theorems, and draws its pictures: theory_*.png.

Every number comes from a closed form, from quadrature or from the product's own losses and metrics; tests/theory
compares them with each other.
"""

import math
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.special import logsumexp
from torch import Tensor

from disentune.frameworks.priors import Isotropic, Law, Mixture, StudentT
from disentune.maths.gaussian import log_density
from disentune.metrics import score
from disentune.plugin import Posterior

HERE = Path(__file__).parent
TAU = 2 * math.pi
BLUE, RED, GREEN, PINK, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#666666"

# ---- integrals in the plane

REACH, SIDE = 60.0, 801
"""A square so large that nothing of the laws below lies outside, except the tails of Student's t."""


def line() -> tuple[np.ndarray, np.ndarray]:
    """Points from -60 to 60, dense around 0 by a hyperbolic sine, and their widths in the trapezium rule, (side,)."""
    t, step = np.linspace(-1, 1, SIDE, retstep=True)
    stretch = np.arcsinh(REACH)
    at, width = np.sinh(stretch * t), stretch * np.cosh(stretch * t) * step
    width[[0, -1]] /= 2
    return at, width


def plane_integral(values: np.ndarray, width: np.ndarray) -> float:
    """Of values (side, side) on the product of two lines."""
    return float(width @ values @ width)


def log_prior(law: Law, at: np.ndarray) -> np.ndarray:
    """(side, side): the first latent along the second axis."""
    across, up = np.meshgrid(at, at)
    points = torch.from_numpy(np.stack([across.ravel(), up.ravel()], axis=1))
    found: np.ndarray = law.log_density(points).numpy().reshape(across.shape)
    return found


def log_normal(at: np.ndarray, mean: float, deviation: float) -> np.ndarray:
    return -(((at - mean) / deviation) ** 2 + math.log(TAU)) / 2 - math.log(deviation)


# ---- Theorem 1: beta anneals the prior and rewards entropy

LAWS: dict[str, Law] = {"mixture": Mixture(), "student_t": StudentT(nu=3), "gaussian": Isotropic()}
BETAS = (0.5, 1.0, 2.0, 4.0, 8.0)


class Encoded(NamedTuple):
    """A posterior N(mean, deviation ** 2) in two latents, and a likelihood that bends: x = (z_0 ** 2, z_1) + noise."""

    mean: tuple[float, float] = (0.4, -0.3)
    deviation: tuple[float, float] = (0.5, 0.8)
    x: tuple[float, float] = (0.7, 0.2)

    def log_likelihood(self, z0: np.ndarray, z1: np.ndarray) -> np.ndarray:
        return log_normal(z0**2, self.x[0], 1.0) + log_normal(z1, self.x[1], 1.0)


def left_side(case: Encoded, law: Law, beta: float) -> float:
    """E_q log p(x|z) - beta KL(q || p), by Gauss's and Hermite's rule with 180 x 180 nodes."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(180)
    weights = weights / weights.sum()
    z0, z1 = (mean + deviation * nodes for mean, deviation in zip(case.mean, case.deviation, strict=True))
    across, up = np.meshgrid(z0, z1)
    log_q = log_normal(across, case.mean[0], case.deviation[0]) + log_normal(up, case.mean[1], case.deviation[1])
    log_p = law.log_density(torch.from_numpy(np.stack([across.ravel(), up.ravel()], 1))).numpy().reshape(across.shape)
    inside = case.log_likelihood(across, up) - beta * (log_q - log_p)
    return float(weights @ inside @ weights)


class Annealed(NamedTuple):
    """The right side of the theorem and its terms."""

    elbo: float
    """For the annealed prior p ** beta / F_beta."""
    entropy: float
    log_f: float
    total: float


def right_side(case: Encoded, law: Law, beta: float) -> Annealed:
    """By sums over a grid; the annealed prior is normalised there, without a closed form."""
    at, width = line()
    log_p = log_prior(law, at)
    log_f = math.log(plane_integral(np.exp(beta * log_p), width))
    log_q = log_normal(at, case.mean[0], case.deviation[0]) + log_normal(at, case.mean[1], case.deviation[1])[:, None]
    q = np.exp(log_q)
    across, up = np.meshgrid(at, at)
    fit = plane_integral(q * case.log_likelihood(across, up), width)
    elbo = fit - plane_integral(q * (log_q - (beta * log_p - log_f)), width)
    entropy = sum(math.log(deviation) + (1 + math.log(TAU)) / 2 for deviation in case.deviation)
    return Annealed(elbo, entropy, log_f, elbo + (beta - 1) * entropy + log_f)


def draw_annealing() -> None:
    z = np.linspace(-2.5, 2.5, 600)
    figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), dpi=120, layout="constrained")
    titles = {"mixture": "mixture, along z1 = 0", "student_t": "Student's t, nu = 3", "gaussian": "normal"}
    for axis, (name, law) in zip(axes, LAWS.items(), strict=True):
        for beta, colour in zip((0.5, 1.0, 4.0), (BLUE, GREY, RED), strict=True):
            log_f = right_side(Encoded(), law, beta).log_f
            points = torch.from_numpy(np.stack([z, np.zeros_like(z)], axis=1))
            axis.plot(z, np.exp(beta * law.log_density(points).numpy() - log_f), color=colour, label=f"beta {beta:g}")
        axis.set_title(titles[name], fontsize=10)
        axis.set_xlabel("z0")
        axis.set_ylim(bottom=0)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("annealed prior")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(HERE / "theory_annealing.png", facecolor="white")


# ---- Corollaries 1 and 2: for Gaussians, beta is an entropy bonus after rescaling the codes


class Linear(NamedTuple):
    """A VAE whose objective has no sample in it: linear encoder and decoder, one full-covariance posterior for all x.

    q(z|x) = N(V x, A A^T), p(x|z) = N(W z, 1), p(z) = N(0, I).
    """

    v: Tensor
    a: Tensor
    w: Tensor

    def rescaled(self, beta: float) -> "Linear":
        """g_beta of the paper: codes grow by sqrt(beta), and the decoder takes that back."""
        root = math.sqrt(beta)
        return Linear(root * self.v, root * self.a, self.w / root)


def linear_data(n: int = 200, pixels: int = 5, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    spread = np.array([3.0, 2.0, 1.5, 0.5, 0.3])[:pixels]
    turn = np.linalg.qr(rng.normal(size=(pixels, pixels)))[0]
    return torch.from_numpy(rng.normal(size=(n, pixels)) * spread @ turn.T)


def linear_start(latents: int = 2, pixels: int = 5, seed: int = 1) -> Linear:
    rng = np.random.default_rng(seed)
    parts = rng.normal(size=(latents, pixels)), np.eye(latents) + 0.3 * rng.normal(size=(latents, latents))
    return Linear(*(torch.from_numpy(part) for part in (*parts, rng.normal(size=(pixels, latents)))))


def elbo(model: Linear, x: Tensor, beta: float = 1.0) -> Tensor:
    """Mean of L_beta over the data, in nats per image."""
    cov, means = model.a @ model.a.T, x @ model.v.T
    errors = (x - means @ model.w.T).square().sum(dim=1).mean() + torch.trace(model.w @ cov @ model.w.T)
    fit = -(errors + x.shape[1] * math.log(TAU)) / 2
    kl = (torch.trace(cov) + means.square().sum(dim=1).mean() - len(cov) - torch.logdet(cov)) / 2
    return fit - beta * kl


def with_bonus(model: Linear, x: Tensor, beta: float) -> Tensor:
    """L_{H, beta} of the paper: the plain objective + (beta - 1) / 2 log|S|."""
    return elbo(model, x) + (beta - 1) / 2 * torch.logdet(model.a @ model.a.T)


def constant(beta: float, latents: int) -> float:
    """c of Corollary 1, with F_beta of the standard normal: (2 pi) ** (D (1 - beta) / 2) beta ** (-D / 2)."""
    log_f = latents / 2 * ((1 - beta) * math.log(TAU) - math.log(beta))
    return latents * (beta - 1) / 2 * (1 + math.log(TAU / beta)) + log_f


def gradient_norm(objective: Tensor, model: Linear) -> float:
    return math.sqrt(sum(float(part.square().sum()) for part in torch.autograd.grad(objective, model)))


def norms(model: Linear, x: Tensor, beta: float) -> tuple[float, float]:
    """Of the gradients of L_beta at a model and of L_{H, beta} at its rescaled twin."""
    leaf = Linear(*(part.detach().requires_grad_() for part in model))
    twin = Linear(*(part.detach().requires_grad_() for part in model.rescaled(beta)))
    return gradient_norm(elbo(leaf, x, beta), leaf), gradient_norm(with_bonus(twin, x, beta), twin)


def ascent(beta: float, steps: int = 25) -> tuple[list[Linear], Tensor]:
    """Models on the way to a stationary point of L_beta, by L-BFGS in float64, and the data."""
    x, start = linear_data(), linear_start()
    model = Linear(*(part.clone().requires_grad_() for part in start))
    optimiser = torch.optim.LBFGS(
        model, max_iter=5, tolerance_grad=1e-14, tolerance_change=0, line_search_fn="strong_wolfe"
    )
    path = [start]

    def closure() -> float:
        optimiser.zero_grad()
        loss = -elbo(model, x, beta)
        loss.backward()
        return loss.item()

    for _ in range(steps):
        optimiser.step(closure)
        path.append(Linear(*(part.detach().clone() for part in model)))
    return path, x


def draw_stationary(beta: float = 4.0) -> None:
    path, x = ascent(beta)
    ours, theirs = np.array([norms(model, x, beta) for model in path]).T
    figure, axis = plt.subplots(figsize=(5.5, 2.8), dpi=120, layout="constrained")
    axis.semilogy(ours, color=BLUE, label="gradient of L_beta")
    axis.semilogy(theirs, "--", color=RED, label="gradient of L_H,beta at the rescaled networks")
    axis.set(xlabel="iterations of L-BFGS / 5", ylabel="norm")
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "theory_stationary.png", facecolor="white")


# ---- Theorem 2: a round prior cannot tell rotations apart

NOISE, BETA = 0.5, 2.0
STRETCH = np.diag([2.0, 0.7])
"""The decoder: x = STRETCH R^T z + noise, seen through a rotation R of the codes."""
SPREAD = np.array([1.6, 0.4])
"""Variances of the anisotropic prior."""
CODES = np.random.default_rng(0).standard_t(3, (400, 2)) * np.sqrt(SPREAD / 3)
"""Codes of 400 images: heavy tails, and one axis wider than the other."""


def turn(angle: float) -> np.ndarray:
    return np.array([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])


def expected_log_normal(means: np.ndarray, cov: np.ndarray, variances: np.ndarray) -> float:
    """Mean over rows of E log N(z; 0, diag(variances)) for z ~ N(row, cov)."""
    return float(-((means**2 + np.diag(cov)) / variances + np.log(TAU * variances)).sum(axis=1).mean() / 2)


def expected_log_t(means: np.ndarray, cov: np.ndarray, nu: float = 3.0) -> float:
    """The same for a product of Student's t, by 80 nodes of Gauss and Hermite for each latent."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    z = means[:, :, None] + np.sqrt(np.diag(cov))[:, None] * nodes
    flat = torch.from_numpy(z.reshape(-1, 1))
    logs = StudentT(nu=nu).log_density(flat).numpy().reshape(z.shape)
    return float((logs @ (weights / weights.sum())).sum(axis=1).mean())


def objective(angle: float, prior: str = "isotropic", diagonal: bool = False, beta: float = BETA) -> float:
    """Mean of L_beta over codes that are turned by an angle, together with the decoder.

    The posterior's covariance is the best one for a round prior: (I + W^T W / (beta noise^2)) ** -1 in full, or with
    off-diagonal precisions left out when only diagonal ones are allowed.
    """
    r = turn(angle)
    means, w = CODES @ r.T, STRETCH @ r.T
    precision = np.eye(2) + w.T @ w / (beta * NOISE**2)
    cov = np.linalg.inv(np.diag(np.diag(precision)) if diagonal else precision)
    x = CODES @ STRETCH.T
    errors = ((x - means @ w.T) ** 2).sum(axis=1).mean() + np.trace(w @ cov @ w.T)
    fit = -errors / (2 * NOISE**2) - math.log(TAU * NOISE**2)
    entropy = 1 + math.log(TAU) + np.linalg.slogdet(cov)[1] / 2
    expected = {
        "isotropic": lambda: expected_log_normal(means, cov, np.ones(2)),
        "anisotropic": lambda: expected_log_normal(means, cov, SPREAD),
        "student_t": lambda: expected_log_t(means, cov),
    }[prior]()
    return float(fit + beta * (entropy + expected))


CURVES = {
    "round prior, full covariance": ("isotropic", False),
    "round prior, diagonal covariance": ("isotropic", True),
    "Student's t (nu 3), full covariance": ("student_t", False),
    "anisotropic prior, full covariance": ("anisotropic", False),
}


def changes(angles: np.ndarray) -> dict[str, np.ndarray]:
    """Objective at each angle minus that at 0, for each curve."""
    return {
        name: np.array([objective(angle, *how) for angle in angles]) - objective(0.0, *how)
        for name, how in CURVES.items()
    }


def draw_rotation() -> None:
    angles = np.linspace(0, math.pi / 2, 61)
    figure, axis = plt.subplots(figsize=(6, 3), dpi=120, layout="constrained")
    for (name, values), colour in zip(changes(angles).items(), (GREY, BLUE, GREEN, RED), strict=True):
        axis.plot(np.degrees(angles), values, color=colour, label=name)
    axis.set(xlabel="rotation of the codes (degrees)", ylabel="change of L_beta (nats)", xticks=[0, 30, 45, 60, 90])
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "theory_rotation.png", facecolor="white")


# ---- Appendix C: the entropy of the aggregate posterior, estimated from a batch


class Posteriors(NamedTuple):
    """n posteriors N(mean, deviation^2) in d latents, of which the means are normal."""

    means: np.ndarray
    deviation: float

    @property
    def limit(self) -> float:
        """log n + E H[q(z|x)]: what the estimate tends to in small batches."""
        n, d = self.means.shape
        return math.log(n) + d * (math.log(self.deviation) + (1 + math.log(TAU)) / 2)


def posteriors(n: int = 4096, d: int = 6, deviation: float = 0.3, seed: int = 0) -> Posteriors:
    means = np.random.default_rng(seed).standard_normal((n, d)) * math.sqrt(1 - deviation**2)
    return Posteriors(means, deviation)


def log_densities(some: Posteriors, z: np.ndarray, means: np.ndarray) -> np.ndarray:
    """log q(z_i | x_j), (len(z), len(means)), by the product's own density."""
    logvar = torch.full(means.shape, 2 * math.log(some.deviation), dtype=torch.float64)
    q = Posterior(torch.from_numpy(means)[None], logvar[None])
    found: np.ndarray = log_density(q, torch.from_numpy(z)[:, None]).sum(dim=2).numpy()
    return found


def entropy_estimate(some: Posteriors, batch: int, rng: np.random.Generator) -> float:
    """Eq. 10 of the paper: own posterior with weight 1 / n, each other of the batch with (n - 1) / (n (B - 1))."""
    n, d = some.means.shape
    means = some.means[rng.choice(n, batch, replace=False)]
    z = means + some.deviation * rng.standard_normal((batch, d))
    weights = np.full((batch, batch), math.log((n - 1) / (n * (batch - 1))))
    np.fill_diagonal(weights, -math.log(n))
    return float(-logsumexp(log_densities(some, z, means) + weights, axis=1).mean())


def entropy(some: Posteriors, draws: int = 2000, seed: int = 1) -> float:
    """H[q(z)] of the mixture of all n posteriors, from draws."""
    rng = np.random.default_rng(seed)
    n, d = some.means.shape
    z = some.means[rng.integers(n, size=draws)] + some.deviation * rng.standard_normal((draws, d))
    parts = [logsumexp(log_densities(some, part, some.means), axis=1) for part in np.array_split(z, 40)]
    return float(math.log(n) - np.concatenate(parts).mean())


BATCHES = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048)
WIDTHS = (0.2, 0.3, 0.6)


def estimates(some: Posteriors, batch: int, repeats: int | None = None, seed: int = 2) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.array([entropy_estimate(some, batch, rng) for _ in range(repeats or max(3, 1024 // batch))])


def draw_entropy() -> None:
    figure, axes = plt.subplots(1, len(WIDTHS), figsize=(9, 2.8), dpi=120, layout="constrained")
    for axis, width in zip(axes, WIDTHS, strict=True):
        some = posteriors(deviation=width)
        axis.semilogx(BATCHES, [estimates(some, batch).mean() for batch in BATCHES], "o-", color=BLUE, ms=3,
                      label="estimate")  # fmt: skip
        axis.axhline(entropy(some), color=GREEN, label="H[q(z)]")
        axis.axhline(some.limit, color=RED, linestyle="--", label="log n + E H[q(z|x)]")
        axis.set_title(f"deviation {width:g}", fontsize=10)
        axis.set_xlabel("batch (of n = 4096)")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("nats")
    axes[-1].legend(frameon=False, fontsize=8)
    figure.savefig(HERE / "theory_entropy.png", facecolor="white")


# ---- the BetaVAE score cannot tell a missing factor

SIZES = (3, 6, 8, 6, 6)


def partial_codes(captured: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Codes that show the first factors of all, each in a code of its own, and noise in the others; the factors."""
    grid = np.stack(np.meshgrid(*map(np.arange, SIZES), indexing="ij"), axis=-1).reshape(-1, len(SIZES))
    codes = (grid - grid.mean(axis=0)) / grid.std(axis=0)
    codes[:, captured:] = 0.01 * np.random.default_rng(seed).standard_normal(codes[:, captured:].shape)
    return codes, grid


def partial_scores(captured: int) -> dict[str, float]:
    codes, factors = partial_codes(captured)
    sizes = {"train": 2000, "test": 2000}
    found = {name: score(name, codes, factors, **sizes)[name] for name in ("beta_vae_score", "factor_vae_score")}
    return found | {"mig": score("mig", codes, factors)["mig"]}


def draw_partial() -> None:
    counts = range(1, len(SIZES) + 1)
    rows = [partial_scores(captured) for captured in counts]
    names = {
        "beta_vae_score": ("BetaVAE score", RED),
        "factor_vae_score": ("FactorVAE score", BLUE),
        "mig": ("MIG", GREEN),
    }
    figure, axis = plt.subplots(figsize=(5, 2.8), dpi=120, layout="constrained")
    for key, (name, colour) in names.items():
        axis.plot(counts, [row[key] for row in rows], "o-", color=colour, label=name)
    axis.set(xlabel="factors captured, of 5", ylabel="score", xticks=[*counts], ylim=(0, 1.05))
    axis.legend(frameon=False, fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(HERE / "theory_partial.png", facecolor="white")


# ---- the page's numbers


def annealing_lines() -> Iterator[str]:
    yield "Theorem 1: prior, beta, left side, right side, difference, log F, annealed ELBO"
    for (name, law), beta in product(LAWS.items(), BETAS):
        left, right = left_side(Encoded(), law, beta), right_side(Encoded(), law, beta)
        terms = f"{left:10.6f} {right.total:10.6f} {left - right.total:9.1e} {right.log_f:9.4f} {right.elbo:9.4f}"
        yield f"  {name:10s} {beta:4g} {terms}"


def rescaling_lines() -> Iterator[str]:
    yield "Corollary 1: beta, L_beta, L' + bonus + c, difference, c"
    x, model = linear_data(), linear_start()
    for beta in BETAS:
        left = elbo(model, x, beta).item()
        right = with_bonus(model.rescaled(beta), x, beta).item() + constant(beta, 2)
        yield f"  {beta:4g} {left:12.6f} {right:12.6f} {left - right:9.1e} {constant(beta, 2):9.4f}"
    yield "Corollary 2: beta, |grad L_beta| and |grad L_H| at the start and at the end"
    for beta in (0.5, 2.0, 4.0):
        path, x = ascent(beta)
        found = [norm for end in (path[0], path[-1]) for norm in norms(end, x, beta)]
        yield f"  {beta:4g} {' '.join(f'{norm:9.1e}' for norm in found)}"


def rotation_lines() -> Iterator[str]:
    yield "Theorem 2: change at 15, 30, 45 degrees; largest change of 0 to 90"
    few, every = changes(np.radians([15, 30, 45])), changes(np.linspace(0, math.pi / 2, 61))
    for name, values in few.items():
        yield f"  {name:38s} {' '.join(f'{value:10.2e}' for value in values)} {np.abs(every[name]).max():10.2e}"


def entropy_lines() -> Iterator[str]:
    yield "Appendix C: deviation, H[q(z)], log n + E H, estimate and its standard error by batch"
    for width in WIDTHS:
        some = posteriors(deviation=width)
        found = {batch: estimates(some, batch) for batch in (8, 64, 512, 2048)}
        texts = [f"{batch}: {v.mean():.2f} ({v.std(ddof=1) / math.sqrt(len(v)):.2f})" for batch, v in found.items()]
        yield f"  {width:4g} {entropy(some):8.2f} {some.limit:8.2f}   {'  '.join(texts)}"


def partial_lines() -> Iterator[str]:
    yield "BetaVAE score: captured, scores"
    for captured in range(1, len(SIZES) + 1):
        yield f"  {captured} { ({name: round(value, 3) for name, value in partial_scores(captured).items()}) }"


def main() -> None:
    for lines in (annealing_lines, rescaling_lines, rotation_lines, entropy_lines, partial_lines):
        sys.stdout.writelines(f"{text}\n" for text in lines())
    for draw in (draw_annealing, draw_stationary, draw_rotation, draw_entropy, draw_partial):
        draw()


if __name__ == "__main__":
    main()
