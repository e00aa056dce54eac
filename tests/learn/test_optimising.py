"""What a trial may choose about its optimiser: decay of some weights, clipping, and a moving learning rate."""

import pytest
import torch

from disentune.learn.training import Training
from disentune.spec.config import Invalid, TrialConfig
from tiny_trials import assert_equal, through_disk, tiny

COSINE = {"schedule": "cosine", "initial": 1, "final": 0.1}
DECAY = {"optimiser": {"decoupled": True, "weight_decay": 0.5}}
CHOICES = [{"clip": 0.01}, {"learning_rate_schedule": COSINE}, DECAY, {**DECAY, "clip": 0.1,
           "learning_rate_schedule": {"schedule": "cyclic", "initial": 0.2, "final": 1, "period": 5}}]  # fmt: skip
PCL = {"name": "pcl"}
"""It trains a regression besides the model: `extra`."""


def trained(config, until=None) -> Training:
    training = Training(config)
    for _ in training.run(until):
        pass
    return training


def weights(training) -> dict[str, torch.Tensor]:
    return {name: one.detach().clone() for name, one in training.model.named_parameters()}


def wrong(**training) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        tiny(training=training)
    return {mistake.key: mistake.text for mistake in caught.value.mistakes}


def test_a_trial_without_the_new_keys_has_none_of_them():
    plain = tiny(training={"optimiser": {"betas": [0.5, 0.9]}}).tree()["training"]
    assert not {"clip", "learning_rate_schedule"} & plain.keys()
    assert plain["optimiser"].keys() == {"betas", "amsgrad", "weight_decay"}


@pytest.mark.parametrize("training", CHOICES, ids=str)
def test_a_choice_is_part_of_the_id_and_changes_the_weights(training):
    config, plain = tiny(training=training), tiny()
    assert config.id != plain.id
    assert TrialConfig.parse(config.tree()).id == config.id
    ours, theirs = weights(trained(config)), weights(trained(plain))
    assert any(not torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("framework", ["beta_vae", PCL], ids=str)
@pytest.mark.parametrize("training", CHOICES, ids=str)
def test_resuming_changes_nothing(training, framework):
    config = tiny(framework, training=training)
    first = trained(config, 5)
    resumed = Training(config, through_disk(first))
    for _ in resumed.run():
        pass
    assert_equal(trained(config).state(), resumed.state())


# ---- decay


def test_biases_and_what_a_framework_adds_do_not_decay_by_default():
    training = Training(tiny(PCL, training=DECAY))
    names = [name for name, _ in training.model.named_parameters()]
    names += [f"extra.{name}" for name, _ in training.extra.named_parameters()]
    kept = {names[number] for number in training.optimiser.undecayed}
    assert kept == {name for name in names if name.endswith("bias") or name.startswith("extra.")}
    assert {name.rsplit(".", 1)[-1] for name in names if name not in kept} == {"weight"}


def test_any_parameter_may_be_listed_by_a_part_of_its_name():
    optimiser = {**DECAY["optimiser"], "undecayed": ["decoder"]}
    training = Training(tiny(training={"optimiser": optimiser}))
    names = [name for name, _ in training.model.named_parameters()]
    assert {names[number] for number in training.optimiser.undecayed} == {
        name for name in names if name.startswith("decoder.")
    }


def test_exclusions_need_a_decoupled_decay():
    found = wrong(optimiser={"weight_decay": 0.1, "undecayed": ["bias"]})
    assert found["training.optimiser.undecayed"].startswith("needs decoupled: true")


# ---- the learning rate


def test_the_rate_of_each_step_is_the_schedules_share_of_it():
    config = tiny(training={"learning_rate_schedule": COSINE})
    rates = []
    training = Training(config)
    step = training.optimiser.step
    training.optimiser.step = lambda: (rates.append(training.optimiser.learning_rate), step())
    for _ in training.run():
        pass
    from math import cos, pi

    expected = [0.01 * (1 - 0.9 * (1 - cos(pi * step / 12)) / 2) for step in range(12)]
    assert rates == pytest.approx(expected)


def test_a_schedule_that_stays_at_one_changes_no_bit():
    ours = trained(tiny(training={"learning_rate_schedule": {"schedule": "linear", "initial": 1, "final": 1}}))
    assert_equal(ours.state()["model"], trained(tiny()).state()["model"])


def test_an_optimiser_of_torch_follows_the_schedule(monkeypatch):
    from dataclasses import replace

    config = tiny(training={"learning_rate_schedule": COSINE})
    plugin = replace(config.framework.plugin, optimiser=lambda ps, rate: torch.optim.Adam(ps, lr=rate, fused=True))
    brought = replace(config, framework=config.framework._replace(plugin=plugin))
    assert_equal(trained(brought).state()["model"], trained(config).state()["model"])


@pytest.mark.parametrize(
    ("schedule", "key", "reason"),
    [
        ({"schedule": "linear", "initial": 1, "final": -1}, "", "initial and final must be >= 0, got 1 and -1"),
        ({"schedule": "linear", "initial": 1}, ".final", "is required but not set"),
        ({"schedule": "lineal", "initial": 1, "final": 0}, ".schedule", "Did you mean 'linear'?"),
        (0.5, "", "must be a mapping"),
    ],
)
def test_a_wrong_schedule_is_refused_by_its_key(schedule, key, reason):
    assert reason in wrong(learning_rate_schedule=schedule)[f"training.learning_rate_schedule{key}"]


def test_a_schedule_in_place_of_the_rate_is_told_where_to_go():
    assert wrong(learning_rate=COSINE)["training.learning_rate"] == (
        "must be a number (only a framework's own numbers can follow a schedule; learning_rate_schedule multiplies "
        "this one)"
    )


# ---- frameworks that bring their own optimiser


def test_choices_of_adam_are_refused_where_a_framework_brings_an_optimiser():
    from framework_examples import EXAMPLES

    manipulator = {"name": "manipulator", **EXAMPLES["manipulator"][0]}
    with pytest.raises(Invalid) as caught:
        tiny(manipulator, training={"clip": 1.0, **DECAY})
    found = {mistake.key: mistake.text for mistake in caught.value.mistakes}
    assert found["training.clip"] == "cannot be used with 'manipulator', which brings its own optimiser; omit it"
    assert "training.optimiser.decoupled" in found
