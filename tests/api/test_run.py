"""What a loaded run gives: its best trial, its figures, its trials, and their models."""

import shutil
import sys

import numpy as np
import pytest

from disentune import compare, load, score
from disentune.errors import ConfigError, DisentuneError, TrialError
from disentune.metrics import score as one_metric
from disentune.results.rescore import rebuilt
from run_examples import forged, quick_trial

OWN = "import pathlib\npathlib.Path(__file__).with_suffix('.ran').touch()\n"


def test_the_best_trial_is_the_first_that_results_ranks(run):
    sound = run.trials.dropna(subset=["mig"])
    assert run.best().metrics["mig"] == sound["mig"].max()
    assert run.best("loss").metrics["loss"] == run.trials["loss"].min()
    with pytest.raises(ConfigError, match=r"unknown metric 'migg'\. Did you mean 'mig'\?"):
        run.best("migg")


def test_failed_and_diverged_trials_are_never_best(make_run):
    maker = make_run()
    maker.trial([{"step": 1500, "mig": 0.9}], status="diverged")
    with pytest.raises(ConfigError, match="no trial has reported mig yet"):
        load(maker.run.path).best("mig")
    good = maker.trial([{"step": 1500, "mig": 0.2}], seed=1)
    assert load(maker.run.path).best("mig").id == good


def test_the_first_characters_of_an_id_are_enough(run):
    ids = [record.trial_id for record in run.records]
    assert [run.trial(one[:6]).id for one in ids] == ids
    trial = run.trial(ids[0])
    assert (trial.seed, trial.status, len(trial.rows)) == (trial.config["seed"], "done", len(run.records[0].rows))
    assert repr(trial).startswith(f"Trial({ids[0]}: xysquares, ")
    assert ids[0] in trial._repr_html_()


@pytest.mark.parametrize(
    ("given", "expected"),
    [("zzz", "no trial 'zzz' in this run, which has 4 trials, such as"),
     (3, "must be the id of a trial as a string, got 3"), ("", "must be the id")],
)  # fmt: skip
def test_a_trial_that_is_not_there_is_one_message(run, given, expected):
    with pytest.raises(ConfigError, match=expected):
        run.trial(given)


def test_an_id_of_several_trials_asks_for_more_characters(make_run):
    maker = make_run()
    ids = [maker.trial([], seed=seed) for seed in range(17)]  # more than there are first characters
    first = next(one[0] for one in ids if sum(other[0] == one[0] for other in ids) > 1)
    with pytest.raises(ConfigError, match=f"trial '{first}': .* ids begin with it, such as .*; give more characters"):
        load(maker.run.path).trial(first)


def test_a_model_is_that_of_the_last_checkpoint_and_its_data_set_goes_in(run):
    trial = run.best("mig")
    images = trial.dataset.images(np.arange(5))
    trained = rebuilt(run.run.trial(trial.id)).trained
    trained.model.eval()
    assert (
        trial.model.encode(images)[0] == trained.model.encode(trained.images(np.arange(5))).mean.detach().numpy()
    ).all()
    assert trial.model.step == 12
    assert repr(trial.dataset).startswith(f"DrawnImages({len(trial.dataset)} images (3, 8, 8); ")


def test_a_damaged_checkpoint_is_never_loaded(trained_storage, tmp_path):
    shutil.copytree(trained_storage, tmp_path / "runs")
    trial = load(tmp_path / "runs" / "tiny" / "main").best("mig")
    checkpoints = trial.run.trial(trial.id).checkpoints
    for step in checkpoints.steps():
        path = checkpoints.path(step)
        path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(TrialError, match=r"has no intact checkpoint; .* is damaged"):
        _ = trial.model


def test_code_that_a_run_names_is_imported_only_with_permission(make_run, tmp_path, monkeypatch):
    (tmp_path / "strange.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    maker = make_run()
    id = quick_trial(maker, [{"step": 1500, "mig": 0.1}])
    forged(maker.run.trial(id), lambda config: config.update(framework={"name": "strange:FRAMEWORK"}))
    trial = load(maker.run.path).trials["trial_id"].iloc[0]
    for part in ("model", "dataset"):
        with pytest.raises(TrialError, match=r"names code of its own \(strange:FRAMEWORK\).*load\(run, trust=True\)"):
            getattr(load(maker.run.path).trial(trial), part)
    with pytest.raises(TrialError, match="names code of its own"):
        load(maker.run.path).score(["mig"])
    assert not (tmp_path / "strange.ran").exists()
    with pytest.raises(DisentuneError):
        _ = load(maker.run.path, trust=True).trial(trial).model
    sys.modules.pop("strange", None)
    assert (tmp_path / "strange.ran").exists()


def test_a_figure_is_one_of_the_report(run):
    drawn = run.figure("violins", metric="mig")
    assert drawn.axes
    assert drawn._repr_png_().startswith(b"\x89PNG")
    assert run.figure("curves").axes


@pytest.mark.parametrize(
    ("kind", "settings", "expected"),
    [("violin", {}, r"unknown figure 'violin'\. Did you mean 'violins'"),
     ("violins", {"metrc": "mig"}, r"metrc  unknown key\. Did you mean 'metric'"),
     ("violins", {"metric": 3}, "metric  must be a string, got 3"),
     ("violins", {"metric": "sap"}, "figure violins: no trial has reported sap yet"),
     (["violins"], {}, r"unknown figure '\['violins'\]'\. Did you mean")],
)  # fmt: skip
def test_a_figure_that_cannot_be_drawn_says_why(run, kind, settings, expected):
    with pytest.raises(ConfigError, match=expected):
        run.figure(kind, **settings)


def test_loading_nonsense_is_one_message():
    with pytest.raises(ConfigError, match="no run 'nothing'"):
        load("nothing")


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda run: load(3), "the run cannot be loaded:\n  run  must be a string, got 3"),
        (lambda run: load("x", trust="yes", storage=1),
         "the run cannot be loaded:\n  storage  must be a string, got 1\n  trust    must be true or false, got 'yes'"),
        (lambda run: run.best(3), "no trial can be chosen:\n  metric  must be a string, got 3"),
        (lambda run: run.score("sap"), "cannot score:\n  metrics  must be a list of strings, got 'sap'"),
        (lambda run: run.score([]), "cannot score:\n  metrics  must have at least 1 item(s), got []"),
        (lambda run: run.score(["mig"], size="huge", set="mig.b=3", by=3),
         "cannot score:\n  by    must be a list of strings, got 3\n  set   must be a list of strings, got 'mig.b=3'\n"
         "  size  must be one of 'full' or 'fast', got 'huge'"),
        (lambda run: compare(run, by=3, metric=4, only=5),
         "cannot compare:\n  by      must be a string, got 3\n  metric  must be a string, got 4\n"
         "  only    must be a string, got 5"),
        (lambda run: compare(3, by="seed"), "the run cannot be loaded:\n  run  must be a string, got 3"),
        (lambda run: score(np.zeros((9, 2)), metrics="mig", seed="x"),
         "cannot score:\n  metrics  must be a list of strings, got 'mig'\n  seed     must be a whole number, got 'x'"),
        (lambda run: run.best("mig").export("torch", 3),
         "the model cannot be exported:\n  output  must be a string, got 3"),
        (lambda run: score(None), "cannot score: codes must be an array or the path of an .npz file, got None"),
    ],
)  # fmt: skip
def test_arguments_of_a_wrong_type_are_one_message(run, call, expected):
    with pytest.raises(ConfigError) as caught:
        call(run)
    assert str(caught.value) == expected


def test_the_storage_may_be_named(trained_storage):
    assert len(load("tiny", storage=trained_storage).records) == 4


# ---- compare and score


def test_comparing_gives_what_the_command_prints(run, disentune, trained_storage):
    found = compare(run, by="arm", metric="mig")
    _, out, _ = disentune("compare", trained_storage / "tiny" / "main", "--by", "arm", "--metric", "mig")
    assert all(text in out for text in found.table.iloc[0].astype(str) if text)
    assert found.as_json() == compare([run.run.path], by="arm", metric="mig").as_json()
    assert "no verdict" in repr(found)
    assert "<table" in found._repr_html_()


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"by": "framework.bet"}, "Did you mean 'framework.beta'"),
     ({"by": "seed", "only": "seed > 9"}, "only seed > 9: selects no trial")],
)  # fmt: skip
def test_comparisons_that_make_no_sense_are_one_message(run, given, expected):
    with pytest.raises(ConfigError, match=expected):
        compare(run, **given)
    with pytest.raises(ConfigError, match="runs: must name at least one run"):
        compare([], by="seed")


def test_scores_of_arrays_are_those_of_each_metric():
    rng = np.random.default_rng(0)
    codes, factors = rng.normal(size=(300, 3)), rng.integers(3, size=(300, 2))
    assert score(codes, factors, metrics=["mig"], seed=4) == one_metric("mig", codes, factors, seed=4)
    assert score(codes, factors, metrics=["mig"], set=["mig.bins=7"]) == one_metric("mig", codes, factors, bins=7)


def test_scores_of_a_file_are_those_of_its_arrays(tmp_path):
    rng = np.random.default_rng(0)
    codes, factors = rng.normal(size=(300, 3)), rng.integers(3, size=(300, 2))
    np.savez(tmp_path / "codes.npz", codes=codes, factors=factors)
    assert score(tmp_path / "codes.npz", metrics=["mig", "sap"]) == score(codes, factors, metrics=["mig", "sap"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [({"metrics": ["migg"]}, "unknown metric 'migg'. Did you mean 'mig'"),
     ({"metrics": ["mig"]}, "mig  needs factors"),
     ({"factors": [["a"]]}, "factors must be an array of numbers, got list"),
     ({"factors": np.zeros((3, 1), int)}, "cannot score")],
)  # fmt: skip
def test_arrays_that_cannot_be_scored_are_one_message(arguments, expected):
    with pytest.raises(ConfigError) as caught:
        score(np.zeros((9, 2)), **arguments)
    assert expected in str(caught.value)


def test_a_run_is_scored_from_its_checkpoints(tmp_path, trained_storage):
    shutil.copytree(trained_storage, tmp_path / "runs")
    copied = load(tmp_path / "runs" / "tiny" / "main")
    frame = copied.score(["sap"])
    assert frame["sap"].notna().all()
    assert "sap" in load(copied.run.path).trials
