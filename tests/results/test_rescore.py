"""Scoring without training gives what training gave, compares what can be compared, and leaves the ledger alone."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from disentune.errors import ConfigError, DataError, TrialError
from disentune.learn import evaluation
from disentune.learn.training import Training
from disentune.maths.randomness import stream
from disentune.metrics import METRICS, score
from disentune.metrics.kl_per_latent import kl_to_prior
from disentune.metrics.udr import udr
from disentune.results import rescore
from disentune.results.arrays import asked
from disentune.results.rescore import comparable_codes, rebuilt, scores_of_run, udr_of_run
from disentune.runs.ledger import Run
from simulator import simulate, sweep_file


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run that has ended: two data sets, three betas each, two seeds each."""
    folder = tmp_path_factory.mktemp("trained")
    run = Run(folder / "runs" / "tiny" / "main")
    simulate(run, sweep_file(folder), np.random.default_rng(0))
    return run


@pytest.fixture
def run(trained, tmp_path):
    """A copy of it to change."""
    shutil.copytree(trained.path, tmp_path / "runs" / "tiny" / "main")
    return Run(tmp_path / "runs" / "tiny" / "main")


@pytest.fixture
def said():
    return []


def contents(run):
    return {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}


def codes_of(run, trial_id, **sizes):
    return comparable_codes(rebuilt(run.trial(trial_id)), **sizes)


def ids(run, **wanted):
    """Trials with these values, `dataset__spacing=1` for dataset.spacing."""
    trees = {folder.id: folder.config().tree() for folder in run.trials()}
    keys = {key.split("__")[0]: key.split("__")[-1] for key in wanted}
    values = {key.split("__")[0]: value for key, value in wanted.items()}
    return {
        trial_id
        for trial_id, tree in trees.items()
        if all((tree[top] if top == below else tree[top][below]) == values[top] for top, below in keys.items())
    }


# ---- one trial


def test_scoring_again_gives_the_last_row_to_the_bit(trained):
    found = scores_of_run(trained, asked(["mig"], [], "full"), compared=())
    assert len(found.trials) == 12
    for trial in found.trials:
        row = trained.trial(trial.trial_id).rows()[-1]
        assert trial.numbers == {"mig": row["metrics"]["mig"]}
        assert trial.step == row["step"] == 12


def test_codes_are_those_of_the_trained_model(trained):
    folder = trained.trials()[0]
    training = Training(folder.config())
    for _ in training.run():
        pass
    expected = evaluation.encoded(replace(training.trained_model(), seed=0), np.arange(81))
    found = codes_of(trained, folder.id)
    np.testing.assert_array_equal(found.means, expected.means)
    np.testing.assert_array_equal(found.logvars, expected.logvars)


def test_every_trial_of_a_data_set_sees_the_same_images(trained, monkeypatch):
    """Also where images are noisy: the noise hangs on the seed of what is encoded."""
    seeds = []
    encoded = evaluation.encoded
    monkeypatch.setattr(evaluation, "encoded", lambda one, indices: seeds.append(one.seed) or encoded(one, indices))
    expected = np.sort(stream(0, "udr").choice(81, 20, replace=False))
    for folder in trained.trials():
        np.testing.assert_array_equal(codes_of(trained, folder.id, images=20).indices, expected)
    assert set(seeds) == {0}


def test_nothing_is_written_even_where_a_checkpoint_is_damaged(run, said):
    folder = run.trials()[0]
    last = folder.checkpoints.steps()[-1]
    folder.checkpoints.save(4, folder.checkpoints.load(last) | {"step": 4})
    folder.checkpoints.path(last).write_bytes(b"ruined")
    before = contents(run)
    found = scores_of_run(run, asked(["mig"], [], "full"), say=said.append)
    assert contents(run) == before
    assert next(trial.step for trial in found.trials if trial.trial_id == folder.id) < 12
    assert any("is damaged; using the previous checkpoint" in text for text in said)


def test_a_trial_without_an_intact_checkpoint_is_left_out_and_named(run, said):
    folder, other = run.trials()[:2]
    for step in folder.checkpoints.steps():
        folder.checkpoints.path(step).write_bytes(b"ruined")
    shutil.rmtree(other.checkpoints.folder)
    found = scores_of_run(run, asked(["mig"], [], "full"), compared=(), say=said.append)
    assert {trial.trial_id for trial in found.trials} == {one.id for one in run.trials()} - {folder.id, other.id}
    assert any(text.startswith(f"{folder.id} is left out: ") and "no intact checkpoint" in text for text in said)
    assert any(text.startswith(f"{other.id} is left out: ") for text in said)


def test_codes_that_are_not_finite_leave_their_trial_out(run, said):
    folder = run.trials()[0]
    state = folder.checkpoints.load(12)
    for tensor in state["model"].values():
        tensor.fill_(float("nan"))
    folder.checkpoints.save(12, state)
    with pytest.raises(TrialError, match="not finite"):
        codes_of(run, folder.id)
    table = udr_of_run(run, say=said.append)
    assert len(table) == 10  # its only companion is alone now
    assert f"{folder.id} is left out: trial {folder.id} has codes that are not finite" in said


def test_what_a_metric_cannot_tell_is_kept_as_its_reason(run, monkeypatch):
    def fails(table, rng, params):
        raise DataError("there is nothing to tell")

    monkeypatch.setitem(METRICS.plugins, "mig", replace(METRICS["mig"], score=fails))
    found = scores_of_run(run, asked(["mig", "hoyer"], [], "fast"), compared=())
    assert found.trials[0].reasons == {"mig_fast": "there is nothing to tell"}
    assert set(found.trials[0].numbers) == {"hoyer_fast", "hoyer_sampled_fast"}
    assert "mig_fast" not in found.numbers


def test_fast_sizes_and_parameters_reach_the_metric(trained):
    few = scores_of_run(trained, asked(["mig"], ["mig.bins=2"], "fast"), compared=())
    many = scores_of_run(trained, asked(["mig"], [], "full"), compared=())
    assert few.numbers == ["mig_fast"]
    first = codes_of(trained, few.trials[0].trial_id)
    seed = trained.trial(few.trials[0].trial_id).config().seed
    expected = score("mig", first.means, first.factors, seed, size="fast", bins=2)["mig"]
    assert few.trials[0].numbers["mig_fast"] == expected != many.trials[0].numbers["mig"]


def test_a_compiled_trial_from_a_gpu_is_scored_plainly_on_the_cpu(make_run, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    maker = make_run()
    trial_id = maker.trial([], training__device="cuda", training__compile=True, training__precision="tf32")
    config = rescore._config(maker.run.trial(trial_id))
    assert (config.training.device, config.training.compile, config.training.precision) == ("cpu", False, "float32")


def test_the_values_that_a_population_ended_with_count(make_run):
    maker = make_run()
    trial_id = maker.trial([{"step": 1, "loss": 1.0}])
    folder = maker.run.trial(trial_id)
    folder.append_row({"step": 2, "metrics": {"loss": 1.0}, "overrides": {"framework.beta": 7.0}})
    assert rescore._config(folder).framework.params.beta == 7


@pytest.mark.slow
def test_trials_of_a_population_can_be_compared(tmp_path, said):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path, scheduler="pbt"), np.random.default_rng(0))
    assert len(udr_of_run(run, by=["dataset.spacing"], say=said.append)) == 12


# ---- UDR


def test_udr_of_a_run_compares_trials_that_differ_by_seed_alone(trained):
    table = udr_of_run(trained)
    assert list(table.columns) == ["trial_id", "dataset.spacing", "framework.name", "framework.beta", "udr"]
    assert len(table) == 12
    assert table["udr"].is_monotonic_decreasing
    for _, group in table.groupby(["dataset.spacing", "framework.beta"]):
        codes = [codes_of(trained, trial_id) for trial_id in group["trial_id"]]
        assert len(codes) == 2
        kls = [kl_to_prior(one.means, one.logvars) for one in codes]
        assert group["udr"].to_numpy() == pytest.approx(udr([one.means for one in codes], kls).scores, abs=1e-7)


@pytest.mark.parametrize("method", ["lasso", "spearman"])
def test_by_makes_the_groups_of_those_that_agree_in_its_keys(trained, method):
    table = udr_of_run(trained, by=["dataset.spacing"], method=method)
    assert list(table.columns) == ["trial_id", "dataset.spacing", "udr"]
    for _, group in table.groupby("dataset.spacing"):
        codes = [codes_of(trained, trial_id) for trial_id in group["trial_id"]]
        kls = [kl_to_prior(one.means, one.logvars) for one in codes]
        expected = udr([one.means for one in codes], kls, method).scores
        assert len(group) == 6
        assert group["udr"].to_numpy() == pytest.approx(expected, abs=1e-7)  # the order of models moves rounding


def test_by_arm_and_seed_are_keys_too(trained):
    table = udr_of_run(trained, by=["arm", "seed"])
    assert list(table.columns) == ["trial_id", "arm", "seed", "udr"]
    assert table.groupby(["arm", "seed"]).size().tolist() == [3, 3, 3, 3]


def test_without_a_key_all_trials_of_one_data_set_are_compared(run):
    for trial_id in ids(run, dataset__spacing=2):
        shutil.rmtree(run.trial(trial_id).path)
    table = udr_of_run(run, by=[])
    codes = [codes_of(run, trial_id) for trial_id in table["trial_id"]]
    expected = udr([one.means for one in codes], [kl_to_prior(one.means, one.logvars) for one in codes]).scores
    assert list(table.columns) == ["trial_id", "udr"]
    assert table["udr"].to_numpy() == pytest.approx(expected, abs=1e-7)


def test_models_of_different_data_sets_are_not_compared(trained):
    with pytest.raises(
        ConfigError, match=r"same images, but dataset.spacing is 1 in one trial .* add --by dataset.spac"
    ):
        udr_of_run(trained, by=["seed"])


def test_another_transform_is_no_other_data_set():
    flats = [{"dataset.name": "a", "dataset.transform": value} for value in ("unit", "standardise")]
    rescore._assert_same_data(flats)
    with pytest.raises(ConfigError, match=r"dataset.size is 3 in one trial of a group and None in another"):
        rescore._assert_same_data([{"dataset.size": 3}, {}])


def test_an_unknown_key_is_refused_with_the_nearest(trained):
    with pytest.raises(ConfigError, match=r"unknown key 'framework.bet'. Did you mean 'framework.beta'"):
        udr_of_run(trained, by=["framework.bet"])


def test_a_trial_alone_in_its_group_has_no_udr_and_is_named(run, said):
    gone = next(iter(ids(run, dataset__spacing=1, framework__beta=0.1, seed=1)))
    alone = next(iter(ids(run, dataset__spacing=1, framework__beta=0.1, seed=0)))
    shutil.rmtree(run.trial(gone).path)
    table = udr_of_run(run, say=said.append)
    assert len(table) == 10
    assert alone not in set(table["trial_id"])
    assert said == [f"no udr for {alone}: no other trial is in the same group; choose larger groups with --by"]
    with pytest.warns(UserWarning, match=f"no udr for {alone}"):
        udr_of_run(run)


def test_no_trial_of_its_own_group_at_all_gives_an_empty_table(run, said):
    for trial_id in ids(run, seed=1):
        shutil.rmtree(run.trial(trial_id).path)
    table = udr_of_run(run, say=said.append)
    assert table.empty
    assert "udr" in table
    assert len(said) == 1


@pytest.mark.parametrize("state", ["failed", "diverged", "pending", "running"])
def test_trials_that_are_not_done_do_not_count_and_are_counted(run, said, state):
    folder = run.trials()[0]
    folder.update_status(state=state)
    found = scores_of_run(run, asked(["mig"], [], "full"), compared=(), say=said.append)
    assert folder.id not in {trial.trial_id for trial in found.trials}
    assert said == ["1 of 12 trials are left out because they have not finished"]


def test_a_run_without_a_finished_trial_is_refused(run):
    for folder in run.trials():
        folder.update_status(state="failed")
    with pytest.raises(ConfigError, match="no finished trial"):
        udr_of_run(run)


def test_trials_are_ranked_by_udr_where_it_is_asked_for_and_stand_by_id_elsewhere(trained):
    by_id = scores_of_run(trained, asked(["mig"], [], "full"), compared=())
    assert [trial.trial_id for trial in by_id.trials] == [folder.id for folder in trained.trials()]
    ranked = scores_of_run(trained, asked(["mig"], [], "full"), ["udr_spearman", "udr"])
    assert ranked.numbers == ["udr_spearman", "udr", "mig"]
    assert ranked.frame["udr_spearman"].is_monotonic_decreasing
    assert ranked.frame["trial_id"].tolist() == [trial.trial_id for trial in ranked.trials]
    assert list(ranked.frame.columns[:4]) == ["trial_id", "arm", "seed", "step"]


def test_follow_is_handed_every_trial_once(trained):
    followed = []

    def follow(trials):
        for trial in trials:
            followed.append(trial.id)
            yield trial

    scores_of_run(trained, compared=(), follow=follow)
    assert followed == [folder.id for folder in trained.trials()]


def test_an_edited_config_is_not_rebuilt(run):
    folder = run.trials()[0]
    path = folder.path / "config.json"
    path.write_text(path.read_text().replace('"seed": 0', '"seed": 5').replace('"seed": 1', '"seed": 5'))
    with pytest.raises(ConfigError, match="is not the config of trial"):
        rebuilt(folder)
