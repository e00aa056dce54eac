"""From a sweep's domains to its points: grids, draws, arms, and the corners at which a space is checked."""

import itertools
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from disentune.errors import ConfigError, Problem, did_you_mean, unknown
from disentune.maths.randomness import stream
from disentune.parameters import Mistake, validated, worded
from disentune.spec.config import Invalid, TrainingParams, TrialConfig, flattened, names_own_plugin, nested
from disentune.spec.figures import keys_of, metrics_of
from disentune.spec.selection import select
from disentune.spec.settings import Asha, GridSearch, Median, OptunaSearch, Pbt, RandomSearch
from disentune.spec.sweepfile import Domain, Entry, SweepFile, parse_sweep

MOST_POINTS = 200_000
MOST_CORNERS = 1_000
MOST_COMBINED = 20 * MOST_CORNERS
"""Corners of a large space, as long as the names of plug-ins are combined in them."""
FINITE = ("grid", "choice", "int")

Flat = dict[str, Any]
"""Dotted keys of one point, seed left out."""
Say = Callable[[str, int, int], None]
"""Receives what is being done, how many are done and how many there are."""


@dataclass(frozen=True)
class Point:
    """One trial of a sweep, and the arms that ask for it."""

    config: TrialConfig
    arms: tuple[str, ...]


@dataclass(frozen=True)
class SweepPoints:
    """A sweep whose points were parsed once and are sound: the preview, the planner and the searches take it."""

    sweep: SweepFile
    unseeded: tuple[tuple[str, TrialConfig], ...]
    """Every point with its arm, before seeds are crossed with it; of a model-based search the corners of its arms."""
    first: Mapping[str, TrialConfig]
    """The first corner of each arm."""
    points: tuple[Point, ...]
    """All trials of a grid or random search, one seed after another; a config that two arms ask for runs once. A
    model-based search has none: it suggests them as it runs."""


# ---- domains


def draw(domain: Domain, seed: int, key: str, number: int) -> Any:
    """Draw `number` of a key; depends on no other key, arm or number, so that a space may grow."""
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
    """What every point of an arm has in common. A trial that holds a GPU trains on it unless it says otherwise."""
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
    """Points of one arm under a grid or random search: what is crossed, for each draw of the rest."""
    search, arm_domains = sweep.settings.search, domains(sweep.arms[arm])
    crossed = _crossed(arm_domains, search)
    drawn = {key: domain for key, domain in arm_domains.items() if key not in crossed}
    common = fixed(sweep, arm)
    for number in range(search.points if isinstance(search, RandomSearch) else 1):
        values = {key: draw(domain, search.seed, key, number) for key, domain in drawn.items()}  # type: ignore[union-attr]
        for combination in _product(crossed):
            yield common | values | combination


def corners(sweep: SweepFile, arm: str) -> Iterator[Flat]:
    """Every combination of extreme values; of a large space each extreme value at least once, and every combination
    of plug-in names unless there are very many."""
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
    """Of each trial of a grid or random search, for whoever looks at a run and must not run the code it names: a point
    with a plug-in of the user's own counts by what it sets, so two spellings of it count as two."""
    trees = (nested(flat) for arm in sweep.arms for flat in arm_points(sweep, arm))
    return list(dict(map(_identity_and_steps, trees)).values()) * len(sweep.seeds)


def _identity_and_steps(tree: Flat) -> tuple[str, int]:
    """Imports nothing. Raises Invalid."""
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
    sweep, problems = parse_sweep(path, overrides)
    if problems:
        raise ConfigError(f"{sweep.file} cannot run", [*problems, *_problems_of_what_stands(sweep)])
    return check(sweep, say)


def _problems_of_what_stands(sweep: SweepFile) -> Iterator[Problem]:
    """Wrong values in a file that could not be understood whole; what seems to be missing may be what was not."""
    for arm, entries in sweep.arms.items():
        for flat in corners(sweep, arm):
            mistakes = _mistakes(flat)
            yield from (_located(sweep, arm, mistake) for mistake in mistakes if _standing(entries, mistake.key))


def check(sweep: SweepFile, say: Say = lambda what, done, total: None) -> SweepPoints:
    """The sweep with its points. Raises one ConfigError with every problem of every point, before anything is spent."""
    problems, checked = [*_search_problems(sweep)], _Checked(sweep, say)
    if not problems:
        for arm in sweep.arms:
            problems += _arm_problems(checked, arm)
    if not problems:
        problems += _figure_problems(checked)
    if problems:
        raise ConfigError(f"{sweep.file} cannot run", problems)
    unseeded = checked.corners if isinstance(sweep.settings.search, OptunaSearch) else checked.parsed
    return SweepPoints(sweep, tuple(unseeded), checked.first, tuple(_seeded(checked)))


def _seeded(checked: "_Checked") -> Iterator[Point]:
    """Every config with every seed."""
    for seed in checked.sweep.seeds:
        yield from (Point(config.with_seed(seed), tuple(arms)) for config, arms in checked.arms_of.values())


def _search_problems(sweep: SweepFile) -> Iterator[Problem]:
    settings = sweep.settings
    search, scheduler = settings.search, settings.scheduler
    for arm, entries in sweep.arms.items():
        yield from _domain_problems(sweep, arm, entries)
    if (trials := sum(_trials(sweep, arm) for arm in sweep.arms)) > MOST_POINTS:
        yield Problem(sweep.where["arms"], f"arms: have {trials:,} trials; a sweep may have {MOST_POINTS:,}")
    needs = [name for name, needed in (
        ("search: optuna", isinstance(search, OptunaSearch)),
        (f"scheduler: {scheduler.name}", scheduler.name != "none"),
        ("stop.plateau", settings.stop.plateau is not None),
    ) if needed]  # fmt: skip
    if needs and settings.objective is None:
        yield Problem(sweep.where["objective"], f"objective: is required by {' and '.join(needs)}, but not set")
    if isinstance(scheduler, Pbt) and isinstance(search, OptunaSearch):
        yield Problem(sweep.where["scheduler"], "scheduler: pbt searches by itself; use search: random with it")
    if settings.resources.gpu > 1:
        text = f"resources.gpu: a trial uses at most one GPU, got {settings.resources.gpu:g}"
        yield Problem(sweep.where["resources"], text)


def _domain_problems(sweep: SweepFile, arm: str, entries: Mapping[str, Entry]) -> Iterator[Problem]:
    search = sweep.settings.search
    found = domains(entries)
    for key, domain in found.items():
        if search.name == "grid" and domain.kind not in FINITE:
            text = f"{key}: a grid search cannot visit all of {domain.kind}; use grid: [...] or search: random"
            yield Problem(entries[key].where, text)
        if isinstance(search, OptunaSearch) and domain.kind == "normal":
            text = f"{key}: optuna cannot search normal; use uniform: [low, high] or search: random"
            yield Problem(entries[key].where, text)
        if isinstance(search, OptunaSearch) and any(isinstance(value, list | dict) for value in domain.values):
            yield Problem(entries[key].where, f"{key}: optuna can only choose among numbers, texts, true, false, null")
    if isinstance(search, OptunaSearch) and not found:
        yield Problem(sweep.where[f"arms.{arm}"], f"arms.{arm}: has no domain, so {search.name} has nothing to search")
    if isinstance(search, RandomSearch) and all(domain.kind == "grid" for domain in found.values()):
        text = f"arms.{arm}: has only grids, so random has nothing to draw; use search: grid"
        yield Problem(sweep.where[f"arms.{arm}"], text)
    if isinstance(sweep.settings.scheduler, Pbt):
        yield from _pbt_problems(sweep, arm, entries)


def _trials(sweep: SweepFile, arm: str) -> int:
    """Trials that an arm asks for, before equal ones are counted once."""
    search = sweep.settings.search
    crossed = {} if isinstance(search, OptunaSearch) else _crossed(domains(sweep.arms[arm]), search)
    return math.prod(map(len, crossed.values())) * getattr(search, "points", 1) * len(sweep.seeds)


def _pbt_problems(sweep: SweepFile, arm: str, entries: Mapping[str, Entry]) -> Iterator[Problem]:
    for key in sweep.settings.scheduler.keys:  # type: ignore[union-attr]
        domain = entries[key].value if key in entries else None
        if not isinstance(domain, Domain) or not all(_is_number(value) for value in domain.values):
            text = f"scheduler.keys: '{key}' must have a domain of numbers in arm '{arm}', to stay within"
            yield Problem(sweep.where["scheduler"], text)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass
class _Checked:
    """The points of a sweep that were parsed so far."""

    sweep: SweepFile
    say: Say
    parsed: list[tuple[str, TrialConfig]] = field(default_factory=list)
    corners: list[tuple[str, TrialConfig]] = field(default_factory=list)
    first: dict[str, TrialConfig] = field(default_factory=dict)
    """Of each arm, which is its first corner in every search."""
    arms_of: dict[str, tuple[TrialConfig, dict[str, None]]] = field(default_factory=dict)
    """By id, for two arms may ask for one config."""
    owners: dict[str, str] = field(default_factory=dict)
    """The plug-in behind each column of the table."""

    def take_in(self, arm: str, config: TrialConfig, is_trial: bool) -> None:
        self.first.setdefault(arm, config)
        (self.parsed if is_trial else self.corners).append((arm, config))
        if is_trial:
            self.arms_of.setdefault(config.id, (config, {}))[1][arm] = None

    @cached_property
    def total(self) -> int:
        return sum(_trials(self.sweep, arm) for arm in self.sweep.arms) // len(self.sweep.seeds)


def _arm_problems(checked: _Checked, arm: str) -> Iterator[Problem]:
    """Also takes in the points that are sound."""
    sweep, search = checked.sweep, checked.sweep.settings.search
    if not isinstance(search, GridSearch):  # which visits every corner
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
            yield from _setting_problems(sweep, arm, config)
            yield from (_located(sweep, arm, mistake) for mistake in _mixed_columns(arm, config, checked.owners))
        except Invalid as invalid:
            yield from (_located(sweep, arm, mistake) for mistake in invalid.mistakes)


def _mixed_columns(arm: str, config: TrialConfig, owners: dict[str, str]) -> Iterator[Mistake]:
    """Numbers of one name that different plug-ins give."""
    given = dict.fromkeys(config.framework.plugin.parts, ("framework.name", "a loss"))
    given |= {key: ("evaluation.metrics", f"'{one.metric.name}'") for one in config.metrics for key in one.keys}
    for name, (key, owner) in given.items():
        if owners.setdefault(name, owner) != owner:
            text = (
                f"'{name}' comes from {owner} in arm '{arm}' and from {owners[name]} in another trial, so one column "
            )
            yield Mistake(key, f"{text}would mix them; rename it in the one that is yours")


def _mistakes(flat: Flat) -> list[Mistake]:
    try:
        trial_config(flat, 0)
    except Invalid as invalid:
        return invalid.mistakes
    return []


def _standing(entries: Mapping[str, Entry], key: str) -> str:
    """The key, or the nearest one above it, that some line has set; empty when none has."""
    while key not in entries and key:
        key = key.rpartition(".")[0]
    return key


def _located(sweep: SweepFile, arm: str, mistake: Mistake) -> Problem:
    """The line that set the key, or the nearest key above it, or else the arm."""
    entries = sweep.arms[arm]
    key = _standing(entries, mistake.key)
    if not key:
        return Problem(sweep.where[f"arms.{arm}"], f"{worded(mistake)} (arm '{arm}')")
    domain = entries[key].value
    origin = f"but the {domain.kind} has" if isinstance(domain, Domain) else "got"
    return Problem(entries[key].where, worded(mistake, origin))


def _setting_problems(sweep: SweepFile, arm: str, config: TrialConfig) -> Iterator[Problem]:
    """Settings that do not go with what the trials of an arm report."""
    settings, known = sweep.settings, [*config.metric_keys(), *config.loss_keys()]
    objective = settings.objective
    if objective and objective.metric not in known:
        near = did_you_mean(objective.metric, known)
        text = f"objective.metric: arm '{arm}' reports no '{objective.metric}'.{near} Known: {', '.join(known)}"
        yield Problem(sweep.where["objective"], text)
    if config.training.device == "cuda" and not settings.resources.gpu:
        yield Problem(sweep.where["resources"], "resources.gpu: must be above 0 for training.device: cuda, got 0")
    if objective:
        yield from _cut_problems(sweep, config, objective.metric)


def _figure_problems(checked: _Checked) -> Iterator[Problem]:
    """Figures of numbers that no trial reports, of keys that none has, or that can never be drawn."""
    sweep, figures = checked.sweep, checked.sweep.settings.figures or ()
    points = _parsed_corners(checked) if figures else []
    metrics = dict.fromkeys(key for _, config in points for key in config.metric_keys())
    losses = dict.fromkeys(key for _, config in points for key in config.loss_keys())
    numbers = [*metrics, *(f"{key}_max" for key in metrics), *losses]
    flats = [{"arm": arm, **flattened(config.tree())} for arm, config in points]
    known = list(dict.fromkeys(key for flat in flats for key in flat))
    for number, figure in enumerate(figures):
        for text in _refusals(figure, numbers, known, flats, points):
            yield Problem(sweep.where["figures"], f"figures.{number} ({figure.name}): {text}")


def _parsed_corners(checked: _Checked) -> list[tuple[str, TrialConfig]]:
    """Those of a grid search are among its points."""
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
        yield from [f"x: must be a key of numbers, but {x} can be {sorted(map(str, values))[0]}"] if values else []
    if figure.only is not None:
        yield from _refused_selection(figure.only, known, points)


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
        text = f"scheduler.{scheduler.name}: '{metric}' is only reported at the end, when nothing is left to stop; "
        yield Problem(sweep.where["scheduler"], f"{text}set evaluation.every, or take an objective of training")
        return
    for key, cut in cuts.items():
        if cut >= config.training.steps:
            text = f"scheduler.{key}: must be below training.steps, {config.training.steps}, got {cut}"
            yield Problem(sweep.where["scheduler"], text)
        if cut % interval:
            text = f"scheduler.{key}: must be a multiple of {interval} steps, when '{metric}' is reported, got {cut}"
            yield Problem(sweep.where["scheduler"], text)
