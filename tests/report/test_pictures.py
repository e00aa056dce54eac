"""The best and the worst trial are shown with their own pictures, and what is missing is said."""

import time
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from disentune.learn.pictures import GAP, Pictures, mosaic, to_bytes
from disentune.learn.plane import SIDE as PLANE_SIDE
from disentune.learn.plane import Plane, aggregate_density
from disentune.report import canvas
from disentune.report.pictures import KIND, SIDE
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec import figures
from disentune.spec.settings import Objective
from run_examples import quick_trial

MIG = Objective(metric="mig", mode="max")


def made_up(seed, channels=3, latents=2, factors=("x_R", "camera height"), images=3, size=8):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (2, images, size, size, channels), dtype=np.uint8)
    return Pictures(
        originals=pixels[0],
        reconstructions=pixels[1],
        traversals=rng.integers(0, 256, (latents if images else 0, 8, size, size, channels), dtype=np.uint8),
        latents=rng.permutation(latents),
        kl=rng.uniform(0, 5, latents).astype(np.float32),
        spans=np.zeros((latents, 2), np.float32),
        distances={name: rng.uniform(size=(5, 3 + i, 3 + i)).astype(np.float32) for i, name in enumerate(factors)},
    )


def scores_of(maker, objective=MIG):
    return RunScores(read(maker.run), objective)


def drawing(scores, finish=Figure.draw_without_rendering, **spec):
    with canvas.style():
        figure = canvas.figure()
        caption = KIND.draw(figure, scores, figures.PicturesFigure(**spec))
        finish(figure)
    return figure, caption


def save(figure):
    assert canvas.png(figure).startswith(b"\x89PNG")
    assert canvas.svg(figure).startswith("<svg")


def texts(figure):
    return [text.get_text() for text in figure.texts]


def mosaics(figure):
    """Reconstructions and traversals of each trial, as drawn."""
    return [axes.images[0].get_array() for axes in figure.axes if len(axes.images) == 1]


@pytest.fixture
def run_of_three(make_run):
    """Scores 0.2, 0.9 and 0.5, of betas 1, 2 and 3, with pictures of seeds 1, 2 and 3."""
    maker = make_run()
    maker.ids = []
    for beta, mig in ((1.0, 0.2), (2.0, 0.9), (3.0, 0.5)):
        trial = maker.trial([{"step": 300, "mig": mig / 2}, {"step": 600, "mig": mig}], framework__beta=beta)
        maker.run.trial(trial).write_pictures(300, to_bytes(made_up(10 * int(beta))))
        maker.run.trial(trial).write_pictures(600, to_bytes(made_up(int(beta))))
        maker.ids.append(trial)
    return maker


# ---- which trials


def test_the_best_and_the_worst_trial_are_shown_with_their_last_pictures(run_of_three):
    figure, caption = drawing(scores_of(run_of_three))
    best, worst = made_up(2), made_up(1)
    shown = [np.stack([best.originals, best.reconstructions]), best.traversals,
             np.stack([worst.originals, worst.reconstructions]), worst.traversals]  # fmt: skip
    found = mosaics(figure)
    assert len(found) == 4
    for array, images in zip(found, shown, strict=True):
        np.testing.assert_array_equal(array, mosaic(images, SIDE))
    assert caption.title == "Pictures of the best and the worst trial"


def test_a_small_loss_is_the_best(run_of_three):
    for trial, loss in zip(run_of_three.ids, (5.0, 6.0, 7.0), strict=True):
        run_of_three.run.trial(trial).append_row({"step": 900, "metrics": {"loss": loss, "loss_sum": 1.0}})
    figure, _ = drawing(scores_of(run_of_three, Objective(metric="loss", mode="min")))
    assert [text for text in texts(figure) if text.startswith(("Best", "Worst"))] == [
        "Best trial: loss 5 (lower is better)",
        "Worst trial: loss 7 (lower is better)",
    ]


def test_a_trial_that_was_stopped_early_is_not_the_worst_of_those_that_ended(run_of_three):
    folder = run_of_three.run.trial(run_of_three.ids[0])
    folder.set_status(replace(folder.status(), state="stopped", cause="scheduler.asha"))
    figure, _ = drawing(scores_of(run_of_three))
    assert "Worst trial: MIG 0.5 (higher is better)" in texts(figure)


@pytest.mark.parametrize(("trial", "seed"), [("best", 2), ("worst", 1)])
def test_one_of_them_can_be_asked_for(run_of_three, trial, seed):
    figure, caption = drawing(scores_of(run_of_three), trial=trial)
    assert caption.title == f"Pictures of the {trial} trial"
    np.testing.assert_array_equal(mosaics(figure)[1], mosaic(made_up(seed).traversals, SIDE))
    assert len(mosaics(figure)) == 2


def test_titles_tell_the_trial_its_score_and_what_it_varies(run_of_three):
    figure, _ = drawing(scores_of(run_of_three))
    found = texts(figure)
    assert "Best trial: MIG 0.9 (higher is better)" in found
    assert f"{run_of_three.ids[1]} · beta 2 · seed 0 · step 600" in found
    assert "Worst trial: MIG 0.2 (higher is better)" in found
    assert f"{run_of_three.ids[0]} · beta 1 · seed 0 · step 600" in found


def test_arms_are_named_where_there_are_several(make_run):
    maker = make_run()
    maker.sweep(["one", "two"])
    for arm, mig in (("one", 0.1), ("two", 0.2)):
        trial = maker.trial([{"step": 300, "mig": mig}], arms=(arm,), seed=int(10 * mig))
        maker.run.trial(trial).write_pictures(300, to_bytes(made_up(0)))
    figure, _ = drawing(scores_of(maker))
    assert f"{trial} · arm two · seed 2 · step 300" in texts(figure)


def test_a_trial_judged_by_its_best_step_shows_that_step(run_of_three):
    folder = run_of_three.run.trial(run_of_three.ids[1])
    folder.append_row({"step": 900, "metrics": {"mig": 0.1}})
    folder.write_pictures(900, to_bytes(made_up(99)))
    figure, _ = drawing(scores_of(run_of_three, Objective(metric="mig", mode="max", at="best")), trial="best")
    np.testing.assert_array_equal(mosaics(figure)[1], mosaic(made_up(2).traversals, SIDE))
    figure, _ = drawing(scores_of(run_of_three), trial="worst")
    np.testing.assert_array_equal(mosaics(figure)[1], mosaic(made_up(99).traversals, SIDE))


@pytest.mark.parametrize(("at", "step"), [("best", 300), ("last", 600)])
def test_of_equal_scores_the_best_is_the_first_and_the_last_is_the_last(make_run, at, step):
    maker = make_run()
    trial = maker.trial([{"step": 300, "mig": 0.5}, {"step": 600, "mig": 0.5}])
    for drawn in (300, 600):
        maker.run.trial(trial).write_pictures(drawn, to_bytes(made_up(drawn)))
    figure, _ = drawing(scores_of(maker, Objective(metric="mig", mode="max", at=at)))
    assert texts(figure)[1].endswith(f"step {step}")


def test_pictures_of_a_later_step_than_the_score_serve_where_there_are_no_others(make_run):
    maker = make_run()
    trial = maker.trial([{"step": 300, "mig": 0.5}])
    maker.run.trial(trial).write_pictures(600, to_bytes(made_up(5)))
    figure, _ = drawing(scores_of(maker))
    assert texts(figure)[1].endswith("step 600")


def test_only_finished_trials_are_shown(run_of_three):
    for status, mig, beta in (
        ("running", 0.99, 4.0),
        ("failed", 0.98, 5.0),
        ("diverged", 0.01, 6.0),
        ("pending", 0, 7.0),
    ):
        trial = run_of_three.trial([{"step": 600, "mig": mig}], status=status, framework__beta=beta)
        run_of_three.run.trial(trial).write_pictures(600, to_bytes(made_up(50)))
    figure, _ = drawing(scores_of(run_of_three))
    np.testing.assert_array_equal(mosaics(figure)[1], mosaic(made_up(2).traversals, SIDE))
    np.testing.assert_array_equal(mosaics(figure)[3], mosaic(made_up(1).traversals, SIDE))


@pytest.mark.parametrize("trial", ["best", "worst", "both"])
def test_a_single_trial_is_shown_once(make_run, trial):
    maker = make_run()
    only = maker.trial([{"step": 300, "mig": 0.5}])
    maker.run.trial(only).write_pictures(300, to_bytes(made_up(7)))
    scores = scores_of(maker)
    assert KIND.choose(scores) == [figures.PicturesFigure()]
    figure, caption = drawing(scores, trial=trial)
    assert len(mosaics(figure)) == 2
    assert caption.title == "Pictures of the only trial"


# ---- what is drawn


def test_each_matrix_is_drawn_in_its_place_and_in_its_own_scale(run_of_three):
    figure, _ = drawing(scores_of(run_of_three), trial="best")
    axes = next(axes for axes in figure.axes if len(axes.images) == 10)
    made = made_up(2)
    for row, stack in enumerate(made.distances.values()):
        for column, matrix in enumerate(stack):
            inside = [image for image in axes.images if _holds(image.get_extent(), column + 0.5, row + 0.5)]
            assert len(inside) == 1
            np.testing.assert_array_equal(inside[0].get_array(), matrix)
            assert inside[0].get_clim() == (matrix.min(), matrix.max())
            left, right, bottom, top = inside[0].get_extent()
            assert left < right
            assert top < bottom, "the first value is at the top, as the axis runs down"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["factor", "x", "z", "KL", "x recon"]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["x R", "camera\nheight"]
    assert axes.get_xlim() == (0, 5)
    assert axes.get_ylim() == (2, 0)


def _holds(extent, x, y):
    left, right, bottom, top = extent
    return left < x < right and min(bottom, top) < y < max(bottom, top)


def test_rows_of_traversals_tell_latent_and_kl(run_of_three):
    figure, _ = drawing(scores_of(run_of_three), trial="best")
    images = [axes for axes in figure.axes if len(axes.images) == 1]
    made = made_up(2)
    names = [f"z{latent} ({kl:.2f})" for latent, kl in zip(made.latents, made.kl, strict=True)]
    assert [label.get_text() for label in images[1].get_yticklabels()] == names
    assert [label.get_text() for label in images[0].get_yticklabels()] == ["image", "decoded"]
    height = len(images[1].images[0].get_array())
    np.testing.assert_allclose(images[1].get_yticks(), [SIDE / 2, SIDE + GAP + SIDE / 2])
    assert height == 2 * SIDE + GAP


def test_nothing_overlaps_or_leaves_the_figure(run_of_three):
    for trial in run_of_three.ids[:2]:
        made = made_up(0, latents=10, factors=[f"a long name of factor {i}" for i in range(6)], images=8)
        run_of_three.run.trial(trial).write_pictures(600, to_bytes(made))
    figure, _ = drawing(scores_of(run_of_three))
    boxes = [axes.get_tightbbox() for axes in figure.axes] + [text.get_window_extent() for text in figure.texts]
    width, height = figure.bbox.size
    for number, box in enumerate(boxes):
        assert -1 <= box.x0 <= box.x1 <= width + 1
        assert -1 <= box.y0 <= box.y1 <= height + 1
        for other in boxes[:number]:
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            along = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert min(across, along) < 2, (box, other)


@pytest.mark.parametrize(
    "changes",
    [{"channels": 1}, {"channels": 2}, {"images": 0}, {"factors": ()}, {"images": 0, "factors": ("f",)},
     {"latents": 1, "images": 1}, {"factors": ("$x_1$", "<script>", "形" * 60, "")}, {"size": 64}],
    ids=str,
)  # fmt: skip
def test_pictures_of_every_shape_are_drawn(make_run, changes):
    maker = make_run()
    trial = maker.trial([{"step": 300, "mig": 0.5}])
    maker.run.trial(trial).write_pictures(300, to_bytes(made_up(7, **changes)))
    figure, caption = drawing(scores_of(maker), save)
    assert ("Matrices" in caption.text) == bool(changes.get("factors", True))
    assert ("Left" in caption.text) == (changes.get("images") != 0)
    assert len(mosaics(figure)) == (0 if changes.get("images") == 0 else 2)


def test_matrices_of_equal_or_missing_numbers_are_drawn(make_run):
    maker = make_run()
    trial = maker.trial([{"step": 300, "mig": 0.5}])
    made = made_up(0, factors=("same", "none"))
    made.distances["same"][:] = 3
    made.distances["none"][:] = np.nan
    maker.run.trial(trial).write_pictures(300, to_bytes(made))
    drawing(scores_of(maker), save)


# ---- what is missing


@pytest.mark.parametrize("trials", ["none", "failed", "nan", "running"])
def test_a_run_that_has_nothing_to_show_says_so(make_run, trials):
    maker = make_run()
    if trials != "none":
        status = {"failed": "failed", "nan": "done", "running": "running"}[trials]
        trial = maker.trial([{"step": 300, "mig": float("nan") if trials == "nan" else 0.5}], status=status)
        maker.run.trial(trial).write_pictures(300, to_bytes(made_up(0)))
    scores = scores_of(maker)
    assert KIND.choose(scores) == []
    with pytest.raises(NothingToDraw):
        drawing(scores)


def test_trials_without_pictures_say_how_to_get_them(make_run):
    maker = make_run()
    ids = [maker.trial([{"step": 300, "mig": mig}], seed=int(10 * mig)) for mig in (0.1, 0.2)]
    assert KIND.choose(scores_of(maker)) == []
    with pytest.raises(NothingToDraw, match=r"`pictures: \{when: evaluations\}`") as caught:
        drawing(scores_of(maker))
    assert all(trial in str(caught.value) for trial in ids)


def test_where_one_of_two_has_pictures_it_is_shown_and_the_other_named(run_of_three):
    folder = run_of_three.run.trial(run_of_three.ids[0])
    for path in (folder.path / "pictures").iterdir():
        path.unlink()
    assert KIND.choose(scores_of(run_of_three)) == [figures.PicturesFigure()]
    figure, caption = drawing(scores_of(run_of_three))
    assert len(mosaics(figure)) == 2
    assert caption.title == "Pictures of the best trial"
    assert f"Not shown: trial {run_of_three.ids[0]} was trained without pictures" in caption.text
    with pytest.raises(NothingToDraw, match="trained without pictures"):
        drawing(scores_of(run_of_three), trial="worst")


def test_pictures_that_could_not_be_drawn_give_their_reason_and_where_it_stands(run_of_three):
    folder = run_of_three.run.trial(run_of_three.ids[0])
    for path in (folder.path / "pictures").iterdir():
        path.unlink()
    folder.write_pictures_failure("no pictures at step 300: DataError: too dark\nTraceback ...\n")
    with pytest.raises(NothingToDraw) as caught:
        drawing(scores_of(run_of_three), trial="worst")
    assert str(caught.value) == (
        f"trial {folder.id}: no pictures at step 300: DataError: too dark; see "
        f"trials/{folder.id}/pictures/failed.txt for the full error"
    )


def test_damaged_pictures_are_named(run_of_three):
    run_of_three.run.trial(run_of_three.ids[1]).write_pictures(600, b"PK")
    with pytest.raises(NothingToDraw, match=f"{run_of_three.ids[1]} at step 600 cannot be read.*damaged"):
        drawing(scores_of(run_of_three), trial="best")


def test_another_metric_than_the_objective_can_rank(run_of_three):
    for trial, sap in zip(run_of_three.ids, (0.3, 0.2, 0.1), strict=True):
        run_of_three.run.trial(trial).append_row({"step": 900, "metrics": {"mig": 0.5, "sap": sap}})
    figure, _ = drawing(scores_of(run_of_three), metric="sap", trial="best")
    assert texts(figure)[0] == "Best trial: SAP 0.3 (higher is better)"
    np.testing.assert_array_equal(mosaics(figure)[1], mosaic(made_up(1).traversals, SIDE))


@pytest.mark.slow
def test_a_thousand_trials_are_ranked_quickly(make_run):
    maker = make_run()
    for seed in range(1000):
        trial = quick_trial(maker, [{"step": 300, "mig": seed / 1000}], seed=seed)
    maker.run.trial(trial).write_pictures(300, to_bytes(made_up(3)))
    scores = scores_of(maker)
    scores.results.trials  # noqa: B018 (read once for all figures)
    began = time.process_time()
    assert KIND.choose(scores) == [figures.PicturesFigure()]
    with canvas.style():
        KIND.draw(canvas.figure(), scores, figures.PicturesFigure())
    assert time.process_time() - began < 2


# ---- points


def points_seen(seed):
    rng = np.random.default_rng(seed)
    points, decoded, means = rng.normal(size=(3, 12, 2)).astype(np.float32)
    prior = np.full((PLANE_SIDE, PLANE_SIDE), 0.2, np.float16)
    logvars = np.full_like(means, -2)
    return replace(made_up(seed, channels=2, images=0, size=1), plane=Plane(
        labels=np.arange(12) % 4, points=points, decoded=decoded, means=means, logvars=logvars, prior=prior,
    ))  # fmt: skip


def test_points_are_shown_with_their_codes_and_what_is_decoded(make_run):
    maker = make_run()
    trial = maker.trial([{"step": 300, "mig": 0.5}])
    maker.run.trial(trial).write_pictures(300, to_bytes(points_seen(1)))
    figure, caption = drawing(scores_of(maker))
    seen = points_seen(1).plane
    assert [text for text in texts(figure) if text in ("Data", "Codes", "Decoded")] == ["Data", "Codes", "Decoded"]
    data, codes, decoded = [axes for axes in figure.axes if axes.lines][:3]
    for axes, expected in ((data, seen.points), (codes, seen.means), (decoded, seen.decoded)):
        assert len(axes.lines) == 4  # one for each value of the first factor
        found = np.concatenate([line.get_xydata() for line in axes.lines])
        order = np.argsort(seen.labels, kind="stable")
        np.testing.assert_allclose(found, expected[order])
    np.testing.assert_allclose(codes.images[0].get_array(), aggregate_density(seen))
    assert data.get_xlim() == decoded.get_xlim()
    assert "density of all posteriors" in caption.text


def test_points_of_other_numbers_of_latents_are_shown_without_codes(make_run):
    maker = make_run()
    trial = maker.trial([{"step": 300, "mig": 0.5}])
    seen = points_seen(1)
    none = np.empty((0, 2), np.float32)
    flat = replace(seen.plane, means=none, logvars=none, prior=np.empty((0, 0), np.float16))
    maker.run.trial(trial).write_pictures(300, to_bytes(replace(seen, plane=flat)))
    figure, _ = drawing(scores_of(maker), finish=save)
    assert [text for text in texts(figure) if text in ("Data", "Codes", "Decoded")] == ["Data", "Decoded"]
