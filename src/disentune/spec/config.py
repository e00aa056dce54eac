"""TrialConfig: the complete config of one trial, checked before anything runs."""

import hashlib
import heapq
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Any, Literal, NamedTuple, get_args

from pydantic import Field, ValidationInfo, field_validator

from disentune.data import DATASETS
from disentune.errors import did_you_mean
from disentune.frameworks import FRAMEWORKS
from disentune.maths.laws import LawError, Sampling, sampling, try_partners
from disentune.maths.ramps import Constant, Moving, Scheduled
from disentune.metrics import METRICS
from disentune.models import MODELS
from disentune.parameters import Mistake, validated
from disentune.plugin import (
    WATCHED,
    Catalogue,
    Context,
    Count,
    Framework,
    Frozen,
    Metric,
    Region,
    Representation,
    added,
)
from disentune.recon import RECONS
from disentune.spec.pixels import Pixels

ID_LENGTH = 16
Device = Literal["cpu", "cuda", "mps"]
Share = Annotated[float, Field(ge=0, lt=1)]


class Invalid(ValueError):
    """A trial's tree is invalid; holds every mistake in it."""

    def __init__(self, mistakes: Iterable[Mistake]):
        self.mistakes = list(mistakes)
        super().__init__("; ".join(f"{mistake.key}: {mistake.text}" for mistake in self.mistakes))


# ---- one trial


class OptimiserParams(Frozen):
    """Adam's own choices, as torch.optim.Adam has them."""

    betas: list[Share] = Field(
        [0.9, 0.999], min_length=2, max_length=2, description="decay of the means of gradients and of their squares"
    )
    amsgrad: bool = Field(False, description="divide by the largest mean of squares so far (Reddi et al., ICLR 2018)")
    weight_decay: float = Field(0.0, ge=0, description="L2 penalty: so many times a weight is added to its gradient")
    decoupled: bool = added(
        False,
        description="weight_decay takes a share of each weight off before the step instead, scaled by the learning "
        "rate (AdamW; Loshchilov & Hutter, ICLR 2019)",
    )
    undecayed: list[str] = added(
        ["bias", "extra"],
        description="with decoupled: names of parameters that do not decay, as parts of their dotted names; bias: all "
        "biases, extra: what a framework trains besides the model, such as a codebook",
    )

    @field_validator("undecayed")
    @classmethod
    def _only_decoupled(cls, undecayed: list[str], others: ValidationInfo) -> list[str]:
        if not others.data.get("decoupled"):
            raise ValueError("needs decoupled: true, because an L2 penalty applies to all weights")
        return undecayed


class TrainingParams(Frozen):
    """How a model is trained, by Adam."""

    steps: Count = Field(ge=1, le=10**9, description="updates of the model")
    batch_size: Count = Field(ge=1, le=10**6, description="images, or pairs of images, per step")
    learning_rate: float = Field(gt=0, description="step size of Adam")
    log_every: Count = Field(100, ge=1, description="steps between rows of losses")
    threads: Count = Field(1, ge=1, le=1024, description="CPU threads; changing it changes results in the last bits")
    device: Device = Field(
        "cpu",
        description="where the model is trained; defaults to cuda if resources.gpu is above 0. mps is the GPU of a Mac "
        "and has never been tried on one",
    )
    compile: bool = Field(
        False, description="torch.compile the networks; changes the last bits, worthwhile from about 5000 steps"
    )
    optimiser: OptimiserParams = added(
        OptimiserParams(),
        description="options of Adam: betas [0.9, 0.999], amsgrad false, weight_decay 0 (an L2 penalty)",
    )
    replacement: bool = added(
        True, description="draw the images of a batch independently; false: distinct images, so a batch can be the "
        "whole data set"
    )  # fmt: skip
    learning_rate_schedule: Moving | None = added(
        None,
        description="what learning_rate is multiplied by: a schedule such as {schedule: cosine, initial: 1, final: 0}",
    )
    clip: float | None = added(
        None, gt=0, description="gradients are cut to [-clip, clip], element by element; null: not at all"
    )
    precision: Literal["float32", "tf32", "bfloat16"] = added(
        "float32",
        description="precision of the networks in a training step: tf32 rounds the inputs of matrix products on cuda "
        "to 10 bits of mantissa, bfloat16 computes in 16 bits; weights, losses and evaluations stay in float32",
    )

    @field_validator("learning_rate_schedule")
    @classmethod
    def _not_negative(cls, schedule: Any) -> Any:
        if schedule is not None and min(schedule.initial, schedule.final) < 0:
            raise ValueError(f"initial and final must be >= 0, got {schedule.initial:g} and {schedule.final:g}")
        return schedule

    def rate(self, step: int) -> float:
        """The learning rate of the update with this number, counted from 1."""
        schedule = self.learning_rate_schedule
        return self.learning_rate * (1.0 if schedule is None else schedule.at(step - 1, self.steps))


class EvaluationParams(Frozen):
    """Which metrics are computed, on what, and when; the end of training always counts as an evaluation.

    `size`, `codes` and `every` apply to all metrics; each metric in the list may override them.
    """

    metrics: list[Any] = Field(default_factory=list, description="names, or mappings with a name and parameters")
    every: Count | None = Field(None, ge=1, description="steps between evaluations; null: only at the end")
    size: Literal["full", "fast", "both"] = Field(
        "full",
        description="full: the published sizes; fast: smaller ones, in keys that end in _fast; "
        "both: fast during training and at its end, full at the end",
    )
    codes: Literal["mean", "sampled", "both", "normal"] | None = Field(
        None,
        description="which codes are scored (sampled: in keys that end in _sampled; normal: means mapped from a "
        "Student-t prior to N(0, 1), in keys that end in _normal); null: each metric's default",
    )
    table: Count = Field(50_000, ge=10, description="images encoded for metrics of full size; all if there are fewer")
    fast_table: Count = Field(15_000, ge=10, description="images encoded for metrics of fast size")
    region: Literal["everything", "inside", "outside", "each"] | None = added(
        None,
        description="with dataset.law or dataset.held_out, which images are scored: everything, equally often; inside: "
        "as training draws them (in keys that end in _inside); outside: those that training never draws (in keys that "
        "end in _outside); null: each of these",
    )


class When(Frozen):
    """Keys that every metric accepts in addition to its own parameters."""

    size: Literal["full", "fast", "both"] | None = Field(None, description="evaluation.size for this metric")
    codes: Literal["mean", "sampled", "both", "normal"] | None = Field(
        None, description="evaluation.codes for this metric"
    )
    region: Literal["everything", "inside", "outside", "each"] | None = Field(
        None, description="evaluation.region for this metric"
    )
    every: Count | Literal["end"] | None = Field(
        None, description="steps between evaluations of this metric; end: only at the end of training"
    )

    @field_validator("every", mode="before")
    @classmethod
    def _steps_or_end(cls, every: Any) -> Any:
        if every in (None, "end") or (isinstance(every, int | float) and every >= 1 and every % 1 == 0):
            return every
        raise ValueError(f"must be a number of steps >= 1, or end, got {every!r}")


class Named(NamedTuple):
    """A plug-in with its parameters; a parameter with a schedule has one value of the schedule in `params`."""

    plugin: Any
    params: Any
    name: str
    schedules: Mapping[str, Any] = MappingProxyType({})

    def tree(self) -> dict[str, Any]:
        schedules = {key: schedule.model_dump() for key, schedule in self.schedules.items()}
        return {"name": self.name, **self.params.model_dump(), **schedules}


class Scored(NamedTuple):
    """A metric as a trial computes it: on which codes, in which size, every how many steps (0: only at the end)."""

    metric: Named
    size: Literal["full", "fast"]
    codes: Representation
    every: int
    region: Region | None = None
    """Which images are scored, if a law of sampling distinguishes them."""

    @property
    def suffix(self) -> str:
        region = "" if self.region in (None, "everything") else f"_{self.region}"
        codes = "" if self.codes == "mean" else f"_{self.codes}"
        return region + codes + ("_fast" if self.size == "fast" else "")

    @property
    def label(self) -> str:
        return f"{self.metric.name}{self.suffix}"

    @property
    def keys(self) -> list[str]:
        return [f"{key}{self.suffix}" for key in self.metric.plugin.keys]

    @property
    def details(self) -> list[str]:
        return [f"{key}{self.suffix}" for key in self.metric.plugin.details]

    def due(self, step: int) -> bool:
        """Before the end of training."""
        return self.every > 0 and step % self.every == 0

    def tree(self, usual: int) -> dict[str, Any]:
        """Leaves out `every` if it has its usual value."""
        every = None if self.every == usual else self.every or "end"
        region = {"region": self.region} if self.region else {}
        return {**self.metric.tree(), "size": self.size, "codes": self.codes, "every": every, **region}


PLUGIN_SECTIONS: dict[str, Catalogue] = {
    "dataset": DATASETS,
    "model": MODELS,
    "framework": FRAMEWORKS,
    "recon": RECONS,
}
PLAIN_SECTIONS: dict[str, type[Frozen]] = {"training": TrainingParams, "evaluation": EvaluationParams}
SECTIONS = (*PLUGIN_SECTIONS, *PLAIN_SECTIONS, "loss_scale")
LOSS_SCALES = ("sum", "mean")
LACKING = {
    "factors": "has no known factors",
    "grid": "has a table of factors that lacks some of their combinations or repeats them",
}
"""`Dataset.lacks` in words."""


@dataclass(frozen=True)
class TrialConfig:
    """One point of a sweep. Equal configs give equal rows."""

    dataset: Named
    pixels: Pixels
    model: Named
    framework: Named
    recon: Named
    training: TrainingParams
    evaluation: EvaluationParams
    metrics: tuple[Scored, ...]
    loss_scale: Literal["sum", "mean"]
    seed: int

    def tree(self) -> dict[str, Any]:
        """The canonical nested form, with every default written out except those of fields `added` later."""
        tree = {
            "dataset": {**self.dataset.tree(), **self.pixels.model_dump()},
            "model": self.model.tree(),
            "framework": self.framework.tree(),
            "recon": self.recon.tree(),
            "training": self.training.model_dump(),
            "evaluation": {
                **self.evaluation.model_dump(exclude={"size", "codes", "region"}),  # stored per metric
                "metrics": [scored.tree(self.evaluation.every or 0) for scored in self.metrics],
            },
            "loss_scale": self.loss_scale,
            "seed": self.seed,
        }
        found: dict[str, Any] = _without_minus_zero(tree)
        return found

    @cached_property
    def id(self) -> str:
        """Hash of the canonical form: the same on every machine and for every spelling and key order of the config."""
        return id_of(self.tree())

    @property
    def awaits_donors(self) -> bool:
        """Whether its data set is made from trials that a needed run is yet to give."""
        return isinstance(getattr(self.dataset.params, "donors", None), str)

    def with_seed(self, seed: int) -> "TrialConfig":
        """The same point with another seed, without parsing it again."""
        return self if seed == self.seed else replace(self, seed=seed)

    def on(self, device: Device) -> "TrialConfig":
        """The same point on another device."""
        return replace(self, training=self.training.model_copy(update={"device": device}))

    def metric_keys(self) -> list[str]:
        return [key for scored in self.metrics for key in scored.keys]

    def loss_keys(self) -> list[str]:
        return loss_keys(self.framework.plugin)

    @property
    def sampling(self) -> Sampling | None:
        """How often training draws each image; None where no law or held-out set says so."""
        return _sampling(self.pixels, self.dataset)

    def setting(self) -> Context:
        return _setting(self.dataset, self.model, self.training, self.framework, self.sampling)

    def framework_params(self, step: int) -> Any:
        """The framework's parameters at the update with this number, counted from 1."""
        framework, steps = self.framework, self.training.steps
        if not framework.schedules:
            return framework.params
        values = {key: schedule.at(step - 1, steps) for key, schedule in framework.schedules.items()}
        return framework.params.model_copy(update=values)

    def evaluates_at(self, step: int) -> bool:
        every = self.evaluation.every
        return step == self.training.steps or (every is not None and step % every == 0) or bool(self.due(step))

    def due(self, step: int) -> tuple[Scored, ...]:
        """The metrics that are computed after this step."""
        return tuple(scored for scored in self.metrics if step == self.training.steps or scored.due(step))

    def reporting_interval(self, key: str) -> int:
        """Steps between two rows that have this loss or metric."""
        every = {key: scored.every for scored in self.metrics for key in scored.keys}
        return (every[key] or self.training.steps) if key in every else self.training.log_every

    @classmethod
    def parse(cls, tree: Mapping[str, Any]) -> "TrialConfig":
        """Raises Invalid with every mistake found."""
        mistakes: list[Mistake] = []
        tree = dict(tree)
        pixels, tree["dataset"] = _split_pixels(tree.get("dataset", {}), mistakes)
        for key in tree.keys() - {*SECTIONS, "seed"}:
            mistakes.append(Mistake(key, f"unknown key.{did_you_mean(key, SECTIONS)} Known: {', '.join(SECTIONS)}"))
        named = {key: _named(plugins, tree.get(key, {}), key, mistakes) for key, plugins in PLUGIN_SECTIONS.items()}
        of_dataset = [mistake.key.startswith("dataset.") for mistake in mistakes]
        mistakes = [_with_shared_keys(m, Pixels) if own else m for m, own in zip(mistakes, of_dataset, strict=True)]
        plain = {key: _plain(kind, tree.get(key, {}), key, mistakes) for key, kind in PLAIN_SECTIONS.items()}
        of_law = [*_refused_law(pixels, named["dataset"])]
        mistakes += of_law
        drawn = None if of_law else _sampling(pixels, named["dataset"])
        is_known = pixels is not None and named["dataset"] is not None and not of_law
        listed = plain["evaluation"] or _listed_metrics(tree.get("evaluation"))
        metrics = _metrics(listed, mistakes, (_regions(drawn) if drawn else []) if is_known else None)
        scale = _one_of("loss_scale", tree.get("loss_scale"), LOSS_SCALES, mistakes)
        seed = tree.get("seed")
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            mistakes.append(Mistake("seed", "must be a whole number >= 0", seed, True))
        mistakes += _mismatches(pixels, drawn, training=plain["training"], **named)
        mistakes += _too_large(metrics, plain["evaluation"], named["dataset"], drawn)
        mistakes += _refused_metrics(metrics, named["dataset"])
        mistakes += _shared_names(metrics, named["framework"])
        mistakes += _unmapped(metrics, named["framework"])
        if mistakes:
            raise Invalid(mistakes)
        return cls(pixels=pixels, metrics=metrics, loss_scale=scale, seed=seed, **named, **plain)  # type: ignore


def id_of(tree: Mapping[str, Any]) -> str:
    """The id of a trial by its canonical tree, as `TrialConfig.tree` gives it or as it was recorded; imports nothing.
    ValueError when a number in it is not finite."""
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]


def loss_keys(framework: Framework) -> list[str]:
    """What every row of a trial with this framework has: losses in the trial's scale and in nats per image, and the
    numbers that the framework watches."""
    losses = ["loss", "recon", *framework.parts]
    return [*losses, *(f"{name}_sum" for name in losses), *(f"{WATCHED}{name}" for name in framework.watch)]


def row_steps(tree: Mapping[str, Any], until: int) -> Iterator[int]:
    """The steps, up to `until`, at which a trial with this canonical tree writes a row; sorted, possibly with
    duplicates."""
    training, evaluation = tree["training"], tree["evaluation"]
    last, metrics = min(until, training["steps"]), evaluation.get("metrics")
    listed = metrics if isinstance(metrics, list) else []
    own = [metric.get("every") for metric in listed if isinstance(metric, Mapping)]
    intervals = [training.get("log_every"), evaluation.get("every"), *own]
    rhythms = [range(every, last + 1, every) for every in intervals if type(every) is int and every > 0]
    return heapq.merge(*rhythms, [training["steps"]] if training["steps"] <= until else [])


def is_id(name: str) -> bool:
    return len(name) == ID_LENGTH and set(name) <= set("0123456789abcdef")


def names_own_plugin(tree: Mapping[str, Any]) -> bool:
    """Whether a trial names a plug-in by its import path, so that parsing the trial runs code."""
    return bool(own_plugins(tree))


def own_plugins(tree: Mapping[str, Any]) -> list[str]:
    """The import paths by which a trial names plug-ins."""
    evaluation = tree.get("evaluation")
    metrics = evaluation.get("metrics") if isinstance(evaluation, Mapping) else None
    sections = [tree.get(section) for section in PLUGIN_SECTIONS]
    entries = [*sections, *(metrics if isinstance(metrics, list) else ())]
    return [entry["name"] if isinstance(entry, Mapping) else entry for entry in entries if _is_own(entry)]


def metric_keys(evaluation: Any, has_law: bool = False) -> list[str] | None:
    """The keys that the metrics of this section report; None if that depends on a user's own code. Raises Invalid.

    `has_law`: whether the data set has a law of sampling, whose regions may be scored.
    """
    mistakes: list[Mistake] = []
    section = validated(EvaluationParams, evaluation, "evaluation", mistakes)
    if section and any(map(_is_own, section.metrics)):
        return None
    regions = get_args(Region) if has_law else None
    keys = [key for scored in _metrics(section, mistakes, regions) for key in scored.keys]
    if mistakes:
        raise Invalid(mistakes)
    return keys


def _is_own(entry: Any) -> bool:
    name = entry.get("name") if isinstance(entry, Mapping) else entry
    return isinstance(name, str) and ":" in name


def _without_minus_zero(value: Any) -> Any:
    """-0.0 equals 0.0, so it must not give another trial."""
    if isinstance(value, dict):
        return {key: _without_minus_zero(below) for key, below in value.items()}
    return 0.0 if isinstance(value, float) and value == 0 else value


def _one_of(key: str, value: Any, known: tuple[str, ...], mistakes: list[Mistake]) -> Any:
    if value is None:
        mistakes.append(Mistake(key, f"is required but not set; one of {', '.join(known)}"))
    elif value not in known:
        mistakes.append(Mistake(key, f"must be one of {', '.join(known)}", value, True))
    return value


def _split_pixels(section: Any, mistakes: list[Mistake]) -> tuple[Pixels | None, Any]:
    """Keys of every data set, so that no plug-in has to declare them."""
    if not isinstance(section, Mapping):
        return Pixels(), section
    own = {key: value for key, value in section.items() if key in Pixels.model_fields}
    rest = {key: value for key, value in section.items() if key not in own}
    return _plain(Pixels, own, "dataset", mistakes), rest


def _plain(kind: type[Frozen], section: Any, prefix: str, mistakes: list[Mistake]) -> Any:
    return _once(kind, prefix, section, mistakes, lambda found: validated(kind, section, prefix, found))


def _named(catalogue: Catalogue, section: Any, prefix: str, mistakes: list[Mistake]) -> Named | None:
    if not isinstance(section, Mapping):
        mistakes.append(Mistake(prefix, "must be a mapping with a name", section, True))
        return None
    name = section.get("name")
    if not isinstance(name, str):
        text = f"is required but not set; one of {', '.join(catalogue.names())}"
        mistakes.append(Mistake(f"{prefix}.name", text if name is None else "must be a string", name, name is not None))
        return None
    try:
        plugin = catalogue[name]
    except ValueError as error:
        mistakes += [Mistake(f"{prefix}.name", str(error)), *_lists_for_values(catalogue, name, section, prefix)]
        return None
    result: Named | None = _once(
        plugin, prefix, section, mistakes, lambda found: _with_params(plugin, name, section, prefix, found)
    )
    return result


def _lists_for_values(catalogue: Catalogue, name: str, section: Mapping[str, Any], prefix: str) -> Iterator[Mistake]:
    """Lists and mappings where the plug-in that was probably meant takes a single value: misspelt domains."""
    for near in get_close_matches(name, catalogue.names(), n=1, cutoff=0.6):
        found: list[Mistake] = []
        _with_params(catalogue[near], near, section, prefix, found)
        yield from (one for one in found if one.shows_value and isinstance(one.value, list | Mapping))


MOST_REMEMBERED = 10_000
_remembered: dict[tuple[int, str, str], tuple[Any, Any]] = {}


def _once(kind: Any, prefix: str, section: Any, mistakes: list[Mistake], read: Callable[[list[Mistake]], Any]) -> Any:
    """The result of `read` for a section, cached because the points of a sweep share most of their sections. Only
    sections without mistakes are cached."""
    key = id(kind), prefix, repr(section)  # repr distinguishes 1, 1.0 and true
    if key in _remembered:
        return _remembered[key][1]
    found: list[Mistake] = []
    value = read(found)
    mistakes += found
    if len(_remembered) >= MOST_REMEMBERED:
        _remembered.clear()
    if not found:
        _remembered[key] = kind, value  # holding `kind` keeps its id from being reused
    return value


def _with_params(plugin: Any, name: str, section: Mapping[str, Any], prefix: str, mistakes: list[Mistake]) -> Any:
    tree = _without_name(section)
    schedules = _schedules(plugin, tree, prefix, mistakes) if prefix == "framework" else {}
    params = _checked(plugin.params, tree, schedules, prefix, mistakes)
    moving = {key: schedule for key, schedule in schedules.items() if schedule and not isinstance(schedule, Constant)}
    return Named(plugin, params, name, moving) if params else None


def _schedules(framework: Any, tree: Mapping[str, Any], prefix: str, mistakes: list[Mistake]) -> dict[str, Any]:
    """The schedule of each key that has one; None if a schedule is wrong, with its mistakes appended."""
    written = {key: value for key, value in tree.items() if isinstance(value, Mapping) and "schedule" in value}
    return {
        key: _schedule(framework, key, value, f"{prefix}.{key}", mistakes)
        for key, value in written.items()
        if key in framework.params.model_fields
    }


def _schedule(framework: Any, name: str, value: Any, key: str, mistakes: list[Mistake]) -> Any:
    annotation = framework.params.model_fields[name].annotation
    if float not in (annotation, *get_args(annotation)):
        mistakes.append(Mistake(key, "cannot follow a schedule: only real-valued numbers can"))
        return None
    if name in framework.read_once:
        mistakes.append(Mistake(key, "cannot follow a schedule: it is read once, before the first step"))
        return None
    found: list[Mistake] = []
    scheduled = validated(Scheduled, {"value": value}, "", found)
    mistakes += [mistake._replace(key=mistake.key.replace("value", key, 1)) for mistake in found]
    return scheduled.value if scheduled else None


def _checked(
    params: type[Frozen], tree: Mapping[str, Any], schedules: Mapping[str, Any], prefix: str, mistakes: list[Mistake]
) -> Any:
    """Checks the params at both ends of their schedules; a schedule that is itself wrong is not reported twice."""
    right = {key: schedule for key, schedule in schedules.items() if schedule is not None}
    wrong = {f"{prefix}.{key}" for key in schedules.keys() - right.keys()}
    checked = None
    for end in ("final", "initial") if right else ("initial",):
        found: list[Mistake] = []
        values = {key: getattr(schedule, end) for key, schedule in right.items()}
        checked = validated(params, {**tree, **values}, prefix, found)
        ends = {f"{prefix}.{key}": f"{prefix}.{key}.{end}" for key in right}
        found = [mistake._replace(key=ends.get(mistake.key, mistake.key)) for mistake in found]
        mistakes += [mistake for mistake in found if mistake.key not in wrong and mistake not in mistakes]
    return checked


def _listed_metrics(evaluation: Any) -> EvaluationParams | None:
    """The list of metrics without the other keys of the section, one of which is wrong."""
    listed = evaluation.get("metrics") if isinstance(evaluation, Mapping) else None
    return EvaluationParams(metrics=listed) if isinstance(listed, list) else None


def _metrics(
    evaluation: EvaluationParams | None, mistakes: list[Mistake], regions: Sequence[Region] | None
) -> tuple[Scored, ...]:
    """`regions` has what a law of sampling distinguishes: nothing without a law; None if it is not known."""
    if evaluation is None:
        return ()
    entries = [{"name": entry} if isinstance(entry, str) else entry for entry in evaluation.metrics]
    metrics = tuple(scored for entry in entries for scored in _expanded(entry, evaluation, mistakes, regions))
    mistakes += _repeated(metrics)
    return metrics


def _repeated(metrics: tuple[Scored, ...]) -> list[Mistake]:
    """Metrics that would write to the same keys, each reported once."""
    owners: dict[str, str] = {}
    texts: dict[str, None] = {}
    for scored in metrics:
        name, keys = scored.metric.name, [*scored.keys, *scored.details]
        key = next((key for key in keys if key in owners), None)
        if key is not None and owners[key] == name:
            texts[f"'{name}' is listed twice in the same size; keep one"] = None
        elif key is not None:
            texts[f"'{name}' and '{owners[key]}' both report '{key}'; rename it in one of them"] = None
        owners |= dict.fromkeys(keys, name)
    return [Mistake("evaluation.metrics", text) for text in texts]


def _shared_names(metrics: tuple[Scored, ...], framework: Named | None) -> list[Mistake]:
    """Metric keys that are also losses, of this framework or of another one that may be in the same table."""
    losses = {part: plugin.name for plugin in reversed([*FRAMEWORKS]) for part in plugin.parts}
    losses |= dict.fromkeys(framework.plugin.parts, framework.name) if framework else {}
    shared = {key: scored.metric.name for scored in metrics for key in scored.metric.plugin.keys if key in losses}
    return [
        Mistake("evaluation.metrics", f"'{key}' is a key of '{name}' and also a loss of the framework '{losses[key]}'; "
                "rename it in your own plug-in")
        for key, name in shared.items()
    ]  # fmt: skip


def _unmapped(metrics: tuple[Scored, ...], framework: Named | None) -> list[Mistake]:
    """Metrics of codes that are mapped to N(0, 1), where the framework's prior knows no such map."""
    names = dict.fromkeys(one.metric.name for one in metrics if one.codes == "normal")
    if not names or framework is None or framework.plugin.to_normal(framework.params):
        return []
    text = (
        f"codes: normal of '{{}}' maps codes from a Student-t prior to N(0, 1), but '{framework.name}' has no such "
        "prior here; set framework.prior.name: student_t of decomposition_vae, or omit codes"
    )
    return [Mistake("evaluation.metrics", text.format(name)) for name in names]


def _too_large(
    metrics: tuple[Scored, ...], evaluation: EvaluationParams | None, dataset: Named | None, drawn: Sampling | None
) -> list[Mistake]:
    """Metrics that need more images than their table can have."""
    if evaluation is None or dataset is None:
        return []
    wanted = {"full": evaluation.table, "fast": evaluation.fast_table}
    found: dict[tuple[str, str, str], Mistake] = {}
    for one in metrics:
        rows, region = one.metric.plugin.rows(one.metric.params), one.region or "everything"
        images, again = _images_of(region, dataset, drawn)
        table = wanted[one.size] if again else min(wanted[one.size], images)
        if rows > table:
            is_all = region == "everything"
            where = f"the data set's {images}" if is_all else f"the {images} images {region}"
            remedy = "omit it, or choose smaller sizes" + ("" if is_all else " or region: everything")
            text = (
                f"'{one.metric.name}' in {one.size} size needs {rows} images, but its table has {table} of {where}; "
                f"{remedy}"
            )
            found[one.metric.name, one.size, region] = Mistake("evaluation.metrics", text)
    return [*found.values()]


def _images_of(region: Region, dataset: Named, drawn: Sampling | None) -> tuple[int, bool]:
    """Number of images of a region, and whether a table may have an image more than once."""
    noisy, images = dataset.plugin.noisy(dataset.params), dataset.plugin.population(dataset.params)
    if region == "everything" or drawn is None:
        return images, noisy
    is_inside = region == "inside"
    return (drawn.count if is_inside else images - drawn.count), noisy or (is_inside and not drawn.is_even)


def _regions(drawn: Sampling) -> list[Region]:
    """What a law distinguishes; there is nothing outside if every image may be drawn."""
    return ["everything", "inside", *(["outside"] if drawn.count < math.prod(drawn.sizes) else [])]  # type: ignore


def _regions_of(
    asked: str | None, metric: Metric, regions: Sequence[Region] | None, mistakes: list[Mistake]
) -> list[Region | None]:
    """The regions on which a metric is scored."""
    if asked in (None, "each"):
        if not regions:
            return [None]
        return ["everything"] if metric.lines else [*regions]
    chosen: Region = asked  # type: ignore[assignment]
    if regions is None:
        return [chosen]
    if asked == "everything":
        return [chosen if regions else None]
    if not regions:
        text = f"region {asked} of '{metric.name}' needs dataset.law or dataset.held_out, which say what is {asked}"
    elif chosen not in regions:
        text = f"region {asked} of '{metric.name}' has no images: the law draws every combination of factors"
    elif metric.lines:
        text = f"'{metric.name}' compares images along whole lines of the grid: it can only have region: everything"
    else:
        return [chosen]
    mistakes.append(Mistake("evaluation.metrics", text))
    return []


def _expanded(
    entry: Any, evaluation: EvaluationParams, mistakes: list[Mistake], regions: Sequence[Region] | None
) -> list[Scored]:
    """One entry of the list, expanded to each size, each kind of codes and each region that it requests."""
    key, own = "evaluation.metrics", entry if isinstance(entry, Mapping) else {}
    when = validated(When, {name: own[name] for name in When.model_fields if name in own}, key, mistakes)
    params = {name: value for name, value in own.items() if name not in When.model_fields} if own else entry
    found: list[Mistake] = []
    named = _named(METRICS, params, key, found)
    mistakes += [_with_shared_keys(mistake, When) for mistake in found]
    if not named or not when:
        return []
    every = 0 if when.every == "end" else when.every or evaluation.every or 0
    size = when.size or evaluation.size
    sizes: list[tuple[Any, int]] = [("fast", every), ("full", 0)] if size == "both" else [(size, every)]
    small = validated(named.plugin.params, {**named.plugin.fast, **_without_name(params)}, key, mistakes)
    in_size = {"full": named, "fast": named._replace(params=small)}
    kinds = _representations(when.codes or evaluation.codes, named.plugin)
    parts = _regions_of(when.region or evaluation.region, named.plugin, regions, mistakes)
    return [Scored(in_size[size], size, kind, every, part) for size, every in sizes for kind in kinds for part in parts]


def _with_shared_keys(mistake: Mistake, shared: type[Frozen]) -> Mistake:
    """A mistake whose list of known keys also has those that all plug-ins of the kind share."""
    if not mistake.text.startswith("unknown key"):
        return mistake
    known = shared.model_fields
    near = did_you_mean(mistake.key.rsplit(".", 1)[-1], known)
    text = f"{mistake.text}, {', '.join(known)}"
    return mistake._replace(text=text if "Did you mean" in text else text.replace("key.", f"key.{near}", 1))


def _representations(codes: str | None, metric: Metric) -> tuple[Any, ...]:
    if codes is None:
        return metric.representations
    return ("mean", "sampled") if codes == "both" else (codes,)


def _without_name(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "name"}


def _mismatches(
    pixels: Pixels | None, drawn: Sampling | None, dataset: Any, model: Any, framework: Any, recon: Any, training: Any
) -> Iterable[Mistake]:
    """Mistakes in the combination of sections that are each valid by themselves."""
    if framework and training:
        yield from _clashes(framework, training.steps)
        yield from _refused_optimiser(framework, training)
    if training and training.precision == "tf32" and training.device != "cuda":
        text = f"tf32 exists only on NVIDIA GPUs (training.device: cuda), but the device is {training.device}"
        yield Mistake("training.precision", f"{text}; use bfloat16, or omit it")
    unit_range = bool(recon and recon.plugin.needs_unit_range(recon.params))
    if unit_range and pixels and pixels.transform != "unit":
        yield Mistake("recon.name", f"'{recon.name}' needs targets in [0, 1]: set dataset.transform: unit")
    if framework and framework.plugin.needs_unit_range and pixels and pixels.transform != "unit":
        yield Mistake("framework.name", f"'{framework.name}' needs pixels in [0, 1]: set dataset.transform: unit")
    if not dataset:
        return
    if unit_range and dataset.plugin.points:
        yield Mistake("recon.name", f"'{recon.name}' needs targets in [0, 1], but '{dataset.name}' holds points")
    if pixels:
        yield from _refused_pixels(pixels, dataset)
    shape = dataset.plugin.shape(dataset.params)
    for key, named in (("model.name", model), ("recon.name", recon)):
        if named:
            yield from _refusal(key, named, shape)
    if training and not training.replacement:
        yield from _refused_batch(training, dataset.plugin.population(dataset.params), drawn)
    if framework and model and training:
        yield from _refusal("framework", framework, _setting(dataset, model, training, framework, drawn))
    if framework:
        yield from _refused_factors(framework, dataset)
        yield from _refused_pairs(framework, dataset, drawn)


def _refused_pixels(pixels: Pixels, dataset: Named) -> Iterable[Mistake]:
    if pixels.noise and dataset.plugin.points:
        yield Mistake("dataset.noise", f"is added to pixels, but '{dataset.name}' holds points; omit it")
    if pixels.statistics == "published" and dataset.plugin.published(dataset.params) is None:
        text = f"must be computed: no published constants of '{dataset.name}' with these parameters are known"
        yield Mistake("dataset.statistics", text)


def _refused_law(pixels: Pixels | None, dataset: Named | None) -> Iterable[Mistake]:
    """A law that is not one of the data set's factors, or that leaves nothing to train on or nothing held out."""
    if pixels is None or dataset is None or (pixels.law, pixels.held_out) == (None, None):
        return
    key = "held_out" if pixels.law is None else "law"
    if lacking := dataset.plugin.lacks(dataset.params):
        yield Mistake(f"dataset.{key}", f"needs an image for every combination of known factors, but '{dataset.name}' "
                      f"{LACKING[lacking]}")  # fmt: skip
        return
    try:
        _sampling(pixels, dataset)
    except LawError as error:
        yield Mistake(f"dataset.{error.key}", str(error))
    except ValueError as error:
        yield Mistake(f"dataset.{key}", str(error))


def _sampling(pixels: Pixels | None, dataset: Named | None) -> Sampling | None:
    """ValueError if the law does not suit the data set."""
    if pixels is None or dataset is None or (pixels.law, pixels.held_out) == (None, None):
        return None
    plugin, params = dataset.plugin, dataset.params
    return sampling(pixels.law, pixels.held_out, plugin.names(params), plugin.factor_sizes(params))


def _refused_batch(training: TrainingParams, images: int, drawn: Sampling | None) -> Iterable[Mistake]:
    if drawn and not drawn.is_even:
        yield Mistake("training.replacement", "must be true with a dataset.law that draws some images more often")
        return
    images = drawn.count if drawn else images
    if training.batch_size > images:
        what = "the number of images that the law draws" if drawn else "the number of images"
        text = f"must be at most {images}, {what}, if training.replacement is false"
        yield Mistake("training.batch_size", text, training.batch_size, True)


def _refused_optimiser(framework: Named, training: TrainingParams) -> Iterable[Mistake]:
    """Choices of the loop's Adam, where a framework brings an optimiser of its own."""
    chosen = {"training.clip": training.clip is not None, "training.optimiser.decoupled": training.optimiser.decoupled}
    if framework.plugin.optimiser is not None:
        for key in (key for key, is_chosen in chosen.items() if is_chosen):
            yield Mistake(key, f"cannot be used with '{framework.name}', which brings its own optimiser; omit it")


def _refused_factors(framework: Named, dataset: Named) -> Iterable[Mistake]:
    if framework.plugin.needs_factors and dataset.plugin.lacks(dataset.params) == "factors":
        text = f"'{framework.name}' needs the factors of each image, but the data set '{dataset.name}'"
        yield Mistake("framework.name", f"{text} {LACKING['factors']}; {_in_their_place()}")


def _refused_pairs(framework: Named, dataset: Named, drawn: Sampling | None) -> Iterable[Mistake]:
    law = getattr(framework.params, "pairs", None)
    lacking = dataset.plugin.lacks(dataset.params)
    if law is not None and lacking and getattr(law, "needs_grid", True):
        text = f"'{framework.name}' draws pairs of images that differ in some factors, but the data set"
        yield Mistake("framework.name", f"{text} '{dataset.name}' {LACKING[lacking]}; {_in_their_place()}")
        return
    try:
        if law is not None:
            law.check(dataset.plugin.factor_sizes(dataset.params))
        if law is not None and drawn and getattr(law, "needs_grid", True):
            try_partners(law, drawn)
    except ValueError as error:
        yield Mistake("framework.pairs", str(error))


def _in_their_place() -> str:
    single = (one.name for one in FRAMEWORKS if not one.needs_factors and "pairs" not in one.params.model_fields)
    return f"use a framework that learns from single images: {', '.join(single)}"


def _refused_metrics(metrics: tuple[Scored, ...], dataset: Named | None) -> Iterable[Mistake]:
    """Metrics that ask for factors, or for all combinations of them, which the data set does not have."""
    lacking = dataset.plugin.lacks(dataset.params) if dataset else ""
    wrong = dict.fromkeys(one.metric.name for one in metrics if lacking and _needs(one.metric.plugin, lacking))
    if wrong and dataset:
        names, needs = ", ".join(f"'{name}'" for name in wrong), "needs" if len(wrong) == 1 else "need"
        others = ", ".join(metric.name for metric in METRICS if not _needs(metric, lacking))
        what = "known factors" if lacking == "factors" else "all combinations of the factors"
        yield Mistake("evaluation.metrics", f"{names} {needs} {what}, but the data set "
                      f"'{dataset.name}' {LACKING[lacking]}; use instead: {others}")  # fmt: skip


def _needs(metric: Metric, lacking: str) -> bool:
    return "factors" in metric.needs if lacking == "factors" else metric.lines


def _clashes(framework: Named, steps: int) -> list[Mistake]:
    """Scheduled parameters that are valid at their own ends but not together at some step."""
    schedules, found = framework.schedules, list[Mistake]()
    knots = sorted({knot for schedule in schedules.values() for knot in schedule.knots(steps)})
    for knot in knots if len(schedules) > 1 else ():
        values = {key: schedule.at(knot, steps) for key, schedule in schedules.items()}
        mistakes: list[Mistake] = []
        validated(framework.plugin.params, {**framework.params.model_dump(), **values}, "framework", mistakes)
        found += [mistake._replace(text=f"at step {knot}: {mistake.text}") for mistake in mistakes]
    return found[:1]


def _refusal(key: str, named: Named, world: Any) -> Iterable[Mistake]:
    try:
        named.plugin.check(world, named.params)
    except ValueError as error:
        yield Mistake(key, str(error))


def _setting(
    dataset: Named, model: Named, training: TrainingParams, framework: Named, drawn: Sampling | None
) -> Context:
    """The population is the images that training may draw."""
    plugin, params = dataset.plugin, dataset.params
    sizes, count = plugin.factor_sizes(params), plugin.count(params)
    if drawn and drawn.count < math.prod(sizes):
        count = drawn.count
    names = plugin.names(params) if framework.plugin.needs_factors and sizes else ()
    return Context(plugin.shape(params), model.params.latents, training.batch_size, sizes, count, names)


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turns dotted keys into a tree. Raises Invalid for a key below another key that has a plain value."""
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *parents, last = key.split(".")
        node = tree
        for parent in parents:
            node = node.setdefault(parent, {})
            if not isinstance(node, dict):
                raise Invalid([Mistake(key, f"'{parent}' is a single value, so it cannot have keys below it")])
        node[last] = dict(value) if isinstance(value, Mapping) else value
    return tree


def flattened(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turns a tree into dotted keys; lists are kept whole."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        if isinstance(value, Mapping):
            flat |= flattened(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value
    return flat


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """`training.steps was 100, is 200` for every key in which two trees differ."""
    old, new = flattened(before), flattened(after)
    keys = [key for key in dict.fromkeys([*old, *new]) if old.get(key) != new.get(key)]
    return [f"{key} was {_set_to(old.get(key))}, is {_set_to(new.get(key))}" for key in keys]


def _set_to(value: Any) -> str:
    return "not set" if value is None else repr(value)
