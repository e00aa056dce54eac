import numpy as np
import pytest
from matplotlib.image import imread

from disentune.report import canvas
from disentune.report.canvas import words
from disentune.report.design import Layout
from disentune.report.scores import RunScores
from disentune.report.summary import KIND, _apart, layout_of, summary_figure
from disentune.results.tables import read
from disentune.spec.figures import Summary
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


def layout(results):
    scores = RunScores(results, OBJECTIVE)
    return layout_of(scores, scores.scored_design(None))


def drawn(results):
    figure = canvas.figure()
    with canvas.style():
        caption = KIND.draw(figure, RunScores(results, OBJECTIVE), Summary())
        figure.draw_without_rendering()
    return figure, caption


def test_arms_are_places_in_the_order_of_the_file_and_frameworks_have_colours(arms):
    assert layout(arms) == Layout("arm", ("framework.name",))
    figure, caption = drawn(arms)
    assert [tick.get_text() for tick in figure.axes[0].get_xticklabels()] == ["overlapping", "adversarial", "rescued"]
    assert "Arms also differ in spacing and recon.name." in caption.text


def test_bars_are_the_means_of_replicates_with_their_number_below(arms):
    figure, _ = drawn(arms)
    trials = arms.trials
    expected = trials.groupby(["arm", "framework.name"])["mig"].mean()
    assert sorted(bar.get_height() for bar in figure.axes[0].patches) == pytest.approx(sorted(expected))
    assert [text.get_text() for text in figure.axes[0].texts if text.get_text() == "3"] == ["3"] * 6


@pytest.mark.parametrize(("seeds", "left"), [(1, "Lines connect single trials."), (2, "Lines connect means;")])
def test_single_trials_are_not_called_means(make_run, seeds, left):
    maker = make_run()
    for beta in (0.1, 1.0, 10.0):
        for seed in range(seeds):
            maker.trial(curve(beta / 10), framework__beta=beta, seed=seed)
    figure = canvas.figure()
    with canvas.style():
        caption = KIND.draw(figure, RunScores(read(maker.run), OBJECTIVE), Summary())
    told = [caption.text, *(axes.get_title(loc="left") for axes in figure.axes)]
    assert left in caption.text
    assert ["mean" in text for text in told] == [seeds > 1] * 3


def test_the_one_number_that_varies_is_the_place(betas):
    assert layout(betas) == Layout("framework.beta")


def test_a_single_arm_shows_its_swept_keys(make_run):
    maker = make_run()
    for beta in (1.0, 4.0, 16.0):
        for latents in (3, 6):
            for seed in range(3):
                maker.trial(curve(beta + latents + seed), framework__beta=beta, model__latents=latents, seed=seed)
    results = read(maker.run)
    assert layout(results) == Layout("framework.beta", ("model.latents",))
    figure, _ = drawn(results)
    assert figure.axes[0].get_xscale() == "log"
    heights = [bar[0].get_ydata().tolist() for bar in figure.axes[0].containers]
    assert heights == [pytest.approx([beta + latents + 1 for beta in (1, 4, 16)]) for latents in (3, 6)]


def test_arms_have_colours_when_a_number_is_the_place(make_run):
    maker = make_run()
    maker.sweep(["plain", "wide"])
    for arm, width in (("plain", 128), ("wide", 256)):
        for beta in (1, 2):
            maker.trial(curve(0.1), [arm], model__width=width, framework__beta=beta)
    assert layout(read(maker.run)) == Layout("framework.beta", ("arm",))


def test_points_of_a_random_search_are_ranked_best_first(make_run):
    maker, rng = make_run(), np.random.default_rng(0)
    values = rng.uniform(size=30)
    for value in values:
        maker.trial(curve(value), framework__beta=rng.uniform(), training__learning_rate=rng.uniform() / 100)
    results = read(maker.run)
    assert layout(results) is None
    figure, caption = drawn(results)
    means = [line.get_xdata()[0] for line in figure.axes[0].lines if line.get_marker() == "None"]
    assert means == pytest.approx(sorted(values, reverse=True)[:20])
    assert "the 20 best of 30 groups" in caption.text


@pytest.mark.parametrize("rows", [[], [{"step": 1, "loss": 1.0}], [{"step": 1, "mig": float("nan")}]])
def test_a_sweep_without_a_number_yet_still_has_a_picture_with_less_in_it(rows, betas, make_run, tmp_path):
    maker = make_run("early")
    maker.trial(rows, status="running")
    summary_figure(read(maker.run), OBJECTIVE, tmp_path / "early.png")
    summary_figure(betas, OBJECTIVE, tmp_path / "full.png")
    assert 0 < shade_of_ink(tmp_path / "early.png") < shade_of_ink(tmp_path / "full.png")


def test_keys_are_named_as_in_tables_and_metrics_for_readers():
    assert words("mig") == "MIG"
    assert words("dci_disentanglement") == "DCI disentanglement"
    assert words("training.learning_rate") == "learning_rate"
    assert words("framework.name") == "framework.name"
    assert words("framework.prior.nu") == "prior.nu"


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


def test_the_mean_of_a_course_ends_where_the_first_trial_of_its_group_ends(make_run):
    maker = make_run()
    maker.trial(curve(0.5), seed=0)
    maker.trial(curve(0.7)[:1], status="running", seed=1)
    figure, _ = drawn(read(maker.run))
    thick = [line for line in figure.axes[1].lines if line.get_linewidth() == 2]
    first = curve(0.5)[0]["step"]
    assert [line.get_xdata().tolist() for line in thick] == [[first]]
    assert max(line.get_xdata()[-1] for line in figure.axes[1].lines) == curve(0.5)[-1]["step"]


def test_trials_with_one_evaluation_have_no_development(make_run):
    maker = make_run()
    for beta in (1.0, 2.0):
        maker.trial([{"step": 300, "loss": 1.0, "mig": beta}], framework__beta=beta)
    figure, caption = drawn(read(maker.run))
    assert len(figure.axes) == 1
    assert caption.title == "MIG of every group"
    assert "Left" not in caption.text
    assert "Right" not in caption.text


@pytest.mark.parametrize(("latents", "told"), [((3, 6), False), ((3, 4, 5, 6), True)])
def test_many_lines_of_one_colour_are_explained_where_there_is_no_room_for_names(make_run, latents, told):
    maker = make_run()
    for beta in (1.0, 4.0, 16.0, 64.0):
        for number in latents:
            maker.trial(curve(beta + number), framework__beta=beta, model__latents=number)
    figure, caption = drawn(read(maker.run))
    names = [text.get_text() for text in figure.axes[1].texts]
    assert bool(names) != told
    assert ("The stronger a colour, the larger latents." in caption.text) == told
