"""A sweep carried out by a simulator instead of Ray: any order, any number of deaths, the same table."""

import errno
import itertools
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from disentune.errors import Unavailable
from disentune.results.tables import read, write_parquet
from disentune.runs import planner as planner_module
from disentune.runs import segment as segment_module
from disentune.runs.ledger import Run
from disentune.runs.planner import DOUBT_S, LEAVE_S, LONGEST_REST_S, STORAGE_FAULTS, STORAGE_S, Planner
from disentune.runs.preview import make_plan
from disentune.runs.segment import StepReport, work
from disentune.runs.suggest import Suggestions
from disentune.runs.trial_folder import TrialFolder
from disentune.spec.space import check
from disentune.spec.sweepfile import read_sweep
from simulator import (
    SCHEDULERS,
    SEARCHES,
    Death,
    disturbed,
    sessions_through_kills,
    simulate,
    simulate_faults,
    sweep_file,
    table,
)

PAIRS = [(s, c) for s in SEARCHES for c in SCHEDULERS if (s, c) != ("optuna", "pbt")]
SAMPLE = [("grid", "none"), ("optuna", "asha"), ("grid", "median"), ("random", "pbt")]
"""Pairs of every quick run: each search and each scheduler."""


def cases(*rows, quick):
    """Parameters of a test, of which only `quick` run without request."""
    return [pytest.param(*row, marks=[] if row in quick else [pytest.mark.long]) for row in rows]


class Examples:
    """Runs that several tests begin with, each made when it is first wanted and never changed."""

    def __init__(self, folder):
        self.folder, self.made = folder, {}

    def calm(self, search="grid", scheduler="none", extra=""):
        """(sweep file, run): undisturbed to the end, one trial after the other."""
        return self._run(
            (search, scheduler, extra), lambda run, path: simulate(run, path, np.random.default_rng(0), slots=1)
        )

    def diverged(self):
        """The same of a sweep in which every trial diverges at step 9."""

        def make(run, path):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(segment_module, "divergence", diverges_at_9)
                simulate(run, path, np.random.default_rng(0))

        return self._run(("grid", "none", ""), make, "diverged")

    def dead_population(self):
        """The same of a population, but its driver died on the way."""

        def make(run, path):
            with pytest.raises(Death):
                simulate(run, path, np.random.default_rng(1), dies_after=110)

        return self._run(("random", "pbt", ""), make, "dead")

    def _run(self, sweep, make, kind="calm"):
        if (kind, *sweep) not in self.made:
            folder = self.folder / str(len(self.made))
            folder.mkdir()
            path, run = sweep_file(folder, *sweep), Run(folder / "runs" / "tiny" / "main")
            make(run, path)
            self.made[kind, *sweep] = path, run
        return self.made[kind, *sweep]


def diverges_at_9(row, limit):
    return "so" if row["step"] == 9 else ""


@pytest.fixture(scope="module")
def examples(tmp_path_factory):
    return Examples(tmp_path_factory.mktemp("examples"))


def copied(run, tmp_path):
    return Run(shutil.copytree(run.path, tmp_path / "runs" / "tiny" / "copy"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "scheduler", "seed"),
    cases(*((*pair, seed) for pair in PAIRS for seed in range(3)), quick=[(*pair, 0) for pair in SAMPLE]),
)
def test_order_and_deaths_change_nothing(tmp_path, examples, search, scheduler, seed):
    path, calm = examples.calm(search, scheduler)
    expected = table(calm)
    assert len(expected) == (16 if search == "optuna" else 12)
    run = Run(tmp_path / "runs" / "tiny" / "killed")
    assert disturbed(run, path, seed) > 0
    assert table(run) == expected
    assert write_parquet(read(run)).read_bytes() == write_parquet(read(calm)).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(("search", "scheduler"), cases(*PAIRS, quick=SAMPLE))
def test_sigkill_at_any_moment_changes_no_bit(tmp_path, examples, search, scheduler):
    """Real SIGKILLs of real processes, in the middle of whatever they were writing; each sweep has both frameworks."""
    (path, calm), killed = examples.calm(search, scheduler), Run(tmp_path / "runs" / "tiny" / "killed")
    assert sessions_through_kills(killed, path, seed=1) >= 2
    assert table(killed) == table(calm)
    assert write_parquet(read(killed)).read_bytes() == write_parquet(read(calm)).read_bytes()


# ---- rows that someone or something has cut

CUTS = {
    "the last": lambda lines: lines[:-1],
    "all after the first": lambda lines: lines[:1],
    "one in the middle": lambda lines: lines[: len(lines) // 2] + lines[len(lines) // 2 + 1 :],
    "the first": lambda lines: lines[1:],
    "all": lambda lines: [],
    "altered": lambda lines: [*lines[:1], *(line.replace(b'"loss": ', b'"loss": 1') for line in lines[1:])],
    "reversed": lambda lines: lines[::-1],
}
ENDS = {
    "its last step": ("none", ""),
    "asha": ("asha", ""),
    "median": ("median", ""),
    "stop.steps": ("none", "stop: {steps: 8}"),
    "a plateau": ("none", "stop: {plateau: {evaluations: 1, min_delta: 0.02}}"),
    "a divergence": (),
}


def cut(folder, how):
    lines = folder.rows_path.read_bytes().splitlines(keepends=True) if folder.rows_path.exists() else []
    folder.rows_path.write_bytes(b"".join(CUTS[how](lines)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "how"),
    cases(
        *itertools.product(ENDS, CUTS),
        quick=[(end, [*CUTS][-1 - number]) for number, end in enumerate(ENDS)],
    ),
)
def test_rows_that_were_cut_from_ended_trials_are_computed_again_to_the_bit(tmp_path, examples, monkeypatch, end, how):
    if end == "a divergence":
        monkeypatch.setattr(segment_module, "divergence", diverges_at_9)
        path, whole = examples.diverged()
    else:
        path, whole = examples.calm("grid", *ENDS[end])
    run = copied(whole, tmp_path)
    expected, statuses = table(run), {folder.id: folder.status() for folder in run.trials()}
    for folder in run.trials()[::2]:
        cut(folder, how)
    assert table(run) != expected
    simulate(run, path, np.random.default_rng(1))
    assert table(run) == expected
    for folder in run.trials():
        before, now = statuses[folder.id], folder.status()
        assert (now.state, now.step, now.cause) == (before.state, before.step, before.cause)
        assert folder.sound().gap is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "how"),
    cases(
        *itertools.product(["none", "asha"], CUTS),
        quick=[("asha", "all after the first")],
    ),
)
def test_rows_that_were_cut_from_unfinished_trials_are_computed_again_to_the_bit(tmp_path, examples, scheduler, how):
    (path, calm), run = examples.calm("grid", scheduler), Run(tmp_path / "runs" / "tiny" / "cut")
    for seed in range(4):
        with pytest.raises(Death):
            simulate(run, path, np.random.default_rng(seed), dies_after=12)
        for folder in run.trials():
            cut(folder, how)
    simulate(run, path, np.random.default_rng(9))
    assert table(run) == table(calm)


def test_cut_rows_of_a_search_are_computed_again_before_it_continues(tmp_path, examples):
    path, calm = examples.calm("optuna", "asha")
    run, expected = copied(calm, tmp_path), table(calm)
    for folder in run.trials()[::3]:
        cut(folder, "the last")
    simulate(run, path, np.random.default_rng(1))
    assert table(run) == expected


@pytest.mark.slow
def test_a_limit_counts_trials_whose_rows_were_cut_as_unfinished(tmp_path):
    path, run = sweep_file(tmp_path, "grid", "asha"), Run(tmp_path / "runs" / "tiny" / "main")
    path.write_text(path.read_text().replace("seeds: 2", "seeds: 1"))
    simulate(run, path, np.random.default_rng(0))
    expected = table(run)
    for folder in run.trials():
        cut(folder, "the last")
    for _ in range(3):  # 6 trials, 2 at a time
        simulate(run, path, np.random.default_rng(1), choice=make_plan(check(read_sweep(path)), run, limit=2).choice)
    assert table(run) == expected


def test_schedulers_stop_some_trials_and_not_others(examples):
    for scheduler in ("asha", "median"):
        _, run = examples.calm("grid", scheduler)
        ends = [folder.status() for folder in run.trials()]
        stopped = [status for status in ends if status.step < 12]
        assert 0 < len(stopped) < len(ends)
        assert {status.state for status in stopped} == {"stopped"}
        assert {status.state for status in ends if status.step == 12} == {"done"}
        assert all(status.cause.startswith(f"scheduler.{scheduler}: stopped at step") for status in stopped)
        for folder in run.trials():
            assert folder.rows()[-1]["step"] == folder.status().step


@pytest.mark.parametrize(("scheduler", "first", "second"), [("median", 3, 6), ("pbt", 3, 6)])
def test_a_trial_of_a_billion_steps_is_handed_out_to_its_next_milestone(tmp_path, scheduler, first, second):
    path = sweep_file(tmp_path, "grid", scheduler)
    path.write_text(path.read_text().replace("steps: 12,", "steps: 1_000_000_000,"))
    run = Run(tmp_path / "runs" / "tiny" / "main")
    planner = Planner(run, check(read_sweep(path)), "session")
    trial = next(iter(planner.trials.values()))
    assert planner._allowed(trial) == first
    trial.status = replace(trial.status, step=4)
    assert planner._allowed(trial) == second
    trial.status = replace(trial.status, step=10**9 - 1)
    assert planner._allowed(trial) == 10**9


def test_a_population_copies_weights_and_changes_values(examples):
    _, run = examples.calm("random", "pbt")
    generations = run.generations()
    # 2 arms x 2 seeds are 4 populations, each judged at steps 3, 6 and 9; one of three copies another each time.
    assert len(generations) == 12
    assert all(len(generation["moves"]) == 1 for generation in generations)
    changed = {trial for generation in generations for trial in generation["moves"]}
    for folder in run.trials():
        rows = folder.rows()
        assert [row["step"] for row in rows] == [3, 6, 9, 12]
        assert (folder.id in changed) == any("overrides" in row for row in rows)


# ---- members of a population that have lost something


@pytest.fixture
def population(tmp_path, examples):
    """A population based sweep: its file, what it comes to undisturbed, and a run that died on the way."""
    path, calm = examples.calm("random", "pbt")
    return path, table(calm), copied(examples.dead_population()[1], tmp_path)


def last_moves(run):
    """Of each trial that took another over: the step, and the one it took over last."""
    return {id: (made["step"], move["source"]) for made in run.generations() for id, move in made["moves"].items()}


def unfinished(run):
    found = {id: last for id, last in last_moves(run).items() if not run.trial(id).status().final}
    assert found, "the run died too early or too late for this test"
    return found


def damage(checkpoints, step):
    path = checkpoints.path(step)
    path.write_bytes(path.read_bytes()[:-1] + b"x")


@pytest.mark.slow
def test_the_folder_of_a_member_may_be_removed_and_is_computed_again(population):
    """What messages about damaged files tell the user to do."""
    path, expected, run = population
    for id in [*unfinished(run)][:1]:
        shutil.rmtree(run.trial(id).path)
    planner = simulate(run, path, np.random.default_rng(2))
    assert table(run) == expected
    assert len(planner.notes) == 1
    assert "its population of 3 trials is computed again from the start" in planner.notes[0]


@pytest.mark.slow
def test_the_folder_of_a_finished_member_may_be_removed_too(population):
    path, expected, run = population
    simulate(run, path, np.random.default_rng(2))
    for id in [*last_moves(run)][::2]:
        shutil.rmtree(run.trial(id).path)
    simulate(run, path, np.random.default_rng(3))
    assert table(run) == expected


@pytest.mark.slow
def test_the_folder_of_a_member_that_took_nobody_over_is_computed_again_by_itself(population):
    path, expected, run = population
    simulate(run, path, np.random.default_rng(2))
    never = [folder for folder in run.trials() if folder.id not in last_moves(run)]
    shutil.rmtree(never[0].path)
    planner = simulate(run, path, np.random.default_rng(3))
    assert table(run) == expected
    assert planner.notes == []


@pytest.mark.slow
def test_a_member_without_an_intact_checkpoint_copies_its_source_again(population):
    path, expected, run = population
    moved = unfinished(run).items()
    id = next(id for id, (step, source) in moved if run.trial(source).checkpoints.path(step).exists())
    own = run.trial(id).checkpoints
    for at in own.steps():
        damage(own, at)
    kept = run.generations()
    planner = simulate(run, path, np.random.default_rng(2))
    assert table(run) == expected
    assert planner.notes == []
    assert run.generations()[: len(kept)] == kept


@pytest.mark.slow
def test_a_member_whose_source_has_lost_the_checkpoint_too_begins_again_with_its_population(population):
    path, expected, run = population
    id, (step, source) = next(iter(unfinished(run).items()))
    for folder in (run.trial(id), run.trial(source)):
        for at in folder.checkpoints.steps():
            damage(folder.checkpoints, at)
    planner = simulate(run, path, np.random.default_rng(2))
    assert table(run) == expected
    taken = f"trial {id} copied trial {source} at step {step}, and neither trial has an intact checkpoint since then; "
    assert planner.notes[0].startswith(taken)


@pytest.mark.slow
@pytest.mark.parametrize("how", cases(*((how,) for how in CUTS), quick=[("altered",)]))
def test_cut_rows_of_a_population_are_computed_again_to_the_bit(population, how):
    path, expected, run = population
    for folder in run.trials()[::2]:
        cut(folder, how)
    simulate(run, path, np.random.default_rng(2))
    assert table(run) == expected
    for folder in run.trials()[1::3]:
        cut(folder, how)
    simulate(run, path, np.random.default_rng(3))
    assert table(run) == expected


@pytest.mark.slow
def test_an_unfinished_population_without_its_history_begins_again(population):
    path, expected, run = population
    (run.path / "population.json").unlink()
    simulate(run, path, np.random.default_rng(2))
    assert table(run) == expected


@pytest.mark.slow
@pytest.mark.parametrize("dying", ["restart", "set_generations"])
def test_a_driver_that_dies_while_a_population_begins_again_does_it_once_more(population, monkeypatch, dying):
    path, expected, run = population
    shutil.rmtree(run.trial(next(iter(unfinished(run)))).path)
    owner = TrialFolder if dying == "restart" else Run
    real, calls = getattr(owner, dying), []

    def dies(self, *arguments):
        calls.append(self)
        if dying == "set_generations" or len(calls) == 2:
            raise Death
        real(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(owner, dying, dies)
        with pytest.raises(Death):
            simulate(run, path, np.random.default_rng(2))
    simulate(run, path, np.random.default_rng(3))
    assert table(run) == expected


@pytest.mark.slow
def test_a_checkpoint_that_is_to_be_copied_and_is_damaged_is_made_again(tmp_path, examples, monkeypatch):
    (path, calm), run = examples.calm("random", "pbt"), Run(tmp_path / "runs" / "tiny" / "main")
    real, damaged = planner_module.moves, []

    def moves_and_damage(scheduler, name, step, members, domains):
        chosen = real(scheduler, name, step, members, domains)
        for move in chosen.values():
            if (name, step) not in damaged:
                damaged.append((name, step))
                damage(run.trial(move["source"]).checkpoints, step)
        return chosen

    with monkeypatch.context() as patch:
        patch.setattr(planner_module, "moves", moves_and_damage)
        simulate(run, path, np.random.default_rng(0))
    assert len(damaged) == 12
    assert table(run) == table(calm)


def test_a_finished_sweep_runs_nothing_again(tmp_path, examples):
    path, calm = examples.calm()
    run, before = copied(calm, tmp_path), table(calm)
    planner = simulate(run, path, np.random.default_rng(1), dies_after=1)
    assert planner.finished
    assert table(run) == before


def test_a_grown_sweep_runs_only_its_new_points(tmp_path, examples):
    path, calm = examples.calm()
    run = copied(calm, tmp_path)
    old = {folder.id: folder.rows_path.stat().st_mtime_ns for folder in run.trials()}
    simulate(run, path, np.random.default_rng(0), overrides=["seeds=3"])
    assert len(run.trials()) == 18
    assert {id: run.trial(id).rows_path.stat().st_mtime_ns for id in old} == old


@pytest.mark.slow
def test_more_optuna_points_continue_with_the_same_study(tmp_path, examples):
    path, calm = examples.calm("optuna")
    run = copied(calm, tmp_path)
    simulate(run, path, np.random.default_rng(0), overrides=["search.points=6"])
    whole = Run(tmp_path / "runs" / "tiny" / "whole")
    simulate(whole, path, np.random.default_rng(1), overrides=["search.points=6"])
    # The first suggestions are the same; later ones know more results than in one go, so only the number must agree.
    assert len(run.trials()) == len(whole.trials()) == 24


@pytest.mark.slow
def test_raising_stop_steps_continues_where_it_stopped(tmp_path, examples):
    (path, whole), halves = examples.calm(), Run(tmp_path / "runs" / "tiny" / "halves")
    simulate(halves, path, np.random.default_rng(0), overrides=["stop.steps=6"])
    assert {folder.status().step for folder in halves.trials()} == {6}
    simulate(halves, path, np.random.default_rng(0))
    assert table(halves) == table(whole)


@pytest.mark.slow
def test_a_plateau_ends_a_trial_at_the_same_step_every_time(tmp_path, examples):
    (path, calm), killed = examples.calm("grid", *ENDS["a plateau"]), Run(tmp_path / "runs" / "tiny" / "killed")
    assert disturbed(killed, path, 5) > 0
    assert table(killed) == table(calm)
    causes = [folder.status().cause for folder in calm.trials()]
    assert any(cause.startswith("stop.plateau") for cause in causes)


@pytest.mark.slow
def test_a_trial_that_diverges_ends_with_its_last_good_row_and_the_sweep_continues(tmp_path):
    path = sweep_file(tmp_path)
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, path, np.random.default_rng(0), overrides=["training.learning_rate={grid: [1e-2, 1e18]}"])
    states = [(folder.status().state, folder.rows()) for folder in run.trials()]
    assert {state for state, _ in states} == {"done", "diverged"}
    for state, rows in states:
        assert all(np.isfinite(row["metrics"]["loss"]) for row in rows)
        assert bool(rows and rows[-1]["step"] == 12) == (state == "done")


def test_optuna_is_informed_of_a_point_that_diverged(tmp_path):
    path, run = sweep_file(tmp_path, "optuna"), Run(tmp_path / "runs" / "tiny" / "main")
    planner = simulate(run, path, np.random.default_rng(0), overrides=["training.learning_rate=1e18"])
    assert {trial.state.name for study in planner.studies.values() for trial in study.trials} == {"FAIL"}


@pytest.mark.slow
def test_optuna_receives_the_mean_over_seeds(tmp_path):
    path, run = sweep_file(tmp_path, "optuna"), Run(tmp_path / "runs" / "tiny" / "main")
    planner = simulate(run, path, np.random.default_rng(0))
    last = {record.trial_id: record.last()["metrics"]["mig"] for record in read(run).records}
    for arm, study in planner.studies.items():
        for trial, replicates in zip(study.trials, planner._points[arm], strict=True):
            assert len(replicates) == 2
            assert trial.value == pytest.approx(sum(last[one.id] for one in replicates) / 2)


@pytest.mark.slow
def test_optuna_is_given_the_values_where_trials_end_between_two_evaluations(tmp_path):
    path, run = sweep_file(tmp_path, "optuna"), Run(tmp_path / "runs" / "tiny" / "main")
    planner = simulate(run, path, np.random.default_rng(0), overrides=["stop.steps=7", "training.log_every=2"])
    ends = {record.trial_id: (record.step_of("mig"), record.last()["metrics"]["mig"]) for record in read(run).records}
    assert {step for step, _ in ends.values()} == {7}
    for arm, study in planner.studies.items():
        for trial, replicates in zip(study.trials, planner._points[arm], strict=True):
            assert trial.value == pytest.approx(sum(ends[one.id][1] for one in replicates) / 2)


# ---- seeds of a point


def by_point(run):
    """{arm: {beta: [folders, by seed]}} of a run, in sweep order."""
    points = {}
    for folder in sorted(run.trials(), key=lambda one: (one.tree()["framework"]["beta"], one.tree()["seed"])):
        beta = folder.tree()["framework"]["beta"]
        points.setdefault(folder.arms()[0], {}).setdefault(beta, []).append(folder)
    return points


def values(folder):
    return {row["step"]: row["metrics"]["mig"] for row in folder.rows() if "mig" in row["metrics"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "scheduler"),
    cases(
        *itertools.product(SEARCHES, ["asha", "median"]),
        quick=[("optuna", "median")],
    ),
)
def test_the_seeds_of_a_point_stop_and_continue_together(tmp_path, search, scheduler):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, sweep_file(tmp_path, search, scheduler), np.random.default_rng(0), overrides=["seeds=3"])
    ends = [{one.status().step for one in seeds} for arm in by_point(run).values() for seeds in arm.values()]
    assert all(len(steps) == 1 for steps in ends)
    assert {12} < set.union(*ends)


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [1, 2, pytest.param(3, marks=pytest.mark.long)])
def test_asha_equals_successive_halving_of_the_means_over_seeds(tmp_path, seeds):
    """By a loop over the rows of a run in which nothing was stopped."""
    grid = ["framework.beta={grid: [1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 1]}", f"seeds={seeds}"]
    whole, cut = (Run(tmp_path / "runs" / "tiny" / name) for name in ("whole", "cut"))
    simulate(whole, sweep_file(tmp_path), np.random.default_rng(0), overrides=grid)
    simulate(cut, sweep_file(tmp_path, "grid", "asha"), np.random.default_rng(0), overrides=grid)
    expected, found = {}, {}
    for arm, points in by_point(whole).items():
        alive = list(points)
        expected |= {(arm, beta): 12 for beta in alive}
        for rung in (3, 6):
            means = {beta: np.mean([values(one)[rung] for one in points[beta]]) for beta in alive}
            for number, beta in enumerate(alive):
                best = sorted((means[other] for other in alive[: number + 1]), reverse=True)
                if means[beta] < best[max(1, (number + 1) // 2) - 1]:
                    expected[arm, beta] = rung
            alive = [beta for beta in alive if expected[arm, beta] == 12]
    for arm, points in by_point(cut).items():
        found |= {(arm, beta): max(one.status().step for one in seeds) for beta, seeds in points.items()}
    assert found == expected
    assert len(set(found.values())) > 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheduler", "at"),
    cases(*itertools.product(["asha", "median"], ["last", "best"]), quick=[("median", "best")]),
)
def test_optuna_is_given_means_over_seeds_at_one_step(tmp_path, scheduler, at):
    path, run = sweep_file(tmp_path, "optuna", scheduler), Run(tmp_path / "runs" / "tiny" / "main")
    overrides = [f"objective.at={at}", "search.points=6"]
    planner, states = simulate(run, path, np.random.default_rng(0), overrides=overrides), set()
    for arm, study in planner.studies.items():
        for trial, seeds in zip(study.trials, planner._points[arm], strict=True):
            (step,) = {one.folder.status().step for one in seeds}
            rows = [values(one.folder) for one in seeds]
            last = [max(of_one.values()) if at == "best" else of_one[step] for of_one in rows]
            assert trial.state.name == ("COMPLETE" if step == 12 else "PRUNED")
            assert trial.value == pytest.approx(sum(last) / 2, rel=1e-12)
            assert list(trial.intermediate_values) == ([] if step == 12 else [step])
            states.add(trial.state.name)
    assert states == {"COMPLETE", "PRUNED"}


def made_up(run, sweep, scores):
    """Carries a sweep out with scores(config)[step] instead of training."""
    with run.locked() as session:
        run.record(sweep)
        planner = Planner(run, check(sweep), session)
        while (segment := planner.next()) is not None:
            trial = planner.trials[segment.trial_id]
            course = scores(trial.config)
            for step in (step for step in sorted(course) if trial.status.step < step <= segment.until):
                row = {"step": step, "metrics": {"mig": course[step]}}
                trial.folder.append_row(row)
                planner.report(trial.id, StepReport(step, row))
            is_last = segment.until == trial.config.training.steps
            trial.folder.update_status(state="done" if is_last else "pending", step=segment.until)
            planner.report(trial.id, StepReport(segment.until, None, "done" if is_last else "paused"))
    assert planner.finished
    return planner


def test_optuna_gets_a_stopped_point_at_its_rung_and_no_mixture_of_steps(tmp_path):
    """Two seeds, of which one alone would have continued to the end; at the rung their mean is 0.0636."""
    path = sweep_file(tmp_path, "optuna", "asha")
    sweep = read_sweep(path, ["search.points=2", "search.in_flight=1"])
    first = {}

    def scores(config):
        arm = config.framework.name
        if first.setdefault(arm, config.framework.params.beta) == config.framework.params.beta:
            return {3: 0.08, 6: 0.5, 9: 0.5, 12: 0.5}
        return [{3: 0.0417, 6: 0.05, 9: 0.05, 12: 0.05}, {3: 0.0855, 6: 0.1, 9: 0.15, 12: 0.1991}][config.seed]

    planner = made_up(Run(tmp_path / "runs" / "tiny" / "main"), sweep, scores)
    for study in planner.studies.values():
        told = study.trials[1]
        assert told.state.name == "PRUNED"
        assert told.intermediate_values == {3: pytest.approx(0.0636)}
        assert told.value == pytest.approx(0.0636)


@pytest.mark.slow
def test_a_seed_that_a_sweep_is_given_later_follows_its_point(tmp_path):
    path, run = sweep_file(tmp_path, "grid", "asha"), Run(tmp_path / "runs" / "tiny" / "main")
    simulate(run, path, np.random.default_rng(0), overrides=["seeds=2"])
    before = {folder.id: folder.status().step for folder in run.trials()}
    simulate(run, path, np.random.default_rng(0), overrides=["seeds=4"])
    assert {id: run.trial(id).status().step for id in before} == before
    for points in by_point(run).values():
        for seeds in points.values():
            assert len(seeds) == 4
            assert len({one.status().step for one in seeds}) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "scheduler"),
    cases(
        *itertools.product(SEARCHES, ["asha", "median"]),
        quick=[("grid", "asha"), ("random", "median"), ("optuna", "median")],
    ),
)
def test_a_seed_that_fails_holds_nothing_up(tmp_path, monkeypatch, search, scheduler):
    from disentune.runs import segment

    class Broken(segment.Training):
        def _batch(self):
            if self.config.seed == 1 and self.step > 1:
                raise RuntimeError("the disk of batches is scratched")
            return super()._batch()

    monkeypatch.setattr(segment, "Training", Broken)
    path, run = sweep_file(tmp_path, search, scheduler), Run(tmp_path / "runs" / "tiny" / "main")
    planner = simulate(run, path, np.random.default_rng(0))
    for points in by_point(run).values():
        for seeds in points.values():
            assert [one.status().state for one in seeds] in (["done", "failed"], ["stopped", "failed"])
    assert {one.state.name for study in planner.studies.values() for one in study.trials} <= {"FAIL"}


def test_a_lost_worker_is_replaced_but_not_for_ever(tmp_path):
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    sweep = read_sweep(path)
    with run.locked() as session:
        planner = Planner(run, check(sweep), session)
        for _ in range(sweep.settings.retries.lost + 1):
            segment = planner.next()
            message = planner.lost(segment.trial_id, "the node burnt")
        assert "failed" in message
        status = run.trial(segment.trial_id).status()
        assert status.state == "failed"
        assert "the node burnt" in status.cause
        assert planner.next().trial_id != segment.trial_id


# ---- faults by cause


class Clock:
    """Stands still until it is moved."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def faulty(tmp_path):
    """Makes planners of one run, each for a new session, at a clock that stands still."""
    run, clock = Run(tmp_path / "runs" / "tiny" / "main"), Clock()

    def planner(*overrides, **more):
        sweep = read_sweep(sweep_file(tmp_path), overrides)
        with run.locked() as session:
            return Planner(run, check(sweep), session, clock=clock, **more)

    planner.run, planner.clock = run, clock
    return planner


def begun(planner, node_id="node-1"):
    """The next segment, whose worker has got as far as saying where it is."""
    segment = planner.next()
    planner.run.trial(segment.trial_id).update_status(state="running", attempts=segment.attempt, node_id=node_id)
    return segment.trial_id


@pytest.mark.slow
@pytest.mark.parametrize(
    ("search", "scheduler"),
    cases(*itertools.product(["grid", "optuna"], ["asha", "none"]), quick=[("grid", "none"), ("optuna", "asha")]),
)
def test_lost_nodes_and_workers_that_live_on_change_nothing(tmp_path, examples, search, scheduler):
    (path, calm), run = examples.calm(search, scheduler), Run(tmp_path / "runs" / "tiny" / "faulty")
    seen = simulate_faults(run, path, np.random.default_rng(1))
    assert min(seen.values()) > 3
    assert table(run) == table(calm)
    assert sum(sum(folder.status().faults.values()) for folder in run.trials()) <= seen["lost"]


@pytest.mark.parametrize("cause", ["node", "preempted", "storage"])
def test_what_is_not_the_trial_s_fault_never_counts_against_it(faulty, cause):
    planner = faulty()
    for _ in range(20):
        trial_id = begun(planner)
        message = planner.lost(trial_id, "spot", cause)
        planner.report(trial_id, StepReport(0, {"step": 0, "metrics": {}}))  # the storage works for others
        faulty.clock.now += 100
    assert message.startswith(f"{trial_id} ")
    assert "continues from there: spot" in message
    assert faulty.run.trial(trial_id).status().faults == {cause: 20}
    assert faulty.run.trial(trial_id).status().state == "pending"
    assert planner.next().trial_id == trial_id


def test_every_start_has_a_number_of_its_own_even_if_no_worker_came_so_far(faulty):
    planner = faulty()
    first = planner.next()
    planner.lost(first.trial_id, "its worker never began")
    second = planner.next()
    assert (second.trial_id, second.attempt) == (first.trial_id, first.attempt + 1)


def test_a_stretch_that_ended_well_forgives_lost_workers(faulty):
    planner = faulty("retries.lost=1")
    for _ in range(5):
        trial_id = begun(planner)
        assert "continues from there" in planner.lost(trial_id, "gone")
        assert begun(planner) == trial_id
        planner.report(trial_id, StepReport(0, None, "paused"))


def test_an_ending_without_a_fault_is_not_counted(faulty):
    planner = faulty()
    trial_id = begun(planner)
    assert "waits for another worker: 512 MB" in planner.lost(trial_id, "512 MB are held", None)
    assert faulty.run.trial(trial_id).status().faults == {}
    assert planner.next().trial_id == trial_id


def test_a_node_that_is_taken_away_is_left_alone_for_a_moment(faulty):
    planner = faulty()
    left = begun(planner)
    planner.lost(left, "spot", "preempted")
    assert begun(planner) != left
    faulty.clock.now += LEAVE_S
    assert planner.next().trial_id == left


def test_storage_that_fails_is_tried_again_later_and_later(faulty):
    planner = faulty()
    rests = []
    for _ in range(9):
        trial_id = begun(planner)
        planner.lost(trial_id, "No space left", "storage")
        planner.report(trial_id, StepReport(0, {"step": 0, "metrics": {}}))
        rests.append(planner.trials[trial_id].rests_until - faulty.clock.now)
        faulty.clock.now += rests[-1]
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_storage_that_stays_away_ends_the_session_in_words(faulty):
    planner = faulty()
    for number in range(STORAGE_FAULTS):
        assert not planner.trouble
        faulty.clock.now += STORAGE_S / (STORAGE_FAULTS - 1) * (number > 0)
        planner.lost(begun(planner), "No space left", "storage")
    assert isinstance(planner.trouble, Unavailable)
    assert "no trial could use the storage for 300 s" in str(planner.trouble)
    assert not planner.finished, "nothing has failed: it can be resumed"


def test_a_trial_that_is_stopped_makes_room_for_the_next_at_once(tmp_path, monkeypatch):
    run = Run(tmp_path / "runs" / "tiny" / "main")
    sweep = read_sweep(sweep_file(tmp_path, "optuna"), ["search.in_flight=1", "seeds=1"])
    with run.locked() as session:
        planner = Planner(run, check(sweep), session)
    arms = len(planner.open)
    waiting, stopped = list(planner.open), []
    real = Planner._allowed

    def allowed(self, trial):
        if trial not in waiting:
            return real(self, trial)
        if not stopped:
            stopped.append(trial)
            trial.folder.create(trial.config, trial.point.arms)
            self._close(trial, "stopped", "scheduler.asha: stopped at step 0")
        return None

    monkeypatch.setattr(Planner, "_allowed", allowed)
    assert planner.next().trial_id not in {trial.id for trial in waiting}
    assert len(planner.trials) == arms + 1


def test_a_folder_that_cannot_be_made_is_tried_again_later(faulty, monkeypatch):
    planner = faulty()

    def fail(self, config, arms):
        raise OSError(errno.ENOSPC, "No space left")

    with monkeypatch.context() as patch:
        patch.setattr(TrialFolder, "create", fail)
        assert planner.next() is None
        assert not planner.trouble
        for _ in range(STORAGE_FAULTS):
            faulty.clock.now += STORAGE_S
            assert planner.next() is None
        assert isinstance(planner.trouble, Unavailable)
    assert planner.next() is not None


@pytest.mark.parametrize(("number", "waits"), [(errno.EROFS, True), (errno.ENOSPC, True), (errno.ENOENT, False)])
def test_a_verdict_that_cannot_be_written_is_written_later(faulty, monkeypatch, number, waits):
    planner = faulty()

    def fail(self, trial):
        raise OSError(number, "not now")

    with monkeypatch.context() as patch:
        patch.setattr(Planner, "_allowed", fail)
        if waits:
            assert planner.next() is None
        else:  # a checkpoint to be copied is gone
            with pytest.raises(FileNotFoundError):
                planner.next()
    assert not planner.trouble
    assert planner.next() is not None


def test_a_search_that_missed_a_result_ends_the_driver(tmp_path, monkeypatch):
    """Its journal may hold half an entry, which the next driver cuts off."""
    run = Run(tmp_path / "runs" / "tiny" / "main")
    with run.locked() as session:
        planner = Planner(run, check(read_sweep(sweep_file(tmp_path, "optuna"))), session)

    def fail(self, *result):
        raise OSError(errno.ENOSPC, "No space left")

    def allowed(self, trial):
        trial.folder.create(trial.config, trial.point.arms)
        self._close(trial, "stopped", "scheduler.asha: stopped at step 0")

    monkeypatch.setattr(Suggestions, "tell", fail)
    monkeypatch.setattr(Planner, "_allowed", allowed)
    with pytest.raises(OSError, match="No space left"):
        planner.next()


@pytest.mark.parametrize("row", [None, {"step": 0, "metrics": {}}])
def test_storage_that_works_in_between_does_not(faulty, row):
    planner = faulty()
    for _ in range(3 * STORAGE_FAULTS):
        faulty.clock.now += STORAGE_S / 2
        trial_id = begun(planner)
        planner.lost(trial_id, "No space left", "storage")
        planner.report(trial_id, StepReport(0, row))
    assert not planner.trouble


def test_storage_that_fails_for_the_driver_too_loses_no_trial(faulty, monkeypatch):
    planner = faulty()
    trial_id = begun(planner)

    def fail(self):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(type(faulty.run.trial(trial_id)), "status", fail)
        assert "could not use the storage" in planner.lost(trial_id, "Input/output error", "storage")
    faulty.clock.now += 100
    assert planner.next().trial_id == trial_id


@pytest.mark.parametrize(("gpu", "then"), [(0.25, 1), (1, 1), (0, 0)])
def test_a_trial_that_ran_out_of_memory_continues_alone_on_a_whole_gpu(faulty, gpu, then):
    planner = faulty(f"resources.gpu={gpu}", "training.device=cpu")
    first = planner.next()
    assert first.settings["resources"]["gpu"] == gpu
    faulty.run.trial(first.trial_id).update_status(state="running", attempts=first.attempt)
    assert "ran out of memory" in planner.lost(first.trial_id, "killed", "memory")
    faulty.clock.now += LONGEST_REST_S
    second = planner.next()
    assert second.trial_id == first.trial_id
    assert second.settings["resources"]["gpu"] == then
    assert planner.next().settings["resources"]["gpu"] == gpu, "the others share as before"


def test_a_worker_that_was_killed_for_memory_before_its_trial_began_is_tried_again_later(faulty):
    planner = faulty("retries.memory=0")
    trial_id = planner.next().trial_id
    assert "waits for another worker: low on memory" in planner.lost(trial_id, "low on memory", "memory")
    assert planner.next().trial_id != trial_id
    faulty.clock.now += LONGEST_REST_S
    assert planner.next().trial_id == trial_id
    assert faulty.run.trial(trial_id).status().faults == {}


@pytest.mark.parametrize("cause", ["memory", "error"])
def test_retries_are_counted_across_sessions(faulty, cause):
    trial_id = begun(planner := faulty("retries.error=1"))
    assert "continues" in planner.lost(trial_id, "first", cause)
    assert begun(planner := faulty("retries.error=1")) == trial_id
    assert "failed" in planner.lost(trial_id, "second", cause)
    status = faulty.run.trial(trial_id).status()
    assert (status.state, status.cause, status.faults) == ("failed", "second", {cause: 2})


def test_a_hang_that_its_worker_has_counted_is_a_hang_and_not_a_lost_worker(faulty):
    planner = faulty("retries.hang=1", "retries.lost=0")
    trial_id = begun(planner)
    faulty.run.trial(trial_id).update_status(state="pending", faults={"hang": 1})
    assert f"{trial_id} hung" in planner.lost(trial_id, "its process ended", "lost")
    assert faulty.run.trial(trial_id).status().faults == {"hang": 1}
    assert begun(planner) == trial_id


def test_a_hang_that_ended_the_trial_is_reported(faulty):
    planner = faulty("retries.hang=0")
    trial_id = begun(planner)
    faulty.run.trial(trial_id).update_status(state="failed", cause="no training step\nstacks", faults={"hang": 1})
    assert planner.lost(trial_id, "its process ended") == f"{trial_id} failed: no training step"
    assert planner.next().trial_id != trial_id


def test_a_checkpoint_in_between_forgives_lost_workers(faulty):
    planner = faulty("retries.lost=1", "training.log_every=12", "evaluation.every=12")  # so that no row is due
    for step in range(1, 6):
        trial_id = begun(planner)
        faulty.run.trial(trial_id).update_status(step=step)
        assert "continues" in planner.lost(trial_id, "segmentation fault")
    assert "failed" in planner.lost(begun(planner), "segmentation fault")


def test_a_worker_whose_node_turns_out_to_have_died_was_not_lost(faulty):
    dead = set()
    planner = faulty("retries.lost=1", is_dead=dead.__contains__)
    for number in range(5):
        trial_id = begun(planner, f"node-{number}")
        assert "continues" in planner.lost(trial_id, "no answer")
        dead.add(f"node-{number}")
    assert begun(planner) == trial_id


@pytest.mark.parametrize("died", [True, False])
def test_a_last_loss_is_judged_when_the_cluster_knows_of_the_node(faulty, died):
    planner = faulty("retries.lost=0", is_dead=lambda node_id: died and faulty.clock.now >= known_at)
    known_at = faulty.clock.now + DOUBT_S
    trial_id = begun(planner)
    planner.lost(trial_id, "no answer", certain=False)
    assert begun(planner) != trial_id, "it waits"
    assert faulty.run.trial(trial_id).status().state == "pending"
    faulty.clock.now += DOUBT_S
    assert (planner.next().trial_id == trial_id) == died
    status = faulty.run.trial(trial_id).status()
    assert (status.state == "failed") != died
    assert ("no answer" in status.cause) != died


def test_a_failing_trial_keeps_its_traceback_and_the_others_continue(tmp_path, monkeypatch):
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    from disentune.runs import segment

    class Broken(segment.Training):
        def _batch(self):
            if self.config.seed == 1 and self.step > 4:
                raise RuntimeError("the disk of batches is scratched")
            return super()._batch()

    monkeypatch.setattr(segment, "Training", Broken)
    simulate(run, path, np.random.default_rng(0))
    by_seed = {0: set(), 1: set()}
    for folder in run.trials():
        by_seed[folder.tree()["seed"]].add(folder.status().state)
    assert by_seed == {0: {"done"}, 1: {"failed"}}
    cause = next(f.status().cause for f in run.trials() if f.status().state == "failed")
    assert cause.startswith("RuntimeError: the disk of batches is scratched")
    assert "_batch" in cause


def test_a_worker_of_an_earlier_driver_writes_no_more(tmp_path):
    path, run = sweep_file(tmp_path), Run(tmp_path / "runs" / "tiny" / "main")
    with run.locked() as session:
        planner = Planner(run, check(read_sweep(path)), session)
        segment = planner.next()
        stale = work(segment)
        next(stale)
    with run.locked():
        from disentune.runs.segment import Superseded

        with pytest.raises(Superseded):
            list(stale)
    assert run.trial(segment.trial_id).rows() == []


def test_rows_of_a_worker_that_was_given_up_before_it_began_count_for_the_scheduler(tmp_path):
    path, run = sweep_file(tmp_path, "grid", "asha"), Run(tmp_path / "runs" / "tiny" / "main")
    with run.locked() as session:
        run.record(read_sweep(path))
        planner = Planner(run, check(read_sweep(path)), session, clock=itertools.count(step=100).__next__)
        segment = planner.next()
        planner.lost(segment.trial_id, "simulated", None)
        for _ in zip(range(segment.until), work(segment), strict=False):
            pass  # it was only slow: it begins now, and its rows reach nobody
        again = planner.next()
        assert again.trial_id == segment.trial_id
        for report in work(again):
            planner.report(again.trial_id, report)
        assert segment.until in planner.trials[again.trial_id].history.values


def test_a_stop_request_checkpoints_where_it_stands(tmp_path, monkeypatch):
    from disentune.runs import segment as module

    monkeypatch.setattr(module, "POLL_S", 0.0)
    path, run = sweep_file(tmp_path, extra=""), Run(tmp_path / "runs" / "tiny" / "main")
    with run.locked() as session:
        planner = Planner(run, check(read_sweep(path, ["checkpoint.every_steps=1000"])), session)
        segment = planner.next()
        reports = work(segment)
        assert [next(reports).step for _ in range(5)] == [1, 2, 3, 4, 5]
        run.stop_path.touch()
        last = next(reports)
    assert (last.step, last.outcome) == (6, "interrupted")
    assert run.trial(segment.trial_id).checkpoints.steps()[-1] == 6
    assert run.trial(segment.trial_id).status().state == "pending"


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.long) for part in (1, 2))])
def test_a_suggestion_cut_short_in_the_journal_is_taken_back(tmp_path, examples, part):
    path, calm = examples.calm("optuna")
    lines = calm.journal_path.read_bytes().splitlines(keepends=True)
    cuts = [i for i, line in enumerate(lines) if json.loads(line)["op_code"] in (4, 5)]
    chosen = cuts[1::3][part::3]
    assert chosen
    for cut in chosen:
        torn = Run(tmp_path / "runs" / "tiny" / f"torn-{cut}")
        torn.path.mkdir(parents=True)
        torn.journal_path.write_bytes(b"".join(lines[: cut + 1]) + b'{"op_code": 5, "wor')
        simulate(torn, path, np.random.default_rng(cut))
        assert table(torn) == table(calm)


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", [pytest.param("none", marks=pytest.mark.long), "asha"])
def test_a_search_without_its_journal_makes_the_same_suggestions_from_the_rows(tmp_path, examples, scheduler):
    (path, calm), cut = examples.calm("optuna", scheduler), Run(tmp_path / "runs" / "tiny" / "cut")
    for reports in (60, 20):
        with pytest.raises(Death):
            simulate(cut, path, np.random.default_rng(reports), dies_after=reports)
        cut.journal_path.unlink()
    simulate(cut, path, np.random.default_rng(1))
    assert table(cut) == table(calm)
