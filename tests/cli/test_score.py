"""`disentune score`: of arrays and of runs; every wrong input gets one message and exit code 2."""

import json
import pickle
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pytest

from disentune.cli import terminal
from disentune.errors import DataError
from disentune.metrics import METRICS, score
from disentune.results import arrays as arrays_module
from disentune.results import rescore
from disentune.results.rescore import udr_of_run
from disentune.runs.ledger import Run
from metric_examples import factors_of, noisy
from simulator import simulate, sweep_file


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    simulate(Run(folder / "runs" / "tiny" / "main"), sweep_file(folder), np.random.default_rng(0))
    return folder / "runs"


@pytest.fixture
def finished(trained, tmp_path):
    """A small run that has ended, at runs/tiny/main."""
    shutil.copytree(trained, tmp_path / "runs")
    return Run(tmp_path / "runs" / "tiny" / "main")


FACTORS = factors_of(repeats=4)
CODES = noisy(FACTORS)


@pytest.fixture
def arrays(tmp_path):
    np.savez(tmp_path / "codes.npz", codes=CODES, factors=FACTORS)
    return tmp_path / "codes.npz"


@pytest.fixture
def few_metrics(monkeypatch):
    """A catalogue whose metrics are quick, need different things, and fail in different ways."""

    def refuses(table, rng, params):
        raise DataError("there is nothing to tell")

    def breaks(table, rng, params):
        raise ZeroDivisionError("by zero")

    mig, hoyer = METRICS["mig"], METRICS["hoyer"]
    plugins = [
        mig,
        hoyer,
        replace(hoyer, name="refusing", keys=("refusing",), score=refuses, needs=()),
        replace(hoyer, name="broken", keys=("broken",), score=breaks, needs=()),
        replace(hoyer, name="sure", keys=("sure",), score=lambda *_: {"sure": 1.0}, needs=("logvars",)),
        replace(hoyer, name="seen", keys=("seen",), score=lambda *_: {"seen": 1.0}, needs=("distance",)),
        replace(hoyer, name="made", keys=("made",), needs=("reconstruction",)),
        replace(mig, name="downstream", keys=("downstream",)),
    ]
    monkeypatch.setattr(METRICS, "plugins", {plugin.name: plugin for plugin in plugins})


def unchanged(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# ---- arrays


def test_arrays_as_json_have_exactly_their_keys_and_every_digit(disentune, arrays):
    code, out, err = disentune("score", arrays, "--metrics", "mig,dci", "--size", "fast", "--seed", 3, "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert list(found) == ["scores", "details", "notes", "rows", "seed", "size", "params"]
    expected = score("mig", CODES, FACTORS, 3, size="fast") | score("dci", CODES, FACTORS, 3, size="fast")
    assert found["scores"] == expected
    assert set(found["details"]) == set(METRICS["dci"].details)
    assert all(isinstance(array, list) for array in found["details"].values())
    assert (found["notes"], found["rows"], found["seed"], found["size"]) == ({}, 240, 3, "fast")
    assert found["params"]["mig"] == METRICS["mig"].params(**METRICS["mig"].fast).model_dump()
    assert set(found["params"]) == {"mig", "dci"}


def test_the_seed_is_0_and_the_size_full_unless_said(disentune, arrays):
    found = json.loads(disentune("score", arrays, "--metrics", "mig", "--json")[1])
    assert found["scores"] == score("mig", CODES, FACTORS)
    assert (found["seed"], found["size"]) == (0, "full")


def test_set_changes_a_parameter(disentune, arrays):
    found = json.loads(disentune("score", arrays, "--metrics", "mig", "--set", "mig.bins=3", "--json")[1])
    assert found["scores"] == score("mig", CODES, FACTORS, bins=3)
    assert found["params"]["mig"]["bins"] == 3


def test_without_names_every_metric_that_suffices_is_scored_and_the_rest_is_reported(disentune, arrays, few_metrics):
    code, out, _ = disentune("score", arrays)
    lines = out.splitlines()
    assert code == 0
    assert [line.split()[0] for line in lines] == ["broken", "hoyer", "mig", "refusing", "left"]
    assert lines[0].split(maxsplit=1)[1] == "ZeroDivisionError: by zero"
    assert lines[3].split(maxsplit=1)[1] == "there is nothing to tell"
    name, key, value, seconds, unit = lines[2].split()
    assert (name, key, unit) == ("mig", "mig", "s")
    assert float(value) == pytest.approx(score("mig", CODES, FACTORS)["mig"], rel=1e-3)  # four digits
    assert float(seconds) >= 0
    assert lines[4] == (
        "left out: downstream (slow; compute it with --metrics downstream); "
        "made (needs a trained model: disentune score RUN); seen (needs images); sure (needs logvars)"
    )


def test_a_number_is_shown_as_soon_as_it_is_there(disentune, arrays, few_metrics, monkeypatch):
    events = []
    outcomes = arrays_module.scores_of_arrays

    def watched(*arguments):
        for outcome in outcomes(*arguments):
            events.append(outcome.asked.name)
            yield outcome

    monkeypatch.setattr(arrays_module, "scores_of_arrays", watched)
    monkeypatch.setattr(terminal.out, "print", lambda text, **_: events.append(text.split()[0]))
    disentune("score", arrays, "--metrics", "mig,hoyer")
    assert events == ["mig", "mig", "hoyer", "hoyer"]


def test_codes_alone_serve_metrics_without_factors(disentune, tmp_path, few_metrics):
    np.savez(tmp_path / "alone.npz", codes=CODES)
    found = json.loads(disentune("score", "alone.npz", "--json")[1])
    assert set(found["scores"]) == {"hoyer"}
    assert found["notes"]["mig"] == found["notes"]["downstream"] == "needs factors"
    assert found["notes"]["refusing"] == "there is nothing to tell"


def test_logvars_and_images_serve_the_metrics_that_need_them(disentune, tmp_path, few_metrics):
    np.savez(tmp_path / "all.npz", codes=CODES, factors=FACTORS, logvars=CODES, images=FACTORS)
    found = json.loads(disentune("score", "all.npz", "--json")[1])
    assert set(found["scores"]) == {"hoyer", "mig", "sure", "seen"}


@pytest.mark.parametrize(
    ("names", "code", "scored"),
    [
        ("mig", 0, {"mig"}),
        ("mig,refusing", 1, {"mig"}),
        ("broken,mig", 1, {"mig"}),
        ("sure, mig", 1, {"mig"}),
        ("refusing", 1, set()),
        ("downstream", 0, {"downstream"}),
    ],
)
def test_a_named_metric_that_fails_gives_1_and_the_others_continue(
    disentune, arrays, few_metrics, monkeypatch, names, code, scored
):
    down = replace(METRICS["mig"], name="downstream", keys=("downstream",), score=lambda *_: {"downstream": 1.0})
    monkeypatch.setitem(METRICS.plugins, "downstream", down)
    found_code, out, _ = disentune("score", arrays, "--metrics", names, "--json")
    found = json.loads(out)
    assert found_code == code
    assert set(found["scores"]) == scored
    assert set(found["notes"]) == {name.strip() for name in names.split(",")} - scored


def test_unnamed_metrics_that_all_fail_give_1(disentune, tmp_path, few_metrics, monkeypatch):
    monkeypatch.delitem(METRICS.plugins, "hoyer")
    np.savez(tmp_path / "alone.npz", codes=CODES)
    assert disentune("score", "alone.npz")[0] == 1


def save_object(path):
    np.savez(path, codes=np.array([{"a": 1}], dtype=object))


def save_truncated(path):
    np.savez(path, codes=CODES, factors=FACTORS)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def save_damaged(path):
    np.savez(path, codes=CODES)
    data = bytearray(path.read_bytes())
    data[300:340] = bytes(40)
    path.write_bytes(bytes(data))


def save_bytes(path):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("codes", "no array")


def save_npy(path):
    with open(path, "wb") as file:
        np.save(file, CODES)


def saved(**arrays):
    return lambda path: np.savez(path, **arrays)


WRONG = {
    "no file": (lambda path: None, ["it does not exist", "np.savez("]),
    "a folder": (lambda path: path.mkdir(), ["Is a directory"]),
    "empty": (lambda path: path.write_bytes(b""), ["is not a complete .npz file", "np.savez("]),
    "text": (lambda path: path.write_text("codes"), ["is not a complete .npz file", "np.savez("]),
    "pickle": (lambda path: path.write_bytes(pickle.dumps({"codes": 1})), ["is not a complete .npz file"]),
    "npy": (save_npy, ["is not a complete .npz file", 'np.savez("codes.npz", codes=codes, factors=factors)']),
    "truncated": (save_truncated, ["is not a complete .npz file"]),
    "damaged": (save_damaged, ["codes cannot be read"]),
    "objects": (save_object, ["codes cannot be read", "it holds Python objects"]),
    "bytes": (save_bytes, ["codes must be an array"]),
    "unknown array": (saved(codes=CODES, factor=FACTORS), ["factor", "unknown array. Did you mean 'factors'?"]),
    "no codes": (saved(factors=FACTORS), ["codes", "is required but missing", "np.savez("]),
    "both": (saved(code=CODES), ["Did you mean 'codes'?", "is required but missing"]),
    "float factors": (saved(codes=CODES, factors=FACTORS * 1.0), ["must be whole numbers", "float64", ".astype(int)"]),
    "an index": (saved(codes=CODES, factors=np.arange(240)[:, None]), ["column 0 has 240 values in 240 rows"]),
    "flat factors": (saved(codes=CODES, factors=FACTORS[:, 0]), ["at least one row and one column", "(240,)"]),
    "flat codes": (saved(codes=CODES[0]), ["codes must have at least one row and one column", "(3,)"]),
    "texts": (saved(codes=np.array([["a"]])), ["codes must be numbers", "<U1"]),
    "nan": (saved(codes=np.full((5, 2), np.nan)), ["codes must be finite, but row 0, column 0 is nan"]),
    "fewer factors": (saved(codes=CODES, factors=FACTORS[:9]), ["the same number of rows, but have 240 and 9"]),
    "other logvars": (saved(codes=CODES, logvars=CODES[:, :2]), ["logvars must have the shape of codes"]),
    "fewer images": (saved(codes=CODES, images=FACTORS[:9]), ["the same number of rows, but have 240 and 9"]),
    "flat images": (saved(codes=CODES, images=np.array(3)), ["images must have one row per code", "()"]),
    "images of texts": (saved(codes=CODES, images=np.full((240, 2), "a")), ["images must be numbers"]),
    "infinite images": (saved(codes=CODES, images=np.full((240, 2), np.inf)), ["images must be finite"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_arrays_are_refused_in_one_message_before_anything_is_scored(disentune, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(arrays_module, "scores_of_arrays", None)
    save, texts = WRONG[kind]
    save(tmp_path / "wrong.npz")
    code, out, err = disentune("score", "wrong.npz")
    assert (code, out) == (2, "")
    assert err.startswith("wrong.npz")
    assert "Traceback" not in err
    for text in texts:
        assert text in err


def test_a_single_array_is_refused_with_how_to_save_it(disentune, tmp_path):
    np.save(tmp_path / "codes.npy", CODES)
    code, out, err = disentune("score", "codes.npy")
    assert (code, out) == (2, "")
    assert 'save arrays with np.savez("codes.npz", codes=codes, factors=factors)' in err


def test_objects_in_an_array_that_is_not_needed_are_not_loaded_either(disentune, tmp_path):
    class Trap:
        def __reduce__(self):
            return (pytest.fail, ("unpickled",))

    np.savez(tmp_path / "trap.npz", codes=CODES, factors=np.array([Trap()], dtype=object))
    assert disentune("score", "trap.npz", "--metrics", "hoyer")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--metrics", "migg"], "unknown metric 'migg'. Did you mean 'mig'?"),
        (["--metrics", "udr"], "udr compares trained models: give a run instead of arrays"),
        (["--metrics", " ,"], "must name a metric"),
        (["--metrics", "mig", "--set", "mig.binz=3"], "unknown key. Did you mean 'bins'?"),
        (["--metrics", "mig", "--set", "mig.bins=few"], "must be a whole number, got 'few'"),
        (["--metrics", "mig", "--set", "mig.bins=1000000"], "--set mig.bins  must be <= 10000, got 1000000"),
        (["--set", "migg.bins=3"], "'migg' is not one of the metrics to score. Did you mean 'mig'?"),
        (["--size", "small"], "small"),
        (["--seed", "-1"], "--seed"),
        (["--by", "seed"], "--by seed: groups the trials of a run"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_scored(disentune, arrays, arguments, text, monkeypatch):
    monkeypatch.setattr(arrays_module, "scores_of_arrays", None)
    code, out, err = disentune("score", arrays, *arguments)
    assert (code, out) == (2, "")
    assert text in err


# ---- runs


def test_trials_are_shown_one_a_line_best_udr_first(disentune, finished):
    before = unchanged(finished.path)
    code, out, _ = disentune("score", "tiny", "--metrics", "udr,mig")
    title, *lines = out.splitlines()
    assert code == 0
    assert title.split() == ["trial_id", "arm", "seed", "step", "spacing", "framework.name", "beta", "udr", "mig"]
    expected = udr_of_run(finished)
    assert [line.split()[0] for line in lines] == expected["trial_id"].tolist()
    assert [float(line.split()[-2]) for line in lines] == pytest.approx(expected["udr"].tolist(), rel=1e-3)
    after = unchanged(finished.path)
    assert after.pop(finished.scores_path)
    assert after == before


def test_a_run_without_names_is_ranked_by_udr(disentune, finished):
    assert disentune("score", finished.path)[1].splitlines()[0].split()[-1] == "udr"


def test_a_run_as_json_has_exactly_its_keys(disentune, finished):
    code, out, err = disentune("score", "tiny", "--metrics", "mig,udr_spearman", "--set", "mig.bins=20", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert list(found) == ["trials", "notes", "size", "params"]
    assert len(found["trials"]) == 12
    for trial in found["trials"]:
        assert list(trial) == ["trial_id", "step", "scores", "details", "notes"]
        row = finished.trial(trial["trial_id"]).rows()[-1]
        assert trial["scores"]["mig"] == row["metrics"]["mig"]
        assert (trial["step"], trial["notes"]) == (12, {})
    ranks = [trial["scores"]["udr_spearman"] for trial in found["trials"]]
    assert ranks == sorted(ranks, reverse=True)
    assert found["params"] == {"mig": METRICS["mig"].params().model_dump()}


def test_by_chooses_the_groups(disentune, finished):
    code, out, _ = disentune("score", "tiny/main", "--by", "dataset.spacing", "--json")
    expected = udr_of_run(finished, by=["dataset.spacing"]).set_index("trial_id")["udr"]
    assert code == 0
    assert {trial["trial_id"]: trial["scores"]["udr"] for trial in json.loads(out)["trials"]} == expected.to_dict()


def test_by_all_compares_all(disentune, finished):
    code, _, err = disentune("score", "tiny", "--by", "all")
    assert code == 2
    assert "add --by dataset.spacing" in err
    for folder in finished.trials():
        if folder.tree()["dataset"]["spacing"] == 2:
            shutil.rmtree(folder.path)
    code, out, _ = disentune("score", "tiny", "--by", "all", "--json")
    expected = udr_of_run(finished, by=[]).set_index("trial_id")["udr"]
    assert {trial["trial_id"]: trial["scores"]["udr"] for trial in json.loads(out)["trials"]} == expected.to_dict()


def test_what_is_left_out_is_reported(disentune, finished):
    lost, *_, failed = sorted(finished.trials(), key=lambda folder: folder.tree()["framework"]["beta"])
    shutil.rmtree(lost.checkpoints.folder)
    failed.update_status(state="failed")
    code, out, _ = disentune("score", "tiny")
    assert code == 0
    assert "note: 1 of 12 trials are left out because they have not finished" in out
    assert f"note: {lost.id} is left out" in out
    assert "no other trial is in the same group; choose larger groups with --by" in out
    assert len(json.loads(disentune("score", "tiny", "--json")[1])["notes"]) == 3


def test_no_udr_at_all_gives_1_and_says_why(disentune, finished):
    for folder in finished.trials():
        if folder.tree()["seed"] == 1:
            shutil.rmtree(folder.path)
    code, out, _ = disentune("score", "tiny", "--metrics", "udr,mig")
    assert code == 1
    assert "note: no udr for" in out
    assert out.splitlines()[0].split()[-1] == "mig"


def test_a_metric_that_fails_in_a_run_gives_1_and_its_reason(disentune, finished, few_metrics):
    code, out, _ = disentune("score", "tiny", "--metrics", "mig,refusing")
    assert code == 1
    assert out.splitlines()[0].split()[-1] == "mig"
    assert f"note: {finished.trials()[0].id}, refusing: there is nothing to tell" in out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nothing"], "no run 'nothing'"),
        (["tiny", "--metrics", "urd"], "unknown metric 'urd'. Did you mean 'udr'?"),
        (["tiny", "--metrics", "udr", "--by", "framework.bet"], "Did you mean 'framework.beta'?"),
        (["tiny", "--metrics", "mig", "--by", "seed"], "--by seed: only used by udr"),
        (["tiny", "--seed", "3"], "--seed 3: a run's trials are scored with their own seeds"),
        (["tiny", "--metrics", "mig", "--set", "mig.binz=2"], "Did you mean 'bins'?"),
        (["tiny", "--metrics", "mig", "--set", "mig.bins=1000000"], "--set mig.bins  must be <= 10000, got 1000000"),
    ],
)
def test_wrong_arguments_for_a_run_are_refused_before_a_trial_is_read(
    disentune, finished, arguments, text, monkeypatch
):
    monkeypatch.setattr(rescore, "rebuilt", None)
    code, out, err = disentune("score", *arguments)
    assert (code, out) == (2, "")
    assert text in err


def test_help_has_examples(disentune):
    code, out, _ = disentune("score", "--help")
    assert code == 0
    assert "disentune score codes.npz --metrics mig,dci" in out


# ---- kept in the run


@pytest.mark.slow
def test_scores_of_a_run_are_kept_with_what_they_were_computed_from(disentune, finished):
    code, out, _ = disentune("score", "tiny", "--metrics", "udr,sap")
    assert code == 0, out
    entries = json.loads(finished.scores_path.read_text())["metrics"]
    assert set(entries) == {"udr", "sap"}
    assert entries["udr"]["groups"]
    for entry in entries.values():
        assert {"params", "seed", "code", "time", "trials"} <= entry.keys()
        assert all(len(trial["checkpoint"]) == 64 for trial in entry["trials"].values())
    _, out, _ = disentune("results", "tiny", "--metric", "udr")
    assert out.startswith("udr, last value of each trial, step 12")
    _, out, _ = disentune("results", "tiny", "--json")
    expected = udr_of_run(finished).set_index("trial_id")["udr"].to_dict()
    assert {trial["trial_id"]: trial["metrics"]["udr"] for trial in json.loads(out)} == expected
