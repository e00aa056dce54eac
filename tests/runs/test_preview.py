"""A plan counts what is done, goes on and is new, and refuses to mix."""

import json
import math
import sys

import numpy as np
import pytest
import torch

from disentune.errors import ConfigError
from disentune.files import documents
from disentune.runs import preview, suggest
from disentune.runs.choice import filters_allowed
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.segment import StepReport
from disentune.runs.trial_folder import Status
from disentune.spec import space
from disentune.spec.config import TrainingParams
from disentune.spec.sweepfile import read_sweep
from simulator import simulate, sweep_file

TRIAL = {
    "dataset": {"name": "xysquares", "image_size": 8, "square_size": 2, "squares": 1},
    "model": {"name": "mlp", "width": 8, "latents": 3},
    "framework": {"name": "beta_vae", "beta": 1},
    "recon": {"name": "mse"},
    "training": {"steps": 40, "batch_size": 4, "learning_rate": 1e-3},
    "evaluation": {"metrics": ["mig"], "every": 20},
    "loss_scale": "mean",
}
MIG = {"metric": "mig", "mode": "max"}


def make_plan(sweep, run, **filters):
    return preview.make_plan(space.check(sweep), run, **filters)


def cost(sweep, plan, probe):
    return preview.cost(space.check(sweep), plan, probe)


@pytest.fixture
def sweep(tmp_path):
    def make(arms=None, **keys):
        path = tmp_path / "demo.yaml"
        with open(path, "w") as file:
            documents.dump({"trial": TRIAL, "arms": arms or {"all": {}}, **keys}, file)
        return read_sweep(path)

    return make


@pytest.fixture
def run(tmp_path):
    return Run(tmp_path / "runs" / "demo" / "main")


def ran(run, sweep, *states):
    """Records a sweep as run: its first trials in the given (state, step)s."""
    run.path.mkdir(parents=True, exist_ok=True)
    run.record(sweep)
    asked = space.check(sweep)
    points = asked.points or [space.Point(config, (arm,)) for arm, config in asked.unseeded]
    for point, (state, step) in zip(points, states, strict=False):
        folder = run.trial(point.config.id)
        folder.create(point.config, point.arms)
        folder.set_status(Status(state, step))
        for at in range(20, step + (state != "diverged"), 20):
            folder.append_row({"step": at, "metrics": {"loss": 1.0}})


GRID = {"a": {"framework.beta": {"grid": [1, 2]}}, "b": {"framework.beta": {"grid": [2, 3, 4]}}}


# ---- counts


def test_without_a_run_everything_is_new(sweep, run):
    planned = make_plan(sweep(GRID, seeds=3), run)
    assert (planned.trials, planned.done, planned.new, planned.continuing) == (4 * 3, 0, 4 * 3, {})
    assert planned.arms == {"a": 2 * 3, "b": 3 * 3}  # beta 2 belongs to both
    assert planned.warnings == []
    assert not run.path.exists()  # looking writes nothing


def test_done_continuing_and_new_trials_are_counted_separately(sweep, run):
    read = sweep(GRID, seeds=3)
    ran(run, read, ("done", 40), ("failed", 7), ("diverged", 9), ("running", 20), ("pending", 0))
    planned = make_plan(read, run)
    assert (planned.done, planned.new, planned.trials) == (3, 7, 12)
    assert planned.continuing == {space.check(read).points[3].config.id: 20, space.check(read).points[4].config.id: 0}
    assert "1 trial failed before; --retry-failed runs failed trials again" in planned.warnings


def test_the_shape_for_other_programs(sweep, run):
    read = sweep(GRID, seeds=2)
    ran(run, read, ("done", 40), ("running", 20))
    shape = make_plan(read, run).as_json()
    assert shape == {
        "sweep": "demo",
        "trials": 8,
        "done": 1,
        "continuing": 1,
        "new": 6,
        "arms": [{"name": "a", "trials": 4}, {"name": "b", "trials": 6}],
        "problems": [],
    }
    assert list(shape) == ["sweep", "trials", "done", "continuing", "new", "arms", "problems"]
    assert json.loads(json.dumps(shape)) == shape


def test_a_filter_counts_only_what_it_wants(sweep, run):
    read = sweep(GRID, seeds=2)
    ran(run, read, ("done", 40))
    planned = make_plan(read, run, only="arm == 'b'")
    assert (planned.trials, planned.done, planned.new) == (6, 0, 6)
    assert planned.arms == {"a": 2, "b": 6}


# ---- growing and changing


def test_a_grown_sweep_plans_only_its_new_points(sweep, run):
    before = sweep({"a": {"framework.beta": {"grid": [1, 2]}}}, seeds=2)
    ran(run, before, *[("done", 40)] * 4)
    grown = {"a": {"framework.beta": {"grid": [0.5, 1, 2]}}, "new": {"framework.name": "ada_gvae"}}
    planned = make_plan(sweep(grown, seeds=3), run)
    assert (planned.trials, planned.done, planned.new) == ((3 + 1) * 3, 4, 8)


def test_a_random_search_grows_by_its_points(sweep, run):
    arms = {"a": {"framework.beta": {"uniform": [0, 1]}}}
    ran(run, sweep(arms, search={"name": "random", "points": 3}), *[("done", 40)] * 3)
    planned = make_plan(sweep(arms, search={"name": "random", "points": 5}), run)
    assert (planned.done, planned.new) == (3, 2)


def test_settings_that_change_no_number_may_change(sweep, run):
    ran(run, sweep(GRID), ("done", 40))
    other = sweep(GRID, resources={"cpu": 2}, checkpoint={"keep": 9}, objective=MIG, question="why?")
    assert make_plan(other, run).done == 1


def test_a_changed_sweep_is_refused_with_the_key_and_both_values(sweep, run):
    ran(run, sweep(GRID), ("done", 40), ("running", 10))
    changed = json.loads(json.dumps(TRIAL)) | {"training": TRIAL["training"] | {"learning_rate": 0.01}}
    with pytest.raises(ConfigError) as caught:
        make_plan(sweep(GRID, trial=changed), run)
    said = str(caught.value)
    assert "holds 2 trials that" in said
    assert "For example: training.learning_rate was 0.001, is 0.01." in said
    assert "--name NEW" in said
    assert f"restore the sweep from {run.sweep_path}" in said


def test_a_shrunk_sweep_is_refused_too(sweep, run):
    ran(run, sweep({"a": {"framework.beta": {"grid": [1, 2]}}}), ("done", 40), ("done", 40))
    with pytest.raises(ConfigError, match=r"holds 1 trial .*\n?.*framework\.beta was 2\.0, is 1\.0"):
        make_plan(sweep({"a": {"framework.beta": {"grid": [1]}}}), run)


def test_a_wrong_sweep_is_refused_before_the_ledger_is_looked_at(sweep, run):
    with pytest.raises(ConfigError, match=r"framework\.beta: must be >= 0"):
        make_plan(sweep({"a": {"framework.beta": {"grid": [1, -1]}}}), run)


@pytest.mark.parametrize("search", ["grid", "optuna"])
def test_all_damage_of_a_ledger_is_named_at_once(sweep, run, search):
    read = sweep(GRID, search=optuna() if search == "optuna" else search, objective=MIG)
    ran(run, sweep(GRID), *[("done", 40)] * 4)
    first, second, third, fourth = run.trials()
    (first.path / "status.json").write_text("{")
    (second.path / "config.json").write_text("[]")
    third.rows_path.write_text("garbage\n")
    with pytest.raises(ConfigError) as caught:
        make_plan(read, run)
    said = str(caught.value).splitlines()
    assert [line.split(" is damaged")[0] for line in said] == [
        f"{first.path}/status.json",
        f"{second.path}/config.json",
        f"{third.rows_path}:1",
    ]
    assert fourth.id not in str(caught.value)


def test_a_storage_that_cannot_be_read_is_named(sweep, tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: File name too long; choose another --storage"):
        make_plan(sweep(GRID), Run(tmp_path / ("x" * 300)))


def test_a_removed_environment_is_no_obstacle_and_a_damaged_one_is_named(sweep, run):
    read = sweep(GRID)
    ran(run, read, ("done", 40))
    (run.path / "environment.json").write_text("{")
    with pytest.raises(ConfigError, match="remove it: it only records versions"):
        make_plan(read, run)
    (run.path / "environment.json").unlink()
    assert make_plan(read, run).warnings == []


def test_another_environment_is_a_warning(sweep, run):
    read = sweep(GRID)
    ran(run, read, ("done", 40))
    assert make_plan(read, run).warnings == []
    (run.path / "environment.json").write_text(json.dumps({"packages": {"torch": "0.1"}}))
    assert "torch 0.1 -> " in make_plan(read, run).warnings[0]


OWN = """
from disentune.frameworks import beta_vae
from disentune.plugin import Framework
import own_sums_17

FRAMEWORK = Framework(name="mine", params=beta_vae.Params, loss=beta_vae.loss)
"""


@pytest.fixture
def own_sums(tmp_path, monkeypatch):
    """A file that a plug-in of the user's own imports."""
    (tmp_path / "own_vae_17.py").write_text(OWN)
    (tmp_path / "own_sums_17.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "own_sums_17.py"
    for name in ("own_vae_17", "own_sums_17"):
        sys.modules.pop(name, None)


ITS_ARMS = {"a": {"framework.name": "own_vae_17:FRAMEWORK", "framework.beta": {"grid": [1, 2]}}}


@pytest.mark.parametrize("search", [{"name": "grid"}, {"name": "optuna", "points": 2}])
def test_a_changed_plug_in_is_a_warning_that_names_the_module(sweep, run, own_sums, search):
    read = sweep(ITS_ARMS, search=search, objective=MIG)
    ran(run, read, ("done", 40))
    assert make_plan(read, run).warnings == []
    own_sums.write_text("x = 1\n")
    (note,) = make_plan(read, run).warnings
    assert note.startswith(
        "earlier rows of this run come from a different environment or code, so new numbers may differ: "
    )
    assert "source of own_sums_17 " in note
    assert "own_vae_17 " not in note


def test_other_code_of_ours_is_a_warning(sweep, run, monkeypatch):
    read = sweep(GRID)
    ran(run, read, ("done", 40))
    assert make_plan(read, run).warnings == []
    monkeypatch.setattr("disentune.environment.own_source", lambda: "0123456789ab")
    assert "disentune's code " in make_plan(read, run).warnings[0]


def test_rows_of_a_session_between_are_remembered_when_the_code_is_put_back(sweep, run, own_sums):
    read = sweep(ITS_ARMS)
    ran(run, read, ("done", 40))
    own_sums.write_text("x = 1\n")
    run.record(read)
    (note,) = make_plan(read, run).warnings
    own_sums.write_text("")
    (again,) = make_plan(read, run).warnings
    assert again != note
    assert "source of own_sums_17 " in again


def test_a_new_plug_in_of_a_grown_sweep_is_no_warning(sweep, run, own_sums):
    ran(run, sweep(GRID), ("done", 40))
    assert make_plan(sweep(GRID | ITS_ARMS | {"a": GRID["a"], "c": ITS_ARMS["a"]}), run).warnings == []


# ---- optuna


SPACE = {"a": {"framework.beta": {"uniform": [0, 1]}}, "b": {"framework.beta": {"uniform": [0, 2]}}}


def optuna(points=5, **settings):
    return {"name": "optuna", "points": points, **settings}


def searched(run, sweep, *states):
    """Records a search as run: its first trials in the given (state, step)s, without training."""
    with run.locked() as session:
        run.record(sweep)
        planner = Planner(run, space.check(sweep), session)
        for state, step in states:
            trial_id = planner.next().trial_id
            row = {"step": step, "metrics": {"loss": 1.0, "mig": int(trial_id, 16) / 2**64}}
            for at in range(20, step + 1, 20):
                run.trial(trial_id).append_row({**row, "step": at})
            run.trial(trial_id).set_status(Status(state, step))
            if state == "done":
                planner.report(trial_id, StepReport(step, row, "done"))


def test_a_model_based_search_is_counted_by_its_points(sweep, run):
    read = sweep(SPACE, search=optuna(), objective=MIG, seeds=2)
    assert make_plan(read, run).as_json() == {
        "sweep": "demo", "trials": 20, "done": 0, "continuing": 0, "new": 20,
        "arms": [{"name": "a", "trials": 10}, {"name": "b", "trials": 10}], "problems": [],
    }  # fmt: skip
    searched(run, read, ("done", 40), ("running", 20))
    planned = make_plan(read, run)
    assert (planned.done, len(planned.continuing), planned.new) == (1, 1, 18)


def test_a_model_based_search_may_ask_for_more_points_and_for_nothing_else(sweep, run):
    searched(run, sweep(SPACE, search=optuna(5), objective=MIG), ("done", 40))
    assert make_plan(sweep(SPACE, search=optuna(9), objective=MIG, resources={"cpu": 2}), run).trials == 18
    wider = SPACE | {"a": {"framework.beta": {"uniform": [0, 3]}}}
    for other in (
        sweep(wider, search=optuna(5), objective=MIG),
        sweep({"a": SPACE["a"]}, search=optuna(5), objective=MIG),
        sweep(SPACE, search=optuna(5, sampler="random"), objective=MIG),
        sweep(SPACE, search=optuna(5, in_flight=2), objective=MIG),
        sweep(SPACE, search=optuna(5), objective=MIG | {"at": "best"}),
        sweep(SPACE, search=optuna(5), objective=MIG, seeds=2),
        sweep(SPACE, search=optuna(5), objective=MIG, scheduler={"name": "asha", "grace": 20}),
    ):
        with pytest.raises(ConfigError, match="was started with different arms, domains or settings"):
            make_plan(other, run)


def test_a_change_of_the_search_is_named_once_however_many_arms_have_it(sweep, run):
    searched(run, sweep(SPACE, search=optuna(5), objective=MIG), ("done", 40))
    with pytest.raises(ConfigError) as refused:
        make_plan(sweep(SPACE, search=optuna(5), objective=MIG | {"mode": "min"}), run)
    assert str(refused.value).count("objective.mode was 'max', is 'min'") == 1


def test_a_grid_cannot_continue_as_a_model_based_search(sweep, run):
    ran(run, sweep(GRID), ("done", 40))
    with pytest.raises(ConfigError, match="was started with different arms, domains or settings"):
        make_plan(sweep(SPACE, search=optuna(), objective=MIG), run)


def refusal(sweep, run):
    with pytest.raises(ConfigError) as refused:
        make_plan(sweep, run)
    return str(refused.value)


def edited(run, old, new):
    """The sweep in the run's folder after someone has changed a text in it."""
    text = run.sweep_path.read_text()
    assert old in text
    run.sweep_path.write_text(text.replace(old, new))
    return run.sweep()


SEARCHED = [("done", 40)] * 6
EDITS = [
    ("mode: max", "mode: min", "objective.mode was 'max', is 'min'"),
    ("metric: mig", "metric: loss", "objective.metric was 'mig', is 'loss'"),
    ("batch_size: 4", "batch_size: 8", "training.batch_size was 4, is 8"),
    ("2.0]", "3.0]", "arms.b.framework.beta.uniform was [0.0, 2.0], is [0.0, 3.0]"),
    ("points: 5", "points: 5, sampler: random", "search.sampler was not set, is 'random'"),
]


@pytest.mark.parametrize(("old", "new", "words"), EDITS, ids=lambda text: text.strip())
def test_a_search_whose_recorded_sweep_was_edited_is_refused_by_key(sweep, run, old, new, words):
    searched(run, sweep(SPACE, search=optuna(5), objective=MIG), *SEARCHED)
    assert words in refusal(edited(run, old, new), run)


@pytest.mark.parametrize(("old", "new", "words"), [EDITS[0], EDITS[2], (*EDITS[3][:2], "arms.b.framework.beta has")])
def test_an_edited_search_of_an_earlier_version_is_refused_too(sweep, run, old, new, words):
    searched(run, sweep(SPACE, search=optuna(5), objective=MIG), *SEARCHED)
    entries = [json.loads(line) for line in run.journal_path.read_bytes().splitlines()]
    kept = [entry for entry in entries if entry["op_code"] != 2]  # which says what a study was begun with
    assert len(kept) == len(entries) - 2
    lines = [json.dumps({key: value for key, value in entry.items() if key != "sum"}) for entry in kept]
    run.journal_path.write_text("\n".join(lines) + "\n")
    assert make_plan(run.sweep(), run).done == 6
    assert words in refusal(edited(run, old, new), run)


@pytest.mark.parametrize(
    ("stop", "words"),
    [
        ({"steps": 20}, "stop.steps was not set, is 20"),
        ({"plateau": {"evaluations": 2, "min_delta": 0.1}}, "stop.plateau.evaluations was not set, is 2"),
    ],
)
def test_a_search_whose_points_would_end_at_other_steps_is_refused(sweep, run, stop, words):
    searched(run, sweep(SPACE, search=optuna(5), objective=MIG), *SEARCHED)
    assert words in refusal(sweep(SPACE, search=optuna(5), objective=MIG, stop=stop), run)


def test_a_search_may_get_another_time_limit(sweep, run):
    """Trials that it interrupts continue later, so their point has no result yet."""
    searched(run, sweep(SPACE, search=optuna(5), objective=MIG), *SEARCHED)
    assert make_plan(sweep(SPACE, search=optuna(5), objective=MIG, stop={"wall_time_s": 60}), run).done == 6


def test_a_search_recorded_without_its_end_is_not_taken_for_another(sweep, run, monkeypatch):
    """As the journals of an earlier version are."""
    read = sweep(SPACE, search=optuna(5), objective=MIG, stop={"steps": 20})

    def without_ends(sweep):
        return {
            arm: {key: meant[key] for key in meant if key != "stop"} for arm, meant in suggest.meanings(sweep).items()
        }

    with monkeypatch.context() as patch:
        patch.setattr("disentune.runs.planner.meanings", without_ends)
        searched(run, read, *[("done", 20)] * 6)
    assert make_plan(read, run).done == 6


def test_a_search_whose_arm_is_gone_is_refused(sweep, run):
    searched(run, sweep(SPACE, search=optuna(5), objective=MIG), *SEARCHED)
    run.record(sweep({"a": SPACE["a"]}, search=optuna(5), objective=MIG))
    assert "arms.b" in refusal(run.sweep(), run)


def test_a_search_under_a_changed_default_is_refused_by_key(sweep, run, monkeypatch):
    read = sweep(SPACE, search=optuna(5), objective=MIG)
    searched(run, read, *SEARCHED)
    default = TrainingParams.model_fields["threads"].default
    monkeypatch.setattr(TrainingParams.model_fields["threads"], "default", default + 1)
    monkeypatch.setattr("disentune.spec.config._remembered", {})  # of the process with the old default
    read = sweep(SPACE, search=optuna(5), objective=MIG)
    try:
        TrainingParams.model_rebuild(force=True)
        words = refusal(read, run)
    finally:
        monkeypatch.undo()
        TrainingParams.model_rebuild(force=True)
    assert f"training.threads was {default}, is {default + 1}" in words
    assert "6 trials" in words
    assert make_plan(sweep(SPACE, search=optuna(5), objective=MIG), run).done == 6


@pytest.mark.parametrize("lost", [0, 1, 5, 10**6])
def test_a_search_that_lost_the_end_of_its_journal_is_not_taken_for_another(sweep, run, lost):
    read = sweep(SPACE, search=optuna(5, in_flight=2), objective=MIG)
    searched(run, read, *SEARCHED)
    lines = run.journal_path.read_bytes().splitlines(keepends=True)
    run.journal_path.write_bytes(b"".join(lines[: max(0, len(lines) - lost)]))
    before = run.journal_path.read_bytes()
    assert make_plan(read, run).done == 6
    assert run.journal_path.read_bytes() == before, "a plan writes nothing"


def test_a_search_with_fewer_points_than_before_still_trains_those_that_were_suggested(sweep, run):
    searched(run, sweep(SPACE, search=optuna(5), objective=MIG), *[("done", 40)] * 5)
    fewer = sweep(SPACE, search=optuna(1), objective=MIG)
    with run.locked() as session:
        planner = Planner(run, space.check(fewer), session)
        assert (len(planner.trials), len(planner.open)) == (10, 5)
    planned = make_plan(fewer, run)
    assert (planned.trials, planned.done, planned.new, planned.arms) == (10, 5, 5, {"a": 5, "b": 5})


def test_a_damaged_record_of_a_population_is_refused_before_anything_runs(sweep, run):
    read = sweep(GRID, scheduler={"name": "pbt", "every": 20, "keys": ["framework.beta"]}, objective=MIG)
    ran(run, read, ("done", 40))
    (run.path / "population.json").write_text('{"generations": [], "checksum": "0"}')
    with pytest.raises(ConfigError, match=r"population\.json is damaged .*; restore it from a backup, or remove it"):
        make_plan(read, run)


# ---- cost


@pytest.fixture
def untouched_torch():
    """A probe prepares the process as a worker's; give it back as it was."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


def test_cost_is_bytes_of_checkpoints_and_seconds_by_a_probe(sweep, run, untouched_torch):
    read = sweep({"a": {"framework.beta": {"grid": [1, 2]}}, "b": {"framework.name": "ada_gvae"}})
    planned = make_plan(read, run)
    free = cost(read, planned, probe=False)
    assert free.seconds is None
    probed = cost(read, planned, probe=True)
    layer = 4 * (3 * 8 * 8 * 8)  # bytes x weights
    assert probed.disk == free.disk > 3 * 2 * layer  # trials x kept
    assert probed.disk_while_training == free.disk_while_training > 3 * 3 * layer  # weights and moments x kept
    assert 0 < probed.seconds < 60
    assert math.isfinite(probed.seconds)


def test_a_probe_takes_few_steps_and_one_step_is_enough(sweep, run, monkeypatch, untouched_torch):
    taken = []
    advance = preview.Training._advance
    monkeypatch.setattr(preview.Training, "_advance", lambda self: (taken.append(1), advance(self)))
    read = sweep({"a": {"training.steps": 1_000_000, "evaluation.every": None}})
    assert cost(read, make_plan(read, run), probe=True).seconds > 1
    assert len(taken) == preview.PROBE_STEPS
    read = sweep({"a": {"training.steps": 1}})
    assert cost(read, make_plan(read, run), probe=True).seconds > 0


def test_arms_that_differ_by_a_weight_of_the_loss_are_built_once(sweep, run, monkeypatch):
    built, build = [], preview.Training.__init__
    monkeypatch.setattr(
        preview.Training, "__init__", lambda self, config: (built.append(config), build(self, config))[1]
    )
    arms = {f"a{number}": {"framework.beta": number + 0.5} for number in range(20)}
    read = sweep(arms | {"wide": {"model.width": 16}})
    planned = make_plan(read, run)
    small, wide = (make_plan(sweep({"one": one}), run) for one in ({}, {"model.width": 16}))
    expected = 20 * cost(sweep({"one": {}}), small, probe=False).disk
    expected += cost(sweep({"one": {"model.width": 16}}), wide, probe=False).disk
    built.clear()
    assert cost(read, planned, probe=False).disk == expected
    assert len(built) == 2


def test_what_is_done_costs_no_time(sweep, run, untouched_torch):
    read = sweep(GRID)
    ran(run, read, *[("done", 40)] * 4)
    assert cost(read, make_plan(read, run), probe=True).seconds == 0


def test_a_gpu_sweep_is_probed_on_the_cpu(sweep, run, untouched_torch):
    read = sweep(resources={"gpu": 0.5})
    assert cost(read, make_plan(read, run), probe=True).seconds > 0


def test_a_model_that_does_not_fit_is_an_error_in_words(sweep, run):
    read = sweep({"huge": {"model.width": 10**12}})
    with pytest.raises(ConfigError, match=r"arms\.huge: its first trial fails here: RuntimeError: "):
        cost(read, make_plan(read, run), probe=False)


def test_a_trial_whose_data_or_framework_cannot_start_is_reported_without_a_probe(sweep, run, monkeypatch):
    """Such as a user's own data set that fails when it is opened."""

    def fail(self, on_device):
        raise ZeroDivisionError("in a plug-in")

    monkeypatch.setattr(preview.Training, "_inputs", fail)
    read = sweep({"a": {}})
    with pytest.raises(
        ConfigError, match=r"demo\.yaml:\d+ +arms\.a: its first trial fails here: ZeroDivisionError: in a plug-in$"
    ):
        cost(read, make_plan(read, run), probe=False)


def test_a_trial_that_fails_in_the_probe_is_an_error_in_words(sweep, run, monkeypatch, untouched_torch):
    def fail(self):
        raise ZeroDivisionError("in a plug-in\nof the user")

    monkeypatch.setattr(preview.Training, "_advance", fail)
    read = sweep({"a": {}})
    with pytest.raises(
        ConfigError, match=r"demo\.yaml:\d+ +arms\.a: its first trial fails here: ZeroDivisionError: in a plug-in$"
    ):
        cost(read, make_plan(read, run), probe=True)


# ---- filters


def test_filters_work_with_searches_whose_trials_are_independent(sweep):
    filters_allowed(sweep(GRID), only=True, limited=True)
    asha = sweep(GRID, scheduler={"name": "asha", "grace": 20}, objective=MIG)
    filters_allowed(asha, only=False, limited=True)
    with pytest.raises(ConfigError, match="--only cannot be combined with scheduler: asha"):
        filters_allowed(asha, only=True, limited=False)
    with pytest.raises(ConfigError, match="--only cannot be combined with search: optuna"):
        filters_allowed(sweep(SPACE, search=optuna(), objective=MIG), only=True, limited=False)
    pbt = {"name": "pbt", "every": 20, "keys": ["framework.beta"]}
    replicated = sweep(GRID, scheduler={"name": "asha", "grace": 20}, objective=MIG, seeds=2)
    with pytest.raises(ConfigError, match="--limit cannot be combined with scheduler: asha and 2 seeds"):
        filters_allowed(replicated, only=False, limited=True)
    with pytest.raises(ConfigError, match="--limit cannot be combined with scheduler: pbt"):
        filters_allowed(sweep(GRID, scheduler=pbt, objective=MIG), only=False, limited=True)


def test_a_trial_ended_by_stop_steps_continues_when_the_number_is_raised(sweep, run):
    read = sweep({"a": {}}, stop={"steps": 20})
    ran(run, read)
    folder = run.trial(space.check(read).points[0].config.id)
    folder.create(space.check(read).points[0].config, ("a",))
    folder.append_row({"step": 20, "metrics": {"loss": 1.0}})
    folder.set_status(Status("done", 20, "stop.steps: 20"))
    assert make_plan(read, run).done == 1
    assert make_plan(sweep({"a": {}}), run).continuing == {folder.id: 20}


@pytest.mark.parametrize("state", ["done", "running", "diverged"])
def test_a_trial_whose_rows_were_cut_continues_from_before_the_gap_and_is_named(sweep, run, state):
    read = sweep({"a": {}})
    ran(run, read, (state, 40))
    folder = run.trials()[0]
    assert make_plan(read, run).continuing == ({folder.id: 40} if state == "running" else {})
    folder.rows_path.write_text('{"step": 20, "metrics": {"loss": 1.0}}\n' if state != "diverged" else "")
    planned = make_plan(read, run)
    gap = 20 if state == "diverged" else 40
    assert (planned.done, planned.continuing) == (0, {folder.id: gap - 20})
    assert planned.warnings[0] == (
        f"1 trial lacks rows that had been written ({folder.id} from step {gap} on); "
        "these trials are computed again from there"
    )


def test_a_failed_trial_stays_failed_whatever_its_rows(sweep, run):
    read = sweep({"a": {}})
    ran(run, read, ("failed", 40))
    run.trials()[0].rows_path.unlink()
    assert make_plan(read, run).done == 1
    assert make_plan(read, run, retry_failed=True).continuing == {run.trials()[0].id: 40}


def test_a_limit_counts_failed_trials_that_are_tried_again(sweep, run):
    read = sweep(GRID)
    ran(run, read, ("failed", 20), ("done", 40), ("failed", 20))
    ids = [point.config.id for point in space.check(read).points]
    planned = make_plan(read, run, limit=2, retry_failed=True)
    assert planned.choice.ids == {ids[0], ids[2]}
    assert planned.continuing == {ids[0]: 20, ids[2]: 20}
    assert make_plan(read, run, limit=2).choice.ids == {ids[3]}


@pytest.mark.parametrize("finished", ["weights", "all"])
def test_the_disk_that_a_plan_names_is_the_disk_that_the_checkpoints_take(tmp_path, finished):
    model = "model={name: mlp, width: 200, latents: 3}"  # so large that a file's own words count little
    path, changes = sweep_file(tmp_path), (model, "seeds=1", f"checkpoint={{finished: {finished}}}")
    run, read = Run(tmp_path / "runs" / "tiny" / "main"), read_sweep(path, changes)
    said = cost(read, make_plan(read, run), probe=False)
    simulate(run, path, np.random.default_rng(0), overrides=changes)
    files = [folder.checkpoints.path(step) for folder in run.trials() for step in folder.checkpoints.steps()]
    taken = sum(file.stat().st_size for file in files)
    at_most = said.disk / (2 * len(run.trials())) * len(files)  # the last checkpoint may be the best as well
    assert taken == pytest.approx(at_most, rel=0.02)
