"""What a run would do, before it does it: trials done, continuing and new, disk, and time by a short probe."""

import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from disentune.data.prepared.preparing import assert_obtainable
from disentune.data.prepared.store import about_of, is_root_set, root, use_root
from disentune.data.prepared.stored import contents
from disentune.environment import differences
from disentune.errors import ConfigError, DataError, Problem, first_line
from disentune.learn import process
from disentune.learn.evaluation import evaluated
from disentune.learn.training import Training, built_model
from disentune.plugin import AutoEncoder, Source
from disentune.runs.choice import EVERY_TRIAL, Choice, choose, selected_by
from disentune.runs.ledger import Run, environment_with
from disentune.runs.rows import missing_rows_note
from disentune.runs.trial_folder import CONFIG, ROWS, STATUS, Sound, Status, TrialFolder, is_final
from disentune.spec import space
from disentune.spec.config import TrialConfig, changed_keys, flattened
from disentune.spec.settings import OptunaSearch
from disentune.spec.space import Point, SweepPoints
from disentune.spec.sweepfile import SweepFile

PROBE_STEPS = 30


@dataclass(frozen=True)
class Plan:
    """Counts of trials; `continuing` maps unfinished ones to the step they go on from."""

    sweep: str
    trials: int
    done: int
    new: int
    continuing: dict[str, int]
    arms: dict[str, int]
    warnings: list[str] = field(default_factory=list)
    sources: tuple[Source, ...] = ()
    """Prepared data that the unfinished trials read."""
    choice: Choice = EVERY_TRIAL
    """The trials that the counts are of."""

    def as_json(self) -> dict[str, Any]:
        return {
            "sweep": self.sweep,
            "trials": self.trials,
            "done": self.done,
            "continuing": len(self.continuing),
            "new": self.new,
            "arms": [{"name": name, "trials": count} for name, count in self.arms.items()],
            "problems": [],
        }


def make_plan(
    asked: SweepPoints,
    run: Run,
    only: str | None = None,
    limit: int | None = None,
    retry_failed: bool = False,
    say: space.Say = lambda what, done, total: None,
) -> Plan:
    """Compares a sweep with the ledger. Raises ConfigError with every problem."""
    sweep = asked.sweep
    selection = selected_by(sweep, only)
    use_root(sweep.settings.data.root)
    folders = run.known_trials(CONFIG, STATUS, ROWS)
    read = _read_whole(folders)
    statuses, gaps = {id: sound.status for id, sound in read.items()}, _gap_notes(read)
    if retry_failed:
        statuses = {id: replace(s, state="pending") if s.state == "failed" else s for id, s in statuses.items()}
    if isinstance(sweep.settings.search, OptunaSearch):
        return replace(_suggested_plan(asked, run, folders, statuses, gaps), choice=Choice(most=limit))
    by_id = _by_id(asked.points, say)
    configs = [point.config for point in by_id.values()]
    _refuse_changed_meaning(sweep, run, folders, configs)
    _refuse_other_contents(configs, statuses)
    choice = choose(asked.points, statuses, selection, limit)
    points = [point for id, point in by_id.items() if choice.has(id)]
    states = [statuses.get(point.config.id) for point in points]
    begun = [(point.config, status) for point, status in zip(points, states, strict=True) if status is not None]
    continuing = {
        config.id: status.step
        for config, status in begun
        if not is_final(status, config.training.steps, sweep.settings)
    }
    done = len(begun) - len(continuing)
    counts = Counter(arm for point in points for arm in point.arms)
    arms = {arm: counts[arm] for arm in sweep.arms}
    new = len(points) - done - len(continuing)
    finished = {config.id for config, _ in begun} - continuing.keys()
    sources = _sources(point.config for point in points if point.config.id not in finished)
    warnings = gaps + _warnings(run, sweep, statuses)
    return Plan(sweep.name, len(points), done, new, continuing, arms, warnings, sources, choice)


def _by_id(points: Sequence[Point], say: space.Say) -> dict[str, Point]:
    found: dict[str, Point] = {}
    for done, point in enumerate(points):
        say("counting trials", done, len(points))
        found[point.config.id] = point
    return found


def plan_afresh(asked: SweepPoints, only: str | None = None) -> Plan:
    """As if nothing had been done: for a command that does not see the run."""
    return make_plan(asked, Run(Path(os.devnull) / "no run"), only)


def sources_of(config: TrialConfig) -> tuple[Source, ...]:
    """Prepared data that a trial reads."""
    return tuple(config.dataset.plugin.sources(config.dataset.params))


def _sources(configs: Iterable[TrialConfig]) -> tuple[Source, ...]:
    """Each once."""
    return tuple({source.key: source for config in configs for source in sources_of(config)}.values())


def prepared(sources: Iterable[Source], data_root: str | None) -> set[str]:
    """Keys of those that this machine has prepared; none where no data root is known."""
    use_root(data_root)
    return {source.key for source in sources if _is_prepared(source)}


def _is_prepared(source: Source) -> bool:
    try:
        return about_of(source) is not None
    except DataError:
        return False


def unprepared(plan: Plan) -> list[Source]:
    """What must be prepared before a trial can start. ConfigError when the root is unknown or something is damaged."""
    try:
        missing = [source for source in plan.sources if about_of(source) is None]
        for source in missing:
            assert_obtainable(source)
    except DataError as error:
        raise ConfigError(str(error)) from None
    return missing


def _read_whole(folders: dict[str, TrialFolder]) -> dict[str, Sound]:
    """Reads every trial whole, so that all damage is known before anything starts. Raises one ConfigError with all."""
    read, damage = {}, list[str]()
    for id, folder in folders.items():
        try:
            read[id] = folder.sound()
        except ConfigError:
            damage += _damage(folder)
    if damage:
        raise ConfigError("\n".join(damage))
    return read


def _damage(folder: TrialFolder) -> Iterator[str]:
    """Of each file of a trial."""
    for read in (folder.tree, folder.rows, folder.status):
        try:
            read()
        except ConfigError as error:
            yield str(error)


def _gap_notes(read: dict[str, Sound]) -> list[str]:
    gaps = {id: sound.gap for id, sound in read.items() if sound.gap is not None}
    return [f"{missing_rows_note(gaps)}; they are computed again from there"] if gaps else []


def _suggested_plan(
    asked: SweepPoints, run: Run, folders: dict[str, TrialFolder], statuses: dict[str, Status], gaps: list[str]
) -> Plan:
    """A model-based search decides its points as it goes; only their number is known."""
    sweep = asked.sweep
    if folders or run.journal_path.exists():
        suggested = _suggested(asked, run)
        _refuse_changed_meaning(sweep, run, folders, suggested)
        _refuse_other_contents(suggested, statuses)
    arms = {arm: sweep.settings.search.points * len(sweep.seeds) for arm in sweep.arms}  # type: ignore[union-attr]
    continuing = {id: status.step for id, status in statuses.items() if not status.final}
    done = sum(status.final for status in statuses.values())
    new = max(0, sum(arms.values()) - done - len(continuing))
    corners = (config for _, config in asked.unseeded)
    return Plan(
        sweep.name, done + new + len(continuing), done, new, continuing, arms,
        gaps + _warnings(run, sweep, statuses), _sources(corners) if new or continuing else (),
    )  # fmt: skip


def _suggested(asked: SweepPoints, run: Run) -> list[TrialConfig]:
    """What the search has asked for so far; what a cut journal lacks is suggested again. Raises ConfigError when the
    search was begun with another sweep: its journal says so, or, if an earlier version wrote it, the run's own file."""
    from disentune.runs.planner import Planner, changed_search  # Optuna takes a moment to import
    from disentune.runs.suggest import meanings, rehearsal

    planner = Planner(run, asked, session="", open_journal=rehearsal)
    if run.exists() and any(study.begun_with is None for study in planner.studies.values()):
        before, now = meanings(run.sweep()), meanings(asked.sweep)
        changes = [changed_keys(before.get(arm, {}), now.get(arm, {})) for arm in {**before, **now}]
        if any(changes):
            raise changed_search(run, [*dict.fromkeys(itertools.chain(*changes))])
    return [trial.config for trial in planner.trials.values()]


def _warnings(run: Run, sweep: SweepFile, statuses: dict[str, Status]) -> list[str]:
    if not statuses or not run.exists():
        return run.notes()
    before, now = run.sweep().settings, sweep.settings
    here = environment_with(sweep.own_plugins())
    changed = dict.fromkeys(text for then in run.environments() for text in differences(then, here))
    failed = sum(status.state == "failed" for status in statuses.values())
    notes = run.notes()
    if changed:
        text = "this run has rows of another environment or other code, so new numbers may differ"
        notes.append(f"{text}: {', '.join(changed)}")
    if now.scheduler.name != "none" and (before.scheduler, before.objective) != (now.scheduler, now.objective):
        notes.append("the scheduler or objective has changed; trials that were stopped by the old one stay stopped")
    if failed:
        notes.append(f"{failed} trial(s) failed before; --retry-failed runs them again")
    return notes


def _refuse_changed_meaning(
    sweep: SweepFile, run: Run, folders: dict[str, TrialFolder], asked: list[TrialConfig]
) -> None:
    """A sweep may grow. When trials that ran are no longer asked for, the user decides what is meant."""
    orphans = [folders[id] for id in sorted(folders.keys() - {config.id for config in asked})]
    if not orphans:
        return
    raise ConfigError(
        f"{run.path} holds {len(orphans)} trial(s) that {sweep.file} no longer asks for. "
        f"{_nearest_change(orphans[0].tree(), asked)}\n"
        f"  Run the changed sweep under another name: --name NEW\n"
        f"  or put the sweep back as it is in {run.sweep_path}"
    )


def _refuse_other_contents(asked: list[TrialConfig], statuses: dict[str, Status]) -> None:
    """Trials of one table must have seen the same images: a file of the user's own may have been prepared again."""
    now: dict[str, list[str]] = {}
    for config in asked:
        then = statuses[config.id].contents if config.id in statuses else []
        if not then or not is_root_set():
            continue
        dataset = repr(config.dataset.tree())
        if dataset not in now:
            now[dataset] = _contents_now(config)
        if now[dataset] not in (then, [""] * len(then)):  # what is not prepared here is not another
            raise ConfigError(
                f"trial {config.id} was trained on other contents of '{config.dataset.name}' than are prepared in "
                f"{root()} now; run under another name: --name NEW, or prepare the old contents again"
            )


def _contents_now(config: TrialConfig) -> list[str]:
    try:
        return contents(config.dataset.plugin.sources(config.dataset.params))
    except DataError as error:
        raise ConfigError(str(error)) from None


def _nearest_change(old: dict[str, Any], asked: list[TrialConfig]) -> str:
    """How one trial that ran differs from the point of the new sweep that is most like it."""
    nearest = min((changed_keys(old, config.tree()) for config in itertools.islice(asked, 2000)), key=len, default=[])
    return f"For example: {'; '.join(nearest[:4])}."


# ---- the cost


@dataclass(frozen=True)
class Cost:
    """Seconds of one slot for all unfinished trials, and bytes of checkpoints."""

    seconds: float | None
    disk: int


def cost(asked: SweepPoints, plan: Plan, probe: bool, say: space.Say = lambda what, done, total: None) -> Cost:
    """Disk from the size of one checkpoint of each arm; time by training a few steps and scoring once, if asked."""
    sweep = asked.sweep
    share = (plan.new + len(plan.continuing)) / max(plan.trials, 1)
    kept = 1 + (sweep.settings.objective is not None)  # a finished trial keeps its last and its best
    seconds, disk = 0.0, 0.0
    sizes: dict[str, int] = {}
    for done, (arm, trials) in enumerate(plan.arms.items()):
        say("measuring arms", done, len(plan.arms))
        config = asked.first[arm].on("cpu")
        alike = _built_alike(config)
        try:
            if probe or alike not in sizes:
                training = Training(config) if probe or not _sources([config]) else None  # else data may be missing
                sizes[alike] = _checkpoint_size(training.model if training else built_model(config))
                seconds += trials * _trial_seconds(training) if probe and training else 0
        except Exception as error:  # a model too large, or a user's own plug-in, may fail in any way
            text = f"arms.{arm}: its first trial fails here: {first_line(f'{type(error).__name__}: {error}')}"
            raise ConfigError(f"{sweep.file} cannot run", [Problem(sweep.where[f"arms.{arm}"], text)]) from error
        disk += trials * sizes[alike] * kept
    return Cost(seconds * share if probe else None, int(disk))


def _built_alike(config: TrialConfig) -> str:
    """Equal for trials that only differ by weights of the loss and the like: one of many such arms is built."""
    tree = config.tree()
    numbers = {f"framework.{key}" for key, value in tree["framework"].items() if isinstance(value, float)}
    numbers |= {f"recon.{key}" for key, value in tree["recon"].items() if isinstance(value, float)}
    numbers |= {"training.learning_rate", "training.steps", "training.log_every"}
    return repr({key: value for key, value in flattened(tree).items() if key not in numbers})


def _checkpoint_size(model: AutoEncoder) -> int:
    """Weights and Adam's two moments; the file's own words are some kilobytes more."""
    found: int = 3 * sum(tensor.nbytes for tensor in model.state_dict().values())
    return found


def _trial_seconds(training: Training) -> float:
    config = training.config
    process.prepare(config.training.threads, config.training.device)
    steps = min(PROBE_STEPS, config.training.steps)
    warm = max(1, steps // 3)
    for _ in training.run(until=warm):
        pass
    began = time.monotonic()
    for _ in training.run(until=steps):
        pass
    a_step = (time.monotonic() - began) / max(steps - warm, 1)
    return a_step * config.training.steps + _evaluation_seconds(training)


def _evaluation_seconds(training: Training) -> float:
    """Each metric is timed once, with the encoding it needs."""
    config, seconds = training.config, 0.0
    for scored in config.metrics:
        began = time.monotonic()
        evaluated(config, training.trained_model(), [scored])
        times = 1 + (config.training.steps - 1) // scored.every if scored.every else 1
        seconds += times * (time.monotonic() - began)
    return seconds
