"""Turns a sweep's domains into points: grids, draws, arms, and the corners at which a space is checked."""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from disentune.errors import ConfigError, Problem, did_you_mean, unknown
from disentune.frameworks import FRAMEWORKS
from disentune.maths.randomness import stream
from disentune.parameters import Mistake, validated, worded
from disentune.spec.config import (
    Invalid,
    TrainingParams,
    TrialConfig,
    flattened,
    loss_keys,
    metric_keys,
    names_own_plugin,
    nested,
)
from disentune.spec.figures import keys_of, metrics_of
from disentune.spec.selection import select
from disentune.spec.settings import Asha, GridSearch, Median, OptunaSearch, Pbt, RandomSearch
from disentune.spec.sweepfile import DOMAINS, Domain, Entry, Parsed, SweepFile, parse_sweep, parse_values

MOST_POINTS = 200_000
MOST_CORNERS = 1_000
MOST_COMBINED = 20 * MOST_CORNERS
"""Maximum number of corners of a large space in which the names of plug-ins are combined."""
FINITE = ("grid", "choice", "int")

Flat = dict[str, Any]
"""Dotted keys of one point, without the seed."""
Say = Callable[[str, int, int], None]
"""Called with the current activity, the number of finished items and the total."""


@dataclass(frozen=True)
class Point:
    """One trial of a sweep, and the arms that contain it."""

    config: TrialConfig
    arms: tuple[str, ...]


@dataclass(frozen=True)
class SweepPoints:
    """A sweep whose points have been parsed and are valid; used by the preview, the planner and the searches."""

    sweep: SweepFile
    unseeded: tuple[tuple[str, TrialConfig], ...]
    """Every point with its arm, before it is crossed with seeds; for a model-based search, the corners of its arms."""
    first: Mapping[str, TrialConfig]
    """The first corner of each arm."""
    points: tuple[Point, ...]
    """All trials of a grid or random search, seed by seed; a config that is in two arms runs once. Empty for a
    model-based search, which suggests trials as it runs."""


# ---- domains


def draw(domain: Domain, seed: int, key: str, number: int) -> Any:
    """Draw `number` of a key; independent of other keys, arms and numbers, so that a space may grow."""
    rng, values = stream(seed, f"draw/{key}", number), domain.values
    if domain.kind in ("grid", "choice"):
        return values[int(rng.integers(len(values)))]
    if domain.kind == "int":
        return int(rng.integers(values[0], values[1] + 1))
    if domain.kind == "log_uniform":
        value = math.exp(rng.uniform(math.log(values[0]), math.log(values[1])))
        return float(min(max(value, values[0]), values[1]))  # exp(log(x)) may miss x by a bit
    if domain.kind == "normal":
        return float(rng.normal(*values))
    return float(rng.uniform(*values))


def finite_values(domain: Domain) -> Sequence[Any]:
    return range(domain.values[0], domain.values[1] + 1) if domain.kind == "int" else domain.values


def extremes(domain: Domain) -> list[Any]:
    """Values that are valid only if the whole domain is: all of a list, both ends of a range."""
    if domain.kind == "normal":
        return [float(domain.values[0])]
    return domain.values if domain.kind in ("grid", "choice") else [*dict.fromkeys(domain.values)]


# ---- one arm's points


def domains(entries: Mapping[str, Entry]) -> dict[str, Domain]:
    return {key: entry.value for key, entry in entries.items() if isinstance(entry.value, Domain)}


def fixed(sweep: SweepFile, arm: str) -> Flat:
    """What every point of an arm has in common. A trial with a GPU trains on the GPU unless its config says
    otherwise."""
    device = {"training.device": "cuda"} if sweep.settings.resources.gpu else {}
    plain = {key: entry.value for key, entry in sweep.arms[arm].items() if not isinstance(entry.value, Domain)}
    return device | plain


def _product(choices: Mapping[str, Sequence[Any]]) -> Iterator[Flat]:
    return (dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values()))


def _crossed(arm_domains: Mapping[str, Domain], search: Any) -> dict[str, Sequence[Any]]:
    """The domains of which every value is visited; a random search draws the others."""
    kinds = ("grid",) if isinstance(search, RandomSearch) else FINITE
    return {key: finite_values(domain) for key, domain in arm_domains.items() if domain.kind in kinds}


def arm_points(sweep: SweepFile, arm: str) -> Iterator[Flat]:
    """Points of one arm under a grid or random search: the crossed domains, for each draw of the others."""
    search, arm_domains = sweep.settings.search, domains(sweep.arms[arm])
    crossed = _crossed(arm_domains, search)
    drawn = {key: domain for key, domain in arm_domains.items() if key not in crossed}
    common = fixed(sweep, arm)
    for number in range(search.points if isinstance(search, RandomSearch) else 1):
        values = {key: draw(domain, search.seed, key, number) for key, domain in drawn.items()}  # type: ignore[union-attr]
        for combination in _product(crossed):
            yield common | values | combination


def corners(sweep: SweepFile, arm: str) -> Iterator[Flat]:
    """Every combination of extreme values; in a large space, each extreme value at least once, and every combination
    of plug-in names unless there are too many."""
    arm_domains = domains(sweep.arms[arm])
    ends = {key: extremes(domain) for key, domain in arm_domains.items()}
    if math.prod(len(values) for values in ends.values()) <= MOST_CORNERS:
        yield from (fixed(sweep, arm) | combination for combination in _product(ends))
        return
    names = {key: values for key, values in ends.items() if key.endswith(".name")}
    if math.prod(map(len, names.values())) * sum(map(len, ends.values())) > MOST_COMBINED:
        names = {}
    first = {key: values[0] for key, values in ends.items()}
    for combination in _product(names):
        base = fixed(sweep, arm) | first | combination
        yield base
        for key, values in ends.items():
            yield from (base | {key: value} for value in values[1:] if key not in names)


def trial_config(flat: Mapping[str, Any], seed: int) -> TrialConfig:
    """Raises Invalid."""
    return TrialConfig.parse(nested(flat) | {"seed": seed})


# ---- the whole sweep


def steps_of_trials(sweep: SweepFile) -> list[int]:
    """The identity of each trial of a grid or random search, for commands that must not run code named by a run. A
    point with a user's own plug-in is identified by the keys it sets, so two spellings of it count as two."""
    trees = (nested(flat) for arm in sweep.arms for flat in arm_points(sweep, arm))
    return list(dict(map(_identity_and_steps, trees)).values()) * len(sweep.seeds)


def _identity_and_steps(tree: Flat) -> tuple[str, int]:
    """Imports no plug-in. Raises Invalid."""
    if not names_own_plugin(tree):
        config = TrialConfig.parse(tree | {"seed": 0})
        return config.id, config.training.steps
    mistakes: list[Mistake] = []
    training = validated(TrainingParams, tree.get("training", {}), "training", mistakes)
    if mistakes:
        raise Invalid(mistakes)
    return json.dumps(tree, sort_keys=True), training.steps


def read(path: Path, overrides: Iterable[str] = (), say: Say = lambda what, done, total: None) -> SweepPoints:
    """A sweep with its points. Raises one ConfigError with the problems of its files and its points."""
    return check(read_file(path, overrides), say)


def read_file(path: Path, overrides: Iterable[str] = ()) -> SweepFile:
    """A sweep whose points are yet to be checked. Raises one ConfigError with the problems of its files, and with those
    of its points if its files have any."""
    return _sound(parse_sweep(path, overrides))


def read_values(values: Mapping[str, Any]) -> SweepFile:
    """The same for a sweep from Python values."""
    return _sound(parse_values(values))


def _sound(parsed: Parsed) -> SweepFile:
    sweep, problems, unread = parsed
    if problems:
        raise ConfigError(f"{sweep.file} cannot run", [*problems, *_further_problems(sweep, unread)])
    return sweep


def _further_problems(sweep: SweepFile, unread: frozenset[str]) -> Iterator[Problem]:
    """Problems of the readable part of a sweep, unless the unreadable part may be their cause."""
    yield from _search_problems(sweep, unread)
    yield from _corner_problems(sweep, unread)


def _corner_problems(sweep: SweepFile, unread: frozenset[str] = frozenset()) -> Iterator[Problem]:
    """Problems of a sweep whose points cannot all be visited."""
    checked, problems = _Checked(sweep, _silent, unread=unread), list[Problem]()
    for arm in sweep.arms:
        problems += _problems_of(checked, arm, corners(sweep, arm), is_trial=False)
    yield from problems or _figure_problems(sweep, checked.corners)


def _silent(what: str, done: int, total: int) -> None:
    pass


def check(sweep: SweepFile, say: Say = lambda what, done, total: None) -> SweepPoints:
    """The sweep with its points. Raises one ConfigError with every problem of every point, before anything is spent."""
    problems, checked = [*_search_problems(sweep)], _Checked(sweep, say)
    if problems:
        problems += _corner_problems(sweep)
    else:
        for arm in sweep.arms:
            problems += _arm_problems(checked, arm)
    if not problems and sweep.settings.figures:
        problems += _figure_problems(sweep, _parsed_corners(checked))
    if problems:
        raise ConfigError(f"{sweep.file} cannot run", problems)
    unseeded = checked.corners if isinstance(sweep.settings.search, OptunaSearch) else checked.parsed
    return SweepPoints(sweep, tuple(unseeded), checked.first, tuple(_seeded(checked)))


def _seeded(checked: "_Checked") -> Iterator[Point]:
    """Every config with every seed."""
    for seed in checked.sweep.seeds:
        yield from (Point(config.with_seed(seed), tuple(arms)) for config, arms in checked.arms_of.values())


def _search_problems(sweep: SweepFile, unread: frozenset[str] = frozenset()) -> Iterator[Problem]:
    settings = sweep.settings
    search, scheduler = settings.search, settings.scheduler
    for arm, entries in sweep.arms.items():
        if "search" not in unread and f"arms.{arm}" not in unread:
            yield from _domain_problems(sweep, arm, entries)
    if (trials := sum(_trials(sweep, arm) for arm in sweep.arms)) > MOST_POINTS:
        yield Problem(
            sweep.where["arms"], f"arms: make {trials:,} trials, but a sweep may have at most {MOST_POINTS:,}"
        )
    needs = [name for name, needed in (
        ("search: optuna", isinstance(search, OptunaSearch)),
        (f"scheduler: {scheduler.name}", scheduler.name != "none"),
        ("stop.plateau", settings.stop.plateau is not None),
    ) if needed]  # fmt: skip
    if needs and settings.objective is None and "objective" not in unread:
        yield Problem(sweep.where["objective"], f"objective: is required by {' and '.join(needs)} but not set")
    if isinstance(scheduler, Pbt) and isinstance(search, OptunaSearch):
        yield Problem(sweep.where["scheduler"], "scheduler: pbt searches by itself; use search: random with it")
    if settings.resources.gpu > 1:
        text = f"resources.gpu: a trial can use at most one GPU, got {settings.resources.gpu:g}"
        yield Problem(sweep.where["resources"], text)


def _domain_problems(sweep: SweepFile, arm: str, entries: Mapping[str, Entry]) -> Iterator[Problem]:
    search = sweep.settings.search
    found = domains(entries)
    for key, domain in found.items():
        if search.name == "grid" and domain.kind not in FINITE:
            text = f"{key}: a grid search cannot enumerate {domain.kind}; use grid: [...] or search: random"
            yield Problem(entries[key].where, text)
        if isinstance(search, OptunaSearch) and domain.kind == "normal":
            text = f"{key}: optuna does not support normal; use uniform: [low, high] or search: random"
            yield Problem(entries[key].where, text)
        if isinstance(search, OptunaSearch) and any(isinstance(value, list | dict) for value in domain.values):
            yield Problem(
                entries[key].where, f"{key}: optuna can only choose among numbers, strings, true, false and null"
            )
    if isinstance(search, OptunaSearch) and not found:
        yield Problem(sweep.where[f"arms.{arm}"], f"arms.{arm}: has no domain, so {search.name} has nothing to search")
    if isinstance(search, RandomSearch) and all(domain.kind == "grid" for domain in found.values()):
        text = f"arms.{arm}: has only grids, so search: random has nothing to draw; use search: grid"
        yield Problem(sweep.where[f"arms.{arm}"], text)
    if isinstance(sweep.settings.scheduler, Pbt):
        yield from _pbt_problems(sweep, arm, entries)


def _trials(sweep: SweepFile, arm: str) -> int:
    """Number of trials in an arm, including duplicates."""
    search = sweep.settings.search
    crossed = {} if isinstance(search, OptunaSearch) else _crossed(domains(sweep.arms[arm]), search)
    return math.prod(map(len, crossed.values())) * getattr(search, "points", 1) * len(sweep.seeds)


def _pbt_problems(sweep: SweepFile, arm: str, entries: Mapping[str, Entry]) -> Iterator[Problem]:
    for key in sweep.settings.scheduler.keys:  # type: ignore[union-attr]
        domain = entries[key].value if key in entries else None
        if not isinstance(domain, Domain) or not all(_is_number(value) for value in domain.values):
            text = f"scheduler.keys: '{key}' must have a numeric domain in arm '{arm}', which bounds its changes"
            yield Problem(sweep.where["scheduler"], text)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass
class _Checked:
    """The points of a sweep that have been parsed so far."""

    sweep: SweepFile
    say: Say
    parsed: list[tuple[str, TrialConfig]] = field(default_factory=list)
    corners: list[tuple[str, TrialConfig]] = field(default_factory=list)
    first: dict[str, TrialConfig] = field(default_factory=dict)
    """The first point of each arm, which is its first corner in every search."""
    arms_of: dict[str, tuple[TrialConfig, dict[str, None]]] = field(default_factory=dict)
    """By id, because two arms may contain the same config."""
    owners: dict[str, str] = field(default_factory=dict)
    """The plug-in behind each column of the table."""
    unread: frozenset[str] = frozenset()
    """See `Parsed`."""

    def take_in(self, arm: str, config: TrialConfig, is_trial: bool) -> None:
        self.first.setdefault(arm, config)
        (self.parsed if is_trial else self.corners).append((arm, config))
        if is_trial:
            self.arms_of.setdefault(config.id, (config, {}))[1][arm] = None

    @cached_property
    def total(self) -> int:
        return sum(_trials(self.sweep, arm) for arm in self.sweep.arms) // len(self.sweep.seeds)


def _arm_problems(checked: _Checked, arm: str) -> Iterator[Problem]:
    """Also adds the valid points."""
    sweep, search = checked.sweep, checked.sweep.settings.search
    if not isinstance(search, GridSearch):  # a grid search visits every corner anyway
        yield from _problems_of(checked, arm, corners(sweep, arm), is_trial=False)
    if not isinstance(search, OptunaSearch):
        yield from _problems_of(checked, arm, arm_points(sweep, arm), is_trial=True)


def _problems_of(checked: _Checked, arm: str, flats: Iterable[Flat], is_trial: bool) -> Iterator[Problem]:
    sweep = checked.sweep
    for flat in flats:
        checked.say("checking points", len(checked.parsed), checked.total)
        try:
            config = trial_config(flat, 0)
            checked.take_in(arm, config, is_trial)
            yield from _setting_problems(sweep, arm, config, checked.unread)
            yield from (_located(sweep, arm, mistake) for mistake in _mixed_columns(arm, config, checked.owners))
        except Invalid as invalid:
            is_read, entries = f"arms.{arm}" not in checked.unread, sweep.arms[arm]
            mistakes = (one for one in invalid.mistakes if is_read or _setter(entries, one.key))
            yield from (_located(sweep, arm, mistake) for mistake in mistakes)
            yield from _unknown_objective(sweep, arm, _numbers_of(flat))


def _mixed_columns(arm: str, config: TrialConfig, owners: dict[str, str]) -> Iterator[Mistake]:
    """Numbers of the same name that come from different plug-ins."""
    given = dict.fromkeys(config.framework.plugin.parts, ("framework.name", "a loss"))
    given |= {key: ("evaluation.metrics", f"'{one.metric.name}'") for one in config.metrics for key in one.keys}
    for name, (key, owner) in given.items():
        if owners.setdefault(name, owner) != owner:
            text = (
                f"'{name}' comes from {owner} in arm '{arm}' and from {owners[name]} in another trial, so one column "
            )
            yield Mistake(key, f"{text}would mix them; rename it in your own plug-in")


def _setter(entries: Mapping[str, Entry], key: str) -> str:
    """The key, the closest key above it or the first key below it that some line sets; empty if there is none."""
    below = next((own for own in entries if own.startswith(f"{key}.")), "")
    while key not in entries and key:
        key = key.rpartition(".")[0]
    return key or below


def _located(sweep: SweepFile, arm: str, mistake: Mistake) -> Problem:
    """The line that sets the key, or the closest key above or below it, or else the arm."""
    entries = sweep.arms[arm]
    key = _setter(entries, mistake.key)
    if not key:
        return Problem(sweep.where[f"arms.{arm}"], f"{worded(mistake)} (arm '{arm}')")
    domain = entries[key].value
    if isinstance(domain, Domain):
        return Problem(entries[key].where, worded(mistake, f"but the {domain.kind} has"))
    return Problem(entries[key].where, worded(mistake) + _domain_meant(mistake))


def _domain_meant(mistake: Mistake) -> str:
    """Advice on how to try several values, if a list or `{grd: [...]}` was given instead of a value."""
    value, kind = mistake.value if mistake.shows_value else None, "grid"
    if isinstance(value, Mapping) and len(value) == 1:
        ((name, value),) = value.items()
        if name in DOMAINS:
            return f"; {{{name}: ...}} cannot stand inside a list: vary the list as a whole"
        near = get_close_matches(str(name), DOMAINS, n=1, cutoff=0.6)
        kind = near[0] if near else kind
    return f"; to try each value, write {{{kind}: {value}}}" if isinstance(value, list) and value else ""


def _setting_problems(sweep: SweepFile, arm: str, config: TrialConfig, unread: frozenset[str]) -> Iterator[Problem]:
    """Settings that do not fit what the trials of an arm report."""
    settings, objective = sweep.settings, sweep.settings.objective
    yield from _unknown_objective(sweep, arm, [*config.metric_keys(), *config.loss_keys()])
    if config.training.device == "cuda" and not settings.resources.gpu and "resources" not in unread:
        yield Problem(sweep.where["resources"], "resources.gpu: must be above 0 for training.device: cuda, got 0")
    if objective:
        yield from _cut_problems(sweep, config, objective.metric)
    if config.awaits_donors and (needed := config.dataset.params.donors) not in sweep.needs and "needs" not in unread:
        text = (
            unknown("key of needs", needed, sweep.needs)
            if sweep.needs
            else f"'{needed}' must be a key of `needs`, which this sweep does not have; add needs: {{{needed}: FILE}}"
        )
        yield Problem(_located(sweep, arm, Mistake("dataset.donors", text)).where, f"dataset.donors: {text}")


def _unknown_objective(sweep: SweepFile, arm: str, known: Sequence[str]) -> Iterator[Problem]:
    objective = sweep.settings.objective
    if objective and known and objective.metric not in known:
        near = did_you_mean(objective.metric, known)
        text = f"objective.metric: arm '{arm}' reports no '{objective.metric}'.{near} Known: {', '.join(known)}"
        yield Problem(sweep.where["objective"], text)


def _numbers_of(flat: Flat) -> list[str]:
    """What an invalid point would report; empty if that depends on the mistake."""
    try:
        tree = nested(flat)
        dataset = tree.get("dataset")
        has_law = isinstance(dataset, Mapping) and bool({"law", "held_out"} & dataset.keys())
        metrics, framework = metric_keys(tree.get("evaluation", {}), has_law), tree["framework"]["name"]
        return [] if metrics is None else [*metrics, *loss_keys(FRAMEWORKS.plugins[framework])]
    except (Invalid, KeyError, TypeError):
        return []


def _figure_problems(sweep: SweepFile, points: Sequence[tuple[str, TrialConfig]]) -> Iterator[Problem]:
    """Figures that use numbers that no trial reports or keys that no trial has, or that can never be drawn."""
    figures = sweep.settings.figures or ()
    metrics = dict.fromkeys(key for _, config in points for key in config.metric_keys())
    losses = dict.fromkeys(key for _, config in points for key in config.loss_keys())
    numbers = [*metrics, *(f"{key}_max" for key in metrics), *losses]
    flats = [{"arm": arm, **flattened(config.tree())} for arm, config in points]
    known = list(dict.fromkeys(key for flat in flats for key in flat))
    for number, figure in enumerate(figures):
        for text in _refusals(figure, numbers, known, flats, points):
            yield Problem(sweep.where["figures"], f"figures.{number} ({figure.name}): {text}")


def _parsed_corners(checked: _Checked) -> list[tuple[str, TrialConfig]]:
    """The corners of a grid search are among its points."""
    sweep = checked.sweep
    if not isinstance(sweep.settings.search, GridSearch):
        return checked.corners
    wanted = [(arm, repr(flat)) for arm in sweep.arms for flat in corners(sweep, arm)]
    asked = ((arm, repr(flat)) for arm in sweep.arms for flat in arm_points(sweep, arm))
    kept = set(wanted)
    known = {key: config for key, (_, config) in zip(asked, checked.parsed, strict=True) if key in kept}
    return [(arm, known[arm, flat]) for arm, flat in wanted]


def _refusals(figure: Any, numbers: list[str], known: list[str], flats: list[Flat], points: Any) -> Iterator[str]:
    for kind, named, names in (("metric", metrics_of(figure), numbers), ("key", keys_of(figure), known)):
        yield from (unknown(kind, one, names) for one in named if one not in names)
    x, y = getattr(figure, "x", None), getattr(figure, "y", None)
    if x is not None and x == y:
        yield f"x and y are both {x}; name two keys"
    if figure.name in ("trend", "strength") and x in known:
        values = {flat[x] for flat in flats if isinstance(flat.get(x), str | bool)}
        yield from [f"x: must be a numeric key, but {x} can be {sorted(map(str, values))[0]}"] if values else []
    if figure.only is not None:
        yield from _refused_selection(figure.only, [*known, *numbers], points)


def _refused_selection(only: str, known: list[str], points: Any) -> Iterator[str]:
    try:
        selection = select(only, known)
        for arm, config in points:
            selection({**config.tree(), "arm": (arm,)})
    except ConfigError as error:
        yield str(error).replace("--only", "only", 1)


def _cut_problems(sweep: SweepFile, config: TrialConfig, metric: str) -> Iterator[Problem]:
    """A scheduler can only judge trials before their end, at steps that report the objective."""
    scheduler, interval = sweep.settings.scheduler, config.reporting_interval(metric)
    cuts = {"grace": scheduler.grace} if isinstance(scheduler, Asha | Median) else {}
    cuts |= {"every": scheduler.every} if isinstance(scheduler, Pbt) else {}
    if cuts and interval == config.training.steps:
        text = f"scheduler.{scheduler.name}: '{metric}' is only reported at the end, too late to stop a trial; "
        yield Problem(sweep.where["scheduler"], f"{text}set evaluation.every, or choose a loss as the objective")
        return
    for key, cut in cuts.items():
        if cut >= config.training.steps:
            text = f"scheduler.{key}: must be below training.steps, {config.training.steps}, got {cut}"
            yield Problem(sweep.where["scheduler"], text)
        if cut % interval:
            text = (
                f"scheduler.{key}: must be a multiple of {interval}, the steps between reports of '{metric}', got {cut}"
            )
            yield Problem(sweep.where["scheduler"], text)
