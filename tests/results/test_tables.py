import html
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from disentune.analysis.statistics import intervals
from disentune.errors import ConfigError
from disentune.results.tables import (
    FIXED,
    aggregate,
    as_json,
    failures,
    load,
    mode_of,
    overview,
    ranked,
    read,
    steps_in_words,
    told_arm,
    varying_keys,
    write_parquet,
)
from disentune.runs.trial_folder import Status


def losses(step, value=1.0, **metrics):
    return {"step": step, "loss": value, "loss_sum": 3 * value, **metrics}


def curve(*migs):
    return [losses(300 * (i + 1), mig=mig) for i, mig in enumerate(migs)]


# ---- tables


def test_rows_have_one_line_for_each_trial_and_step_sorted_by_both(make_run):
    maker = make_run()
    ids = [maker.trial(curve(0.1, 0.2, 0.3), seed=seed) for seed in range(4)]
    rows = read(maker.run).rows
    expected = [(id, step) for id in sorted(ids) for step in (300, 600, 900)]
    assert list(zip(rows["trial_id"], rows["step"], strict=True)) == expected


def test_a_result_is_one_line_in_python_and_the_table_of_the_run_in_a_notebook(make_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    maker = make_run()
    for seed in range(3):
        maker.trial(curve(0.1, 0.2 + seed), arms=["<b>"], seed=seed)
    results = read(maker.run)
    assert repr(results) == "Results('runs/demo/main': 3 trials (3 done), 6 rows)"
    page = results._repr_html_()
    columns, cells = (re.findall(f"<{tag}>(.*?)</{tag}>", page) for tag in ("th", "td"))
    row = dict(zip(columns, cells, strict=True))
    assert (row["arm"], row["n"], row["mean"]) == ("&lt;b&gt;", "3", "1.2")
    assert "<b>" not in page


def test_a_result_without_rows_is_shown_too(make_run):
    results = read(make_run().run)
    assert repr(results).endswith("0 trials (none), 0 rows)")
    assert results._repr_html_() == f"<p>{html.escape(repr(results))}</p>"


def test_columns_are_fixed_ones_then_config_in_canonical_order_then_metrics_as_they_appear(make_run):
    maker = make_run()
    maker.trial([losses(100), losses(300, mig=0.1)])
    maker.trial(curve(0.1), recon__name="overlap", recon__radius=3, recon__alpha=1.0)
    columns = list(read(maker.run).rows)
    assert columns[:6] == ["trial_id", "arm", "status", "seed", "step", "dataset.name"]
    assert columns[-4:] == ["loss", "loss_sum", "mig", "mig_max"]
    sections = list(dict.fromkeys(column.split(".")[0] for column in columns[5:-4]))
    assert sections == ["dataset", "model", "framework", "recon", "training", "evaluation", "loss_scale"]


def test_a_parameter_that_only_one_plug_in_has_is_missing_elsewhere_and_stays_a_whole_number(make_run):
    maker = make_run()
    with_radius = maker.trial(curve(0.1), recon__name="overlap", recon__radius=3, recon__alpha=1.0)
    without = maker.trial(curve(0.1))
    radius = read(maker.run).rows.set_index("trial_id")["recon.radius"]
    assert radius.dtype == "Int64"
    assert radius[with_radius] == 3
    assert radius[without] is pd.NA


def test_lists_read_as_names_and_arms_are_joined(make_run):
    maker = make_run()
    maker.trial(curve(0.1), arms=["b", "a"], evaluation__metrics=["mig", "dci"])
    row = read(maker.run).rows.iloc[0]
    assert row["evaluation.metrics"] == "mig, dci"
    assert row["arm"] == "a+b"


def test_lists_that_differ_only_in_parameters_do_not_read_the_same(make_run):
    maker = make_run()
    for bins in (10, 20):
        maker.trial(curve(0.1), evaluation__metrics=[{"name": "mig", "bins": bins}])
    assert varying_keys(read(maker.run).trials) == ["evaluation.metrics"]


def test_a_key_that_changed_during_training_has_its_value_of_the_time(make_run):
    maker = make_run()
    folder = maker.run.trial(maker.trial(curve(0.1)))
    folder.append_row({"step": 600, "metrics": {"mig": 0.2}, "overrides": {"framework.beta": 4.0}})
    results = read(maker.run)
    assert list(results.rows["framework.beta"]) == [0.001, 4.0]
    assert list(results.trials["framework.beta"]) == [4.0]


def test_wall_times_and_notes_are_no_results(make_run):
    maker = make_run()
    folder = maker.run.trial(maker.trial([]))
    folder.append_row({"step": 1, "metrics": {"mig": 0.2}, "clock": {"train_s": 3.0}, "notes": {"mig": "odd"}})
    assert not {"train_s", "clock", "notes"} & set(read(maker.run).rows)


def test_trials_have_their_last_values_and_the_running_maximum_of_scores_but_not_of_losses(make_run):
    maker = make_run()
    maker.trial([*curve(0.1, 0.5, 0.3), losses(1000, value=0.7, tc=2.0, tc_sum=4.0)])
    trial = read(maker.run).trials.iloc[0]
    assert (trial["step"], trial["loss"], trial["mig_max"]) == (1000, 0.7, 0.5)
    assert trial["mig"] == 0.3
    assert [key for key in trial.index if key.endswith("_max")] == ["mig_max"]


def test_a_trial_without_rows_is_among_the_trials(make_run):
    maker = make_run()
    waiting = maker.trial([], status="pending", seed=1)
    maker.trial(curve(0.1))
    results = read(maker.run)
    trial = results.trials.set_index("trial_id").loc[waiting]
    assert (trial["status"], trial["step"], trial["seed"]) == ("pending", 0, 1)
    assert math.isnan(trial["mig"])
    assert waiting not in set(results.rows["trial_id"])


def test_a_run_without_trials_has_empty_tables(make_run):
    results = read(make_run().run)
    assert (len(results.rows), len(results.trials), as_json(results)) == (0, 0, [])


def test_load_finds_a_run_by_its_folder_and_keeps_the_ids_asked_for(make_run):
    maker = make_run()
    ids = [maker.trial(curve(0.1), seed=seed) for seed in range(3)]
    assert set(load(maker.run.path).rows["trial_id"]) == set(ids)
    assert list(load(maker.run.path, only=[ids[1], "unheard-of"]).trials["trial_id"]) == [ids[1]]


# ---- what other programs read


def test_json_has_exactly_the_keys_that_the_design_fixes(make_run):
    maker = make_run()
    id = maker.trial(curve(0.25, 0.1))
    config = maker.run.trial(id).tree()
    metrics = {"loss": 1.0, "loss_sum": 3.0, "mig": 0.1, "mig_max": 0.25}
    assert as_json(read(maker.run)) == [
        {"trial_id": id, "status": "done", "step": 600, "seed": 0, "config": config, "metrics": metrics}
    ]


def test_json_prints_floats_in_full_and_writes_null_for_what_json_lacks(make_run):
    maker = make_run()
    maker.trial([{"step": 1, "loss": math.inf, "mig": math.nan, "dci_disentanglement": 0.1 + 0.2}])
    text = json.dumps(as_json(read(maker.run))[0]["metrics"], allow_nan=False)
    assert '"loss": null' in text
    assert '"mig": null, "dci_disentanglement": 0.30000000000000004, "mig_max": null' in text


def test_parquet_gives_the_rows_back(make_run):
    maker = make_run()
    maker.trial(curve(0.1, 0.2))
    maker.trial(curve(0.3), recon__name="overlap", recon__radius=3, recon__alpha=1.0)
    results = read(maker.run)
    pd.testing.assert_frame_equal(pd.read_parquet(write_parquet(results)), results.rows, check_dtype=False)


def test_interrupting_a_run_leaves_no_trace_in_the_parquet_bytes(make_run):
    straight, interrupted = make_run("straight"), make_run("interrupted")
    for seed in range(3):
        straight.trial(curve(0.1, 0.2, 0.3), seed=seed)
    for seed in reversed(range(3)):
        folder = interrupted.run.trial(interrupted.trial(curve(0.1, 0.2), seed=seed))
        with open(folder.rows_path, "ab") as file:
            file.write(b'{"step": 900, "metr')  # died while it wrote
        folder.append_row({"step": 600, "metrics": losses(600, mig=0.2), "clock": {"train_s": 9.0}})
        metrics = {"loss": 1.0, "loss_sum": 3.0, "mig": 0.3}
        folder.append_row({"step": 900, "metrics": metrics, "clock": {"train_s": 8.5}})
        folder.set_status(Status("done", 900, attempts=2, node="elsewhere", seconds=17.0))
    first, again, resumed = (write_parquet(read(maker.run)).read_bytes() for maker in (straight, straight, interrupted))
    assert first == again == resumed


def test_one_changed_number_changes_the_parquet_bytes(make_run):
    one, other = make_run("one"), make_run("other")
    one.trial(curve(0.1))
    other.trial(curve(np.nextafter(0.1, 1)))
    assert write_parquet(read(one.run)).read_bytes() != write_parquet(read(other.run)).read_bytes()


# ---- comparing


@pytest.fixture
def compared(make_run):
    """Two betas of three seeds; one trial of the second has no number."""
    maker = make_run()
    for seed, (low, high) in enumerate([(0.1, 0.5), (0.2, 0.7), (0.3, math.nan)]):
        maker.trial(curve(0.9, low), seed=seed, framework__beta=1)
        maker.trial(curve(0.1, high), seed=seed, framework__beta=4)
    return maker


def test_groups_differ_by_what_varies_and_hold_the_seeds(compared):
    table = aggregate(read(compared.run), None, "mig")
    assert list(table) == ["arm", "framework.beta", "n", "mean", "sd", "min", "max"]
    best, other = table.to_dict("records")
    assert (best["framework.beta"], best["n"]) == (4.0, 2)
    assert best["mean"] == pytest.approx(0.6)
    assert other["sd"] == pytest.approx(0.1)  # of 0.1, 0.2, 0.3 with n - 1 in the denominator
    assert (other["min"], other["max"]) == (0.1, 0.3)


def test_trials_of_one_seed_are_no_repetitions_and_get_no_interval(compared):
    """Each group of three seeds keeps its interval; both betas together have two trials of each seed."""
    results = read(compared.run)
    assert "seeds" not in aggregate(results, None, "mig")
    assert all(intervals(aggregate(results, None, "mig")))
    together = aggregate(results, ["arm"], "mig")
    assert together[["n", "seeds"]].to_numpy().tolist() == [[5, 3]]
    assert intervals(together) == [""]


def test_copies_that_population_based_training_made_are_no_repetitions(make_run):
    """Two members of one population with equal final values are one training, or at least one seed."""
    maker = make_run()
    for beta in (1, 4):
        maker.trial(curve(0.9, 0.5), seed=0, framework__beta=beta)
    for folder in maker.run.trials():
        *before, last = folder.rows()
        last.pop("hash", None)
        lines = [*before, last | {"overrides": {"framework.beta": 2.0}}]
        folder.rows_path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (group,) = aggregate(read(maker.run), None, "mig").to_dict("records")
    assert (group["n"], group["seeds"]) == (2, 1)


def test_groups_at_the_maximum_use_the_best_row_of_each_trial(compared):
    table = aggregate(read(compared.run), ["framework.beta"], "mig", at="max")
    assert list(table["framework.beta"]) == [1.0, 4.0]
    assert list(table["mean"]) == pytest.approx([0.9, (0.5 + 0.7 + 0.1) / 3])


def test_the_smallest_loss_is_first_and_the_objective_may_turn_a_metric_round(compared):
    assert aggregate(read(compared.run), ["framework.beta"], "mig")["framework.beta"][0] == 4
    compared.sweep(objective={"metric": "mig", "mode": "min"})
    assert aggregate(read(compared.run), ["framework.beta"], "mig")["framework.beta"][0] == 1
    losses_by_seed = aggregate(read(compared.run), ["seed"], "loss")
    assert losses_by_seed["mean"].is_monotonic_increasing


def test_before_any_score_the_objective_has_groups_without_a_number(make_run):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    maker.trial([losses(100)], status="running")
    for at in ("last", "max"):
        table = aggregate(read(maker.run), None, "mig", at)
        assert (list(table["arm"]), list(table["n"])) == (["all"], [0])
    assert ranked(read(maker.run), "mig", "max")["mig"].isna().all()


def test_a_metric_or_key_that_no_trial_has_is_named_with_the_nearest_one(compared):
    with pytest.raises(ConfigError, match=r"unknown metric 'migg'\. Did you mean 'mig'"):
        aggregate(read(compared.run), None, "migg")
    with pytest.raises(ConfigError, match=r"unknown key 'framework.bet'. Did you mean 'framework.beta'"):
        aggregate(read(compared.run), ["framework.bet"], "mig")


@pytest.mark.parametrize(("mode", "expected"), [("max", [0.7, 0.5, 0.3]), ("min", [0.1, 0.2, 0.3])])
def test_ranking_puts_the_best_first_and_trials_without_a_number_last(compared, mode, expected):
    migs = ranked(read(compared.run), "mig", mode)["mig"]
    assert list(migs[:3]) == expected
    assert list(migs.isna()) == [False] * 5 + [True]


def test_rows_have_the_running_maximum_of_each_metric_and_of_no_loss(make_run):
    maker = make_run()
    rows = [losses(100), losses(300, mig=0.3), losses(400), losses(600, mig=0.1), losses(900, mig=math.nan)]
    maker.trial([*rows, losses(1200, mig=0.4)])
    frame = read(maker.run).rows
    assert frame["mig_max"].tolist()[1:] == [0.3, 0.3, 0.3, 0.3, 0.4]
    assert math.isnan(frame["mig_max"].iloc[0])
    assert "loss_max" not in frame


def test_parameters_vary_only_where_their_plug_in_is_not_the_reason(make_run):
    maker = make_run()
    maker.trial(curve(0.1))
    maker.trial(curve(0.1), recon__name="overlap", recon__radius=3, recon__alpha=1.0, seed=5)
    assert varying_keys(read(maker.run).trials) == ["recon.name"]
    maker.trial(curve(0.1), evaluation__every=None)
    assert varying_keys(read(maker.run).trials) == ["recon.name", "evaluation.every"]


def test_failed_trials_are_in_no_mean_and_cut_ones_show_their_step(make_run):
    maker = make_run()
    maker.trial([{"step": 30, "mig": 0.9}], status="failed", seed=0)
    maker.trial([{"step": 300, "mig": 0.2}], status="done", seed=1)
    maker.trial([{"step": 1500, "mig": 0.4}], status="done", seed=2)
    table = aggregate(read(maker.run), ["arm"], "mig")
    assert table["n"].tolist() == [2]
    assert table["mean"].tolist() == pytest.approx([0.3])
    assert table["failed"].tolist() == [1]
    assert table["min_step"].tolist() == [300]


def test_a_trial_without_a_number_yet_does_not_lower_the_rank_of_its_group(make_run):
    maker = make_run()
    maker.trial([{"step": 1500, "mig": 0.2}], framework__beta=1.0, seed=0)
    maker.trial([{"step": 1500, "mig": 0.6}], framework__beta=2.0, seed=0)
    maker.trial([], framework__beta=2.0, seed=1, status="pending")
    assert aggregate(read(maker.run), None, "mig")["mean"].tolist() == pytest.approx([0.6, 0.2])


def test_the_overview_has_the_mean_of_every_other_metric_in_the_groups_best_first(make_run):
    maker = make_run()
    for beta, mig, sap in ((1.0, 0.2, 0.5), (2.0, 0.6, 0.1)):
        for seed, more in ((0, 0.0), (1, 0.2)):
            maker.trial([losses(300, mig=mig + more, sap=sap + more)], framework__beta=beta, seed=seed)
    maker.trial([losses(300, mig=0.9, sap=0.9)], framework__beta=2.0, seed=2, status="failed")
    table = overview(read(maker.run), None, "mig")
    assert list(table.columns) == ["metric", "1", "2"]
    assert table["metric"].tolist() == ["sap"]
    assert table[["1", "2"]].to_numpy().tolist() == [[pytest.approx(0.2), pytest.approx(0.6)]]


@pytest.mark.parametrize(
    ("metric", "mode"),
    [("mig", "max"), ("mig_fast", "max"), ("loss_sum", "min"), ("gaussian_total_correlation_sampled_fast", "min")],
)
def test_a_metric_says_whether_large_or_small_is_good(make_run, metric, mode):
    maker = make_run()
    maker.trial([{**losses(300), metric: 0.5}])
    assert mode_of(read(maker.run), metric) == mode


def test_metrics_that_could_not_score_are_counted_with_their_reason(make_run):
    maker = make_run()
    for seed in range(3):
        trial = maker.run.trial(maker.trial([losses(300, mig=0.1)], seed=seed))
        if seed:
            row = {"step": 600, "metrics": {"dci": math.nan}, "notes": {"dci": "too few rows"}}
            trial.append_row(row)
    assert failures(read(maker.run)) == {"dci": (2, "too few rows")}


# ---- what a trial's last value is


def test_rows_of_losses_after_the_last_evaluation_hide_no_score(make_run):
    """`stop: {steps: 250}` with evaluations every 100 and rows every 50, as a version without end.json wrote it."""
    maker = make_run()
    for seed in range(2):
        maker.trial([losses(100, mig=0.1), losses(150), losses(200, mig=0.2 + seed), losses(250)], seed=seed)
    results = read(maker.run)
    assert aggregate(results, None, "mig")[["n", "mean"]].to_numpy().tolist() == [[2, pytest.approx(0.7)]]
    assert [trial["metrics"]["mig"] for trial in sorted(as_json(results), key=lambda t: t["seed"])] == [0.2, 1.2]
    assert results.trials["step"].tolist() == [250, 250]
    assert steps_in_words(results, "mig") == ", step 200"


def test_trials_looked_at_between_evaluations_stay_in_the_table_with_the_step_of_their_value(make_run):
    maker = make_run()
    maker.trial([*curve(0.1, 0.2), losses(700)], seed=0, status="running")
    maker.trial(curve(0.4, 0.5, 0.6), seed=1)
    results = read(maker.run)
    table = aggregate(results, ["arm"], "mig")
    assert (table["n"][0], table["min_step"][0]) == (2, 600)
    assert steps_in_words(results, "mig") == ", steps 600 to 900"


def test_the_scores_of_a_trials_end_are_its_last_values_until_it_trains_on(make_run):
    maker = make_run()
    folder = maker.run.trial(maker.trial([losses(100, mig=0.1), losses(200)]))
    folder.write_end({"step": 200, "metrics": {"mig": 0.3}, "scored": {"mig": {"bins": 20}}})
    results = read(maker.run)
    assert results.rows[["step", "mig"]].to_numpy().tolist() == [[100, 0.1], [200, 0.3]]
    assert results.records[0].rows[-1]["scored"] == {"mig": {"bins": 20}}
    folder.write_end({"step": 250, "metrics": {"mig": 0.4}})
    assert read(maker.run).rows[["step", "mig"]].iloc[-1].tolist() == [250, 0.4]
    folder.append_row({"step": 300, "metrics": {"loss": 1.0, "loss_sum": 3.0}})
    assert read(maker.run).rows["step"].tolist() == [100, 200, 300]
    assert read(maker.run).trials["mig"].tolist() == [0.1]


def test_a_metric_that_failed_and_later_scored_has_not_failed(make_run):
    maker = make_run()
    trial = maker.run.trial(maker.trial([]))
    trial.append_row({"step": 300, "metrics": {"dci": math.nan}, "notes": {"dci": "too few rows"}})
    trial.append_row({"step": 400, "metrics": {"loss": 1.0}})
    assert failures(read(maker.run)) == {"dci": (1, "too few rows")}
    trial.append_row({"step": 600, "metrics": {"dci": 0.5}, "scored": {"dci": {}}})
    assert failures(read(maker.run)) == {}


# ---- equal budgets


def test_points_that_were_stopped_early_rank_below_those_that_were_trained_to_the_end(make_run):
    maker = make_run()
    cut = Status(state="stopped", cause="scheduler.asha: stopped at step 300")
    for beta, migs in ((1.0, [0.2, 0.3, 0.4]), (2.0, [0.9]), (3.0, [0.5, 0.6]), (4.0, [0.1, 0.1, 0.5])):
        trial = maker.run.trial(maker.trial(curve(*migs), framework__beta=beta))
        if len(migs) < 3:
            trial.set_status(cut)
    results = read(maker.run)
    assert aggregate(results, None, "mig")["framework.beta"].tolist() == [4.0, 1.0, 3.0, 2.0]
    assert ranked(results, "mig", "max")["framework.beta"].tolist() == [4.0, 1.0, 3.0, 2.0]
    assert ranked(results, "mig", "min")["framework.beta"].tolist() == [1.0, 4.0, 3.0, 2.0]


def test_a_table_counts_the_trials_that_a_scheduler_stopped(make_run):
    maker = make_run()
    ids = [maker.trial(curve(0.1 * seed), seed=seed) for seed in range(3)]
    assert "stopped" not in aggregate(read(maker.run), ["arm"], "mig")
    maker.run.trial(ids[0]).set_status(Status(state="stopped", cause="scheduler.median: stopped at step 300"))
    results = read(maker.run)
    assert aggregate(results, ["arm"], "mig")[["n", "stopped"]].to_numpy().tolist() == [[3, 1]]
    assert sorted(trial["status"] for trial in as_json(results)) == ["done", "done", "stopped"]


def test_trainings_of_different_planned_lengths_rank_by_value(make_run):
    maker = make_run()
    maker.trial(curve(0.9), training__steps=300)
    maker.trial(curve(0.1, 0.2, 0.3), training__steps=900)
    assert ranked(read(maker.run), "mig", "max")["training.steps"].tolist() == [300, 900]


def test_trials_are_ranked_by_the_row_that_is_asked_for(make_run):
    maker = make_run()
    early, late = maker.trial(curve(0.9, 0.1), seed=0), maker.trial(curve(0.2, 0.3), seed=1)
    assert ranked(read(maker.run), "mig", "max", "max")["trial_id"].tolist() == [early, late]
    assert ranked(read(maker.run), "mig", "max", "last")["trial_id"].tolist() == [late, early]


# ---- rows of a version that let metrics take any name


COLUMNS = [*FIXED, "loss_scale", "framework.beta", "framework.gamma", "dataset.name", "evaluation.every"]
QUICK = (FIXED[0], "loss_scale", "framework.beta", "framework.gamma")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.long]) for name in COLUMNS]
)
def test_a_metric_that_was_called_like_a_column_does_not_replace_it(make_run, disentune, name):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max"})
    for seed in (0, 1):
        maker.trial([{"step": step, "loss": 1.0, "mig": 0.25} for step in (300, 1500)], seed=seed)
    sound = read(maker.run)
    rows, trials, table = sound.rows, sound.trials, aggregate(sound, None, "mig")
    for folder in maker.run.trials():
        kept = folder.rows()
        folder.rows_path.unlink()
        for row in kept:
            folder.append_row({**row, "metrics": {**row["metrics"], name: 7.5}})
    found = read(maker.run)
    pd.testing.assert_frame_equal(found.rows[rows.columns], rows)
    pd.testing.assert_frame_equal(found.trials[trials.columns], trials)
    pd.testing.assert_frame_equal(aggregate(found, None, "mig"), table)
    assert name in rows or name not in found.rows
    for line in (["results"], ["results", "--trials"], ["results", "--json"], ["results", "--csv"], ["report"],
                 ["status"]):  # fmt: skip
        assert disentune(line[0], maker.run.path, *line[1:])[0] == 0
    assert disentune("results", maker.run.path, "--metric", name)[0] == 2


def test_a_single_arm_has_no_column_for_people():
    assert told_arm(pd.DataFrame({"arm": ["all", "all"]})) == []
    assert told_arm(pd.DataFrame({"arm": ["near", "far"]})) == ["arm"]
