"""The message for an unknown name."""

import pytest

from disentune.errors import counted_trials, did_you_mean

KEYS = ["framework.beta", "training.learning_rate", "training.steps", "stop.steps", "model.latents", "recon.name"]


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("betavae", ["beta_vae", "ada_gvae"], "beta_vae"),
        ("dci", ["dci_disentanglement", "mig"], "dci_disentanglement"),
        ("lr", ["learning_rate", "steps"], "learning_rate"),
        ("LR", ["learning_rate", "steps"], "learning_rate"),
        ("beta", KEYS, "framework.beta"),
        ("latnets", KEYS, "model.latents"),
        ("z_dim", KEYS, "model.latents"),
        ("training.lr", KEYS, "training.learning_rate"),
        ("training.epochs", KEYS, "training.steps"),
        ("epochs", KEYS, "training.steps' or 'stop.steps"),
        ("loss", ["dataset", "recon"], "recon"),
    ],
)
def test_a_name_finds_what_was_meant(name, known, meant):
    assert did_you_mean(name, known) == f" Did you mean '{meant}'?"


@pytest.mark.parametrize("name", ["", "zzz", "zzz.zzz", "."])
def test_a_name_that_is_like_nothing_finds_nothing(name):
    assert did_you_mean(name, KEYS) == ""


def test_a_name_that_many_sections_have_finds_none_of_them():
    assert did_you_mean("name", [f"{section}.name" for section in "abcd"]) == ""


def test_one_trial_is_singular():
    assert [counted_trials(count) for count in (0, 1, 2)] == ["0 trials", "1 trial", "2 trials"]
