"""A sweep in Python is the sweep of a file: the same points, the same messages, the same runs."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch

import disentune
from disentune import Sweep
from disentune.api import showing
from disentune.api.sweep import SweepKeys
from disentune.driver.sweep import Ending
from disentune.errors import ConfigError
from disentune.files import documents
from disentune.runs.ledger import Run
from disentune.sessions.study import StageFailed
from disentune.spec.space import read
from disentune.spec.sweepfile import SWEEP_KEYS
from stage_examples import TRIALS, use_driver, write_study

ROOT = Path(__file__).parents[2]
TRIAL = {
    "dataset": {"name": "xysquares", "image_size": 8, "square_size": 2, "grid_size": 3, "squares": 2, "spacing": 1},
    "model": {"name": "linear", "latents": 3},
    "framework": {"name": "beta_vae", "beta": {"grid": [0.1, 1.0]}},
    "recon.name": "mse",
    "training": {"steps": 6, "batch_size": 4, "learning_rate": 0.01, "log_every": 3},
    "evaluation": {"metrics": ["mig"]},
    "loss_scale": "mean",
}


def sweep(**changes):
    return Sweep(**{"name": "demo", "trial": TRIAL, "seeds": 2, "pictures": "never"} | changes)


def message(**changes):
    with pytest.raises(ConfigError) as caught:
        sweep(**changes)
    return str(caught.value)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_its_arguments_are_the_keys_of_a_file():
    assert tuple(sorted(SweepKeys.__annotations__)) == tuple(sorted(SWEEP_KEYS))
    assert set(disentune.__all__) <= set(dir(disentune))
    with pytest.raises(AttributeError, match="has no attribute 'Swep'"):
        disentune.Swep  # noqa: B018


@pytest.mark.parametrize("name", ["quickstart", "small/capacity"])
def test_values_and_their_file_give_the_same_points(name, monkeypatch):
    path = ROOT / "sweeps" / f"{name}.yaml"
    monkeypatch.chdir(ROOT)
    made = Sweep(**{"name": path.stem} | documents.read(path).value)
    assert [point.config.id for point in made._stages[-1].asked.points] == [p.config.id for p in read(path).points]


def test_numbers_and_lists_of_other_libraries_are_numbers_and_lists():
    framework = {"name": "beta_vae", "beta": {"grid": np.array([0.1, 1.0])}}
    training = {**TRIAL["training"], "steps": np.int64(6), "learning_rate": torch.tensor(0.01, dtype=torch.float64)}
    other = sweep(trial={**TRIAL, "framework": framework, "training": training}, seeds=range(2))
    assert other._file.resolved() == sweep()._file.resolved()


def test_mistakes_name_the_paths_of_their_keys():
    wrong = {**TRIAL, "training": {**TRIAL["training"], "stps": 3}}
    text = message(trial=wrong, arms={"a": {"framework.beta": -1}}, seeds=0, stpo={})
    assert text.splitlines() == [
        "the sweep cannot run:",
        "  arms.a.framework.beta  must be >= 0, got -1",
        "  seeds                  must be a number of seeds (1 to 100000) or a list of whole numbers >= 0, got 0",
        f"  stpo                   unknown key. Did you mean 'stop'? Known: {', '.join(SWEEP_KEYS)}",
        text.splitlines()[4],
    ]
    assert text.splitlines()[4].startswith("  trial.training.stps    unknown key. Did you mean 'steps'? Known: ")


def test_a_key_that_is_missing_or_wrong_for_the_trials_has_its_whole_path():
    """The trial stands for its only arm, and an objective for one of its keys."""
    without = {key: value for key, value in TRIAL.items() if key != "loss_scale"}
    assert "  trial.loss_scale  is required but not set; one of sum, mean (arm 'all')" in message(trial=without)
    assert "  arms.a.loss_scale  is required" in message(trial=without, arms={"a": {}})
    assert "  objective.metric  arm 'all' reports no 'migg'" in message(objective={"metric": "migg", "mode": "max"})


def test_a_file_has_the_same_messages_with_lines(folder):
    (folder / "x.yaml").write_text("seeds: 0\ntrial: {model.name: linear}\n")
    with pytest.raises(ConfigError) as caught:
        Sweep.read("x.yaml")
    assert "x.yaml:1  seeds: must be a number of seeds" in str(caught.value)
    with pytest.raises(ConfigError, match=r"nothing\.yaml does not exist"):
        Sweep.read("nothing.yaml")
    for given, expected in [
        ({"set": "seeds=1"}, "set  must be a list of strings"),
        ({"path": 3}, "path  must be a string"),
    ]:
        with pytest.raises(ConfigError, match=expected):
            Sweep.read(**{"path": "x.yaml"} | given)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"seeds": {1, 2}}, "seeds  must be a string, a number, True, False, None, a list or a dict, got set: {1, 2}"),
        ({"trial": {3: 4}}, "trial  a key must be a string, got 3"),
        ({"trial": {"model.latents": 3j}}, "trial.model.latents  must be a string"),
        ({"question": "\ud800"}, "question  character U+D800 is not allowed in a string; remove it"),
        ({"name": "a/b"}, "name  a name has letters, digits"),
        ({"trial": [1]}, "trial  must be a mapping of dotted keys"),
        ({"seeds": "2"}, "seeds  must be a number of seeds (1 to 100000) or a list of whole numbers >= 0, got '2'"),
        ({"trial": None, "arms": {}}, "arms  must be a mapping of at least one arm"),
    ],
)
def test_values_that_no_file_can_have_get_one_message(changes, expected):
    assert f"  {expected}" in message(**changes)


def test_values_that_never_end_are_refused():
    endless: dict = {}
    endless["model"] = endless
    assert "nested deeper than 50 levels" in message(trial=endless)


def test_a_saved_sweep_reads_back_to_the_same_points(folder, monkeypatch):
    original = sweep(arms={"a": {}, "b": {"model.latents": {"grid": [2, 4]}}}, objective=None)
    original.save("x.yaml")
    again = Sweep.read("x.yaml")
    assert again._file.resolved() == original._file.resolved()
    assert repr(again) == repr(original) == "Sweep('demo': 12 trials, 2 arms, 2 seeds)"
    assert [p.config.id for p in again._stages[-1].asked.points] == [
        p.config.id for p in original._stages[-1].asked.points
    ]
    with pytest.raises(ConfigError, match=r"x\.txt: a sweep file must end in \.yaml"):
        original.save("x.txt")
    with pytest.raises(ConfigError, match=r"nowhere/x\.yaml cannot be written: No such file or directory"):
        original.save("nowhere/x.yaml")


def test_a_needed_sweep_may_be_values_too_and_is_saved(folder):
    write_study(folder)
    needed = documents.read(folder / "donors.yaml").value
    study = documents.read(folder / "study.yaml").value
    inside, beside = Sweep(**{**study, "needs": {"donors": needed}}), Sweep.read("study.yaml")
    assert inside._file.resolved() == beside._file.resolved()
    inside.save("again.yaml")
    assert Sweep.read("again.yaml")._file.resolved() == beside._file.resolved()
    wrong = {**needed, "seeds": "many"}
    with pytest.raises(ConfigError, match=r"needs\.donors\.seeds +must be a number of seeds"):
        Sweep(**{**study, "needs": {"donors": wrong}})


def test_options_of_a_wrong_type_get_one_message():
    with pytest.raises(ConfigError) as caught:
        sweep().run(limit="3", name=4, only=["x"], retry_failed="yes")
    assert str(caught.value).splitlines() == [
        "the sweep cannot run:",
        "  limit         must be a whole number, got '3'",
        "  name          must be a string, got 4",
        "  only          must be a string, got ['x']",
        "  retry_failed  must be true or false, got 'yes'",
    ]
    with pytest.raises(ConfigError, match=r"^name 'a/b': must have only letters"):
        sweep().plan(name="a/b")
    with pytest.raises(ConfigError, match=r"^only 'seed > 5': selects no trial of the sweep"):
        sweep().plan(only="seed > 5")


def test_it_runs_continues_and_extends(folder, monkeypatch):
    use_driver(monkeypatch)
    assert repr(sweep().plan()) == "Plan(demo: 4 trials, 0 done, 0 to continue, 4 new)"
    first = sweep().run(limit=1, storage=folder / "elsewhere", progress=False)
    assert (len(first.records), first.run.path) == (1, folder / "elsewhere" / "demo" / "main")
    done = sweep().run(storage="elsewhere")
    assert done.trials["status"].tolist() == ["done"] * 4
    assert done.run.parquet_path.exists()
    assert done.best("mig").model.latents == 3
    assert repr(sweep(seeds=3).plan(storage="elsewhere")) == "Plan(demo: 6 trials, 4 done, 0 to continue, 2 new)"


def test_the_storage_is_that_of_the_environment(folder, monkeypatch):
    use_driver(monkeypatch)
    monkeypatch.setenv("DISENTUNE_STORAGE", str(folder / "there"))
    sweep(seeds=1).run()
    assert len(disentune.load("demo").records) == 2


def test_a_run_comes_back_when_trials_failed_or_it_was_stopped(monkeypatch, capsys):
    use_driver(monkeypatch, fails={"demo": 0})
    assert sorted(sweep().run(progress=False).trials["status"]) == ["done", "done", "done", "failed"]
    assert capsys.readouterr().out == ""

    def stopped(request):
        with request.run.locked():
            request.run.record(request.asked.sweep)
        return Ending("SIGINT", 0)

    monkeypatch.setattr("disentune.driver.sweep.launch", stopped)
    empty = sweep(name="other").run()
    assert len(empty.records) == 0
    said = capsys.readouterr().out
    assert "stopped (SIGINT); no trial was running. Continue by calling run again" in said
    with pytest.raises(ConfigError, match="no trial of this run has reported a number yet"):
        empty.best()


@pytest.mark.slow
def test_sweeps_that_it_needs_are_carried_out_first(folder, monkeypatch):
    write_study(folder)
    monkeypatch.setenv("DISENTUNE_DATA", str(folder / "data"))
    driver = use_driver(monkeypatch)
    found = Sweep.read("study.yaml").run(progress=False)
    assert driver.launched == [*TRIALS]
    assert len(found.records) == TRIALS["study"]
    assert len(Run(folder / "runs" / "donors" / "main").trials()) == TRIALS["donors"]


def test_a_needed_sweep_whose_trials_fail_ends_with_the_reason(folder, monkeypatch):
    write_study(folder)
    monkeypatch.setenv("DISENTUNE_DATA", str(folder / "data"))
    use_driver(monkeypatch, fails={"donors": 1})
    with pytest.raises(StageFailed, match="needs 'donors', and 1 of its 4 trials failed"):
        Sweep.read("study.yaml").run(progress=False)


def test_a_notebook_shows_one_line_with_a_bar(monkeypatch, capsys):
    shown = []

    class Handle:
        update = shown.append

    def display(drawn, display_id):
        shown.append(drawn)
        return Handle

    monkeypatch.setattr(showing, "notebook_display", lambda: display)
    use_driver(monkeypatch)
    sweep(seeds=1).run()
    assert capsys.readouterr().out == "demo: 2 trials, 0 done, 0 to continue, 2 new, in runs/demo/main\n"
    assert repr(shown[-1]).startswith("2/2 trials ended; 2 done")
    assert shown[-1]._repr_html_().startswith('<progress max="1" value="1.0000"')


def test_only_the_main_thread_may_run_it():
    caught = []

    def elsewhere():
        try:
            sweep().run()
        except ConfigError as error:
            caught.append(str(error))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert caught == ["Sweep.run must be called from the main thread, which receives Ctrl-C"]
