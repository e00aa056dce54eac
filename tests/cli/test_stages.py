"""A study that needs other sweeps: its plan, its stages in order, continuing after a death, and every refusal."""

import json
import re
from itertools import product

import pytest

from disentune.runs.ledger import Run
from disentune.spec.sweepfile import read_sweep
from stage_examples import CHANGED, DONORS, STAGES, STUDY, TRIALS, Killed, table, use_driver, write_study

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def data_root(tmp_path, monkeypatch):
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path / "data"))


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path)


def carried_out(disentune, monkeypatch, *arguments, **options):
    driver = use_driver(monkeypatch, **options)
    return (*disentune(*arguments), driver.launched)


# ---- the plan


def test_a_plan_shows_the_stages_before_anything_is_done(disentune, study):
    code, out, _ = disentune("plan", study)
    assert code == 0
    assert "stage 1 of 3: donors in runs/donors/main: 0 of 4 trials done, 0 continue, 4 new" in out
    assert "stage 2 of 3: study-manipulators in runs/study-manipulators/main: its trials are known once" in out
    assert "stage 3 of 3, the study:\nstudy: 4 trials in runs/study/main" in out
    assert not (study.parent / "runs").exists()


def test_a_plan_as_json_keeps_its_keys_and_adds_the_stages(disentune, study):
    plan = json.loads(disentune("plan", study, "--json")[1])
    assert [plan[key] for key in ("sweep", "trials", "done", "continuing", "new", "problems")] == [
        "study", 4, 0, 0, 4, []]  # fmt: skip
    donors, makers, last = plan["stages"]
    assert donors == {"name": "donors", "run": "runs/donors/main", "trials": 4, "done": 0, "continuing": 0, "new": 4,
                      "failed": 0, "state": "open"}  # fmt: skip
    assert makers == {"name": "study-manipulators", "run": "runs/study-manipulators/main", "trials": None,
                      "done": None, "continuing": None, "new": None, "failed": 0, "state": "waiting"}  # fmt: skip
    assert (last["name"], last["trials"], last["state"]) == ("study", 4, "open")


def test_the_plan_of_a_finished_study_has_every_stage_done(disentune, study, monkeypatch):
    carried_out(disentune, monkeypatch, "run", study)
    plan = json.loads(disentune("plan", study, "--json")[1])
    assert {one["name"]: (one["trials"], one["done"], one["state"]) for one in plan["stages"]} == {
        name: (count, count, "done") for name, count in TRIALS.items()
    }


def test_a_probe_needs_the_stages_before(disentune, study):
    code, _, err = disentune("plan", study, "--probe")
    assert code == 2
    assert "--probe: the sweeps that study needs must be finished first" in err


# ---- in order, and continued


def test_a_run_carries_the_stages_out_in_order_each_in_its_own_folder(disentune, study, monkeypatch):
    code, out, err, launched = carried_out(disentune, monkeypatch, "run", study)
    assert code == 0, err
    assert launched == [*STAGES]
    assert {name: len(trials) for name, trials in table(study.parent / "runs").items()} == TRIALS
    assert out.count("next:") == 1


def test_the_study_is_recorded_with_its_donors_and_needs_nothing_else(disentune, study, monkeypatch):
    carried_out(disentune, monkeypatch, "run", study)
    run = Run(study.parent / "runs" / "study" / "main")
    recorded = read_sweep(run.sweep_path)
    assert recorded.needs == {}
    chosen = recorded.arms["changed"]["dataset.donors"].value
    donors = {folder.id for folder in Run(study.parent / "runs" / "donors" / "main").trials()}
    assert [one["role"] for one in chosen] == ["best", "worst"]
    assert {one["trial"] for one in chosen} <= donors
    asked, kept = run.stages()
    assert asked.resolved() == read_sweep(study).resolved()
    assert kept == {"changed": chosen}


@pytest.mark.parametrize("again", [("run", "study.yaml"), ("resume", "runs/study/main")])
def test_what_is_finished_is_passed_over(disentune, study, monkeypatch, again):
    carried_out(disentune, monkeypatch, "run", study)
    before = table(study.parent / "runs")
    code, out, _, launched = carried_out(disentune, monkeypatch, *again)
    assert (code, launched) == (0, ["study"])
    assert "stage donors in runs/donors/main: 4 of 4 trials done" in out
    assert table(study.parent / "runs") == before


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """Rows of a chain that was never interrupted."""
    folder = tmp_path_factory.mktemp("undisturbed")
    return folder, {}


QUICK = [(STAGES[0], "resume"), (STAGES[1], "run")]
DEATHS = [
    pytest.param(*death, marks=[] if death in QUICK else pytest.mark.long)
    for death in product(STAGES, ["run", "resume"])
]


@pytest.mark.parametrize(("stage", "command"), DEATHS)
def test_a_chain_that_is_killed_in_any_stage_continues_that_stage_and_ends_with_the_same_rows(
    disentune, study, monkeypatch, stage, command, undisturbed
):
    folder, rows = undisturbed
    if not rows:
        carried_out(disentune, monkeypatch, "run", study, "--storage", folder / "runs")
        rows.update(table(folder / "runs"))
    use_driver(monkeypatch, dies_in=stage, reports=2)
    with pytest.raises(Killed):
        disentune("run", study)
    again = ("run", study) if command == "run" else ("resume", "runs/study/main")
    code, _, err, launched = carried_out(disentune, monkeypatch, *again)
    assert code == 0, err
    assert launched == [*STAGES][STAGES.index(stage) :]
    assert table(study.parent / "runs") == rows


def test_a_second_name_is_a_second_chain(disentune, study, monkeypatch):
    code, _, _, launched = carried_out(disentune, monkeypatch, "run", study, "--name", "second")
    assert (code, launched) == (0, [*STAGES])
    assert all((study.parent / "runs" / name / "second" / "sweep.yaml").is_file() for name in STAGES)


def test_set_and_limit_are_for_the_study_only(disentune, study, monkeypatch):
    carried_out(disentune, monkeypatch, "run", study, "--set", "seeds=1", "--limit", "1")
    trained = {name: sum(map(bool, rows.values())) for name, rows in table(study.parent / "runs").items()}
    assert trained == {"donors": 4, "study-manipulators": 1, "study": 1}


def test_every_epsilon_is_a_data_set_with_a_manipulator_of_its_own(disentune, study, monkeypatch):
    code, _, err, _ = carried_out(disentune, monkeypatch, "run", study, "--set",
                                  "arms.changed.dataset.epsilon={grid: [0.1, 0.3]}")  # fmt: skip
    assert code == 0, err
    found = table(study.parent / "runs")
    assert {name: len(trials) for name, trials in found.items()} == {"donors": 4, "study-manipulators": 2, "study": 6}


def test_a_needed_sweep_may_need_another_one(disentune, tmp_path, monkeypatch):
    write_study(tmp_path)
    last = DONORS.replace("name: donors", "name: last\nneeds: {before: study.yaml}")
    (tmp_path / "last.yaml").write_text(last)
    code, _, err, launched = carried_out(disentune, monkeypatch, "run", "last.yaml")
    assert code == 0, err
    assert launched == [*STAGES, "last"]


def test_a_sweep_may_need_others_without_taking_anything_from_them(disentune, tmp_path, monkeypatch):
    study = write_study(tmp_path, STUDY.replace(f"  changed: {{dataset: {{{CHANGED}, transform: unit}}}}\n", ""))
    code, _, _, launched = carried_out(disentune, monkeypatch, "run", study)
    assert (code, launched) == (0, ["donors", "study"])


# ---- refusals


def refused(disentune, monkeypatch, *arguments):
    code, out, err, launched = carried_out(disentune, monkeypatch, *arguments)
    assert (code, launched, out) == (2, [], "")
    return err


def test_a_circle_is_named(disentune, tmp_path, monkeypatch):
    study = write_study(tmp_path, donors=DONORS + "needs: {more: study.yaml}\n")
    err = refused(disentune, monkeypatch, "run", study)
    assert re.search(r"donors.yaml:\d+ +needs.more: the sweeps need", err)
    assert "the sweeps need one another in a circle: study.yaml -> donors.yaml -> study.yaml" in err


def test_a_missing_file_is_refused_with_its_line(disentune, tmp_path, monkeypatch):
    study = write_study(tmp_path, STUDY.replace("donors.yaml", "donorz.yaml"))
    err = refused(disentune, monkeypatch, "run", study)
    assert "study.yaml:3" in err
    assert "needs.donors: there is no file donorz.yaml" in err
    assert "unknown key of needs" not in err


WRONG_NEEDS = {
    "needs: donors.yaml": "needs: must be a mapping such as {donors: sweeps/donors.yaml}, got 'donors.yaml'",
    "needs: {donors: 3}": "needs.donors: must be the path of a sweep file (.yaml), or a sweep as a mapping, got 3",
    "needs: {others: donors.yaml}": "dataset.donors: unknown key of needs 'donors'. Did you mean 'others'?",
    "": "dataset.donors: 'donors' must be a key of `needs`, which this sweep does not have; add needs: {donors: FILE}",
}


@pytest.mark.parametrize("line", WRONG_NEEDS)
def test_needs_that_say_nothing_are_refused(disentune, tmp_path, monkeypatch, line):
    study = write_study(tmp_path, STUDY.replace("needs: {donors: donors.yaml}", line))
    text = WRONG_NEEDS[line].partition(" Did")[0]
    assert text in refused(disentune, monkeypatch, "run", study)


def test_problems_of_every_stage_are_told_at_once(disentune, tmp_path, monkeypatch):
    study = write_study(tmp_path, STUDY.replace("beta: 2}", "beta: -1}"), DONORS.replace("width: 8", "width: 0"))
    err = refused(disentune, monkeypatch, "run", study)
    assert "framework.beta: must be >= 0, got -1" in err
    assert "model.width: must be >= 1, got 0" in err


def test_two_sweeps_of_one_name_are_refused(disentune, tmp_path, monkeypatch):
    study = write_study(tmp_path, STUDY.replace("donors.yaml}", "donors.yaml, more: more.yaml}"))
    (tmp_path / "more.yaml").write_text(DONORS.replace("seeds: 4", "seeds: 5"))
    err = refused(disentune, monkeypatch, "run", study)
    assert "donors.yaml and more.yaml are both called 'donors'; set `name` in one of them" in err


def test_more_donors_than_the_needed_sweep_has_trials_are_refused_before_any_is_trained(disentune, study, monkeypatch):
    err = refused(disentune, monkeypatch, "run", study, "--set", "arms.changed.dataset.best=4")
    assert "4 best and 1 worst donors are asked for" in err


def test_a_data_set_that_many_arms_have_is_refused_once_at_its_line(disentune, tmp_path, monkeypatch):
    plain, changed = "framework: {name: beta_vae, beta: 1}", f"{{{CHANGED.replace('donors,', 'donors, best: 9,')}}}"
    arms = f"arms:\n  a: {{{plain}}}\n  b: {{{plain.replace('1', '2')}}}\n"
    text = STUDY[: STUDY.index("arms:")].replace("trial:", f"trial:\n  dataset: {changed}") + arms
    err = refused(disentune, monkeypatch, "run", write_study(tmp_path, study=text))
    assert err.count("9 best and 1 worst donors are asked for") == 1
    line = 1 + text.splitlines().index(f"  dataset: {changed}")
    assert f"study.yaml:{line}  dataset: 9 best" in err


@pytest.mark.parametrize(("root", "reason"), [(None, "no data root is set"), ("data", "must be an absolute path")])
def test_a_missing_data_root_is_refused_before_any_donor_is_trained(disentune, study, monkeypatch, root, reason):
    monkeypatch.delenv("DISENTUNE_DATA")
    if root:
        monkeypatch.setenv("DISENTUNE_DATA", root)
    for command in ("plan", "run"):
        assert reason in refused(disentune, monkeypatch, command, study)
    assert not (study.parent / "runs").exists()


def test_set_does_not_reach_into_a_needed_sweep(disentune, study, monkeypatch):
    err = refused(disentune, monkeypatch, "run", study, "--set", "needs.donors.seeds=2")
    assert "--set needs.donors.seeds  changes the study only; edit the file of 'donors'" in err


def test_a_needed_run_with_failed_trials_ends_the_chain_and_is_refused_until_they_are_retried(
    disentune, study, monkeypatch
):
    code, out, _, launched = carried_out(disentune, monkeypatch, "run", study, fails={"donors": 1})
    failed = Run(study.parent / "runs" / "donors" / "main").trials()[1].id
    assert (code, launched) == (1, ["donors"])
    for text in (out, refused(disentune, monkeypatch, "run", study)):
        assert f"study/main needs 'donors', and 1 of its 4 trials failed: {failed}" in text
        assert "retry them and continue: disentune resume runs/study/main --retry-failed" in text
    code, out, _ = disentune("plan", study)
    assert code == 0
    assert "3 of 4 trials done, 1 failed" in out
    code, _, _, launched = carried_out(disentune, monkeypatch, "resume", "runs/study/main", "--retry-failed")
    assert (code, launched) == (0, [*STAGES])


def test_an_edited_donor_sweep_is_refused_once_the_study_has_begun(disentune, study, monkeypatch):
    carried_out(disentune, monkeypatch, "run", study)
    write_study(study.parent, donors=DONORS.replace("seeds: 4", "seeds: 5"))
    err = refused(disentune, monkeypatch, "run", study)
    assert "study.yaml: what it needs has changed since runs/study/main began" in err
    assert "needs.donors (donors.yaml) asks for other trials now: 1 added, 0 removed" in err
    assert "run the study under another name: --name NEW" in err
    code, _, _, launched = carried_out(disentune, monkeypatch, "run", study, "--name", "five")
    assert (code, launched) == (0, [*STAGES])


def test_a_donor_sweep_may_change_in_how_it_runs(disentune, study, monkeypatch):
    carried_out(disentune, monkeypatch, "run", study)
    write_study(study.parent, donors=DONORS + "resources: {concurrent: 1}\n")
    code, _, _, launched = carried_out(disentune, monkeypatch, "run", study)
    assert (code, launched) == (0, ["study"])


@pytest.mark.parametrize("again", [("run", "study.yaml"), ("resume", "runs/study/main")])
def test_donors_whose_scores_are_others_now_are_refused(disentune, study, monkeypatch, again):
    carried_out(disentune, monkeypatch, "run", study)
    run = Run(study.parent / "runs" / "study" / "main")
    asked, kept = run.stages()
    best = {**kept["changed"][0], "weights": "0" * 64}
    run.record_stages(asked, {"changed": [best, *kept["changed"][1:]]})
    err = refused(disentune, monkeypatch, *again)
    assert "what it needs has changed since runs/study/main began: arm 'changed' was made from best trial" in err
    assert "(weights 000000000000)" in err


def test_a_donor_run_with_more_trials_than_its_sweep_asks_for_is_refused(disentune, study, monkeypatch):
    (study.parent / "more.yaml").write_text(DONORS.replace("seeds: 4", "seeds: 5"))
    carried_out(disentune, monkeypatch, "run", "more.yaml")
    err = refused(disentune, monkeypatch, "run", study)
    assert "runs/donors/main holds 1 trial that donors.yaml does not ask for. For example: seed was 4, is" in err
    assert "disentune run donors.yaml --name main --drop" in err


def test_a_stage_that_another_driver_runs_is_refused(disentune, study, monkeypatch):
    with Run(study.parent / "runs" / "donors" / "main").locked():
        assert "runs/donors/main is already being run" in refused(disentune, monkeypatch, "run", study)


def test_a_filter_that_selects_nothing_spends_nothing(disentune, study, monkeypatch):
    assert "selects no trial of the sweep" in refused(disentune, monkeypatch, "run", study, "--only", "seed == 9")
