"""Trials of a dozen steps on images of 8 x 8, and their states."""

import io

import torch

from disentune.frameworks import FRAMEWORKS
from disentune.learn.training import Training
from disentune.spec.config import TrialConfig

MODES = {
    "mse": {"recon": {"name": "mse"}},
    "overlap": {"recon": {"name": "overlap", "kernel": "box", "radius": 3, "alpha": 9}},
    "bce": {"recon": {"name": "bce"}, "transform": "unit"},
}


def transform_of(framework: str) -> str:
    return "unit" if ":" not in framework and FRAMEWORKS[framework].needs_unit_range else "standardise"


def tiny(framework="beta_vae", recon="mse", scale="mean", **changes) -> TrialConfig:
    mode = MODES.get(recon, {"recon": {"name": recon}})
    framework = {"name": framework, "beta": 0.1} if isinstance(framework, str) else framework
    training = {"steps": 12, "batch_size": 4, "learning_rate": 1e-2, "log_every": 4} | changes.pop("training", {})
    tree = {
        "dataset": {"name": "xysquares", "image_size": 8, "square_size": 2, "grid_size": 3, "squares": 3,
                    "transform": mode.get("transform", transform_of(framework["name"]))},
        "model": {"name": "mlp", "width": 8, "latents": 4},
        "framework": framework,
        "recon": mode["recon"],
        "training": training,
        "evaluation": {"metrics": ["mig"], "every": 6},
        "loss_scale": scale,
        "seed": 3,
    }  # fmt: skip
    return TrialConfig.parse(tree | changes)


def through_disk(training: Training) -> dict:
    buffer = io.BytesIO()
    torch.save(training.state(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def assert_equal(a, b) -> None:
    """Asserts that two states are equal, bit for bit."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            assert_equal(a[key], b[key])
    else:
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b
