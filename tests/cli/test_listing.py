"""`disentune runs`: every run of a storage, the newest first."""

import json
import os


def test_every_run_is_listed_newest_first(disentune, make_run, tmp_path):
    for name, age in (("main", 100), ("other", 10)):
        maker = make_run(name)
        maker.trial([{"step": 1500, "mig": 0.5}])
        for path in [*maker.run.path.rglob("*")]:
            os.utime(path, (os.stat(path).st_atime, path.stat().st_mtime - age))
    code, out, _ = disentune("runs")
    assert code == 0
    lines = out.splitlines()
    assert lines[0].split() == ["sweep", "run", "state", "ended", "best", "age", "size"]
    expected = [["demo", name, "finished", "1/1", "mig"] for name in ("other", "main")]
    assert [line.split()[:5] for line in lines[1:]] == expected
    listed = json.loads(disentune("runs", tmp_path / "runs" / "demo", "--json")[1])
    assert [one["run"] for one in listed] == ["other", "main"]
    assert listed[0]["best"] == 0.5


def test_failed_trials_are_counted_beside_the_state(disentune, make_run):
    maker = make_run()
    maker.trial([{"step": 1500, "mig": 0.5}])
    maker.trial([{"step": 300, "mig": 0.1}], seed=1, status="failed")
    assert "finished, 1 failed" in disentune("runs")[1]


def test_a_damaged_run_is_listed_and_explained(disentune, make_run, tmp_path):
    maker = make_run()
    os.symlink(tmp_path, maker.run.path / "elsewhere")
    code, out, err = disentune("runs")
    assert (code, "unreadable" in out) == (0, True)
    assert "is a link" in err


def test_a_storage_without_runs_says_so_and_a_missing_one_is_wrong_input(disentune, tmp_path):
    (tmp_path / "runs").mkdir()
    assert disentune("runs") == (0, "no runs in runs\n", "")
    code, _, err = disentune("runs", "nowhere")
    assert (code, "nowhere does not exist; run a sweep first" in err) == (2, True)
