"""What a run would do: trials done, continuing and new, disk space, and time estimated by a short probe."""

import itertools
import os
import shlex
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from disentune.data.prepared.preparing import assert_obtainable
from disentune.data.prepared.store import about_of, is_root_set, root, use_root
from disentune.data.prepared.stored import contents
from disentune.environment import differences
from disentune.errors import ConfigError, DataError, Problem, counted_trials, first_line
from disentune.files.storage import shown
from disentune.learn import process
from disentune.learn.evaluation import evaluated
from disentune.learn.training import Training, built_model, donated
from disentune.plugin import Source
from disentune.runs.choice import EVERY_TRIAL, Choice, choose, selected_by
from disentune.runs.ledger import Run, environment_with
from disentune.runs.rows import broken_rows_note, missing_rows_note
from disentune.runs.transfers import Taken, Transfers, assert_droppable, found_elsewhere
from disentune.runs.trial_folder import CONFIG, ROWS, STATUS, Sound, Status, TrialFolder, is_final
from disentune.spec import space
from disentune.spec.config import TrialConfig, changed_keys, flattened
from disentune.spec.settings import OptunaSearch, Pbt, Settings
from disentune.spec.space import Point, SweepPoints
from disentune.spec.sweepfile import SweepFile

if TYPE_CHECKING:
    from disentune.runs.planner import Planner

PROBE_STEPS = 30


@dataclass(frozen=True, repr=False)
class Plan:
    """Counts of trials; `continuing` maps each unfinished trial to the step it continues from."""

    sweep: str
    trials: int
    done: int
    new: int
    continuing: dict[str, int]
    arms: dict[str, int]
    warnings: list[str] = field(default_factory=list)
    sources: tuple[Source, ...] = ()
    """Prepared data that unfinished trials read."""
    makes_data: bool = False
    """Whether unfinished trials read data that the stages before are yet to make."""
    choice: Choice = EVERY_TRIAL
    """The trials that are counted."""
    transfers: Transfers = field(default_factory=Transfers)
    """Trials that are moved before training starts."""
    taken: Mapping[str, int] = field(default_factory=dict)
    """Number of trials copied from other runs, by run; they count as neither done nor new."""
    dropped: int = 0
    """Number of trials in the folder dropped/ once the run has started."""

    def in_words(self) -> str:
        taken = f"{sum(self.taken.values())} taken over, " if self.taken else ""
        counts = f"{self.done} done, {taken}{len(self.continuing)} to continue, {self.new} new"
        return f"{self.sweep}: {counted_trials(self.trials)}, {counts}"

    def __repr__(self) -> str:
        return f"Plan({self.in_words()})"

    def as_json(self) -> dict[str, Any]:
        return {
            "sweep": self.sweep,
            "trials": self.trials,
            "done": self.done,
            "continuing": len(self.continuing),
            "new": self.new,
            "arms": [{"name": name, "trials": count} for name, count in self.arms.items()],
            "problems": [],
            **({"taken_over": dict(self.taken)} if self.taken else {}),
            **({"dropped": self.dropped} if self.dropped else {}),
        }


def make_plan(
    asked: SweepPoints,
    run: Run,
    only: str | None = None,
    limit: int | None = None,
    retry_failed: bool = False,
    say: space.Say = lambda what, done, total: None,
    drop: bool = False,
) -> Plan:
    """Compares a sweep with the ledger. Raises ConfigError with every problem. `drop` sets aside trials that are no
    longer in the sweep."""
    sweep = asked.sweep
    selection = selected_by(sweep, only)
    use_root(sweep.settings.data.root)
    folders = run.known_trials(CONFIG, STATUS, ROWS)
    if isinstance(sweep.settings.search, OptunaSearch):
        choice = Choice(most=limit, flags=_flags(only, limit))
        return replace(_suggested_plan(asked, run, folders, retry_failed), choice=choice)
    if isinstance(sweep.settings.scheduler, Pbt):
        run.generations()  # raises ConfigError if they are damaged
    by_id = _by_id(asked.points, say)
    orphans = _orphans(sweep, run, folders, by_id, drop)
    aside = run.dropped()
    restored = {id: folder for id, folder in aside.items() if id in by_id and id not in folders}
    folders = {id: folder for id, folder in folders.items() if id not in orphans} | restored
    statuses, gaps = _statuses(folders, retry_failed)
    configs = [point.config for point in by_id.values()]
    _refuse_other_contents(configs, statuses)
    wanted = {id: p for id, p in by_id.items() if id not in folders and (not selection or selection(_values(p)))}
    take = {id: taken for id, taken in found_elsewhere(run, wanted, sweep).items() if _same_data(taken)}
    known = statuses | {id: Status("done", taken.point.config.training.steps) for id, taken in take.items()}
    choice = replace(choose(asked.points, known, selection, limit, sweep.settings), flags=_flags(only, limit))
    points = [point for id, point in by_id.items() if choice.has(id)]
    counts = _counted(points, statuses, take, sweep)
    warnings = gaps + _warnings(run, sweep, statuses)
    transfers = Transfers(tuple(orphans), tuple(restored), take)
    return replace(counts, warnings=warnings, choice=choice, transfers=transfers,
                   dropped=len(aside) - len(restored) + len(orphans))  # fmt: skip


def _flags(only: str | None, limit: int | None) -> str:
    given = {"--only": only, "--limit": limit}
    return shlex.join(f"{word}" for flag, value in given.items() if value is not None for word in (flag, value))


def _counted(
    points: Sequence[Point], statuses: Mapping[str, Status], take: Mapping[str, Taken], sweep: SweepFile
) -> Plan:
    """The plan of these points; `take` has the trials to copy from other runs."""
    begun = [(point.config, statuses[point.config.id]) for point in points if point.config.id in statuses]
    continuing = {
        config.id: status.step
        for config, status in begun
        if not is_final(status, config.training.steps, sweep.settings)
    }
    taken = [take[point.config.id] for point in points if point.config.id in take]
    over = ({config.id for config, _ in begun} - continuing.keys()) | {one.folder.id for one in taken}
    arms = Counter(arm for point in points for arm in point.arms)
    return Plan(
        sweep.name, len(points), done=len(begun) - len(continuing), new=len(points) - len(begun) - len(taken),
        continuing=continuing, arms={arm: arms[arm] for arm in sweep.arms},
        sources=_sources(point.config for point in points if point.config.id not in over),
        makes_data=any(point.config.awaits_donors for point in points if point.config.id not in over),
        taken=Counter(shown(one.run.path) for one in taken),
    )  # fmt: skip


def _values(point: Point) -> dict[str, Any]:
    return {**point.config.tree(), "arm": point.arms}


def _same_data(taken: Taken) -> bool:
    """Whether a trial of another run was trained on the data contents that are prepared here, if any are."""
    then, config = taken.folder.status().contents, taken.point.config
    return not then or not is_root_set() or _contents_now(config) in (then, [""] * len(then))


def _statuses(folders: dict[str, TrialFolder], retry_failed: bool) -> tuple[dict[str, Status], list[str]]:
    """Trials by id, and notes on missing rows."""
    read = _read_whole(folders)
    statuses = {id: sound.status for id, sound in read.items()}
    if retry_failed:
        statuses = {id: replace(s, state="pending") if s.state == "failed" else s for id, s in statuses.items()}
    return statuses, _gap_notes(read)


def _by_id(points: Sequence[Point], say: space.Say) -> dict[str, Point]:
    found: dict[str, Point] = {}
    for done, point in enumerate(points):
        say("counting trials", done, len(points))
        found[point.config.id] = point
    return found


def plan_afresh(asked: SweepPoints, only: str | None = None) -> Plan:
    """The plan for an empty run; for commands that cannot see the run."""
    return make_plan(asked, Run(Path(os.devnull) / "no run"), only)


def sources_of(config: TrialConfig) -> tuple[Source, ...]:
    """The prepared data that a trial reads."""
    return tuple(config.dataset.plugin.sources(config.dataset.params))


def _sources(configs: Iterable[TrialConfig]) -> tuple[Source, ...]:
    """Each once."""
    return tuple({source.key: source for config in configs for source in sources_of(config)}.values())


def prepared(sources: Iterable[Source], data_root: str | None) -> set[str]:
    """Keys of the data that is prepared on this machine; empty if no data root is set."""
    use_root(data_root)
    return {source.key for source in sources if _is_prepared(source)}


def _is_prepared(source: Source) -> bool:
    try:
        return about_of(source) is not None
    except DataError:
        return False


def unprepared(plan: Plan) -> list[Source]:
    """Data that must be prepared before a trial can start. Raises ConfigError if the root is not set or data is
    damaged."""
    try:
        if plan.makes_data:
            root()
        missing = [source for source in plan.sources if about_of(source) is None]
        for source in missing:
            assert_obtainable(source)
    except DataError as error:
        raise ConfigError(str(error)) from None
    return missing


def _read_whole(folders: dict[str, TrialFolder]) -> dict[str, Sound]:
    """Reads every trial completely, so that one ConfigError reports all damage before anything starts."""
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
    """Problems of each file of a trial."""
    for read in (folder.tree, folder.rows, folder.status):
        try:
            read()
        except ConfigError as error:
            yield str(error)


def _gap_notes(read: dict[str, Sound]) -> list[str]:
    gaps = {id: sound.gap for id, sound in read.items() if sound.gap is not None}
    flaws = {id: sound.flaw for id, sound in read.items() if sound.flaw is not None}
    notes = [missing_rows_note(gaps)] if (gaps := {id: gap for id, gap in gaps.items() if id not in flaws}) else []
    notes += [broken_rows_note(flaws)] if flaws else []
    return [f"{note}; these trials are computed again from there" for note in notes]


def _suggested_plan(asked: SweepPoints, run: Run, folders: dict[str, TrialFolder], retry_failed: bool) -> Plan:
    """The plan of a model-based search, which chooses its points as it runs: only their number is known."""
    sweep, (statuses, gaps) = asked.sweep, _statuses(folders, retry_failed)
    points = dict.fromkeys(sweep.arms, sweep.settings.search.points)  # type: ignore[union-attr]
    if folders or run.journal_path.exists():
        planner = _suggested(asked, run)
        suggested = [trial.config for trial in planner.trials.values()]
        _refuse_orphans(sweep, run, folders, {config.id: config for config in suggested})
        _refuse_other_contents(suggested, statuses)
        points = {arm: max(points[arm], len(planner.studies[arm].points)) for arm in points}
    arms = {arm: count * len(sweep.seeds) for arm, count in points.items()}
    continuing = {id: status.step for id, status in statuses.items() if not status.final}
    done = sum(status.final for status in statuses.values())
    new = max(0, sum(arms.values()) - done - len(continuing))
    corners = (config for _, config in asked.unseeded)
    return Plan(
        sweep.name, done + new + len(continuing), done, new, continuing, arms,
        gaps + _warnings(run, sweep, statuses), _sources(corners) if new or continuing else (),
    )  # fmt: skip


def _suggested(asked: SweepPoints, run: Run) -> "Planner":
    """A planner with the suggestions so far; those missing from a truncated journal are suggested again.

    Raises ConfigError if the search was started with a different sweep, according to its journal or, if an earlier
    version wrote it, the run's sweep file.
    """
    from disentune.runs.planner import Planner, changed_search  # Optuna takes a moment to import
    from disentune.runs.suggest import meanings, rehearsal

    planner = Planner(run, asked, session="", open_journal=rehearsal)
    if run.exists() and any(study.begun_with is None for study in planner.studies.values()):
        before, now = meanings(run.sweep()), meanings(asked.sweep)
        changes = [changed_keys(before.get(arm, {}), now.get(arm, {})) for arm in {**before, **now}]
        if any(changes):
            raise changed_search(run, [*dict.fromkeys(itertools.chain(*changes))])
    return planner


def _warnings(run: Run, sweep: SweepFile, statuses: dict[str, Status]) -> list[str]:
    if not statuses or not run.exists():
        return run.notes()
    before, now = run.sweep().settings, sweep.settings
    here = environment_with(sweep.own_plugins())
    changed = dict.fromkeys(text for then in run.environments() for text in differences(then, here))
    failed = sum(status.state == "failed" for status in statuses.values())
    notes = run.notes()
    if changed:
        text = "earlier rows of this run come from a different environment or code, so new numbers may differ"
        notes.append(f"{text}: {', '.join(changed)}")
    if now.scheduler.name != "none" and (before.scheduler, before.objective) != (now.scheduler, now.objective):
        notes.append("the scheduler or objective has changed; trials that the old one stopped stay stopped")
    if failed:
        notes.append(f"{counted_trials(failed)} failed before; --retry-failed runs failed trials again")
    return notes


def _orphans(
    sweep: SweepFile, run: Run, folders: Mapping[str, TrialFolder], asked: Mapping[str, Point], drop: bool
) -> list[str]:
    """Trials that have run but are no longer in the sweep. Raises ConfigError unless they may be set aside: a sweep may
    grow, but if it shrinks the user must decide."""
    orphans = sorted(folders.keys() - asked.keys())
    if orphans and not drop:
        _refuse_orphans(sweep, run, folders, {id: point.config for id, point in asked.items()})
    if orphans:
        assert_droppable(run, sweep.settings, everything=len(orphans) == len(folders))
    return orphans


def _refuse_orphans(
    sweep: SweepFile, run: Run, folders: Mapping[str, TrialFolder], asked: Mapping[str, TrialConfig]
) -> None:
    orphans = sorted(folders.keys() - asked.keys())
    if orphans:
        raise ConfigError(
            f"{shown(run.path)} holds {counted_trials(len(orphans))} that {sweep.file} no longer asks for. "
            f"{nearest_change(folders[orphans[0]].tree(), [*asked.values()])}\n"
            "  Either set these trials aside (running the old sweep brings them back): --drop\n"
            "  or run the changed sweep under another name: --name NEW\n"
            f"  or restore the sweep from {shown(run.sweep_path)}"
        )


def _refuse_other_contents(asked: list[TrialConfig], statuses: dict[str, Status]) -> None:
    """Checks that all trials of a table use the same images: a user's own file may have been prepared again."""
    now: dict[str, list[str]] = {}
    for config in asked:
        then = statuses[config.id].contents if config.id in statuses else []
        if not then or not is_root_set():
            continue
        dataset = repr(config.dataset.tree())
        if dataset not in now:
            now[dataset] = _contents_now(config)
        if now[dataset] not in (then, [""] * len(then)):  # data that is not prepared here does not count as different
            raise ConfigError(
                f"trial {config.id} was trained on other contents of '{config.dataset.name}' than those prepared in "
                f"{root()} now; run under another name: --name NEW, or prepare the original contents again"
            )


def _contents_now(config: TrialConfig) -> list[str]:
    try:
        return contents(config.dataset.plugin.sources(config.dataset.params))
    except DataError as error:
        raise ConfigError(str(error)) from None


def nearest_change(old: dict[str, Any], asked: list[TrialConfig]) -> str:
    """How a trial that ran differs from the most similar point of the new sweep."""
    nearest = min((changed_keys(old, config.tree()) for config in itertools.islice(asked, 2000)), key=len, default=[])
    return f"For example: {'; '.join(nearest[:4])}."


# ---- the cost


@dataclass(frozen=True)
class Cost:
    """Seconds on one slot for all unfinished trials, and bytes of checkpoints: for all trials once they have ended, and
    for one trial while it trains."""

    seconds: float | None
    disk: int
    disk_while_training: int


def cost(asked: SweepPoints, plan: Plan, probe: bool, say: space.Say = lambda what, done, total: None) -> Cost:
    """Disk space from the size of one checkpoint per arm; with `probe`, time from training a few steps and scoring
    once."""
    sweep = asked.sweep
    share = (plan.new + len(plan.continuing)) / max(plan.trials, 1)
    seconds, disk, training_disk = 0.0, 0, 0
    sizes: dict[str, Sizes] = {}
    for done, (arm, trials) in enumerate(plan.arms.items()):
        say("measuring arms", done, len(plan.arms))
        config = asked.first[arm].on("cpu")
        alike = _built_alike(config)
        try:
            if probe or alike not in sizes:
                has_data = not _sources([config]) and not config.awaits_donors  # else it may be missing
                training = Training(config) if probe or has_data else None
                sizes[alike] = _sizes(config, training)
                seconds += trials * _trial_seconds(training) if probe and training else 0
        except Exception as error:  # a model too large, or a user's own plug-in, may fail in any way
            text = f"arms.{arm}: its first trial fails here: {first_line(f'{type(error).__name__}: {error}')}"
            raise ConfigError(f"{sweep.file} cannot run", [Problem(sweep.where[f"arms.{arm}"], text)]) from error
        disk += trials * _kept_bytes(sizes[alike], config.training.steps, sweep.settings)
        training_disk = max(training_disk, _newest_bytes(sizes[alike], sweep.settings))
    return Cost(seconds * share if probe else None, disk, training_disk)


def _built_alike(config: TrialConfig) -> str:
    """Equal for trials that differ only in loss weights and the like, so that only one of many such arms is built."""
    tree = config.tree()
    numbers = {f"framework.{key}" for key, value in tree["framework"].items() if isinstance(value, float)}
    numbers |= {f"recon.{key}" for key, value in tree["recon"].items() if isinstance(value, float)}
    numbers |= {"training.learning_rate", "training.steps", "training.log_every"}
    return repr({key: value for key, value in flattened(tree).items() if key not in numbers})


class Sizes(NamedTuple):
    """Bytes of a checkpoint, without some kilobytes of metadata."""

    weights: int
    whole: int
    """Bytes including Adam's moments (two, or three with AMSGrad) and the networks that only training needs."""


def _sizes(config: TrialConfig, training: Training | None) -> Sizes:
    """Without a Training, because data may be missing, the framework's own parameters are not counted."""
    model = training.model if training else built_model(config)
    helper = config.framework.plugin.helper
    networks = [model, *([training.extra] if training and training.extra else [])]
    if helper is not None:
        setting = replace(config.setting(), donated=donated)
        networks.append(helper.build(setting, config.framework.params, torch.Generator()))
    copies = 3 + config.training.optimiser.amsgrad
    return Sizes(_bytes(model), copies * sum(map(_bytes, networks)))


def _bytes(network: torch.nn.Module) -> int:
    return sum(tensor.nbytes for tensor in network.state_dict().values())


def _kept_bytes(sizes: Sizes, steps: int, settings: Settings) -> int:
    """Bytes of an ended trial: its last and best checkpoints. See `segment` for when their whole state is kept."""
    if (settings.stop.steps or steps) < steps:
        return _newest_bytes(sizes, settings)
    whole = settings.checkpoint.finished == "all" or isinstance(settings.scheduler, Pbt)
    return (1 + (settings.objective is not None)) * (sizes.whole if whole else sizes.weights)


def _newest_bytes(sizes: Sizes, settings: Settings) -> int:
    """Bytes of a trial while it trains."""
    return (settings.checkpoint.keep + (settings.objective is not None)) * sizes.whole


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
