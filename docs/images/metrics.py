"""Draws metrics.png: what each metric says of codes that are turned away from the factors. Takes two minutes."""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from disentune.metrics import score

METRICS = {
    "mig": "mig", "dci": "dci_disentanglement", "sap": "sap", "factor_vae_score": "factor_vae_score",
    "beta_vae_score": "beta_vae_score", "modularity": "modularity", "explicitness": "explicitness", "irs": "irs",
    "mcc": "mcc",
}  # fmt: skip
ANGLES = np.array([0, 5, 10, 15, 20, 25, 30, 35, 40, 45])


def turned(factors: np.ndarray, degrees: float) -> np.ndarray:
    """Codes (n, d): factors of eight values in [0, 1], turned in pairs."""
    pairs, angle = factors.reshape(len(factors), -1, 2) / 7, np.radians(degrees)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return (pairs @ turn).reshape(len(factors), -1)


def main() -> None:
    factors = np.random.default_rng(0).integers(0, 8, size=(15_000, 6))
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for number, (name, key) in enumerate(METRICS.items()):
        values = [score(name, turned(factors, angle), factors)[key] for angle in ANGLES]
        axes.plot(ANGLES, values, marker="os^vDPX*<"[number], markersize=4, linewidth=1.2, label=name)
    axes.set(xlabel="degrees by which pairs of codes are turned", ylabel="score", ylim=(-0.02, 1.02), xticks=ANGLES)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1, 0.5))
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=150)


if __name__ == "__main__":
    main()
