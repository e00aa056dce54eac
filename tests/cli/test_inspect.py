"""`disentune inspect` as a person and as a program meets it."""

import json

import numpy as np
import pytest

from disentune.learn.image_distances import look, opened
from disentune.results.inspection import world_asked
from disentune.runs.ledger import Run
from disentune.spec.space import read
from simulator import simulate, sweep_file

SMALL = ["--set", "image_size=12", "--set", "square_size=3", "--lines", "4"]


def refused(disentune, *arguments: str) -> str:
    code, _, complaint = disentune("inspect", *arguments)
    assert code == 2
    assert "Traceback" not in complaint
    return complaint.strip()


def test_the_json_of_a_data_set_has_every_factor_and_random_pairs(disentune):
    code, said, _ = disentune("inspect", "--dataset", "xysquares", "--recon", "mse", *SMALL, "--json")
    found = json.loads(said)
    assert code == 0
    assert list(found["factors"]) == ["x_R", "y_R", "x_G", "y_G", "x_B", "y_B"]
    expected = look(opened(world_asked("xysquares", "mse", ["image_size=12", "square_size=3"]).config), count=4)
    along = expected.factors["y_G"].agreement
    assert found["factors"]["y_G"] == {**along.numbers(), "order": 0.0, "line_order": 0.0, "values": 4}
    assert found["random"] == expected.anywhere.numbers()
    assert (found["order"], found["line_order"]) == (0.0, 0.0)
    assert (found["grade"]["word"], found["recon"]["name"]) == ("low", "mse")


@pytest.mark.slow
def test_json_draws_nothing_unless_a_folder_is_named(disentune, tmp_path):
    disentune("inspect", "--dataset", "xysquares", *SMALL, "--json")
    assert list(tmp_path.iterdir()) == []
    disentune("inspect", "--dataset", "xysquares", *SMALL, "--json", "--output", "drawn")
    names = {path.name for path in (tmp_path / "drawn").iterdir()}
    assert names == {f"{name}.{end}" for name in ("distances", "distributions", "traversals") for end in ("png", "svg")}


def test_a_person_sees_the_grade_the_reason_and_where_the_figures_are(disentune, tmp_path):
    code, said, _ = disentune("inspect", "--dataset", "xysquares", *SMALL)
    assert code == 0
    assert "xysquares, mse: low order (0.00)" in said
    assert "x_R, y_R, x_G, y_G, x_B, y_B: all pairs of values are equally far apart under this loss" in said
    assert "random pairs" in said
    assert "figure: inspect/xysquares-mse/distances.png" in said
    assert (tmp_path / "inspect/xysquares-mse/distances.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_lines_of_different_scale_have_a_low_order_but_a_line_order_of_one(disentune):
    sets = [f"--set={key}" for key in ("image_size=32", "square_size=15", "scales=1", "spacing=1", "grid_size=8")]
    _, said, _ = disentune("inspect", "--dataset", "xy_object", "--recon", "mse", *sets, "--json")
    found = json.loads(said)
    assert found["order"] < 0.25
    assert [found["factors"][name]["line_order"] for name in "xy"] == pytest.approx([1.0, 1.0])
    _, said, _ = disentune("inspect", "--dataset", "xy_object", "--recon", "mse", *sets)
    assert "x, y: single lines have a higher order on average (see line order)" in said


@pytest.mark.slow
def test_the_order_is_called_a_ranking_and_promises_no_outcome(disentune, tmp_path):
    code, said, _ = disentune("inspect", sweep_file(tmp_path))
    words = " ".join(said.split())
    assert code == 0
    assert "order is a ranking, not a verdict" in words
    assert "0.60 on 25 worlds not used to define it (95 % interval 0.25 to 0.85; an independent review)" in words
    assert not [claim for claim in ("predict", "fail", "cannot", "told apart") if claim in words]


def test_the_help_states_what_order_is(disentune):
    _, said, _ = disentune("inspect", "--help")
    words = " ".join(said.replace("│", " ").split())
    assert "over the pairs of all lines pooled" in words
    assert "lines of different scale give less" in words
    assert "not a verdict" in words
    assert "predicted" not in words


@pytest.mark.slow
def test_a_sweep_is_inspected_world_by_world_with_its_arms(disentune, tmp_path):
    path = sweep_file(tmp_path)
    code, said, _ = disentune("inspect", path, "--lines", "2", "--json")
    worlds = json.loads(said)["worlds"]
    assert code == 0
    assert [(world["dataset"]["spacing"], world["arms"]) for world in worlds] == [(1, ["near"]), (2, ["far"])]
    code, said, _ = disentune("inspect", path, "--lines", "2")
    assert "near: xysquares, spacing 1, mse: " in said
    assert "random spearman" in said


def test_ranked_worlds_come_with_the_best_order_first(disentune, tmp_path):
    path = sweep_file(tmp_path)
    text = path.read_text().replace("dataset.spacing: 1", "dataset.spacing: {grid: [2, 1]}")
    path.write_text(text)
    _, plain, _ = disentune("inspect", path, "--lines", "2", "--json")
    _, ranked, _ = disentune("inspect", path, "--lines", "2", "--json", "--rank")
    before, after = ([world["order"] for world in json.loads(said)["worlds"]] for said in (plain, ranked))
    assert before != sorted(before, reverse=True)
    assert after == sorted(before, reverse=True)


def test_exact_takes_every_line(disentune):
    arguments = ["--dataset", "xysquares", "--recon", "overlap", *SMALL[:4], "--set", "squares=1", "--json"]
    _, first, _ = disentune("inspect", *arguments, "--exact", "--seed", "1")
    _, again, _ = disentune("inspect", *arguments, "--exact", "--seed", "2")
    assert json.loads(first)["factors"] == json.loads(again)["factors"]


def test_a_users_own_file_is_inspected(disentune, tmp_path, monkeypatch):
    """A stand-in for the public data sets: images in a file, prepared into one array."""
    monkeypatch.setenv("DISENTUNE_DATA", str(tmp_path / "data"))
    ramp = np.arange(5, dtype=np.uint8)[:, None] * 40 + np.zeros((1, 3), np.uint8)
    images = np.broadcast_to(ramp.reshape(15, 1, 1), (15, 8, 8)).copy()
    images[:, 0, 0] = np.tile([0, 100, 200], 5)
    np.savez(tmp_path / "own.npz", images=images.reshape(5, 3, 8, 8, 1))
    sets = ["--set", f"path={tmp_path / 'own.npz'}", "--set", "factor_names=[level, corner]",
            "--set", "factor_sizes=[5, 3]", "--set", "image_shape=[1, 8, 8]"]  # fmt: skip
    prepared = disentune("data", "prepare", "grid_file", *sets)
    assert prepared[0] == 0, prepared
    code, said, complaint = disentune("inspect", "--dataset", "grid_file", *sets, "--exact", "--json")
    assert code == 0, complaint
    found = json.loads(said)["factors"]
    assert found["level"]["spearman"] == pytest.approx(1.0)
    squares = [(40 * k / 255) ** 2 * 63 / 64 for k in (1, 1, 1, 1, 2, 2, 2, 3, 3, 4)]
    assert found["level"]["mean_distance"] == pytest.approx(np.mean(squares), rel=1e-6)
    assert "not prepared here: " in refused(disentune, "--dataset", "dsprites")


@pytest.mark.slow
def test_a_trained_trial_shows_each_level(disentune, tmp_path):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path), np.random.default_rng(0))
    trial = run.trials()[0]
    code, said, complaint = disentune("inspect", trial.path, "--lines", "3", "--json")
    assert code == 0, complaint
    levels = json.loads(said)["levels"]
    assert {row["level"] for row in levels} == {"x", "z", "kl", "x_recon"}
    assert len(levels) == 4 * len({row["factor"] for row in levels})
    code, said, _ = disentune("inspect", trial.path, "--lines", "3")
    assert f"figure: inspect/{trial.id}/learnt_distances.png" in said
    assert "--set beta=1: a trained trial cannot be changed" in refused(disentune, trial.path, "--set", "beta=1")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give a sweep file, a trial's folder, or a data set"),
        (["x.yaml", "--dataset", "xysquares"], "give a sweep file, a trial's folder, or a data set"),
        (["--dataset", "xysquares", "--exact", "--lines", "3"], "--lines 3: cannot be combined with --exact"),
        (["x.yaml", "--recon", "mse"], "--recon mse: only with --dataset"),
        (["missing.yaml"], "missing.yaml"),
        (["--dataset", "../etc"], "unknown data set '../etc'"),
    ],
)
def test_wrong_input_is_one_message(disentune, arguments, text):
    assert text in refused(disentune, *arguments)


# ---- a learned kernel

KERNEL = [
    "--dataset", "xysquares", "--recon", "overlap", "--learn-kernel", "kernel.yaml", "--lines", "2",
    "--set", "image_size=12", "--set", "square_size=2", "--set", "spacing=2", "--set", "grid_size=4",
]  # fmt: skip


@pytest.mark.slow
def test_a_learned_kernel_is_a_search_space_that_a_sweep_can_use(disentune, tmp_path):
    code, said, _ = disentune("inspect", *KERNEL, "--json")
    found = json.loads(said)
    assert code == 0
    assert found["order"] > found["order_of_the_box"]
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "kernel.yaml").rename(tmp_path / "search_spaces" / "kernel.yaml")
    path = sweep_file(tmp_path)
    arm = "learned: {search_space: kernel, framework: {name: beta_vae, beta: 1}}"
    path.write_text(f"{path.read_text().split('arms:')[0]}arms: {{{arm}}}\nseeds: 1\n")
    params = next(config.recon.params for _, config in read(path).unseeded)
    assert (params.kernel, params.taps) == ("learned", found["taps"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sweep.yaml", "--learn-kernel", "k.yaml"], "needs --dataset NAME instead of a sweep"),
        ([*KERNEL[:6], "--exact"], "choose the number of lines with --lines"),
        (["--dataset", "xysquares", "--recon", "mse", *KERNEL[4:6]], "only the overlap loss has a kernel to learn"),
        ([*KERNEL[:6], "--set", "loss=bce"], "for squared error only: mse or normal"),
        ([*KERNEL, "--set", "grid_size=2"], "no kernel can be learned"),
    ],
)
def test_a_kernel_that_cannot_be_learned_is_refused(disentune, tmp_path, arguments, expected):
    assert expected in refused(disentune, *arguments)
    assert not (tmp_path / "kernel.yaml").exists()


def test_a_kernel_replaces_no_file(disentune, tmp_path):
    (tmp_path / "kernel.yaml").write_text("mine")
    assert "exists already" in refused(disentune, *KERNEL)
    assert (tmp_path / "kernel.yaml").read_text() == "mine"
