"""Zietlow et al., ICML 2021, Fig. 1: a linear VAE takes principal components, a nonlinear one the local structure."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

SCRIPT = Path(__file__).parents[2] / "docs" / "studies" / "demystifying_theory.py"


@pytest.fixture(scope="module")
def theory():
    spec = importlib.util.spec_from_file_location("demystifying_theory", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["demystifying_theory"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["demystifying_theory"]


def test_the_principal_components_of_the_cloud_are_the_diagonals_of_its_lattice(theory):
    """By symmetry x and y have equal variances, so a positive covariance turns the axes by 45 degrees."""
    points = theory.cloud(200_000, np.random.default_rng(0))
    covariance = np.cov(points.T)
    assert covariance[0, 0] == pytest.approx(covariance[1, 1], rel=0.02)
    assert covariance[0, 1] > 0.2
    near = np.abs(points - np.round(points - 0.5) - 0.5)
    assert (near < 0.5).all()
    assert np.sqrt(np.mean(near**2)) == pytest.approx(0.1, rel=0.02)


@pytest.mark.parametrize(("degrees", "lattice", "principal"), [(0, 0, 45), (45, 45, 0), (30, 30, 15), (100, 10, 35)])
def test_the_alignment_of_a_rotation_is_its_angle_to_the_nearest_axis(theory, degrees, lattice, principal):
    x = torch.tensor([[3.0, 3.0], [-3.0, -3.0], [1.0, -1.0], [-1.0, 1.0]]).reshape(-1, 1, 1, 2)  # along the diagonal
    model, angle = theory.network("linear"), math.radians(degrees)
    with torch.no_grad():
        turned = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]])
        model.decoder[0].weight.copy_(turned @ torch.diag(torch.tensor([2.0, 1.0])))
    found = theory.alignment(model, x)
    assert found.lattice == pytest.approx(lattice, abs=1e-3)
    assert found.principal == pytest.approx(principal, abs=1e-3)


def test_the_script_finds_the_known_loss_of_the_linear_vae(theory):
    loss, angle = theory.optimum(2.0, seed=0)
    assert loss == pytest.approx(10.110740, abs=1e-5)
    assert angle < 0.1


@pytest.mark.long
@pytest.mark.parametrize(("name", "closer"), [("linear", "principal"), ("tanh", "lattice")])
def test_each_vae_is_aligned_with_its_own_axes(theory, name, closer):
    found = theory.aligned(name, seed=0)
    assert getattr(found, closer) < 10
    assert found.lattice + found.principal > 40


def test_the_nonlinear_network_has_hidden_layers_and_the_linear_one_none(theory):
    kinds = {name: [type(layer) for layer in theory.network(name).decoder] for name in ("linear", "tanh")}
    assert nn.Tanh in kinds["tanh"]
    assert nn.Tanh not in kinds["linear"]
