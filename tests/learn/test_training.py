"""The loop: exact through any interruption, and the loss that `loss_scale` says it is."""

import itertools
import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from disentune.errors import TrialError
from disentune.learn import training as training_module
from disentune.learn.training import Training, built_model
from disentune.metrics import METRICS
from disentune.plugin import Framework, Frozen, Helper, Losses
from disentune.spec.config import Invalid, Named, row_steps
from framework_examples import CASES, EXAMPLES, FALLS
from tiny_trials import MODES, assert_equal, through_disk, tiny, transform_of


@pytest.fixture(autouse=True)
def untrained_donors(monkeypatch):
    """A network of one's own for each donor, instead of one from a storage."""
    monkeypatch.setattr(training_module, "donated", lambda donor: built_model(tiny(seed=int(donor.trial, 16))))


def rows(training: Training, until=None) -> list:
    return [progress.row for progress in training.run(until) if progress.row]


def weights(training: Training) -> list:
    return [parameter.detach().clone() for parameter in training.model.parameters()]


def of_case(case: tuple[str, int], **changes) -> dict:
    name, number = case
    return {"name": name, **EXAMPLES[name][number], **changes}


SCHEDULED = {
    "name": "beta_vae",
    "beta": {"schedule": "cyclic", "initial": 0, "final": 4, "period": 5, "shape": "cosine"},
}
STOPS = (1, 3, 4, 5, 6, 11)
SOME = (5, 6)
"""Between two rows, with losses summed up, and at an evaluation."""
RESUMED = [
    *((of_case(case), "mse", SOME) for case in CASES),
    *(pytest.param(of_case(case), "mse", (1, 3, 4, 11), marks=pytest.mark.long) for case in CASES),
    *((of_case(("beta_vae", 0)), recon, STOPS) for recon in MODES),
    (SCHEDULED, "mse", STOPS),
]


@pytest.mark.parametrize(("framework", "recon", "stops"), RESUMED, ids=str)
def test_resuming_at_any_step_changes_nothing(framework, recon, stops):
    config = tiny(framework, recon)
    straight = Training(config)
    expected = rows(straight)
    assert [row["step"] for row in expected] == [4, 6, 8, 12]
    for stop in stops:
        first = Training(config)
        before = rows(first, until=stop)
        second = Training(config, through_disk(first))
        assert before + rows(second) == expected
        assert all(torch.equal(a, b) for a, b in zip(weights(second), weights(straight), strict=True))
        assert_equal(through_disk(second), through_disk(straight))


FITS = {"train": 60, "test": 30}
SMALLER = {
    **dict.fromkeys(("dci", "sap", "explicitness"), FITS),
    **{name: FITS | {"members": 4} for name in ("factor_vae_score", "beta_vae_score")},
    **{metric.name: {"traversals": 4} for metric in METRICS if metric.lines},
    "downstream": FITS | {"strengths": 2},
    "jacobian_orthogonality": {"samples": 20, "threshold": 10.0},
}


SLOWEST = "downstream"


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [
        pytest.param([name for name in METRICS.names() if name != SLOWEST], id="quick"),
        pytest.param([SLOWEST], id=SLOWEST, marks=pytest.mark.long),
    ],
)
def test_every_metric_of_a_resumed_trial_has_the_same_bits(names):
    metrics = [{"name": name, **SMALLER.get(name, {})} for name in names]
    evaluation = {"metrics": metrics, "every": 6, "size": "both", "codes": "both", "table": 400, "fast_table": 300}
    config = tiny(evaluation=evaluation)
    expected = rows(Training(config))
    assert [len(row.get("scored", ())) for row in expected] == [0, 2 * len(metrics), 0, 4 * len(metrics)]
    assert not any("notes" in row for row in expected)
    first = Training(config)
    before = rows(first, until=9)
    assert json.dumps(before + rows(Training(config, through_disk(first)))) == json.dumps(expected)


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


@pytest.mark.parametrize("name", ["ada_gvae", "beta_vae"])
def test_a_mean_beta_is_a_sum_beta_times_pixels_over_latents(name):
    """(SSE / CHW + beta KL / Z) CHW is SSE + beta' KL with beta' = beta CHW / Z: the same gradient but for CHW."""
    pixels, latents = 3 * 8 * 8, 4
    mean = Training(tiny({"name": name, "beta": 0.1}, scale="mean"))
    summed = Training(tiny({"name": name, "beta": 0.1 * pixels / latents}, scale="sum"))
    for training in (mean, summed):
        next(training.run())
    for a, b in zip(mean.model.parameters(), summed.model.parameters(), strict=True):
        torch.testing.assert_close(a.grad * pixels, b.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("rgb", "latents", "beta", "published"),
    [(True, 9, 1e-3, 1.365), (True, 25, 0.0316, 15.53), (False, 9, 0.00316, 1.438), (False, 25, 1.0, 163.8)],
)
def test_a_mean_beta_weighs_the_kl_as_in_the_table_of_the_papers_code(rgb, latents, beta, published):
    """CHW * (mean squared error + beta * mean KL) = SSE + beta' * KL, for 64x64 images in colour or grey."""
    model = {"name": "linear", "latents": latents}
    training = Training(tiny(dataset={"name": "xysquares", "rgb": rgb}, model=model, evaluation={}))
    pixels = (3 if rgb else 1) * 64 * 64
    assert training._objective(7.0 * pixels, 0.0) == pytest.approx(7.0)
    assert training._objective(0.0, beta * 1.0) * pixels == pytest.approx(published, rel=5e-4)  # four digits


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=str(case), marks=[pytest.mark.long] if case[1] else []) for case in CASES]
)
def test_what_it_minimises_falls(case):
    world = {"name": "xysquares", "image_size": 8, "square_size": 2, "grid_size": 3, "squares": 2}
    world["transform"] = transform_of(case[0])
    schedule = {"steps": 300, "log_every": 50, "batch_size": 16}
    config = tiny(of_case(case), scale="sum", dataset=world, training=schedule, evaluation={})
    values = [row["metrics"][FALLS.get(case[0], "loss")] for row in rows(Training(config))]
    assert values[-1] < values[0] - 0.1 * abs(values[0])


def test_a_schedule_gives_each_update_its_value():
    """With the weights of one moment, a scheduled beta gives the loss of a constant beta of the same value."""
    ramp = {"name": "beta_vae", "beta": {"schedule": "linear", "initial": 1, "final": 3, "begin": 2, "end": 6}}
    training = Training(tiny(ramp, training={"log_every": 1}, evaluation={}))
    seen = [(row["metrics"]["loss"] - row["metrics"]["recon"]) / row["metrics"]["kl"] for row in rows(training)]
    assert seen == pytest.approx([1, 1, 1, 1.5, 2, 2.5, 3, 3, 3, 3, 3, 3])


# ---- what a framework brings along


class Bare(Frozen):
    """A framework's params that say nothing."""


def leaky_loss(model, batch, params, step):
    """The helper's loss reaches the encoder, and the latent term the helper: the loop must keep them apart."""
    q = model.encode(batch.x)
    recon = batch.recon(model.decode(q.mean), batch.x)
    latent = step.helper(q.mean).mean() + step.extra.weight.square().sum()
    count = step.state["count"] + 1
    return Losses(recon, latent, {}, {"count": count}, -step.helper(q.mean).mean(), {"count": count})


LEAKY = Framework(
    name="leaky",
    params=Bare,
    loss=leaky_loss,
    parts=(),
    watch=("count",),
    extra=lambda setting, params, generator, images: nn.Linear(setting.latents, 1, bias=False),
    helper=Helper(
        build=lambda setting, params, generator: nn.Linear(setting.latents, 1, bias=False),
        optimiser=lambda parameters, params: torch.optim.SGD(parameters, lr=0.5),
    ),
    state=lambda params: {"count": torch.zeros(())},
)


def leaky() -> Training:
    config = tiny(training={"log_every": 1}, evaluation={})
    return Training(replace(config, framework=Named(LEAKY, Bare(), "leaky")))


@pytest.mark.slow
def test_the_helpers_loss_moves_the_helper_alone_even_when_it_leaks():
    """d(-mean score)/d(helper's weight) is minus the mean code; nothing of the latent term's opposite gradient."""
    training = leaky()
    before = training.helper.network.weight.detach().clone()
    model_before = [p.detach().clone() for p in training.model.parameters()]
    codes = training.model.encode(training_batch(training)).mean.mean(dim=0)
    next(training.run())
    torch.testing.assert_close(training.helper.network.weight.detach()[0], before[0] + 0.5 * codes.detach())
    assert not all(torch.equal(a, b) for a, b in zip(training.model.parameters(), model_before, strict=True))


def training_batch(training: Training) -> torch.Tensor:
    training.step += 1
    x = training._batch().x
    training.step -= 1
    return x


def test_the_model_is_trained_by_the_latent_term_alone():
    """A helper that learns ten times as fast leaves the first update of the model as it was."""
    slow, fast = leaky(), leaky()
    fast.helper.optimiser.param_groups[0]["lr"] = 5.0
    for training in (slow, fast):
        next(training.run())
    assert all(torch.equal(a, b) for a, b in zip(weights(slow), weights(fast), strict=True))
    assert not torch.equal(slow.helper.network.weight, fast.helper.network.weight)


def test_extra_parameters_are_trained_with_the_model():
    training = leaky()
    before = training.extra.weight.norm().item()
    for _ in training.run():
        pass
    assert training.extra.weight.norm().item() < before


@pytest.mark.parametrize("missing", ["framework", "extra", "helper", "helper_optimiser", None])
def test_every_part_that_a_framework_brings_is_saved_and_needed(missing):
    """SGD without momentum has an empty state, so only forgetting that one may go unnoticed."""
    straight, first = leaky(), leaky()
    expected = rows(straight)
    before = rows(first, until=5)
    state = through_disk(first)
    if missing:
        state[missing] = leaky().state()[missing]
    second = Training(first.config, state)
    same = before + rows(second) == expected and torch.equal(second.extra.weight, straight.extra.weight)
    assert same == (missing in (None, "helper_optimiser"))


def test_weights_do_not_depend_on_the_global_generator_even_when_a_plug_in_uses_it():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    config = replace(tiny(evaluation={}), framework=Named(LEAKY, Bare(), "leaky"))
    one, other = Training(config), Training(config)
    assert torch.equal(one.helper.network.weight, other.helper.network.weight)
    assert torch.equal(one.extra.weight, other.extra.weight)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parts": ("kl",)}, "the parts [], but its record declares ['kl']"),
        ({"watch": ()}, "the watch ['count'], but its record declares []"),
        ({"loss": lambda *inputs: replace(leaky_loss(*inputs), helper=None)}, "`Losses.helper` and `Framework.helper`"),
    ],
)
def test_a_loss_that_does_not_keep_its_records_promise_is_refused(change, words):
    broken = replace(LEAKY, **change)
    config = replace(tiny(evaluation={}), framework=Named(broken, Bare(), "leaky"))
    with pytest.raises(TrialError, match=re.escape(words)):
        next(Training(config).run())


def test_watched_numbers_stand_in_the_row_as_they_are():
    assert [row["metrics"]["watch_count"] for row in rows(leaky())] == list(range(1, 13))


@pytest.mark.filterwarnings("ignore")  # the compiler's own
@pytest.mark.long
def test_a_compiled_trial_repeats_to_the_bit_and_stays_near_the_eager_one():
    config = tiny(training={"compile": True, "steps": 4, "log_every": 1}, evaluation={})
    straight = rows(Training(config))
    first = Training(config)
    assert rows(first, until=2) + rows(Training(config, through_disk(first))) == straight
    for latents in range(2, 12):  # more graphs than the compiler keeps: it would fall back to eager
        next(Training(tiny(training={"compile": True}, model={"name": "mlp", "width": 8, "latents": latents})).run())
    assert rows(Training(config)) == straight
    eager = rows(Training(tiny(training={"steps": 4, "log_every": 1}, evaluation={})))
    losses = [[row["metrics"]["loss"] for row in run] for run in (straight, eager)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert config.id != tiny(training={"steps": 4, "log_every": 1}, evaluation={}).id


def test_the_standardised_world_has_the_published_pixel_values():
    """facts 1.4: background -0.125973 and a lit pixel 7.936285 in the paper's world."""
    config = tiny(dataset={"name": "xysquares"})
    x = Training(config)._batch().x
    assert x.unique().tolist() == pytest.approx([-0.125973, 7.936285], abs=1e-5)
    unit = Training(tiny(dataset={"name": "xysquares", "transform": "unit"}))._batch().x
    assert unit.unique().tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    "evaluation",
    [
        {},
        {"metrics": ["mig"]},
        {"metrics": ["mig"], "every": 5},
        {"metrics": [{"name": "mig", "every": 7}], "every": 5},
        {"metrics": [{"name": "mig", "every": "end"}, {"name": "sap", "every": 2}]},
        {"metrics": [{"name": "mig", "size": "both"}], "every": 3},
    ],
)
@pytest.mark.parametrize("log_every", [1, 4, 100])
def test_a_recorded_config_tells_the_steps_of_its_rows_without_parsing_it(evaluation, log_every):
    config = tiny(evaluation=evaluation, training={"steps": 13, "log_every": log_every})
    tree = json.loads(json.dumps(config.tree()))
    written = [row["step"] for row in rows(Training(config))]
    for until in range(15):
        assert sorted(set(row_steps(tree, until))) == [step for step in written if step <= until]


def test_the_steps_of_rows_are_generated_one_by_one_however_many_there_are():
    tree = tiny(training={"steps": 10**9, "log_every": 1}).tree()
    assert list(itertools.islice(row_steps(tree, 10**9), 3)) == [1, 2, 3]


# ---- batches


def batches(training):
    """Images of the first three batches, as bytes."""
    found = []
    for step in range(3):
        training.step = step + 1
        found.append([image.numpy().tobytes() for image in training._batch().x])
    return found


def test_without_replacement_a_batch_can_be_the_whole_data_set():
    single = {"name": "xysquares", "image_size": 8, "square_size": 2, "grid_size": 3, "squares": 1}
    whole = tiny(dataset=single, training={"batch_size": 9, "replacement": False})
    drawn = batches(Training(whole))
    assert [len(set(batch)) for batch in drawn] == [9, 9, 9]
    assert len({tuple(batch) for batch in drawn}) == 3  # each in its own order
    usual = batches(Training(tiny(dataset=single, training={"batch_size": 9})))
    assert min(len(set(batch)) for batch in usual) < 9


def test_without_replacement_a_batch_cannot_be_larger_than_the_data_set():
    with pytest.raises(Invalid, match=r"training\.batch_size: must be at most 729"):
        tiny(training={"batch_size": 730, "replacement": False})
    tiny(training={"batch_size": 730})


def test_the_usual_way_to_draw_batches_is_no_part_of_a_trials_name():
    assert "replacement" not in tiny().tree()["training"]
    assert tiny().id == tiny(training={"replacement": True}).id != tiny(training={"replacement": False}).id
