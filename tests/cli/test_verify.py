"""`disentune verify`: a sound run passes, each kind of damage is named, and what is derived is repaired."""

import json

import numpy as np
import pandas as pd
import pytest

from disentune.results.tables import read, write_parquet


@pytest.fixture
def whole(finished):
    """A finished run with its table."""
    write_parquet(read(finished))
    return finished


def flipped(path, old, new):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


def altered_row(run):
    """The second row."""
    path = run.trials()[1].rows_path
    first, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(first + b"\n" + rest.replace(b'"loss": ', b'"loss": 1', 1))
    return path


def damaged_checkpoint(run):
    folder = run.trials()[1]
    path = folder.checkpoints.path(folder.checkpoints.steps()[-1])
    path.write_bytes(path.read_bytes()[:-1])
    return path


def damaged_status(run):
    path = run.trials()[1].status_path
    flipped(path, b'"done"', b'"dome"')
    return path


def damaged_config(run):
    path = run.trials()[1].config_path
    flipped(path, b'"seed": ', b'"seed": 1')
    return path


def other_table(run):
    run.trials()[1].end_path.unlink(missing_ok=True)
    results = read(run, only=[folder.id for folder in run.trials()[1:]])
    return write_parquet(results)


def cut_table(run):
    run.parquet_path.write_bytes(run.parquet_path.read_bytes()[:-20])
    return run.parquet_path


def lost_row(run):
    path = run.trials()[1].rows_path
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    return path


DAMAGES = [altered_row, damaged_checkpoint, damaged_status, damaged_config, other_table, cut_table, lost_row]


def test_a_sound_run_passes(disentune, whole):
    code, out, _ = disentune("verify", "tiny")
    assert code == 0
    assert "12 trials, " in out
    assert ": sound" in out
    before = {path: path.read_bytes() for path in whole.path.rglob("*") if path.is_file()}
    assert disentune("verify", "tiny", "--repair")[0] == 0
    assert {path: path.read_bytes() for path in whole.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named_and_looking_changes_nothing(disentune, whole, damage):
    path = damage(whole)
    before = {path: path.read_bytes() for path in whole.path.rglob("*") if path.is_file()}
    code, out, _ = disentune("verify", "tiny")
    assert code == 1
    assert path.relative_to(whole.path.parent.parent.parent).as_posix() in "".join(out.splitlines())
    assert "1 problem; " in out
    assert {path: path.read_bytes() for path in whole.path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("damage", [damaged_checkpoint, other_table, cut_table])
def test_what_is_derived_is_repaired(disentune, whole, damage):
    table = whole.parquet_path.read_bytes()
    damage(whole)
    code, out, _ = disentune("verify", "tiny", "--repair")
    assert (code, ": sound" in out) == (0, True)
    assert disentune("verify", "tiny")[0] == 0
    assert whole.parquet_path.read_bytes() == table


def test_damaged_rows_are_cut_kept_aside_and_left_to_resume(disentune, whole):
    rows = json.loads(disentune("results", "tiny", "--json")[1])
    path = altered_row(whole)
    damaged = path.read_bytes()
    code, out, _ = disentune("verify", "tiny", "--repair")
    assert code == 1
    assert "rows from the damage on removed" in out
    assert "has no row of step" in out
    assert "then: disentune resume" in out
    assert path.with_name("rows.jsonl.damaged").read_bytes() == damaged
    assert path.read_bytes() == damaged.splitlines(keepends=True)[0]
    assert json.loads(disentune("results", "tiny", "--json")[1]) != rows


def test_rows_after_the_last_are_removed(disentune, whole):
    path = whole.trials()[1].rows_path
    sound = path.read_bytes()
    path.write_bytes(sound + sound.splitlines(keepends=True)[-1])
    assert disentune("verify", "tiny")[0] == 1
    code, out, _ = disentune("verify", "tiny", "--repair")
    assert (code, ": sound" in out) == (0, True), out
    assert path.read_bytes() == sound


def test_a_config_cannot_be_repaired(disentune, whole):
    path = damaged_config(whole)
    code, out, _ = disentune("verify", "tiny", "--repair")
    assert code == 1
    assert "remove the folder" in "".join(out.splitlines())
    assert path.is_file()


def test_a_run_that_is_being_run_is_looked_at_but_not_repaired(disentune, whole):
    with whole.locked():
        assert disentune("verify", "tiny")[0] == 0
        damaged_checkpoint(whole)
        code, _, err = disentune("verify", "tiny", "--repair")
        assert (code, "is already being run by process" in err) == (2, True)


@pytest.mark.slow
def test_no_flipped_bit_of_a_table_goes_unnoticed(disentune, whole):
    """Bits that the format itself ignores change nothing."""
    path, rng = whole.parquet_path, np.random.default_rng(0)
    sound, table = path.read_bytes(), pd.read_parquet(path)
    for at in rng.choice(len(sound), 12, replace=False):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ (1 << int(rng.integers(8)))]) + sound[at + 1 :])
        code, _, err = disentune("verify", "tiny")
        assert code in (0, 1), err
        if code == 0:
            pd.testing.assert_frame_equal(pd.read_parquet(path), table)
