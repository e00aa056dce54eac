import pytest

from disentune.errors import ConfigError
from disentune.spec.selection import select

TRIAL = {
    "arm": ("rescued", "shared"),
    "seed": 1,
    "framework": {"name": "beta_vae", "beta": 0.001},
    "recon": {"name": "mse"},
    "dataset": {"name": "xysquares", "spacing": None, "rgb": True},
    "evaluation": {"metrics": [{"name": "mig", "bins": 20}, {"name": "dci"}], "every": 300},
    "loss_scale": "mean",
}


@pytest.mark.parametrize(
    "expression",
    [
        "framework.name == 'beta_vae' and seed < 2",
        "seed == 7 or loss_scale == 'mean'",
        "not seed == 7",
        "not (seed == 7 or seed == 8)",
        "0 <= seed < 2",
        "seed in [0, 1]",
        "seed in (0, 1)",
        "seed not in [2, 3]",
        "framework.beta <= 1e-3",
        "seed > -1",
        "arm == 'rescued'",
        "arm == 'shared'",
        "'rescued' == arm",
        "arm in ['rescued', 'adversarial']",
        "'rescued' in arm",
        "arm != 'adversarial'",
        "arm not in ['adversarial']",
        "'mig' in evaluation.metrics",
        "dataset.rgb",
        "dataset.rgb == true",
        "dataset.spacing == null",
        "dataset.spacing == None",
    ],
)
def test_true_of_the_trial_and_its_negation_is_not(expression):
    assert select(expression)(TRIAL) is True
    assert select(f"not ({expression})")(TRIAL) is False


def test_a_key_that_another_plug_in_has_is_null_here():
    assert not select("recon.radius == 11")(TRIAL)
    assert not select("recon.radius > 3")(TRIAL)
    assert select("recon.radius != 11")(TRIAL)


def test_a_single_arm_may_be_a_plain_text():
    assert select("arm == 'rescued'")(TRIAL | {"arm": "rescued"})
    assert not select("arm == 'res'")(TRIAL | {"arm": "rescued"})


def test_a_key_of_a_users_own_plug_in_is_known_where_a_trial_has_it_or_the_caller_says_so():
    own = TRIAL | {"framework": {"name": "my.vae:FRAMEWORK", "temper": 3}}
    assert select("framework.temper == 3")(own)
    assert not select("framework.temper == 3", known=["framework.temper"])(TRIAL)
    with pytest.raises(ConfigError, match=r"unknown key 'framework\.temper'"):
        select("framework.temper == 3")(TRIAL)


def test_an_unknown_key_is_refused_with_its_neighbours_even_where_it_would_not_be_reached():
    with pytest.raises(ConfigError, match=r"'framework\.betta'\. Did you mean 'framework\.beta'\? Known: framework\."):
        select("seed == 99 and framework.betta == 1")(TRIAL)


def test_a_text_without_quotes_is_explained():
    with pytest.raises(ConfigError, match=r"unknown key 'beta_vae'.* need quotes"):
        select("framework.name == beta_vae")(TRIAL)


@pytest.mark.parametrize("expression", ["", "  "])
def test_an_empty_filter_is_refused(expression):
    with pytest.raises(ConfigError, match=r"--only '\s*': is empty; omit it to take every trial, or write for example"):
        select(expression)


def test_a_key_without_its_section_finds_the_whole_key():
    with pytest.raises(ConfigError, match=r"unknown key 'beta'. Did you mean 'framework.beta'\? Known: arm, seed"):
        select("beta == 32")({"framework": {"name": "beta_vae", "beta": 1.0}, "seed": 0, "arm": "a"})


@pytest.mark.parametrize("expression", ["seed ==", "seed = 1", "seed == 1 &&", "(" * 300, "a\0b", "import os"])
def test_what_is_not_an_expression_is_refused_with_an_example(expression):
    with pytest.raises(ConfigError, match=r"cannot be read .* for example: framework\.name == 'beta_vae' and seed < 2"):
        select(expression)


def test_a_single_equals_sign_is_explained():
    with pytest.raises(ConfigError, match=r"cannot be read \(write == to compare\)"):
        select("arm = 'x'")


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').system('true')",
        "seed.__class__() == 1",
        "'a'.upper == 'A'",
        "[x for x in [1]] == [1]",
        "(lambda: True)()",
        "seed + 1 == 2",
        "framework['name'] == 'beta_vae'",
        "f'{seed}' == '1'",
        "b'x' == 'x'",
        "{1: 2} == 3",
        "(seed := 1) == 1",
        "seed if seed else 3",
        "~seed == 1",
    ],
)
def test_code_is_refused_before_any_trial_is_asked_about(expression):
    with pytest.raises(ConfigError, match="is not allowed"):
        select(expression)


def test_dunder_names_are_keys_like_any_other_and_reach_no_object():
    with pytest.raises(ConfigError, match=r"unknown key 'seed\.__class__'"):
        select("seed.__class__ == 1")(TRIAL)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("framework.name < 3", "'beta_vae' and 3 cannot be compared by size"),
        ("seed in 3", "must be followed by a list, got 3"),
        ("framework.name", "'beta_vae' is neither true nor false"),
        ("seed and dataset.rgb", "1 is neither true nor false"),
        ("seed is 1", "'is' is not allowed"),
        ("not " * 300 + "seed == 1", "a filter may have at most 1,000"),
    ],
)
def test_questions_without_an_answer_are_refused(expression, message):
    with pytest.raises(ConfigError, match=message):
        select(expression)(TRIAL)


def test_a_named_choice_answers_to_its_key_alone():
    trial = {"framework": {"name": "slow_vae", "pairs": {"name": "laplace", "rate": 2.0}}, "arm": "a"}
    assert select("framework.pairs == 'laplace' and framework.pairs.rate == 2")(trial)
    assert select("framework.pairs.name != 'original'")(trial)
    assert not select("framework.pairs == 'original'")(trial)


@pytest.mark.parametrize("expression", ["active_units >= 6", "mig > 0.3 and seed == 1", "loss < 1", "sap == null"])
def test_metrics_are_keys_of_a_trial_that_has_trained(expression):
    metrics = {"active_units": 6.0, "mig": 0.4, "loss": 0.5, "sap": float("nan")}
    assert select(expression)(TRIAL, metrics)
    assert not select(f"not ({expression})")(TRIAL, metrics)


def test_a_metric_that_this_trial_lacks_is_null_where_another_has_it():
    assert not select("mig > 0.3", known=["mig"])(TRIAL, {"loss": 1.0})


@pytest.mark.parametrize("key", ["mig", "dci_disentanglement_fast", "active_units_max", "loss"])
def test_a_metric_cannot_choose_trials_that_have_not_trained(key):
    with pytest.raises(ConfigError, match=f"'{key}' is a metric, which a trial has only after training"):
        select(f"{key} > 0.3")(TRIAL)
