"""From domains to points: the arithmetic, the draws, and every check before anything runs."""

import itertools
import json
import math
import statistics
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from disentune.errors import ConfigError
from disentune.files import documents
from disentune.plugin import Catalogue
from disentune.results.inspection import worlds_of
from disentune.runs.ledger import Run
from disentune.runs.planner import Planner
from disentune.runs.preview import cost, make_plan
from disentune.spec import space
from disentune.spec.config import Invalid, TrialConfig
from disentune.spec.sweepfile import Domain, read_sweep

TRIAL = {
    "dataset": {"name": "xysquares", "image_size": 24, "square_size": 4, "grid_size": 6},
    "model": {"name": "mlp", "width": 16, "latents": 4},
    "framework": {"name": "beta_vae", "beta": 1},
    "recon": {"name": "mse"},
    "training": {"steps": 1000, "batch_size": 8, "learning_rate": 1e-3},
    "evaluation": {"metrics": ["mig"], "every": 200},
    "loss_scale": "mean",
}
MIG = {"metric": "mig", "mode": "max"}


@pytest.fixture
def sweep(tmp_path):
    """A sweep of arms given as keyword `arms`, with other top-level keys."""

    def make(arms=None, trial=TRIAL, **keys):
        path = tmp_path / "demo.yaml"
        with open(path, "w") as file:
            documents.dump({"trial": trial, "arms": arms or {"all": {}}, **keys}, file)
        return read_sweep(path)

    return make


@pytest.fixture
def refusal(sweep):
    def refuse(*arguments, **keys):
        with pytest.raises(ConfigError) as caught:
            space.check(sweep(*arguments, **keys))
        assert all(":" in problem.where for problem in caught.value.problems)
        return [problem.text for problem in caught.value.problems]

    return refuse


def random(points, seed=0):
    return {"name": "random", "points": points, "seed": seed}


def betas(sweep, arm="all"):
    return [flat["framework.beta"] for flat in space.arm_points(sweep, arm)]


# ---- arithmetic


def test_an_arm_is_the_product_of_its_grids_and_a_sweep_the_union_of_its_arms_times_seeds(sweep):
    read = sweep(
        {
            "a": {"framework.beta": {"grid": [1, 2, 3]}, "model.latents": {"grid": [4, 5]}},
            "b": {"framework.beta": {"grid": [7, 8]}},
            "c": {"framework.name": "ada_gvae"},
        },
        seeds=4,
    )
    points = space.check(read).points
    assert len(points) == (3 * 2 + 2 + 1) * 4
    assert len({point.config.id for point in points}) == len(points)
    in_a = {(p.config.framework.params.beta, p.config.model.params.latents) for p in points if p.arms == ("a",)}
    assert in_a == set(itertools.product([1.0, 2.0, 3.0], [4, 5]))


@pytest.fixture
def nothing_is_imported(monkeypatch):
    def refuse(self, path):
        raise AssertionError(f"{path} is imported")

    monkeypatch.setattr(Catalogue, "_imported", refuse)


def test_the_steps_of_trials_are_those_of_the_points(sweep):
    one_draw = {"framework.beta": {"choice": [1]}}
    read = sweep(
        {
            "a": {"training.steps": {"grid": [1000, 2e3]}, "model.latents": {"grid": [4, 5]}, **one_draw},
            "b": {"model": {"name": "mlp", "width": 16, "latents": 4, "depth": 2}, **one_draw},
            "c": {"framework.beta": {"uniform": [1, 2]}},
        },
        search=random(3),
        seeds=2,
    )
    steps = sorted(point.config.training.steps for point in space.check(read).points)
    assert sorted(space.steps_of_trials(read)) == steps


OWN = [
    {"dataset": {"name": "own:DATASET"}},
    {"model": {"name": "own:MODEL"}},
    {"framework": {"name": "own:FRAMEWORK", "heat": 3}},
    {"framework.name": "own:FRAMEWORK"},
    {"recon": {"name": "own:RECON"}},
    {"evaluation.metrics": ["mig", "own:METRIC"]},
    {"evaluation.metrics": [{"name": "own:METRIC", "size": "both"}]},
    {"recon": {"grid": [{"name": "own:RECON"}]}},
]


@pytest.mark.parametrize("own", OWN, ids=str)
def test_trials_with_plug_ins_of_the_users_own_are_counted_without_importing_one(sweep, nothing_is_imported, own):
    read = sweep({"a": own | {"training.steps": {"grid": [1000, 2e3]}}, "b": own, "c": {}}, seeds=3)
    assert sorted(space.steps_of_trials(read)) == [1000] * 6 + [2000] * 3  # b asks for one that a asks for too


def test_invalid_steps_are_refused_even_with_a_users_own_plug_in(sweep, nothing_is_imported):
    with pytest.raises(Invalid, match=r"training\.steps: must be a whole number"):
        space.steps_of_trials(sweep({"a": {"framework.name": "own:FRAMEWORK", "training.steps": "many"}}))


def test_points_come_a_seed_at_a_time_so_that_a_stopped_sweep_has_whole_replicates(sweep):
    points = space.check(sweep({"a": {"framework.beta": {"grid": [1, 2]}}}, seeds=[5, 3])).points
    assert [(p.config.seed, p.config.framework.params.beta) for p in points] == [(5, 1), (5, 2), (3, 1), (3, 2)]


def test_a_config_that_two_arms_ask_for_runs_once_and_carries_both(sweep):
    read = sweep({"a": {"framework.beta": {"grid": [1, 2]}}, "b": {"framework.beta": {"grid": [2, 3]}}}, seeds=2)
    points = space.check(read).points
    assert len(points) == 3 * 2
    assert sorted(p.arms for p in points if p.config.framework.params.beta == 2) == [("a", "b"), ("a", "b")]


def test_equal_numbers_of_a_grid_are_one_point(sweep):
    points = space.check(sweep({"a": {"framework.beta": {"grid": [1, 1.0]}}})).points
    assert len(points) == 1
    assert points[0].arms == ("a",)


def test_choice_and_int_are_finite_so_a_grid_search_visits_them(sweep):
    read = sweep({"a": {"model.latents": {"int": [2, 5]}, "framework.beta": {"choice": [1, 2]}}})
    assert len(space.check(read).points) == 4 * 2


def test_seeds_change_nothing_else(sweep):
    read = sweep({"a": {"framework.beta": {"grid": [1, 2]}}}, seeds=3)
    trees = [point.config.tree() for point in space.check(read).points]
    assert {tree.pop("seed") for tree in trees} == {0, 1, 2}
    assert all(tree == trees[i % 2] for i, tree in enumerate(trees))
    for point in space.check(read).points:  # the fast way to a seed gives what parsing with it gives
        assert space.trial_config(point.config.tree(), point.config.seed).id == point.config.id


# ---- draws


LOG = {"log_uniform": [1e-4, 1.0]}


def test_every_seed_sees_the_same_draws(sweep):
    read = sweep({"a": {"framework.beta": LOG}}, search=random(5), seeds=3)
    by_seed = {}
    for point in space.check(read).points:
        by_seed.setdefault(point.config.seed, []).append(point.config.framework.params.beta)
    assert by_seed[0] == by_seed[1] == by_seed[2]
    assert len(set(by_seed[0])) == 5


def test_more_points_keep_the_first_ones(sweep):
    few, many = (sweep({"all": {"framework.beta": LOG}}, search=random(n)) for n in (3, 10))
    assert betas(few) == betas(many)[:3]


def test_another_key_or_arm_changes_no_other_draw(sweep):
    alone = betas(sweep({"all": {"framework.beta": LOG}}, search=random(5)))
    more = {"model.latents": {"int": [2, 9]}, "framework.beta": LOG, "training.learning_rate": LOG}
    assert betas(sweep({"first": {"framework.beta": LOG}, "all": more}, search=random(5))) == alone


def test_the_seed_of_the_search_changes_the_draws_and_keys_have_their_own(sweep):
    first, second = (betas(sweep({"all": {"framework.beta": LOG}}, search=random(5, seed))) for seed in (0, 1))
    assert not set(first) & set(second)
    read = sweep({"all": {"framework.beta": LOG, "training.learning_rate": LOG}}, search=random(5))
    assert all(f["framework.beta"] != f["training.learning_rate"] for f in space.arm_points(read, "all"))


def test_draws_never_change_between_versions():
    domain = Domain(uniform=[0.0, 1.0])
    assert [space.draw(domain, 0, "framework.beta", number) for number in range(2)] == [
        0.5474439533933347,
        0.041153537101602744,
    ]


def test_grids_are_crossed_with_each_draw(sweep):
    arms = {
        "all": {"framework.beta": LOG, "model.latents": {"grid": [2, 3]}, "training.batch_size": {"choice": [8, 9]}}
    }
    flats = list(space.arm_points(sweep(arms, search=random(4)), "all"))
    assert len(flats) == 4 * 2
    for first, second in zip(flats[::2], flats[1::2], strict=True):
        assert (first["model.latents"], second["model.latents"]) == (2, 3)
        assert first["framework.beta"] == second["framework.beta"]
        assert first["training.batch_size"] == second["training.batch_size"]


def draws(count=2000, **domain):
    return [space.draw(Domain(**domain), 0, "key", number) for number in range(count)]


def test_uniform_fills_its_range_evenly():
    values = draws(uniform=[-1.0, 3.0])
    assert -1 <= min(values) < -0.9
    assert 2.9 < max(values) <= 3
    assert abs(statistics.mean(values) - 1) < 4 * (4 / math.sqrt(12)) / math.sqrt(2000)  # four standard errors


def test_log_uniform_has_its_median_at_the_geometric_mean():
    values = draws(log_uniform=[1e-4, 1.0])
    assert 1e-4 <= min(values) <= max(values) <= 1
    # half of 2000 draws lie below, give or take four standard deviations of a binomial
    assert abs(sum(value < 1e-2 for value in values) - 1000) < 4 * math.sqrt(2000 / 4)


def test_int_takes_both_ends_and_all_between():
    assert set(draws(200, int=[3, 6])) == {3, 4, 5, 6}
    assert draws(3, int=[5, 5]) == [5, 5, 5]
    assert all(type(value) is int for value in draws(5, int=[0, 9]))


def test_normal_has_its_mean_and_deviation():
    values = draws(normal=[5.0, 2.0])
    assert abs(statistics.mean(values) - 5) < 4 * 2 / math.sqrt(2000)
    assert abs(statistics.stdev(values) - 2) < 4 * 2 / math.sqrt(2 * 2000)


def test_choice_takes_each_value():
    assert {*draws(100, choice=["a", "b", None])} == {"a", "b", None}


@given(st.floats(1e-300, 1e300), st.floats(1, 1e6), st.integers(0, 50))
def test_a_draw_never_leaves_its_range(low, factor, number):
    high = min(low * factor, 1e300)
    assert low <= space.draw(Domain(log_uniform=[low, high]), 0, "key", number) <= high
    assert low <= space.draw(Domain(uniform=[low, high]), 0, "key", number) <= high


# ---- what each search can do


def test_a_valid_sweep_passes(sweep):
    space.check(sweep({"a": {"framework.beta": {"grid": [0, 1]}}}, objective=MIG))
    space.check(sweep({"a": {"framework.beta": LOG}}, search=random(3)))
    space.check(sweep({"a": {"framework.beta": LOG}}, search={"name": "optuna", "points": 5}, objective=MIG))


@pytest.mark.parametrize("domain", [{"uniform": [0, 1]}, LOG, {"normal": [1, 0.1]}])
def test_a_grid_search_refuses_a_range(refusal, domain):
    kind = next(iter(domain))
    assert refusal({"a": {"framework.beta": domain}}) == [
        f"framework.beta: a grid search cannot enumerate {kind}; use grid: [...] or search: random"
    ]


def test_a_random_search_with_nothing_to_draw_is_refused(refusal):
    text = "arms.a: has only grids, so search: random has nothing to draw; use search: grid"
    assert refusal({"a": {"framework.beta": {"grid": [1, 2]}}}, search=random(3)) == [text]


def test_optuna_needs_an_objective_a_domain_and_a_range_it_knows(refusal):
    optuna = {"name": "optuna", "points": 3}
    assert refusal({"a": {"framework.beta": LOG}}, search=optuna) == [
        "objective: is required by search: optuna but not set"
    ]
    assert refusal({"a": {}}, search=optuna, objective=MIG) == [
        "arms.a: has no domain, so optuna has nothing to search"
    ]
    assert refusal({"a": {"framework.beta": {"normal": [1, 0.1]}}}, search=optuna, objective=MIG) == [
        "framework.beta: optuna does not support normal; use uniform: [low, high] or search: random"
    ]


def test_all_that_needs_an_objective_is_named_at_once(refusal):
    found = refusal(
        {"a": {"framework.beta": LOG}},
        search={"name": "optuna", "points": 3},
        scheduler={"name": "asha", "grace": 200},
        stop={"plateau": {"evaluations": 2}},
    )
    assert found == ["objective: is required by search: optuna and scheduler: asha and stop.plateau but not set"]


def test_an_objective_that_no_trial_reports_is_refused_with_the_nearest(refusal):
    assert refusal(objective={"metric": "migg", "mode": "max"}) == [
        "objective.metric: arm 'all' reports no 'migg'. Did you mean 'mig'? "
        "Known: mig, loss, recon, kl, loss_sum, recon_sum, kl_sum"
    ]


def test_an_objective_must_be_reported_in_every_arm(refusal):
    found = refusal({"a": {}, "b": {"evaluation.metrics": ["dci"]}}, objective=MIG)
    assert len(found) == 1
    assert "arm 'b' reports no 'mig'" in found[0]


@pytest.mark.parametrize("name", ["asha", "median"])
def test_a_cut_between_two_evaluations_is_refused(sweep, refusal, name):
    text = "scheduler.grace: must be a multiple of 200, the steps between reports of 'mig', got 300"
    assert refusal(scheduler={"name": name, "grace": 300}, objective=MIG) == [text]
    space.check(sweep(scheduler={"name": name, "grace": 400}, objective=MIG))
    space.check(sweep(scheduler={"name": name, "grace": 300}, objective={"metric": "loss", "mode": "min"}))


def test_a_trial_that_is_only_scored_at_its_end_cannot_be_cut(refusal):
    trial = TRIAL | {"evaluation": {"metrics": ["mig"]}}
    text = (
        "scheduler.asha: 'mig' is only reported at the end, too late to stop a trial; "
        "set evaluation.every, or choose a loss as the objective"
    )
    assert refusal(trial=trial, scheduler={"name": "asha", "grace": 400}, objective=MIG) == [text]


def pbt(**changes):
    return {"name": "pbt", "every": 200, "keys": ["framework.beta"]} | changes


def test_population_based_training_changes_numbers_only_at_evaluations(sweep, refusal):
    arms = {"a": {"framework.beta": {"uniform": [0, 1]}}}
    space.check(sweep(arms, scheduler=pbt(), objective=MIG, search=random(4)))
    assert refusal(arms, scheduler=pbt(every=250), objective=MIG, search=random(4)) == [
        "scheduler.every: must be a multiple of 200, the steps between reports of 'mig', got 250"
    ]
    assert refusal(arms, scheduler=pbt(keys=["framework.name", "recon.alpha"]), objective=MIG, search=random(4)) == [
        "scheduler.keys: 'framework.name' must have a numeric domain in arm 'a', which bounds its changes",
        "scheduler.keys: 'recon.alpha' must have a numeric domain in arm 'a', which bounds its changes",
    ]
    assert refusal(arms, scheduler=pbt(), objective=MIG, search={"name": "optuna", "points": 4}) == [
        "scheduler: pbt searches by itself; use search: random with it"
    ]


@pytest.mark.parametrize("key", ["model.latents", "training.batch_size", "dataset.spacing", "loss_scale", "framework"])
def test_a_key_that_cannot_change_during_training_is_refused(refusal, key):
    found = refusal(scheduler=pbt(keys=[key]), objective=MIG)
    assert f"'{key}' cannot change during training" in found[0]


def test_a_trial_holds_at_most_one_gpu(refusal):
    assert refusal(resources={"gpu": 2}) == ["resources.gpu: a trial can use at most one GPU, got 2"]


def test_a_trial_that_holds_a_gpu_trains_on_it(sweep, refusal):
    def device(**keys):
        return space.check(sweep(**keys)).points[0].config.training.device

    assert device() == "cpu"
    assert device(resources={"gpu": 0.25}) == "cuda"
    cpu = TRIAL | {"training": TRIAL["training"] | {"device": "cpu"}}
    assert device(trial=cpu, resources={"gpu": 0.25}) == "cpu"
    cuda = TRIAL | {"training": TRIAL["training"] | {"device": "cuda"}}
    assert refusal(trial=cuda) == ["resources.gpu: must be above 0 for training.device: cuda, got 0"]


def test_a_sweep_beyond_reason_is_refused_at_once(refusal):
    """A range of whole numbers must not be written out to be counted."""
    assert refusal({"a": {"training.steps": {"int": [1, 10**9]}}}, seeds=3) == [
        "arms: make 3,000,000,000 trials, but a sweep may have at most 200,000"
    ]
    many = {f"a{i}": {"training.steps": {"int": [1, 100_000]}} for i in range(3)}
    assert refusal(many) == ["arms: make 300,000 trials, but a sweep may have at most 200,000"]


# ---- what each point must be


@pytest.mark.parametrize(
    ("arm", "text"),
    [
        ({"framework.beta": {"grid": [1, -1]}}, "framework.beta: must be >= 0.0, but the grid has -1"),
        ({"framework.beta": -1}, "framework.beta: must be >= 0.0, got -1"),
        ({"framework.beta": "big"}, "framework.beta: must be a number, got 'big'"),
        ({"framework.beta": None}, "framework.beta: must be a number, got None"),
        ({"training.steps": True}, "training.steps: must be a whole number, got True"),
        ({"framework.gamma": 3}, "framework.gamma: unknown key. Known: beta"),
        ({"recon": {"name": "overlap", "alpha": 1}}, "recon.radius: is required but not set (arm 'a')"),
        (
            {"dataset.spacing": {"grid": [1, 5]}},
            "dataset.grid_size: must be 1 to 5, as many as fit with image_size 24, square_size 4 and spacing 5",
        ),
        ({"dataset.grid_size": 9}, "dataset.grid_size: must be 1 to 6, as many as fit with"),
        (
            {"model": {"name": "conv64", "latents": 3}},
            "model.name: conv64 needs a height and width that are multiples of 16, but these are 24x24; ",
        ),
        ({"recon.name": "bce"}, "recon.name: 'bce' needs targets in [0, 1]: set dataset.transform: unit"),
        ({"training": 5}, "training: must be a mapping, got 5"),
        ({"recon": {"grid": ["mse"]}}, "recon: must be a mapping with a name, but the grid has 'mse'"),
        ({"framework.name": {"grid": ["beta_vae", "betavae"]}}, "framework.name: unknown framework 'betavae'."),
    ],
)
def test_a_wrong_point_is_refused_in_words(refusal, arm, text):
    found = [said.replace(">= 0,", ">= 0.0,") for said in refusal({"a": arm})]
    assert len(found) == 1
    assert found[0].startswith(text)


def test_problems_stand_at_the_line_of_the_key_or_else_of_the_arm(tmp_path):
    path = tmp_path / "demo.yaml"
    path.write_text("""\
trial:
  dataset: {name: xysquares}
  model: {name: mlp, width: 16, latents: 4}
  framework: {name: beta_vae}
  training: {steps: 10, batch_size: 8, learning_rate: 1e-3}
  loss_scale: sum
arms:
  fine: {framework.beta: 1, recon.name: mse}
  poor:
    recon: {name: mse}
  wrong:
    framework.beta:
      grid: [1, -1]
    recon: {name: mse}
""")
    with pytest.raises(ConfigError) as caught:
        space.check(read_sweep(path))
    assert [(problem.where, problem.text.split(":")[0]) for problem in caught.value.problems] == [
        (f"{path}:9", "framework.beta"),
        (f"{path}:12", "framework.beta"),
    ]
    assert "is required but not set (arm 'poor')" in str(caught.value)


OPTUNA = {"search": {"name": "optuna", "points": 3}, "objective": MIG}


@pytest.mark.parametrize(
    "arm",
    [
        {"framework.beta": {"uniform": [-1, 1]}},
        {"dataset.spacing": {"int": [1, 5]}},
        {"model.latents": {"int": [0, 5]}},
        {"framework.name": {"choice": ["beta_vae", "betavae"]}},
        {"training.learning_rate": {"uniform": [0, 1]}},
    ],
)
def test_the_corners_catch_a_bad_end_of_a_range_that_is_not_drawn_yet(refusal, arm):
    assert len(refusal({"a": arm}, **OPTUNA)) == 1


def test_two_ends_that_are_wrong_only_together_are_caught(refusal):
    """Spacing 5 fits with 5 places and 6 places fit with spacing 4, but not both."""
    found = refusal({"a": {"dataset.spacing": {"int": [4, 5]}, "dataset.grid_size": {"int": [5, 6]}}}, **OPTUNA)
    assert found == [
        "dataset.grid_size: must be 1 to 5, as many as fit with image_size 24, square_size 4 and spacing 5, but is 6"
    ]


def test_a_large_space_is_checked_at_each_end_and_at_each_pair_of_names(sweep, refusal):
    wide = {f"training.{key}": {"grid": list(range(1, 41))} for key in ("steps", "log_every", "batch_size")}
    names = {"framework.name": {"choice": ["beta_vae", "ada_gvae"]}, "recon.name": {"choice": ["mse", "bce"]}}
    read = sweep({"a": wide | names}, **OPTUNA)
    corners = list(space.corners(read, "a"))
    assert len(corners) == 4 * (1 + 3 * 39)
    assert {(c["framework.name"], c["recon.name"]) for c in corners} == set(
        itertools.product(["beta_vae", "ada_gvae"], ["mse", "bce"])
    )
    assert "needs targets in [0, 1]" in refusal({"a": wide | names}, **OPTUNA)[0]


def test_problems_of_all_arms_come_together(refusal):
    found = refusal({"a": {"framework.beta": -1}, "b": {"model.latents": 0}, "c": {"recon.name": "mes"}})
    assert len(found) == 3


# ---- file and points together


ELEVEN = """\
trial:
  dataset: {name: xysquares, spacng: 2}
  model: {name: mlp, width: 16, latents: 4}
  recon: {name: mse}
  training: {steps: 100, batch_size: many, lr: 1e-3}
  evaluation: {metrics: [migg, mig], every: 50}
  loss_scale: mean
arms:
  a: {search_space: beta, framework.name: betavae}
  b: {search_space: btea, framework.name: beta_vae, framework.beta: 1}
  c:
    framework.name: beta_vae
    framework.beta:
      grd: [1, 2]
    model.latents: [3, 4]
  d: {search_space: beta, framework.name: ada_gvae, colour: red}
seeds: -3
objective: mig
scheduler: {name: asha, grace: 0}
resources: {gpu: 2}
stopp: {steps: 3}
"""


def test_a_grid_inside_a_list_is_told_apart_from_one_that_is_misspelt(tmp_path):
    path = tmp_path / "demo.yaml"
    path.write_text(ELEVEN.replace("[migg, mig]", "[{name: dci, train: {grid: [100, 200]}}]"))
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "beta.yaml").write_text("framework.beta: {grid: [-1, 1]}\n")
    with pytest.raises(ConfigError) as caught:
        space.read(path)
    (told,) = [problem.text for problem in caught.value.problems if "metrics" in problem.text]
    assert told.endswith("got {'grid': [100, 200]}; {grid: ...} cannot stand inside a list: vary the list as a whole")


def test_mistakes_that_do_not_depend_on_each_other_come_in_one_round(tmp_path):
    path = tmp_path / "demo.yaml"
    path.write_text(ELEVEN)
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "beta.yaml").write_text("framework.beta: {grid: [-1, 1]}\n")
    with pytest.raises(ConfigError) as caught:
        space.read(path)
    found = [(problem.where.split("/")[-1], problem.text.split(" Known")[0]) for problem in caught.value.problems]
    assert found == [
        ("demo.yaml:2", "dataset.spacng: unknown key. Did you mean 'spacing'?"),
        ("demo.yaml:5", "training.batch_size: must be a whole number, got 'many'"),
        ("demo.yaml:5", "training.lr: unknown key. Did you mean 'learning_rate'?"),
        ("demo.yaml:6", "evaluation.metrics.name: unknown metric 'migg'. Did you mean 'mig'?"),
        ("demo.yaml:9", "framework.name: unknown framework 'betavae'. Did you mean 'beta_vae'?"),
        ("demo.yaml:10", "search_space: no search_spaces/btea.yaml. Did you mean 'beta'?"),
        (
            "demo.yaml:14",
            "framework.beta: must be a number, got {'grd': [1, 2]}; to try each value, write {grid: [1, 2]}",
        ),
        ("demo.yaml:15", "model.latents: must be a whole number, got [3, 4]; to try each value, write {grid: [3, 4]}"),
        ("demo.yaml:16", "colour: unknown key."),
        ("demo.yaml:17", "seeds: must be a number of seeds (1 to 100000) or a list of whole numbers >= 0, got -3"),
        ("demo.yaml:18", "objective: must name a metric and a mode; write objective: {metric: mig, mode: max}, or min"),
        ("demo.yaml:19", "scheduler.grace: must be >= 1, got 0"),
        ("demo.yaml:20", "resources.gpu: a trial can use at most one GPU, got 2"),
        ("demo.yaml:21", "stopp: unknown key. Did you mean 'stop'?"),
        ("beta.yaml:1", "framework.beta: must be >= 0, but the grid has -1"),
    ]


@pytest.mark.parametrize(
    ("changes", "texts"),
    [
        ({"search": "randm"}, ["search.name"]),  # a range is right in some search
        ({"scheduler": {"name": "asha", "grace": 10}, "objective": "mig"}, ["objective"]),  # which is not missing
        (
            {"resources": {"gpu": "one"}, "arms": {"a": {"training.device": "cuda"}}, "search": "grid"},
            ["resources.gpu"],
        ),
        ({"objective": {"metric": "migg", "mode": "max"}, "seeds": -1}, ["objective.metric", "seeds"]),
        ({"figures": [{"name": "curves", "metric": "nothing"}], "seeds": -1}, ["figures.0 (curves)", "seeds"]),
    ],
)
def test_what_follows_from_another_mistake_is_not_reported(tmp_path, changes, texts):
    path, arms = tmp_path / "demo.yaml", {"a": {"framework.beta": {"uniform": [0, 1]}}}
    search = {"search": {"name": "random", "points": 2}}
    path.write_text(json.dumps({"trial": TRIAL, "arms": arms, **search, **changes}))
    with pytest.raises(ConfigError) as caught:
        space.read(path)
    assert sorted(problem.text.split(":")[0] for problem in caught.value.problems) == texts


def test_the_objective_of_a_point_with_another_mistake_is_checked(refusal):
    found = refusal({"a": {"training.steps": -1}}, objective={"metric": "migg", "mode": "max"})
    assert [text.split(":")[0] for text in found] == ["training.steps", "objective.metric"]


def test_problems_of_the_file_and_of_the_points_come_in_one_message(tmp_path):
    path = tmp_path / "demo.yaml"
    path.write_text("""\
trial:
  dataset: {name: xysquares}
  model: {name: mlp, width: 16, latents: 0}
  framework: {name: betavae}
  training: {steps: 10, batchsize: 8, learning_rate: 1e-3}
seeds: no
serch: random
arms:
  a: {search_space: nothing, framework.beta: {grid: []}}
  b: {framework.name: beta_vae, framework.beta: -1}
""")
    with pytest.raises(ConfigError) as caught:
        space.read(path)
    found = [(int(problem.where.rpartition(":")[2]), problem.text.split(":")[0]) for problem in caught.value.problems]
    assert sorted(found) == [
        (3, "model.latents"),
        (4, "framework.name"),
        (5, "training.batchsize"),
        (6, "seeds"),
        (7, "serch"),
        (9, "framework.beta.grid"),
        (9, "search_space"),
        (10, "framework.beta"),
        (10, "loss_scale"),
        (10, "recon.name"),
    ]
    assert "(arm 'a')" not in str(caught.value)  # batch_size and loss_scale may stand in the space that is missing


def test_a_valid_file_is_read_and_checked_at_once(sweep):
    read = sweep({"a": {"framework.beta": {"grid": [0, 1]}}})
    path = documents.Path(read.file)
    assert space.read(path).sweep.arms == read.arms
    with pytest.raises(ConfigError, match=r"--set framework\.beta"):
        space.read(path, ["framework.beta=-1"])


@pytest.mark.parametrize(
    ("figure", "text"),
    [
        ({"name": "violins", "metric": "migg"}, "figures.0 (violins): unknown metric 'migg'. Did you mean 'mig'?"),
        ({"name": "trend", "x": "framework.bet"}, "unknown key 'framework.bet'. Did you mean 'framework.beta'?"),
        ({"name": "trend", "x": "recon.name"}, "x: must be a numeric key, but recon.name can be mse"),
        ({"name": "heat_map", "x": "seed", "y": "seed"}, "x and y are both seed; name two keys"),
        ({"name": "curves", "only": "framework.bet == 3"}, "only 'framework.bet == 3': unknown key"),
        ({"name": "curves", "only": "seed ="}, "figures.0 (curves): only"),
    ],
)
def test_a_figure_that_can_never_be_drawn_is_refused_before_anything_starts(refusal, figure, text):
    (found,) = refusal(figures=[figure])
    assert text in found


def test_figures_of_what_trials_report_are_accepted(sweep):
    names = ["mig", "mig_max", "loss", "kl_sum"]
    space.check(sweep(figures=[{"name": "curves", "metric": name, "only": "seed < 2"} for name in names]))
    space.check(sweep(figures=[{"name": "heat_map", "x": "arm", "y": "framework.beta"}]))


# ---- one table for all arms

OWN = """
from disentune.frameworks import beta_vae
from disentune.metrics import mig
from disentune.plugin import Framework, Metric

METRIC = Metric(name="mine", params=mig.Params, keys=("mig",), score=mig.score)
OTHER = Metric(name="other", params=mig.Params, keys=("other", "part"), score=mig.score)
FRAMEWORK = Framework(name="mine", params=beta_vae.Params, loss=beta_vae.loss, parts=("kl", "part"))
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_arms.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("own_arms", None)


def test_two_arms_may_not_fill_one_column_by_different_plugins(own_module, refusal, sweep):
    arms = {"ours": {}, "mine": {"evaluation.metrics": ["own_arms:METRIC"]}}
    assert refusal(arms) == [
        "evaluation.metrics: 'mig' comes from 'own_arms:METRIC' in arm 'mine' and from 'mig' in another trial, so one "
        "column would mix them; rename it in your own plug-in"
    ]
    arms = {"a": {"framework.name": "own_arms:FRAMEWORK"}, "b": {"evaluation.metrics": ["mig", "own_arms:OTHER"]}}
    (text,) = refusal(arms)
    assert "'part' comes from 'own_arms:OTHER' in arm 'b' and from a loss in another trial" in text
    space.check(sweep({"one": {"evaluation.metrics": ["own_arms:METRIC"]}, "two": {"evaluation.metrics": []}}))


# ---- values that no machine can use


@pytest.mark.parametrize(
    ("arm", "keys", "text"),
    [
        ({}, {"scheduler": {"name": "asha", "grace": 200, "reduction": 1.0000000000001}, "objective": MIG},
         "scheduler.reduction: must be >= 1.1, got 1.0000000000001"),
        ({"training.threads": 10**10}, {}, "training.threads: must be <= 1024, got 10000000000"),
        ({"recon": {"name": "overlap", "radius": 3, "alpha": 1e300}}, {}, "recon.alpha: must be <= 1e+30, got 1e+300"),
        ({}, {"retries": {"hang_after_s": 1e300}}, "retries.hang_after_s: must be <= 1e+09, got 1e+300"),
    ],
)  # fmt: skip
def test_a_value_that_would_hang_or_crash_a_run_is_refused_with_its_line(refusal, arm, keys, text):
    assert refusal({"all": arm}, **keys) == [text]


# ---- large sweeps


def carried_to_a_planner(made, tmp_path):
    """All that `plan` and `run` do with a sweep before the first trial starts."""
    run = Run(tmp_path / "runs" / "demo" / "main")
    run.path.mkdir(parents=True)
    asked = space.check(made)
    planned = make_plan(asked, run, limit=3)
    cost(asked, planned, probe=False)
    worlds_of(asked)
    return asked, Planner(run, asked, "session", planned.choice)


@pytest.fixture
def parsed(monkeypatch):
    """Every tree that was parsed to a trial."""
    trees, parse = [], TrialConfig.parse
    monkeypatch.setattr(TrialConfig, "parse", lambda tree: (trees.append(tree), parse(tree))[1])
    return trees


@pytest.mark.parametrize("figures", [[], [{"name": "curves", "metric": "mig"}]])
def test_every_point_of_a_grid_is_parsed_once_on_the_way_to_a_run(tmp_path, sweep, parsed, figures):
    made = sweep({"all": {"framework.beta": {"grid": list(range(1, 51))}}}, seeds=2, figures=figures)
    asked, planner = carried_to_a_planner(made, tmp_path)
    assert [point.config.seed for point in asked.points] == [0] * 50 + [1] * 50
    assert (len(planner.trials), len(planner.open)) == (100, 3)
    assert len(parsed) == 50


def test_every_point_and_corner_of_a_random_search_is_parsed_once_on_the_way_to_a_run(tmp_path, sweep, parsed):
    figures = [{"name": "curves", "metric": "mig"}]
    made = sweep({"all": {"framework.beta": LOG}}, seeds=2, search=random(20), figures=figures)
    _, planner = carried_to_a_planner(made, tmp_path)
    assert len(planner.trials) == 40
    assert len(parsed) == 2 + 20


def test_a_model_based_search_parses_its_corners_once_and_each_suggestion_once(tmp_path, sweep, parsed):
    search = {"name": "optuna", "points": 9, "in_flight": 4}
    made = sweep({"all": {"framework.beta": LOG}}, seeds=2, search=search, objective=MIG)
    asked, planner = carried_to_a_planner(made, tmp_path)
    assert asked.points == ()
    assert (len(planner.trials), len(planner.open)) == (8, 3)
    assert len(parsed) == 2 + 4


def test_a_config_is_the_same_whether_its_sections_were_met_before(trial_with):
    """1, 1.0 and true are equal in Python, and yet other values."""
    first = trial_with(framework__beta=1, training__compile=True)
    again = trial_with(framework__beta=1, training__compile=True)
    assert again.id == first.id
    with pytest.raises(Invalid, match=r"training\.compile: must be true or false"):
        trial_with(training__compile=1)
    with pytest.raises(Invalid, match=r"training\.steps: must be a whole number"):
        trial_with(training__steps=True)


def test_progress_is_reported_while_points_are_checked(sweep):
    told = []
    made = sweep({"all": {"framework.beta": {"grid": [1, 2, 3]}}})
    space.check(made, lambda *news: told.append(news))
    assert told == [("checking points", done, 3) for done in range(3)]
