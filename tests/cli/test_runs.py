"""Looking at a run: results and status keep their shape, and name what is damaged."""

import json
import shutil

import pytest

from disentune import load
from run_examples import quick_trial
from simulator import sweep_file


def test_results_as_json_has_exactly_its_keys_and_every_digit(disentune, finished):
    code, out, _ = disentune("results", "tiny", "--json")
    trials = json.loads(out)
    assert code == 0
    assert [trial["trial_id"] for trial in trials] == sorted(trial["trial_id"] for trial in trials)
    assert len(trials) == 12
    for trial in trials:
        assert list(trial) == ["trial_id", "status", "step", "seed", "config", "metrics"]
        row = finished.trial(trial["trial_id"]).rows()[-1]
        assert trial["config"] == finished.trial(trial["trial_id"]).tree()
        assert trial["step"] == row["step"] == 12
        assert {key: trial["metrics"][key] for key in row["metrics"]} == row["metrics"]
        assert repr(row["metrics"]["mig"]) in out


def test_load_gives_a_data_frame_of_rows(finished):
    rows = load(finished.path).rows
    assert len(rows) == 12 * 4
    assert {"trial_id", "arm", "seed", "step", "framework.beta", "mig"} <= set(rows.columns)


def test_results_of_a_selection_by_config_and_metric(disentune, finished):
    trials = json.loads(disentune("results", "tiny", "--json")[1])
    middle = sorted(trial["metrics"]["mig"] for trial in trials)[6]
    code, out, err = disentune("results", "tiny", "--json", "--only", f"mig >= {middle!r} and seed < 2")
    expected = [trial for trial in trials if trial["metrics"]["mig"] >= middle and trial["seed"] < 2]
    assert code == 0
    assert json.loads(out) == expected
    assert f"--only keeps {len(expected)} of 12 trials" in err
    assert disentune("results", "tiny", "--only", "mig > 9")[1] == "--only selects no trial\n"
    code, _, err = disentune("results", "tiny", "--only", "mag > 9")
    assert (code, "unknown key 'mag'. Did you mean 'mig'?" in err) == (2, True)
    code, _, err = disentune("results", "tiny", "--only", "seed < 2", "--parquet")
    assert (code, "cannot be combined with --parquet" in err) == (2, True)


def test_results_group_rank_and_print(disentune, finished):
    code, out, _ = disentune("results", "tiny", "--by", "framework.name", "--metric", "recon", "--at", "min")
    assert code == 0
    assert {"ada_gvae", "beta_vae"} <= set(out.split())
    assert len(disentune("results", "tiny", "--csv")[1].splitlines()) == 1 + 48
    assert disentune("results", "tiny", "--parquet")[1].strip() == "runs/tiny/main/results.parquet"
    best = disentune("results", "tiny", "--trials")[1].splitlines()
    migs = [float(line.split()[-1]) for line in best[2:]]
    assert migs == sorted(migs, reverse=True)


def test_results_status_and_the_api_agree_on_the_best_trial_by_its_best_step(disentune, make_run):
    maker = make_run()
    maker.sweep(objective={"metric": "mig", "mode": "max", "at": "best"})
    peak = quick_trial(maker, [{"step": 500, "mig": 0.9}, {"step": 1500, "mig": 0.2}], seed=0)
    late = quick_trial(maker, [{"step": 500, "mig": 0.1}, {"step": 1500, "mig": 0.5}], seed=1)

    def ranked(*flags):
        title, _, *lines = disentune("results", "demo", "--trials", *flags)[1].splitlines()
        return title, [line.split()[0] for line in lines]

    assert ranked() == ("mig, max value of each trial", [peak, late])
    assert ranked("--at", "last") == ("mig, last value of each trial, step 1500", [late, peak])
    assert f"best mig 0.9  {peak}" in disentune("status", "demo")[1]
    assert load(maker.run.path).best().id == peak


def test_status_names_states_and_as_json_every_trial(disentune, finished):
    code, out, _ = disentune("status", "tiny")
    assert code == 0
    assert "not running; 12 done" in out
    status = json.loads(disentune("status", "tiny", "--json")[1])
    assert status["running"] is False
    assert [trial["state"] for trial in status["trials"]] == ["done"] * 12


def test_status_names_the_log_of_errors_and_how_to_run_a_failed_trial_again(disentune, finished):
    broken = finished.trials()[0]
    broken.update_status(state="failed", cause="ValueError: no")
    broken.add_error("Traceback ...")
    out = disentune("status", "tiny")[1]
    assert f"ValueError: no\n  runs/tiny/main/trials/{broken.id}/errors.log" in out
    assert out.endswith("next: disentune resume runs/tiny/main --retry-failed\n")


def test_status_shows_the_best_and_the_file_to_read_of_a_failure(disentune, finished):
    best = max(finished.trials(), key=lambda trial: trial.rows()[-1]["metrics"]["mig"])
    broken = next(trial for trial in finished.trials() if trial.id != best.id)
    broken.update_status(state="failed", cause="ValueError: no\nTraceback")
    _, out, _ = disentune("status", "tiny")
    assert f"  {best.id}  arm " in next(line for line in out.splitlines() if line.startswith("best mig (last value) "))
    assert f"at step 12: ValueError: no\n  runs/tiny/main/trials/{broken.id}/status.json" in out
    trial = next(
        one for one in json.loads(disentune("status", "tiny", "--json")[1])["trials"] if one["state"] == "failed"
    )
    assert list(trial) == [
        "trial_id",
        "arms",
        "steps",
        "state",
        "step",
        "cause",
        "attempts",
        "node",
        "seconds",
        "contents",
        "faults",
        "node_id",
    ]


# ---- watching


def test_watching_a_finished_run_shows_it_once_and_ends(disentune, finished, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail("waits for nothing"))
    code, out, _ = disentune("status", "tiny", "--watch")
    assert code == 0
    assert "12/12 ended, 100%" in out
    assert out.endswith("all 12 trials have ended\nnext: disentune results runs/tiny/main\n")


def test_watching_an_idle_run_says_how_to_continue_and_ends(disentune, finished):
    finished.trials()[0].update_status(state="running", step=5)
    code, out, _ = disentune("status", "tiny", "--watch")
    assert code == 0
    assert "11/12 ended" in out
    assert out.endswith("not running; continue with: disentune resume runs/tiny/main\n")


def test_watching_continues_while_a_driver_runs_and_shows_what_changes(disentune, finished, monkeypatch):
    trial, driver, waits = finished.trials()[0], finished.locked(), []
    trial.update_status(state="running", step=5)
    driver.__enter__()

    def sleep(seconds):
        waits.append(seconds)
        trial.update_status(state="failed", cause="ValueError: no")
        if len(waits) == 2:
            driver.__exit__(None, None, None)

    monkeypatch.setattr("time.sleep", sleep)
    code, out, _ = disentune("status", "tiny", "--watch", "--every", "3.5")
    lines = out.splitlines()
    assert (code, waits) == (0, [3.5, 3.5])
    assert lines[0].startswith("11/12 trials ended; 11 done, 1 running; ")
    assert lines[1:3] == [
        f"failed {trial.id} at step 5: ValueError: no",
        f"  runs/tiny/main/trials/{trial.id}/status.json",
    ]
    assert lines[3].startswith("12/12 trials ended; 11 done, 1 failed; ")
    assert lines[-2:] == [
        "next: disentune results runs/tiny/main",
        "next: disentune resume runs/tiny/main --retry-failed",
    ]


def test_watching_as_json_is_an_object_a_line(disentune, finished, monkeypatch):
    driver = finished.locked()
    driver.__enter__()
    monkeypatch.setattr("time.sleep", lambda seconds: driver.__exit__(None, None, None))
    code, out, _ = disentune("status", "tiny", "--watch", "--json")
    assert code == 0
    assert [(one["running"], one["finished"]) for one in map(json.loads, out.splitlines())] == [
        (True, False),
        (False, True),
    ]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ctrl_c_ends_the_watching_quietly(disentune, finished, monkeypatch, options):
    def interrupted(seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", interrupted)
    with finished.locked():
        code, out, err = disentune("status", "tiny", "--watch", *options)
    assert (code, err, len(out.splitlines())) == (0, "", 1)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--every", "5"], "--every 5: only with --watch"),
        (["--watch", "--every", "0"], "--every 0: must be from 0.1 to 86400 seconds"),
        (["--watch", "--every", "nan"], "--every nan: must be from"),
        (["--watch", "--every", "inf"], "--every inf: must be from"),
    ],
)
def test_a_wrong_interval_is_refused(disentune, finished, arguments, expected):
    code, out, err = disentune("status", "tiny", *arguments)
    assert (code, out) == (2, "")
    assert expected in err


@pytest.mark.parametrize("name", ["status.json", "config.json", "rows.jsonl"])
@pytest.mark.parametrize("command", ["results", "resume"])
def test_a_corrupt_ledger_file_is_named_and_nothing_is_lost(disentune, finished, name, command):
    path = finished.trials()[3].path / name
    path.write_text("{ruined\n")
    before = {file: file.read_bytes() for file in finished.path.rglob("*") if file.is_file()}
    code, _, err = disentune(command, "tiny")
    assert code == 2
    assert str(path) in err
    assert "Traceback" not in err
    assert {file: data for file, data in before.items() if file.name not in ("driver.lock", "sweep.yaml")}.items() <= {
        file: file.read_bytes() for file in finished.path.rglob("*") if file.is_file()
    }.items()


@pytest.mark.parametrize("command", [["results", "tiny"], ["results", "tiny", "--json"], ["status", "tiny"],
                                     ["status", "tiny", "--json"], ["plan", "tiny.yaml"]])  # fmt: skip
def test_a_copy_of_a_trial_beside_it_counts_nowhere_and_is_named(disentune, finished, tmp_path, command):
    sweep_file(tmp_path)
    before = disentune(*command)
    copied = finished.trials()[0].path
    shutil.copytree(copied, copied.with_name(f"{copied.name}.bak"))
    code, out, err = disentune(*command)
    assert code == 0
    assert f"trials: {copied.name}.bak ignored" in out + err
    kept = [line for line in out.splitlines() if "note:" not in line]
    assert kept == [line for line in before[1].splitlines() if "note:" not in line]


VIEWS = [["results", "tiny"], ["results", "tiny", "--json"], ["results", "tiny", "--csv"], ["status", "tiny"],
         ["status", "tiny", "--json"], ["plan", "tiny.yaml"], ["report", "tiny"]]  # fmt: skip


@pytest.mark.parametrize("command", VIEWS)
def test_every_view_of_a_run_reports_a_row_that_was_altered(disentune, finished, tmp_path, command):
    sweep_file(tmp_path)
    folder = finished.trials()[2]
    lines = folder.rows_path.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b'"loss": ', b'"loss": 1', 1)
    folder.rows_path.write_bytes(b"".join(lines))
    code, out, err = disentune(*command)
    assert code == 0
    assert f"{folder.id}/rows.jsonl: line 3" in "".join((out + err).splitlines())


@pytest.mark.parametrize("command", VIEWS)
def test_every_view_of_a_run_reports_rows_that_were_cut(disentune, finished, tmp_path, command):
    sweep_file(tmp_path)
    folder = finished.trials()[2]
    folder.rows_path.write_bytes(b"".join(folder.rows_path.read_bytes().splitlines(keepends=True)[:2]))
    code, out, err = disentune(*command)
    assert code == 0
    told = out + err
    assert f"{folder.id} from step 9 on" in told or f"{folder.id}/rows.jsonl has no row of step 9" in told
