"""Donors: chosen by their scores, and refused before anything is spent."""

import pytest

from chain_examples import BASE, donors, resolved, study, train
from disentune.errors import ConfigError
from disentune.files import earlier
from disentune.results.donors import check, manipulator_trials, resolve
from disentune.runs.ledger import Run
from disentune.spec import space
from disentune.spec.config import TrialConfig


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    folder = tmp_path_factory.mktemp("donors") / "storage"
    donors(folder)
    return folder


@pytest.fixture(scope="module")
def run(storage):
    return Run(storage / "tiny_donors" / "main")


@pytest.fixture(scope="module")
def planned(storage):
    return {"donors": [point.config for point in space.read(storage / "tiny_donors.yaml").points]}


def scores(run):
    return {folder.id: folder.rows()[-1]["metrics"]["mig"] for folder in run.trials()}


# ---- choosing


def test_the_best_and_the_worst_by_score_are_chosen(run):
    chosen = resolve(study(best=2, worst=2), {"donors": run})["dataset"]["donors"]
    ranked = sorted(scores(run).items(), key=lambda item: (-item[1], item[0]))
    assert [(donor["role"], donor["trial"]) for donor in chosen[:2]] == [("best", trial) for trial, _ in ranked[:2]]
    lowest = sorted(scores(run).items(), key=lambda item: (item[1], item[0]))[:2]
    assert [(donor["role"], donor["trial"]) for donor in chosen[2:]] == [("worst", trial) for trial, _ in lowest]


def test_a_donor_is_named_by_its_weights(run, storage, monkeypatch):
    monkeypatch.setenv(earlier.VARIABLE, str(storage))
    for donor in resolved(storage)["donors"]:
        assert earlier.earlier(donor["trial"], donor["weights"]).weights == donor["weights"]


def test_resolving_is_idempotent_and_leaves_other_data_sets_alone(run):
    once = resolve(study(), {"donors": run})
    assert resolve(once, {"donors": run}) == once
    plain = {**study(), "dataset": BASE}
    assert resolve(plain, {}) == plain
    assert manipulator_trials([plain, study()]) == []


def test_a_manipulator_has_the_donors_model_loss_and_data(run):
    tree = resolve(study(), {"donors": run})
    (found,) = manipulator_trials([tree, {**tree, "seed": 3}])
    config = TrialConfig.parse(found)
    assert config.id == tree["dataset"]["manipulator"]
    assert found["model"] == {"name": "mlp", "width": 8, "depth": 2, "latents": 3}
    assert (found["recon"]["name"], config.pixels.transform, config.metrics) == ("mse", "unit", ())
    assert (found["framework"]["name"], found["framework"]["epsilon"]) == ("manipulator", 0.3)
    assert found["framework"]["donors"] == tree["dataset"]["donors"]
    assert (found["training"]["steps"], found["training"]["batch_size"]) == (12, 4)
    assert found["training"]["learning_rate"] == found["framework"]["helper_learning_rate"] == 1e-2


def test_it_trains_where_the_study_trains(run):
    on_gpu = {**study(), "training": {**study()["training"], "device": "cuda"}}
    tree = resolve(on_gpu, {"donors": run})
    assert manipulator_trials([tree])[0]["training"]["device"] == "cuda"
    assert tree["dataset"]["manipulator"] != resolve(study(), {"donors": run})["dataset"]["manipulator"]


def test_each_manipulator_is_trained_once(run):
    trees = [resolve(study(epsilon=epsilon), {"donors": run}) for epsilon in (0.1, 0.2, 0.1)]
    assert len(manipulator_trials(trees)) == 2


def test_a_changed_id_is_noticed(run):
    tree = resolve(study(), {"donors": run})
    wrong = {**tree, "dataset": {**tree["dataset"], "manipulator": "0" * 16}}
    with pytest.raises(ConfigError, match=r"dataset.manipulator: is 0000000000000000, but these donors"):
        manipulator_trials([wrong])


def test_a_resolved_study_is_a_trial(run):
    config = TrialConfig.parse(resolve(study(), {"donors": run}))
    assert TrialConfig.parse(config.tree()).id == config.id


# ---- refusals

WRONG = [
    ({"best": 3, "worst": 2}, "3 best and 2 worst donors are asked for, but .* has 4 trials; ask for fewer"),
    ({"metric": "migg"}, "dataset.metric: 'migg' is not scored by .*Did you mean 'mig'"),
    ({"base": {**BASE, "image_size": 16}}, "dataset.base: differs .* image_size is 16 here and 8 there"),
    (
        {"base": {"name": "x_columns", "image_size": 8, "square_size": 2}},
        "name is 'x_columns' here and 'xysquares' there; make them",
    ),
    ({"donors": "donor"}, "dataset.donors: 'donor' is not a key of `needs`. Did you mean 'donors'"),
    ({"epsilon": 2.0}, "dataset.epsilon: must be <= 1"),
]


@pytest.mark.parametrize(("wrong", "reason"), WRONG)
def test_what_a_finished_run_cannot_give_is_refused(run, wrong, reason):
    with pytest.raises(ConfigError, match=reason):
        resolve(study(**wrong), {"donors": run})


@pytest.mark.parametrize(("wrong", "reason"), WRONG)
def test_the_same_is_refused_before_a_donor_is_trained(planned, wrong, reason):
    with pytest.raises(ConfigError, match=reason):
        check(study(**wrong), planned)


def test_a_right_plan_is_accepted(planned):
    check(study(), planned)
    check({**study(), "dataset": BASE}, {})


def test_donors_must_see_plain_pixels(planned):
    noisy = [TrialConfig.parse({**one.tree(), "dataset": {**one.tree()["dataset"], "noise": 0.1}})
             for one in planned["donors"]]  # fmt: skip
    with pytest.raises(ConfigError, match=r"must have dataset.transform: unit, and no noise"):
        check(study(), {"donors": noisy})


def test_donors_with_decoders_of_more_than_an_image_are_refused(planned):
    learned = [TrialConfig.parse({**one.tree(), "recon": {"name": "normal", "std": "learned"}})
               for one in planned["donors"]]  # fmt: skip
    with pytest.raises(ConfigError, match="decoders that give more than an image"):
        check(study(), {"donors": learned})


def test_an_unfinished_donor_is_named(storage, tmp_path):
    run = donors(tmp_path / "storage")
    folder = run.trials()[0]
    folder.set_status(folder.status().__class__(state="failed", step=2))
    with pytest.raises(
        ConfigError, match=f"1 of 4 donors are not done \\(trial {folder.id} is failed\\); continue with"
    ):
        resolve(study(), {"donors": run})


def test_a_donor_without_a_checkpoint_is_named(tmp_path):
    run = donors(tmp_path / "storage")
    for folder in run.trials():
        folder.checkpoints.drop_from(0)
    with pytest.raises(ConfigError, match="has no checkpoint, so it cannot be a donor"):
        resolve(study(), {"donors": run})


def test_a_manipulator_with_a_bernoulli_loss_trains(tmp_path, monkeypatch):
    folder = tmp_path / "storage"
    donors(folder, recon="bce")
    (tree,) = manipulator_trials([{**study(), "dataset": resolved(folder)}])
    run = train(folder, tree)
    assert tree["recon"]["name"] == "bce"
    (trial,) = run.trials()
    assert trial.rows()[-1]["metrics"].keys() >= {"best_recon", "worst_recon", "watch_change"}
