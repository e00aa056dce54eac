import numpy as np
import pytest
from matplotlib.image import imread

from disentune.report.canvas import words
from disentune.report.summary import Look, _apart, summary_figure
from disentune.results.tables import read
from disentune.spec.settings import Objective

OBJECTIVE = Objective(metric="mig", mode="max")


def curve(final):
    return [{"step": step, "loss": 1.0, "loss_sum": 3.0, "mig": final * step / 1500} for step in range(300, 1501, 300)]


@pytest.fixture
def arms(make_run):
    """Three arms, two frameworks, three seeds, as in the quick start."""
    maker = make_run()
    maker.sweep(["overlapping", "adversarial", "rescued"], question="Does overlap decide, at 3 $ or 4 $?")
    overlap = {"recon__name": "overlap", "recon__radius": 11, "recon__alpha": 529.0}
    for arm, changes in {"overlapping": {"dataset__spacing": 1}, "adversarial": {}, "rescued": overlap}.items():
        for framework in ("ada_gvae", "beta_vae"):
            for seed in range(3):
                maker.trial(curve(0.1 * seed), [arm], framework__name=framework, seed=seed, **changes)
    return read(maker.run)


@pytest.fixture
def betas(make_run):
    """One arm, four betas, two seeds."""
    maker = make_run()
    for beta in (0.001, 0.01, 0.1, 1.0):
        for seed in range(2):
            maker.trial(curve(beta + seed), framework__beta=beta, seed=seed)
    return read(maker.run)


def shade_of_ink(path):
    return 1 - imread(path)[..., :3].mean()


@pytest.mark.parametrize("at", ["last", "best"])
@pytest.mark.parametrize("sweep", ["arms", "betas"])
def test_the_picture_is_twice_as_wide_as_high(sweep, at, request, tmp_path):
    results = request.getfixturevalue(sweep)
    summary_figure(results, OBJECTIVE.model_copy(update={"at": at}), tmp_path / "a.png")
    assert imread(tmp_path / "a.png").shape[:2] == (900, 1800)


def test_arms_are_places_in_the_order_of_the_file_and_frameworks_have_colours(arms):
    look = Look(arms, OBJECTIVE)
    assert look.position_key is None
    assert look.arms == ["overlapping", "adversarial", "rescued"]
    assert list(look.colours) == ["ada_gvae", "beta_vae"]
    assert len(set(look.colours.values())) == 2


def test_the_one_number_that_varies_is_the_place(betas):
    look = Look(betas, OBJECTIVE)
    assert look.position_key == "framework.beta"
    assert list(look.colours) == [""]


def test_two_numbers_that_vary_leave_arms_as_places(make_run):
    maker = make_run()
    for number in (1, 2):
        maker.trial(curve(0.1), framework__beta=number, training__learning_rate=0.001 * number)
    assert Look(read(maker.run), OBJECTIVE).position_key is None


def test_arms_have_colours_when_a_number_is_the_place(make_run):
    maker = make_run()
    maker.sweep(["plain", "wide"])
    for arm, width in (("plain", 128), ("wide", 256)):
        for beta in (1, 2):
            maker.trial(curve(0.1), [arm], model__width=width, framework__beta=beta)
    assert list(Look(read(maker.run), OBJECTIVE).colours) == ["plain", "wide"]


def test_the_value_at_best_is_the_extreme_over_all_steps(make_run):
    maker = make_run()
    maker.trial([{"step": 1, "mig": 0.9}, {"step": 2, "mig": 0.2}, {"step": 3, "mig": 0.4}])
    results = read(maker.run)
    found = {(mode, at): Look(results, Objective(metric="mig", mode=mode, at=at)).trials["value"].item()
             for mode in ("max", "min") for at in ("last", "best")}  # fmt: skip
    assert found == {("max", "last"): 0.4, ("max", "best"): 0.9, ("min", "last"): 0.4, ("min", "best"): 0.2}


@pytest.mark.parametrize("rows", [[], [{"step": 1, "loss": 1.0}], [{"step": 1, "mig": float("nan")}]])
def test_a_sweep_without_a_number_yet_still_has_a_picture_with_less_in_it(rows, betas, make_run, tmp_path):
    maker = make_run("early")
    maker.trial(rows, status="running")
    summary_figure(read(maker.run), OBJECTIVE, tmp_path / "early.png")
    summary_figure(betas, OBJECTIVE, tmp_path / "full.png")
    assert 0 < shade_of_ink(tmp_path / "early.png") < shade_of_ink(tmp_path / "full.png")


def test_keys_are_worded_for_readers():
    assert words("mig") == "MIG"
    assert words("dci_disentanglement") == "DCI disentanglement"
    assert words("training.learning_rate") == "learning rate"
    assert words("framework.name") == "framework"


def test_labels_that_collide_move_apart_evenly_and_the_others_stay():
    # 1.0 and 1.1 must be 0.5 apart: each moves by 0.2 about their middle, 1.05
    assert _apart([1.0, 1.1, 3.0], 0.5, 0, 10) == pytest.approx([0.8, 1.3, 3.0])


def test_labels_stay_inside_the_panel():
    placed = _apart([0.0, 0.0, 0.0, 9.9, 10.0], 1.0, 0, 10)
    assert placed.min() >= 0
    assert placed.max() <= 10
    assert np.diff(placed).min() >= 1.0 - 1e-12  # rounding of sums


def test_a_run_without_trials_has_a_picture_in_a_new_folder(make_run, tmp_path):
    summary_figure(read(make_run().run), OBJECTIVE, tmp_path / "new" / "empty.png")
    assert 0 < shade_of_ink(tmp_path / "new" / "empty.png") < 0.1
