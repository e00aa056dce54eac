"""Measures, before any training, how well the reconstruction loss of each trial orders its data set's factors (Michlo
et al., IJCAI 2023). The order ranks data sets and losses; it does not predict what training finds."""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from disentune.errors import ConfigError, Problem
from disentune.learn.image_distances import Along, Look
from disentune.learn.kernels import Learned
from disentune.maths.laws import Sampling
from disentune.parameters import shown as worded_alone
from disentune.runs.preview import prepared, sources_of
from disentune.spec.config import Invalid, TrialConfig, flattened
from disentune.spec.pixels import Pixels
from disentune.spec.space import SweepPoints
from disentune.spec.sweepfile import overrides_by_key

LOW, HIGH = 0.25, 0.6
"""Orders below LOW are called low, those from HIGH on high. These are names for parts of a scale, not predictions.
Based on Figure 9, where spacings 1 to 8 have orders 1, .88, .70, .48, .42, .32, .17, 0 and Ada-GVAE a MIG of .86, .74,
.47, .22, .07, .03, .05, 0, and on our own search of blurs (docs/studies/overlooked_implications.md)."""
EVIDENCE = (
    "order is a ranking, not a verdict: its rank correlation (Spearman) with the MIG of trained models was 0.60 on 25 "
    "worlds not used to define it (95 % interval 0.25 to 0.85; an independent review)"
)
MOST_WORLDS = 64
"""Maximum number of worlds to measure; a random search may have thousands."""
PUBLISHED_TRANSFORM = "unit"
"""Transform of the published matrices, tables and correlations: pixels in [0, 1]."""
LEVEL = 0.98
"""Share of the largest distance above which distances count as no longer growing."""

MOST_DEPENDENCES = 6
"""Number of dependent pairs of factors that are listed."""

Word = Literal["high", "middle", "low", "unknown"]


# ---- worlds


@dataclass(frozen=True, eq=False)
class Seen:
    """A data set with a reconstruction loss, as some trials use it."""

    title: str
    config: TrialConfig
    """The config of one of these trials."""
    arms: tuple[str, ...]


def worlds_of(asked: SweepPoints) -> list[Seen]:
    """Each data set and loss of a sweep once, in sweep order; for a model-based search, the ends of its domains."""
    arms: dict[str, dict[str, None]] = {}
    configs: dict[str, TrialConfig] = {}
    keys: dict[tuple[int, int, int], str] = {}
    for arm, config in asked.unseeded:  # all are kept alive, so that an id refers to one section only
        sections = id(config.dataset), id(config.pixels), id(config.recon)
        if sections not in keys:
            keys[sections] = json.dumps(_world(config), sort_keys=True)
        key = keys[sections]
        configs.setdefault(key, config)
        arms.setdefault(key, {})[arm] = None
    titles = _titles([*configs.values()])
    return [Seen(title, configs[key], tuple(arms[key])) for title, key in zip(titles, configs, strict=True)]


def _world(config: TrialConfig) -> dict[str, Any]:
    tree = config.tree()
    return {"dataset": tree["dataset"], "recon": tree["recon"]}


def _titles(configs: Sequence[TrialConfig]) -> list[str]:
    """Names, with what distinguishes worlds of the same name."""
    flats = [flattened(_world(config)) for config in configs]
    apart = {section: _differing(flats, section) for section in ("dataset", "recon")}
    return [", ".join(word for section in apart for word in _words(flat, section, apart[section])) for flat in flats]


def _differing(flats: Sequence[Mapping[str, Any]], section: str) -> dict[str, set[str]]:
    """The keys in which worlds differ, by name of the plug-in."""
    alike: dict[str, list[Mapping[str, Any]]] = {}
    for flat in flats:
        alike.setdefault(flat[f"{section}.name"], []).append(flat)
    keys = {name: dict.fromkeys(key for flat in some for key in flat) for name, some in alike.items()}
    return {
        name: {key for key in keys[name] if any(flat.get(key) != some[0].get(key) for flat in some)}
        for name, some in alike.items()
    }


def _words(flat: Mapping[str, Any], section: str, apart: Mapping[str, set[str]]) -> Iterator[str]:
    name = flat[f"{section}.name"]
    yield str(name)
    for key, value in flat.items():
        if key.startswith(f"{section}.") and key in apart[name]:
            yield f"{key.rsplit('.', 1)[-1]} {_short(value)}"


def _short(value: Any) -> str:
    """A number or a word as it is, of a long list its ends."""
    if isinstance(value, list) and len(value) > 4:
        return f"{_short(value[0])} ... {_short(value[-1])}"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def world_asked(dataset: str, recon: str, sets: Iterable[str]) -> Seen:
    """A world by name; `sets` has `spacing=4` or `dataset.spacing=4`, `radius=31` or `recon.radius=31`.

    Pixels are in [0, 1] unless `transform` is set, as in all published numbers. The overlap loss defaults to the
    paper's box: half the image to each side, with alpha equal to its area.
    """
    given = overrides_by_key(sets, example="spacing=4")
    tree: dict[str, Any] = {"dataset": {"transform": PUBLISHED_TRANSFORM, "name": dataset}, "recon": {"name": recon}}
    for key, value in given.items():
        section, dot, rest = key.partition(".")
        section, name = (section, rest) if dot else (_section_of(key, recon), key)
        if section not in tree:
            raise ConfigError(f"--set {key}: must be a key of the data set or the loss: dataset.{rest}, recon.{rest}")
        tree[section][name] = value
    config = _parsed(tree)
    return Seen(_titles([config])[0], config, ())


def _section_of(key: str, recon: str) -> str:
    """The section of a key without one: the data set's, unless only the loss has the key."""
    from disentune.recon import RECONS

    known = RECONS.plugins.get(recon)
    return "recon" if known and key in known.params.model_fields and key not in Pixels.model_fields else "dataset"


def _parsed(tree: dict[str, Any]) -> TrialConfig:
    """A minimal trial with this data set and loss."""
    rest = {
        "model": {"name": "linear", "latents": 1},
        "framework": {"name": "ae"},
        "training": {"steps": 1, "batch_size": 1, "learning_rate": 1e-3},
        "loss_scale": "sum",
        "seed": 0,
    }
    try:
        if tree["recon"]["name"] == "overlap":
            plain = TrialConfig.parse({**rest, "dataset": tree["dataset"], "recon": {"name": "mse"}})
            tree["recon"] = {**_paper_box(plain.dataset.plugin.shape(plain.dataset.params)), **tree["recon"]}
        return TrialConfig.parse({**rest, **tree})
    except Invalid as error:
        problems = [Problem(mistake.key, worded_alone(mistake)) for mistake in error.mistakes]
        raise ConfigError("this data set and loss cannot be inspected", problems) from None


def _paper_box(shape: tuple[int, ...]) -> dict[str, Any]:
    radius = max(1, min(shape[1:]) // 2 - 1)
    return {"kernel": "box", "radius": radius, "alpha": float((2 * radius + 1) ** 2)}


def missing_data(worlds: Iterable[Seen], data_root: str | None) -> dict[str, str]:
    """Keys of data sets that are not prepared on this machine, with the command that prepares them."""
    sources = {source.key: source for seen in worlds for source in sources_of(seen.config)}
    have = prepared(sources.values(), data_root) if sources else set()
    return {key: source.command for key, source in sources.items() if key not in have}


# ---- the order in words


class Grade(NamedTuple):
    word: Word
    reasons: list[str]
    """Describes the distances of factors whose order is not high. These are facts about distances, not about
    training."""


def word_for(order: float | None) -> Word:
    if order is None:
        return "unknown"
    return "low" if order < LOW else "middle" if order < HIGH else "high"


def sentence(order: float | None, known: bool = True) -> str:
    """`known`: whether there are lines along factors to look at."""
    if not known:
        return "no order: its images do not show every combination of known factors, so only random images are compared"
    if order is None:
        return "no order: no factor has three or more ordered values that look different under this loss"
    return f"{word_for(order)} order ({order:.2f})"


def grade(look: Look) -> Grade:
    """Reasons sorted by the mean order of their factors; factors with the same reason are grouped."""
    by_reason: dict[str, list[str]] = {}
    for name, along in look.factors.items():
        if along.order is not None and along.order < HIGH:
            by_reason.setdefault(reason(along), []).append(name)
    return Grade(word_for(look.order), [f"{', '.join(names)}: {text}" for text, names in by_reason.items()])


def reason(along: Along) -> str:
    """Why the order of a factor is not high, as a true statement about its distances."""
    if along.farthest - along.nearest <= (1 - LEVEL) * along.farthest:
        return f"all pairs of values are equally far apart under this loss (to within {1 - LEVEL:.0%})"
    if _is_lost_by_pooling(along):
        return "single lines have a higher order on average (see line order): distances differ between lines"
    return _shape(along)


def _is_lost_by_pooling(along: Along) -> bool:
    """Whether the order falls short of 1 more because of differences between lines than within them."""
    if along.order is None or along.line_order is None:
        return False
    return along.line_order - along.order > 1 - along.line_order


def _shape(along: Along) -> str:
    """Describes the mean distance as a function of the steps between values."""
    profile = along.profile
    steps, largest = len(profile), profile.max()
    if np.ptp(profile) <= (1 - LEVEL) * largest:
        return f"the mean distance is the same at every number of steps (to within {1 - LEVEL:.0%})"
    level = int(np.argmax(profile >= LEVEL * largest)) + 1
    if level < steps and profile[level - 1 :].min() >= LEVEL * largest:
        return f"the mean distance stays within {1 - LEVEL:.0%} of its maximum from {level} of {steps} steps on"
    if profile[-1] < profile[0]:
        return "the first and the last value are closer to each other, on average, than neighbours"
    if profile[-1] < LEVEL * largest:
        return f"the mean distance is largest at {int(profile.argmax()) + 1} of {steps} steps and smaller at {steps}"
    share = profile[0] / along.excess[np.triu_indices(len(along.matrix), k=1)].mean()
    return f"neighbours are on average {share:.0%} as far apart as two values in general"


# ---- a learned kernel


def kernel_asked(seen: Seen) -> tuple[int, float]:
    """Radius and alpha of the overlap loss whose kernel is to be learned; ConfigError if it is another loss."""
    recon = seen.config.recon
    if recon.name != "overlap":
        raise ConfigError(f"--recon {recon.name}: only the overlap loss has a kernel to learn")
    if recon.params.loss not in ("mse", "normal"):
        raise ConfigError(
            f"recon.loss={recon.params.loss}: a kernel can be learned for squared error only: mse or normal"
        )
    if recon.params.kernel == "learned":
        raise ConfigError("recon.kernel=learned: give the kernel's radius and alpha only; its taps are what is learned")
    return recon.params.radius, recon.params.alpha


def kernel_space(seen: Seen, found: Learned) -> str:
    """A search space with one point, as YAML: the overlap loss with this kernel."""
    recon = seen.config.recon.params
    keys = {"name": "overlap", "loss": recon.loss, "kernel": "learned", "radius": recon.radius, "alpha": recon.alpha}
    data = json.dumps(seen.config.tree()["dataset"])
    head = (
        f"# Learned by disentune inspect --learn-kernel from {data}\n"
        f"# Order on the lines it was learned from: {found.after:.4f}; of a box of this radius: {found.before:.4f}\n"
    )
    return head + "".join(f"recon.{key}: {value}\n" for key, value in keys.items()) + f"recon.taps: {found.taps}\n"


# ---- the law of sampling


def law_in_words(drawn: Sampling) -> list[str]:
    """What training draws and which factors depend on each other, a line each."""
    total = math.prod(drawn.sizes)
    often = "all equally often" if drawn.is_even else "some more often than others"
    never = f", {total - drawn.count:,} never" if drawn.count < total else ""
    lines = [f"law: training draws {drawn.count:,} of {total:,} images, {often}{never}"]
    found = [*drawn.dependences.items()]
    lines += [
        f"{first} and {second} depend on each other: correlation {correlation:.2f}, mutual information "
        f"{information:.3f} nats"
        for (first, second), (correlation, information) in found[:MOST_DEPENDENCES]
    ]
    return lines + ([f"and {len(found) - MOST_DEPENDENCES} more pairs of factors"] if found[MOST_DEPENDENCES:] else [])


def law_as_json(drawn: Sampling) -> dict[str, Any]:
    return {
        "images": math.prod(drawn.sizes),
        "inside": drawn.count,
        "even": drawn.is_even,
        "dependences": [
            {"factors": list(pair), "correlation": correlation, "information": information}
            for pair, (correlation, information) in drawn.dependences.items()
        ],
    }


# ---- for other programs


def as_json(look: Look) -> dict[str, Any]:
    """`pearson` and `spearman` include pairs of an image with itself, as published; `mean_distance` does not. `order`
    and `line_order` are None if the values have no order."""
    return {
        "factors": {
            name: {
                **along.agreement.numbers(),
                "order": along.order,
                "line_order": along.line_order,
                "values": len(along.matrix),
            }
            for name, along in look.factors.items()
        },
        "random": look.anywhere.numbers(),
        "order": look.order,
        "line_order": look.line_order,
        "grade": grade(look)._asdict(),
    }
