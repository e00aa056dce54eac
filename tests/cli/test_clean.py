"""`disentune clean`, `archive` and `restore`: what they print, and what works afterwards."""

import json
import shutil

from disentune.runs.ledger import Run


def test_a_dry_run_prints_the_bytes_and_removes_nothing(disentune, finished):
    before = sorted(finished.path.rglob("*"))
    bytes_ = sum(path.stat().st_size for path in before if path.suffix == ".ckpt")
    code, out, _ = disentune("clean", "tiny", "--checkpoints", "none", "--dry-run")
    assert code == 0
    assert f"runs/tiny/main: would free {bytes_:,} bytes" in out
    assert sorted(finished.path.rglob("*")) == before
    assert f"runs/tiny/main: freed {bytes_:,} bytes" in disentune("clean", "tiny", "--checkpoints", "none")[1]
    assert not list(finished.path.rglob("*.ckpt"))


def test_results_status_and_plan_are_the_same_afterwards(disentune, finished, tmp_path):
    lines = [("results", "tiny", "--json"), ("plan", tmp_path / "tiny.yaml", "--json")]
    before = [disentune(*line)[1] for line in lines]
    _, out, _ = disentune("clean", "tiny", "--checkpoints", "none", "--pictures")
    assert "have no model: `score RUN`, `encode`, `export`" in out
    assert [disentune(*line)[1] for line in lines] == before
    assert json.loads(before[1])["done"] == 12


def test_a_run_that_is_being_run_is_refused(disentune, finished):
    with finished.locked():
        code, _, err = disentune("clean", "tiny", "--checkpoints", "none")
    assert (code, "is already being run by process" in err) == (2, True)
    assert list(finished.path.rglob("*.ckpt"))


def test_a_policy_must_be_named(disentune, finished):
    code, _, err = disentune("clean", "tiny")
    assert (code, "nothing was named to remove; add --checkpoints" in err) == (2, True)


def test_a_run_is_archived_and_restored_with_the_same_results(disentune, finished, tmp_path):
    before = disentune("results", "tiny", "--json")[1]
    code, out, _ = disentune("archive", "tiny", "moved.tar.zst")
    assert (code, "next: disentune restore moved.tar.zst" in out) == (0, True)
    code, _, err = disentune("restore", "moved.tar.zst")
    assert (code, "runs/tiny/main exists already" in err) == (2, True)
    shutil.rmtree(tmp_path / "runs")
    code, out, _ = disentune("restore", "moved.tar.zst", "--storage", "other")
    assert (code, "every hash verified" in out) == (0, True)
    assert disentune("results", "other/tiny/main", "--json")[1] == before
    assert Run(tmp_path / "other" / "tiny" / "main").trials()[0].checkpoints.steps()


def test_a_missing_archive_is_wrong_input(disentune, tmp_path):
    code, _, err = disentune("restore", "nothing.tar.zst")
    assert (code, "nothing.tar.zst" in err) == (2, True)
