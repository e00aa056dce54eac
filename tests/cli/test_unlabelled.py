"""Commands on data without factors."""

import json

import pytest

SWEEP = """
name: demo
trial:
  dataset: {name: sparse_parts}
  model: {name: mlp, latents: 3}
  framework: {name: FRAMEWORK, beta: 1}
  recon: {name: laplace}
  training: {steps: 4, batch_size: 8, learning_rate: 1e-3}
  evaluation: {metrics: [METRIC]}
  loss_scale: sum
arms: {all: {}}
"""


@pytest.fixture
def sweep(tmp_path):
    def write(framework="beta_vae", metric="hoyer"):
        path = tmp_path / "demo.yaml"
        path.write_text(SWEEP.replace("FRAMEWORK", framework).replace("METRIC", metric))
        return path

    return write


def test_plan_refuses_a_labelled_metric_with_its_place_and_what_to_use(disentune, sweep):
    code, _, said = disentune("plan", sweep(metric="mig"))
    assert code == 2
    assert "demo.yaml:9" in said
    assert "evaluation.metrics: 'mig' needs known factors, but the data set 'sparse_parts' has no" in said
    assert "use instead: active_units," in said


def test_plan_refuses_pairs(disentune, sweep):
    code, _, said = disentune("plan", sweep(framework="ada_gvae"))
    assert code == 2
    assert "framework.name: 'ada_gvae' draws pairs of images that differ in some factors" in said


def test_plan_takes_metrics_of_codes(disentune, sweep):
    code, printed, _ = disentune("plan", sweep(), "--json")
    assert code == 0
    assert json.loads(printed)["trials"] == 1


def test_inspect_compares_random_images_and_says_why_no_order(disentune, tmp_path):
    code, printed, _ = disentune("inspect", "--dataset", "sparse_parts", "--recon", "laplace", "--lines", "2")
    assert code == 0
    assert "no order: its images do not show every combination of known factors" in printed
    assert {path.name for path in (tmp_path / "inspect").rglob("*.png")} == {"distributions.png"}
    code, printed, _ = disentune("inspect", "--dataset", "sparse_parts", "--json", "--lines", "2")
    found = json.loads(printed)
    assert found["factors"] == {}
    assert found["random"]["pearson"] is None
    assert found["random"]["mean_distance"] > 0


def test_list_says_that_factors_are_unknown(disentune):
    code, printed, _ = disentune("data", "list")
    assert code == 0
    (line,) = [line for line in printed.splitlines() if line.startswith("sparse_parts")]
    assert "5,000" in line
    assert "unknown" in line
    (listed,) = [one for one in json.loads(disentune("data", "list", "--json")[1]) if one["name"] == "celeba"]
    assert (listed["images"], listed["factor_sizes"]) == (202_599, [])
