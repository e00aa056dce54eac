"""The loop: exact through any interruption, and the loss that `loss_scale` says it is."""

import io

import numpy as np
import pytest
import torch

from disentune.config import TrialConfig
from disentune.frameworks import FRAMEWORKS
from disentune.recon import RECONS
from disentune.training import Training

MODES = {
    "mse": {"recon": {"name": "mse"}},
    "overlap": {"recon": {"name": "overlap", "kernel": "box", "radius": 3, "alpha": 9}},
    "bce": {"recon": {"name": "bce"}, "transform": "unit"},
}


def tiny(framework="beta_vae", recon="mse", scale="mean", beta=0.1, **changes) -> TrialConfig:
    mode = MODES[recon]
    training = {"steps": 12, "batch_size": 4, "learning_rate": 1e-2, "log_every": 4} | changes.pop("training", {})
    tree = {
        "dataset": {"name": "xysquares", "image_size": 8, "square_size": 2, "grid_size": 3, "squares": 3,
                    "transform": mode.get("transform", "standardise")},
        "model": {"name": "mlp", "width": 8, "latents": 4},
        "framework": {"name": framework, "beta": beta},
        "recon": mode["recon"],
        "training": training,
        "evaluation": {"metrics": ["mig"], "every": 6},
        "loss_scale": scale,
        "seed": 3,
    }  # fmt: skip
    return TrialConfig.parse(tree | changes)


def rows(training: Training, until=None) -> list:
    return [progress.row for progress in training.run(until) if progress.row]


def through_disk(training: Training) -> dict:
    buffer = io.BytesIO()
    torch.save(training.state(), buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def weights(training: Training) -> list:
    return [parameter.detach().clone() for parameter in training.model.parameters()]


@pytest.mark.parametrize("recon", RECONS.names())
@pytest.mark.parametrize("framework", FRAMEWORKS.names())
def test_resuming_at_any_step_changes_nothing(framework, recon):
    config = tiny(framework, recon)
    straight = Training(config)
    expected = rows(straight)
    assert [row["step"] for row in expected] == [4, 6, 8, 12]
    for stop in (1, 3, 4, 5, 6, 11):
        first = Training(config)
        before = rows(first, until=stop)
        second = Training(config, through_disk(first))
        assert before + rows(second) == expected
        assert all(torch.equal(a, b) for a, b in zip(weights(second), weights(straight), strict=True))


@pytest.mark.parametrize("missing", ["model", "optimiser", "sums"])
def test_every_part_of_the_state_is_needed(missing):
    """If one of them were forgotten, the rows after a resume would differ: so the test above can fail."""
    config = tiny()
    expected = rows(Training(config))
    first = Training(config)
    before = rows(first, until=5)
    state = through_disk(first)
    state[missing] = Training(config).state()[missing]
    assert before + rows(Training(config, state)) != expected


def test_a_state_of_one_step_differs_from_that_of_the_next_in_its_draws():
    """Batches and noise come from (seed, step): forgetting the step repeats the draws of an earlier one."""
    first = Training(tiny())
    rows(first, until=5)
    state = through_disk(first)
    state["step"] = 4
    late, right = Training(tiny(), state), Training(tiny(), through_disk(first))
    next(late.run()), next(right.run())
    assert not all(torch.equal(a, b) for a, b in zip(weights(late), weights(right), strict=True))


def test_the_seed_decides_everything_and_the_global_generators_nothing():
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002 (the point of the test)
    one = rows(Training(tiny()))
    torch.manual_seed(2)
    np.random.seed(2)  # noqa: NPY002
    assert rows(Training(tiny())) == one
    assert rows(Training(tiny(seed=4))) != one


def test_the_learning_rate_is_the_configs_even_after_a_resume():
    first = Training(tiny())
    rows(first, until=5)
    frozen = Training(tiny(training={"learning_rate": 1e-30}), through_disk(first))
    rows(frozen)
    assert all(torch.equal(a, b) for a, b in zip(weights(frozen), weights(first), strict=True))


@pytest.mark.parametrize("framework", FRAMEWORKS.names())
def test_a_mean_beta_is_a_sum_beta_times_pixels_over_latents(framework):
    """(SSE / CHW + beta KL / Z) CHW is SSE + beta' KL with beta' = beta CHW / Z: the same gradient but for CHW."""
    pixels, latents = 3 * 8 * 8, 4
    mean = Training(tiny(framework, scale="mean", beta=0.1))
    summed = Training(tiny(framework, scale="sum", beta=0.1 * pixels / latents))
    for training in (mean, summed):
        next(training.run())
    for a, b in zip(mean.model.parameters(), summed.model.parameters(), strict=True):
        torch.testing.assert_close(a.grad * pixels, b.grad, rtol=1e-4, atol=1e-4)


def test_rows_carry_both_scales():
    row = rows(Training(tiny(scale="mean")))[0]["metrics"]
    pixels, latents = 192, 4
    assert row["recon_sum"] == pytest.approx(row["recon"] * pixels)
    assert row["kl_sum"] == pytest.approx(row["kl"] * latents)
    assert row["loss"] == pytest.approx(row["recon"] + 0.1 * row["kl"])
    assert row["loss_sum"] == pytest.approx(row["loss"] * pixels)
    summed = rows(Training(tiny(scale="sum")))[0]["metrics"]
    assert summed["loss"] == summed["loss_sum"] == pytest.approx(summed["recon"] + 0.1 * summed["kl"])
    assert (summed["recon"], summed["kl"]) == (summed["recon_sum"], summed["kl_sum"])


def test_a_row_is_the_mean_of_the_steps_since_the_last_row():
    each = [row["metrics"]["loss"] for row in rows(Training(tiny(training={"log_every": 1})))]
    fours = [row["metrics"]["loss"] for row in rows(Training(tiny(evaluation={})))]
    assert fours == pytest.approx([np.mean(each[0:4]), np.mean(each[4:8]), np.mean(each[8:12])])


def test_evaluating_more_often_changes_no_other_number():
    """Metrics draw from generators of their own, so they cannot disturb the training."""
    often = rows(Training(tiny(evaluation={"metrics": ["mig"], "every": 2})))
    never = rows(Training(tiny(evaluation={})))
    shared = {row["step"]: row["metrics"] for row in often}
    last = never[-1]["metrics"]
    assert shared[12].keys() - last.keys() == {"mig"}
    straight, often_evaluated = (
        Training(tiny(evaluation={})),
        Training(tiny(evaluation={"metrics": ["mig"], "every": 1})),
    )
    rows(straight), rows(often_evaluated)
    assert all(torch.equal(a, b) for a, b in zip(weights(straight), weights(often_evaluated), strict=True))


@pytest.mark.parametrize("framework", FRAMEWORKS.names())
def test_the_loss_falls(framework):
    config = tiny(framework, beta=1e-3, training={"steps": 400, "log_every": 50}, evaluation={})
    losses = [row["metrics"]["loss"] for row in rows(Training(config))]
    assert losses[-1] < 0.9 * losses[0]


def test_the_standardised_world_has_the_published_pixel_values():
    """facts 1.4: background -0.125973 and a lit pixel 7.936285 in the paper's world."""
    config = tiny(dataset={"name": "xysquares"})
    x = Training(config)._batch().x
    assert x.unique().tolist() == pytest.approx([-0.125973, 7.936285], abs=1e-5)
    unit = Training(tiny(dataset={"name": "xysquares", "transform": "unit"}))._batch().x
    assert unit.unique().tolist() == [0.0, 1.0]
