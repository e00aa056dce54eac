"""What holds for every kind of figure of the catalogue."""

import itertools
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from conftest import RunMaker
from disentune.learn.pictures import Pictures, to_bytes
from disentune.learn.plane import SIDE, empty
from disentune.report import canvas
from disentune.report.kinds import KINDS
from disentune.report.scores import NothingToDraw, RunScores
from disentune.results.tables import read
from disentune.spec.figures import FIGURES
from disentune.spec.settings import Objective
from run_examples import course, quick_trial, suggested

pytestmark = pytest.mark.parametrize("name", KINDS)
MIG = Objective(metric="mig", mode="max")
BETAS, LATENTS = (1.0, 2.0, 4.0), (3, 6)
NAN, INF = float("nan"), float("inf")
WITHOUT = {
    "nothing": None,
    "no rows": ("pending", []),
    "failed": ("failed", [0.1, 0.5]),
    "running without a number": ("running", [NAN, NAN]),
    "no number": ("done", [NAN, NAN]),
    "an infinite number": ("done", [INF, INF]),
}
"""State and scores of trials that no figure can show."""
REASONS = {
    "correlations": "needs two metrics, but the trials have none",
    "capacity": "no trial has reported kl_per_factor with a capacity yet",
    "learning_order": "no trial has reported factor_information yet",
}
"""What a kind says instead of the usual."""


def codes(rng):
    """Of a model of two latents."""
    means = rng.normal(size=(4, 2)).astype(np.float32)
    prior = np.full((SIDE, SIDE), 0.1, np.float16)
    return replace(empty(), labels=np.arange(4), means=means, logvars=np.zeros_like(means), prior=prior)


def seen(seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (2, 3, 8, 8, 1), dtype=np.uint8)
    return Pictures(
        originals=pixels[0], reconstructions=pixels[1], traversals=pixels, latents=np.arange(2),
        kl=np.ones(2, np.float32), spans=np.zeros((2, 2), np.float32),
        distances={"x": np.zeros((5, 4, 4), np.float32)}, unchanged=255 - pixels[0],
        two_latents=pixels[:, :2], plane=codes(rng),
    )  # fmt: skip


def spending(row):
    """With the capacity of an annealed VAE, and what its factors have spent and its latents tell."""
    nats, names = row["step"] / 500, ["x", "scale"]
    details = {"kl_per_factor_values": [nats, nats**2 / 4], "kl_per_factor_names": names}
    details |= {"factor_information_values": [nats / 3, nats / 9], "factor_information_names": names}
    return {**row, "watch_capacity": 2 * nats, "kl_per_factor": nats, "details": details}


def varied(maker, rows, status="done"):
    """Trials that differ in everything that a figure may divide them by, with pictures."""
    rng = np.random.default_rng(0)
    loss = {"plain": {}, "overlapping": {"recon__name": "overlap", "recon__radius": 3, "recon__alpha": 2.0}}
    for arm, framework, beta, count in itertools.product(loss, ("ada_gvae", "beta_vae"), BETAS, LATENTS):
        changes = {"framework__name": framework, "framework__beta": beta, "model__latents": count, **loss[arm]}
        trial_id = quick_trial(maker, rows(rng), arm, status, **changes)
        maker.run.trial(trial_id).write_pictures(1500, to_bytes(seen(count)))


def drawn(name, scores):
    with canvas.style():
        figure = canvas.figure()
        caption = KINDS[name].draw(figure, scores, FIGURES[name]())
        return caption, canvas.png(figure), canvas.svg(figure)


@pytest.fixture(scope="module")
def scores_of(tmp_path_factory):
    """`scores_of(case)`: the scores of a run without numbers, or of one that every figure can show."""

    @cache
    def make(case):
        maker = RunMaker(tmp_path_factory.mktemp("varied") / "runs" / "demo" / "main")
        points = [{"framework.beta": beta, "model.latents": count} for beta in BETAS for count in LATENTS]
        asha = {"name": "asha", "grace": 500}
        suggested(maker, {"plain": points, "overlapping": points}, scheduler=asha)
        if case == "everything":
            varied(maker, lambda rng: [spending(row) for row in course(rng.uniform(0.1, 0.9), rng)])
        elif WITHOUT[case]:
            status, values = WITHOUT[case]
            varied(maker, lambda rng: [{"step": 750 * (i + 1), "mig": mig} for i, mig in enumerate(values)], status)
        return maker.run

    return lambda case: RunScores(read(make(case)), MIG)


@pytest.mark.slow
def test_equal_rows_give_equal_files_and_the_caption_says_something(scores_of, name):
    first, second = (drawn(name, scores_of("everything")) for _ in range(2))
    assert first == second
    caption, png, svg = first
    assert caption.title
    assert caption.text
    assert KINDS[name].question.endswith("?")
    assert png.startswith(b"\x89PNG")
    assert svg.startswith("<svg")


@pytest.mark.parametrize("case", WITHOUT)
def test_without_a_number_nothing_is_chosen_or_drawn(scores_of, name, case):
    scores = scores_of(case)
    assert KINDS[name].choose(scores) == []
    with pytest.raises(NothingToDraw, match=REASONS.get(name, "no trial has reported mig")):
        drawn(name, scores)
