"""Decides what to run next, based only on the ledger. Independent of Ray: a simulator or a cluster can execute it."""

import errno
import math
import time
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage

from disentune.errors import ConfigError, Unavailable, first_line
from disentune.files.storage import Place
from disentune.runs.choice import EVERY_TRIAL, Choice
from disentune.runs.ledger import Run
from disentune.runs.segment import WORDS, Segment, StepReport
from disentune.runs.suggest import Suggestions, arms_of, journal, meanings
from disentune.runs.trial_folder import CONFIG, FINISHED, ROWS, STATUS, Status, TrialFolder, is_final
from disentune.runs.verdicts import History, Member, Replicates, milestones, moves, verdict
from disentune.spec.config import Invalid, TrialConfig, flattened
from disentune.spec.settings import Asha, Cause, Median, OptunaSearch, Pbt
from disentune.spec.space import Point, SweepPoints, domains, fixed, trial_config

LEAVE_S = 5.0
"""How long a trial waits after its node was pre-empted, so that it is not placed on the same node again."""
DOUBT_S = 60.0
"""How long it may take until the cluster notices that a node has died."""
FIRST_REST_S, LONGEST_REST_S = 1.0, 60.0
STORAGE_FAULTS, STORAGE_S = 5, 300.0
"""A session ends when trials failed to use the storage this many times, over this time, without a success in
between."""


@dataclass
class PlannedTrial:
    """A point of the sweep with one of its seeds, and its state; `order` is the point's position in its arm."""

    order: int
    point: Point
    folder: TrialFolder
    status: Status
    siblings: "list[PlannedTrial]"
    """The trials of the same point, including this one."""
    history: History = field(default_factory=History)
    milestones: Sequence[int] = ()
    overrides: dict[str, Any] = field(default_factory=dict)
    inherited: int = 0
    """Step at which it last copied another trial's weights."""
    source: str = ""
    """The trial that it copied at that step."""
    changed: bool = False
    """Whether population based training has changed values in one of its rows."""
    active: bool = False
    attempt: int = 0
    lost_on: list[str] = field(default_factory=list)
    """Nodes on which its worker vanished, consecutively, without a new checkpoint."""
    storage_faults: int = 0
    """Consecutive hangs without a new checkpoint."""
    rests_until: float = 0.0
    doubt: str = ""
    """Why it has failed, if its last node turns out to be alive."""
    given_up: bool = False
    """Whether its last worker was given up; if that worker lives on, it may write rows that nobody reports."""

    @property
    def id(self) -> str:
        return self.folder.id

    @property
    def config(self) -> TrialConfig:
        return self.point.config

    @property
    def was_stopped(self) -> bool:
        """Whether the scheduler stopped it."""
        return self.history.ended and self.status.state == "stopped"


class Planner:
    """Hands out segments and receives how they ended. Equal ledgers give equal decisions."""

    def __init__(
        self,
        run: Run,
        asked: SweepPoints,
        session: str,
        choice: Choice = EVERY_TRIAL,
        clock: Callable[[], float] = time.monotonic,
        open_journal: Callable[[Place], BaseStorage] = journal,
        is_dead: Callable[[str], bool] = lambda node_id: False,
    ):
        """`is_dead` returns whether a node is known to be dead."""
        self.run, self.sweep, self.session, self.clock = run, asked.sweep, session, clock
        self.points, self.choice, self._taken = asked.points, choice, 0
        self.settings = asked.sweep.settings
        self._is_dead = is_dead
        self._trouble: Unavailable | None = None
        self.notes: list[str] = []
        """Notes for the user about work that is repeated."""
        self._storage_faults, self._storage_since = 0, math.inf
        self._rewinds = 0
        self._known = run.known_trials(CONFIG, STATUS, ROWS)
        self.trials: dict[str, PlannedTrial] = {}
        self.arms: dict[str, list[Replicates]] = {}
        self._replicates: dict[tuple[str, str], list[PlannedTrial]] = {}
        self.open: list[PlannedTrial] = []
        self.studies: dict[str, Suggestions] = {}
        self._points: dict[str, list[list[PlannedTrial]]] = {}
        self._start(open_journal)

    # trials

    def _start(self, open_journal: Callable[[Place], BaseStorage]) -> None:
        if isinstance(self.settings.search, OptunaSearch):
            self._open_studies(open_journal(self.run.journal_path), self.settings.search)
            for arm in self.sweep.arms:
                self._points[arm] = [self._admit_suggestion(arm, values) for values in self.studies[arm].points]
        else:
            self._admit_points()
        self._grow()

    def _open_studies(self, storage: BaseStorage, search: OptunaSearch) -> None:
        """Raises ConfigError if the studies were started with a different sweep."""
        objective, meaning = self.settings.objective, meanings(self.sweep)
        assert objective is not None
        changes = [f"arms.{arm} is missing" for arm in arms_of(storage) if arm not in self.sweep.arms]
        for arm, entries in self.sweep.arms.items():
            self.studies[arm] = Suggestions(storage, arm, search, objective, domains(entries), meaning[arm])
            changes += self.studies[arm].changes
        if changes:
            raise changed_search(self.run, changes)

    def _admit_points(self) -> None:
        """The trials of a grid or random search."""
        for point in self.points:
            self._admit(point)
        self._apply_generations()
        if self._restart_lost_populations():
            self._known = self.run.known_trials(CONFIG, STATUS, ROWS)
            self.trials, self.arms, self._replicates, self.open = {}, {}, {}, []
            for point in self.points:
                self._admit(point)
            self._apply_generations()

    def _admit(self, point: Point) -> PlannedTrial:
        """Adds a point; its folder is created only when it first runs."""
        known = self.trials.get(point.config.id)
        if known is not None:
            return known
        folder = self.run.trial(point.config.id)
        known_folder = self._known.get(folder.id)
        status, rows, *_ = known_folder.sound() if known_folder else (Status(), [])
        siblings = self._siblings(point)
        arm = self.arms.setdefault(point.arms[0], [])
        order = siblings[0].order if siblings else len(arm)
        trial = PlannedTrial(order, point, folder, status, siblings, changed=any(row.get("overrides") for row in rows))
        if not siblings:
            arm.append(Replicates())
        arm[order].seeds.append(trial.history)
        siblings.append(trial)
        objective = self.settings.objective
        if objective is not None:
            trial.milestones = milestones(self.settings.scheduler, point.config, objective.metric)
            for row in rows:
                self._note(trial, row)
        self.trials[trial.id] = trial
        if self._is_final(trial):
            trial.history.ended = True
        elif self._is_chosen(trial):
            self.open.append(trial)
        return trial

    def _is_chosen(self, trial: PlannedTrial) -> bool:
        if self.choice.most is None:
            return self.choice.has(trial.id)
        if trial.status.final or self._taken >= self.choice.most:
            return False
        self._taken += 1
        return True

    def _admit_suggestion(self, arm: str, values: dict[str, Any]) -> list[PlannedTrial]:
        """The trials of one suggestion; empty if its values are invalid together, which counts as a failed point."""
        flat = fixed(self.sweep, arm) | values
        try:
            config = trial_config(flat, 0)
        except Invalid:
            return []
        return [self._admit(Point(config.with_seed(seed), (arm,))) for seed in self.sweep.seeds]

    def _siblings(self, point: Point) -> list[PlannedTrial]:
        """The trials of a point so far; one per seed if seeds are judged together."""
        together = isinstance(self.settings.scheduler, Asha | Median)
        config = point.config.with_seed(0) if together else point.config
        return self._replicates.setdefault((point.arms[0], config.id), [])

    def _is_final(self, trial: PlannedTrial) -> bool:
        return is_final(trial.status, trial.config.training.steps, self.settings)

    def _last_step(self, trial: PlannedTrial) -> int:
        return min(trial.config.training.steps, self.settings.stop.steps or trial.config.training.steps)

    def _note(self, trial: PlannedTrial, row: dict[str, Any]) -> None:
        objective = self.settings.objective
        if objective is not None and objective.metric in row["metrics"]:
            trial.history.add(row["step"], row["metrics"][objective.metric], objective.mode)

    # decisions

    def next(self) -> Segment | None:
        """The next segment that can run now; None if nothing can run until a running one ends, or if all is
        finished."""
        while True:
            before = len(self.trials), len(self.open), self._rewinds
            segment = self._first()
            if segment is not None or before == (len(self.trials), len(self.open), self._rewinds):
                return segment  # otherwise a trial was stopped or rewound meanwhile, so another one may be able to run

    def _first(self) -> Segment | None:
        """The first of the open trials that can run now."""
        now = self.clock()
        for trial in list(self.open):
            if trial.active or trial.rests_until > now or self._is_over(trial):
                continue
            try:
                until = self._allowed(trial)
                if until is not None:
                    return self._segment(trial, until)
            except (OSError, Unavailable) as error:
                if trial.history.ended or isinstance(error, FileNotFoundError):
                    raise  # the search missed a result, which only a new driver can fix; or a checkpoint is gone
                self._count_storage(trial)  # its folder cannot be written now; nor, probably, can another one
                return None
        return None

    @property
    def finished(self) -> bool:
        return not self.open

    @property
    def has_begun(self) -> bool:
        """Whether any trial has run before."""
        return any(trial.status.attempts for trial in self.trials.values())

    def _allowed(self, trial: PlannedTrial) -> int | None:
        """The step to which the scheduler lets this trial train; None while it waits or once it is stopped."""
        last, at = self._last_step(trial), trial.status.step
        if at in trial.milestones and at < last and at in trial.history.values:
            decision = self._decide(trial, at)
            if decision == "stop":
                self._close(trial, "stopped", f"scheduler.{self.settings.scheduler.name}: stopped at step {at}")
            if decision != "go":
                return None
        ahead = bisect(trial.milestones, at)
        return min(trial.milestones[ahead], last) if ahead < len(trial.milestones) else last

    def _decide(self, trial: PlannedTrial, step: int) -> str:
        """Points are judged within their arm, because comparing arms is left to the reader. A decision for one seed
        holds for all seeds of the point, including seeds that were added to the sweep later."""
        scheduler = self.settings.scheduler
        if isinstance(scheduler, Asha | Median):
            if any(other.was_stopped and other.status.step <= step for other in trial.siblings):
                return "stop"
            if any(other.status.step > step for other in trial.siblings):
                return "go"
            points = self.arms[trial.point.arms[0]]
            return verdict(scheduler, points[trial.order], points[: trial.order], step)
        assert isinstance(scheduler, Pbt)
        return self._generation(trial, step)

    def _segment(self, trial: PlannedTrial, until: int) -> Segment:
        if isinstance(self.run.path, Path) and not self.run.path.is_dir():  # do not create it again
            raise OSError(errno.ENODEV, "it was deleted, or its storage is not mounted", str(self.run.path))
        trial.folder.create(trial.config, trial.point.arms)
        trial.active = True
        trial.attempt = max(trial.attempt, trial.status.attempts) + 1
        settings = self.settings.model_dump()
        if trial.status.faults.get("memory"):  # gets a whole GPU; results do not depend on the share
            settings["resources"]["gpu"] = math.ceil(settings["resources"]["gpu"])
        return Segment(
            run=str(self.run.path),
            trial_id=trial.id,
            until=until,
            session=self.session,
            settings=settings,
            overrides=dict(trial.overrides),
            inherited=trial.inherited,
            source=trial.source,
            plugin_folder=str(Path.cwd()),
            attempt=trial.attempt,
        )

    # reports

    def report(self, trial_id: str, report: StepReport) -> None:
        """Handles a worker's report; called in order of arrival."""
        trial = self.trials[trial_id]
        if report.row is not None:
            self._note(trial, report.row)
        self._storage_faults, self._storage_since = 0, math.inf
        if report.outcome is not None:
            trial.active = False
            trial.lost_on, trial.storage_faults = [], 0
            if trial.given_up:
                self._catch_up(trial)
                trial.given_up = False
            else:
                trial.status = trial.folder.status()
            if self._is_final(trial):
                self._end(trial)

    def lost(self, trial_id: str, why: str, cause: Cause | None = "lost", certain: bool = True) -> str:
        """Handles a segment that ended without a report: its trial continues from its newest checkpoint, up to its
        retries.

        `cause` is None if it does not count as a failure. `certain`: the worker's node is known to be alive. Returns a
        message for the user.
        """
        trial = self.trials[trial_id]
        trial.active, trial.given_up = False, True
        before = trial.status
        with suppress(ConfigError, OSError):  # the next worker will notice if the storage still fails
            self._catch_up(trial)
        if self._is_final(trial):
            self._end(trial)
            failed = trial.status.state == "failed"  # recorded by its watchdog
            return f"{trial_id} failed: {first_line(trial.status.cause)}" if failed else f"{trial_id} had ended"
        if trial.status.step > before.step:
            trial.lost_on, trial.storage_faults = [], 0
        hung = trial.status.faults.get("hang", 0) > before.faults.get("hang", 0)  # counted by its watchdog
        cause = "hang" if hung else cause
        if cause == "memory":  # the node's memory: its other trials need some time to release some
            trial.rests_until = self.clock() + LONGEST_REST_S
            cause = cause if trial.status.attempts == trial.attempt else None  # it had not started yet
        self._count(trial, None if hung else cause)
        if cause is None:
            return f"{trial_id} waits for another worker: {why}"
        problem = f"its worker was lost {len(trial.lost_on)} times in a row: {why}" if cause == "lost" else why
        if not self._allowed_again(trial, cause):
            if cause == "lost" and not certain:
                trial.doubt, trial.rests_until = problem, self.clock() + DOUBT_S
            else:
                self._close(trial, "failed", problem)
                return f"{trial_id} failed: it {WORDS[cause]}: {problem}"
        return f"{trial_id} {WORDS[cause]} at step {trial.status.step} and continues from there: {why}"

    @property
    def trouble(self) -> Unavailable | None:
        """Set once no trial could use the storage for too long; the session must then end."""
        return self._trouble

    def node_of(self, trial_id: str) -> str:
        """The node of its newest attempt; empty if not (yet) known."""
        trial = self.trials[trial_id]
        with suppress(ConfigError, OSError):
            status = trial.folder.status()
            return status.node_id if status.attempts == trial.attempt else ""
        return ""

    def _catch_up(self, trial: PlannedTrial) -> None:
        """The trial, updated with what its worker has written."""
        trial.status, rows, *_ = trial.folder.sound()
        for row in rows:
            self._note(trial, row)

    def _count(self, trial: PlannedTrial, cause: Cause | None) -> None:
        """Also marks the attempt as given up, so that a worker that only seemed to be dead notices."""
        if cause == "lost":
            trial.lost_on.append(trial.status.node_id if trial.status.attempts == trial.attempt else "")
        elif cause == "preempted":
            trial.rests_until = self.clock() + LEAVE_S
        elif cause == "storage":
            self._count_storage(trial)
        faults = trial.status.faults
        faults = {**faults, cause: faults.get(cause, 0) + 1} if cause else faults
        with suppress(ConfigError, OSError):
            trial.status = trial.folder.update_status(state="pending", faults=faults)

    def _count_storage(self, trial: PlannedTrial) -> None:
        now = self.clock()
        trial.rests_until = now + min(FIRST_REST_S * 2**trial.storage_faults, LONGEST_REST_S)
        trial.storage_faults += 1
        self._storage_faults += 1
        self._storage_since = min(self._storage_since, now)
        if self._storage_faults >= STORAGE_FAULTS and now - self._storage_since >= STORAGE_S:
            self._trouble = Unavailable(
                f"{self.run.path}: no trial could use the storage for {now - self._storage_since:.0f} s; check that it "
                "is mounted, has free space and is writable on every node, then resume the run"
            )

    def _allowed_again(self, trial: PlannedTrial, cause: Cause) -> bool:
        if cause == "lost":  # does not apply if the node has turned out to be dead
            return self.settings.retries.allow("lost", sum(not self._is_dead(node) for node in trial.lost_on))
        return self.settings.retries.allow(cause, trial.status.faults.get(cause, 0))

    def _is_over(self, trial: PlannedTrial) -> bool:
        """Whether an undecided trial has failed, now that the state of its last node is known."""
        problem, trial.doubt = trial.doubt, ""
        if not problem or self._allowed_again(trial, "lost"):
            return False
        self._close(trial, "failed", problem)
        return True

    def _close(self, trial: PlannedTrial, state: Any, cause: str) -> None:
        trial.status = trial.folder.update_status(state=state, cause=cause)
        self._end(trial)

    def _end(self, trial: PlannedTrial) -> None:
        trial.history.ended = True
        self.open = [other for other in self.open if other is not trial]
        self._grow()

    # optuna

    def _grow(self) -> None:
        """Reports results and asks for points as far as the fixed sequence allows."""
        for arm, study in self.studies.items():
            while True:
                number = study.waits_for()
                if number is not None:
                    if not self._told(study, self._points[arm][number]):
                        break
                elif study.complete:
                    break
                else:
                    self._points[arm].append(self._admit_suggestion(arm, study.ask()))

    def _told(self, study: Suggestions, trials: list[PlannedTrial]) -> bool:
        """Reports one point's mean over its seeds once all of them have ended: their values at the end of training, or
        at the step at which the scheduler stopped the point. A point has failed if one of its seeds failed or
        diverged."""
        if not all(trial.history.ended for trial in trials):
            return False
        step = min((trial.status.step for trial in trials if trial.was_stopped), default=None)
        values = [value for trial in trials if (value := self._value(trial, step)) is not None]
        sound = all(trial.status.state in FINISHED for trial in trials) and all(map(math.isfinite, values))
        complete = bool(values) and (step is not None or len(values) == len(trials))
        study.tell(sum(values) / len(values) if sound and complete else None, step or 0, step is not None)
        return True

    def _value(self, trial: PlannedTrial, step: int | None) -> float | None:
        """A trial's result at a step, or at the end of its training; None if it has none."""
        objective, values = self.settings.objective, trial.history.values
        assert objective is not None
        values = {**values, **self._end_value(trial)} if step is None else values
        last = max(values, default=None) if step is None else step
        if last not in values:
            return None
        oriented = values[last] if objective.at == "last" else max(values[at] for at in values if at <= last)
        return oriented if objective.mode == "max" else -oriented

    def _end_value(self, trial: PlannedTrial) -> dict[int, float]:
        """The objective at the end of a trial that ended between two evaluations. It is not part of the history, so a
        trial that continues later is judged like one that was never stopped."""
        end, found, objective = trial.folder.end(), History(), self.settings.objective
        assert objective is not None
        is_last = end is not None and end["step"] >= max(trial.history.values, default=0)
        if end is not None and is_last and objective.metric in end["metrics"]:
            found.add(end["step"], end["metrics"][objective.metric], objective.mode)
        return found.values

    # population based training

    def _populations(self) -> Iterator[tuple[str, list[PlannedTrial]]]:
        groups: dict[str, list[PlannedTrial]] = {}
        for trial in self.trials.values():
            groups.setdefault(_population(trial), []).append(trial)
        yield from groups.items()

    def _apply_generations(self) -> None:
        for generation in self.run.generations():
            self._apply(generation)

    def _apply(self, generation: dict[str, Any]) -> None:
        for trial_id, move in generation["moves"].items():
            if trial_id in self.trials:
                self.trials[trial_id].overrides |= move["values"]
                self.trials[trial_id].inherited = generation["step"]
                self.trials[trial_id].source = move["source"]

    def _restart_lost_populations(self) -> bool:
        """If a member cannot continue from the state it copied, and that state no longer exists, its whole population
        starts again and gives the same numbers. The record is deleted last, so that a driver that dies meanwhile finds
        the same members lost."""
        if not isinstance(self.settings.scheduler, Pbt):
            return False
        open_ones = {name: group for name, group in self._populations() if not all(t.history.ended for t in group)}
        whys = {name: next(filter(None, map(self._why_lost, group)), "") for name, group in open_ones.items()}
        lost = {name: why for name, why in whys.items() if why}
        for name, why in lost.items():
            for member in open_ones[name]:
                member.folder.restart()
            begins = f"its population of {len(open_ones[name])} trials is computed again from the start"
            self.notes.append(f"{why}; {begins}")
        if lost:
            self.run.set_generations([made for made in self.run.generations() if made["population"] not in lost])
        return bool(lost)

    def _why_lost(self, trial: PlannedTrial) -> str:
        """Why a trial cannot continue; empty if it has ended, or can continue from its own or the copied checkpoint."""
        if trial.changed and not trial.inherited:
            return f"trial {trial.id} has copied another trial, but population.json has no record of it"
        if trial.history.ended or not trial.inherited:
            return ""
        taken = f"trial {trial.id} copied trial {trial.source} at step {trial.inherited}"
        gap = trial.folder.first_missing(trial.inherited) if trial.id in self._known else 0
        if gap is not None and gap <= trial.inherited:
            return f"{taken}, and its earlier rows are missing"
        own, other = trial.folder.checkpoints, self.run.trial(trial.source).checkpoints
        steps = [step for step in reversed(own.steps()) if trial.inherited <= step < (gap or math.inf)]
        if any(map(own.is_sound, steps)) or other.is_sound(trial.inherited):
            return ""
        return f"{taken}, and neither trial has an intact checkpoint since then"

    def _generation(self, trial: PlannedTrial, step: int) -> str:
        """Advances a population once all its members have reached a milestone.

        Copies are written first and the record last, so that a driver that dies in between makes the same moves again.
        """
        name = _population(trial)
        if any(g["population"] == name and g["step"] == step for g in self.run.generations()):
            return "go"
        members = dict(self._populations())[name]
        if any(not member.history.ended and (member.active or member.status.step < step) for member in members):
            return "wait"  # a row at the milestone is not enough: the checkpoint must exist to be copied
        living = [member for member in members if step in member.history.values and not member.history.ended]
        scheduler = self.settings.scheduler
        assert isinstance(scheduler, Pbt)
        entries = self.sweep.arms[trial.point.arms[0]]
        chosen = moves(scheduler, name, step, [self._member(member, step) for member in living], domains(entries))
        sources = {move["source"]: self.trials[move["source"]] for move in chosen.values()}
        if damaged := [source for source in sources.values() if not source.folder.checkpoints.is_sound(step)]:
            for source in damaged:
                self._rewind(source, step)
            return "wait"
        for trial_id, move in chosen.items():
            self.trials[trial_id].folder.checkpoints.copy_from(sources[move["source"]].folder.checkpoints, step)
        generation = {"population": name, "step": step, "moves": chosen}
        self.run.add_generation(generation)
        self._apply(generation)
        return "go"

    def _rewind(self, trial: PlannedTrial, step: int) -> None:
        """Trains a trial to a milestone again, to write its missing checkpoint."""
        before = max((other for other in trial.milestones if other < step), default=0)
        trial.status = trial.folder.update_status(step=before)
        self._rewinds += 1

    def _member(self, trial: PlannedTrial, step: int) -> Member:
        flat = flattened(trial.config.tree()) | trial.overrides
        keys = self.settings.scheduler.keys  # type: ignore[union-attr]
        return Member(trial.id, trial.history.values[step], {key: flat[key] for key in keys})


def changed_search(run: Run, changes: Sequence[str]) -> ConfigError:
    listed = "; ".join(list(dict.fromkeys(changes))[:4])
    return ConfigError(
        f"{run.path} was started with different arms, domains or settings ({listed}); undo the change, or run the "
        "changed sweep under another name: --name NEW"
    )


def _population(trial: PlannedTrial) -> str:
    """Trials of one arm and seed learn from each other."""
    return f"{trial.point.arms[0]}/seed {trial.config.seed}"
