"""What a plug-in of each kind must provide.

A plug-in is one file holding one record, named once in its folder's catalogue. A user's own plug-in is the same
record in a package of theirs, named by its import path: `my_package.my_vae:FRAMEWORK`.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from disentune.errors import first_line, unknown

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from disentune.networks import AutoEncoder as AutoEncoder
    from disentune.networks import Posterior as Posterior

Shape = tuple[int, int, int]
"""Channels, height, width."""


class Frozen(BaseModel):
    """Base of every set of parameters: immutable, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def added(default: Any, **limits: Any) -> Any:
    """A field added in a later version: omitted from a config while it has its default, so that trial ids do not
    change."""
    return Field(default, exclude_if=lambda value: value == default, **limits)


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_int64(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError("must be between -2**63 and 2**63, because tables cannot hold larger whole numbers")
    return value


Whole = Annotated[int, BeforeValidator(_integral)]
"""A whole number; `1e5` counts as one."""
Count = Annotated[Whole, AfterValidator(_in_int64)]
"""A whole number that a table can hold."""


def hexadecimal(digits: int) -> Callable[[str], str]:
    """Accepts a text of so many of the digits 0-9 and a-f."""

    def checked(text: str) -> str:
        if len(text) != digits or not set(text) <= set("0123456789abcdef"):
            raise ValueError(f"must be {digits} of the digits 0-9 and a-f, got {text!r:.80}")
        return text

    return checked


def spelled_out(value: Any) -> Any:
    """Accepts a bare name as short for a mapping with that name."""
    return {"name": value} if isinstance(value, str) else value


# ---- data sets


class FactorImages(Protocol):
    """An opened data set: one image per combination of factor values; the last factor varies fastest.

    Without factors, `factor_names` and `factor_sizes` are empty. If combinations are missing or repeated, an
    attribute `factor_rows`, int64 (n, k), holds the factors of each image (`data/factors.py`).
    """

    factor_names: tuple[str, ...]
    factor_sizes: tuple[int, ...]
    shape: Shape
    mean: tuple[float, ...]
    """Per channel, for pixels in [0, 1]: the mean over all images of each image's mean."""
    std: tuple[float, ...]
    """Per channel: the mean over all images of each image's unbiased standard deviation."""
    categorical: tuple[str, ...]
    """Names of the factors whose values have no order, such as a shape."""
    noisy: bool
    """Whether every draw of an image gives different noise."""

    def __len__(self) -> int: ...

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, c, h, w), or float32 when the data set holds points.

        In a noisy data set, `rng` draws fresh noise; without it, each image always has the same noise.
        """
        ...


class Statistics(NamedTuple):
    """Per channel, for pixels in [0, 1], as defined by `FactorImages`."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class File:
    """A file that a data set is made from."""

    name: str
    """The published name, or the path of a user's own file: absolute, or relative to the data root or working
    folder."""
    urls: tuple[str, ...] = ()
    """Mirrors of the file, tried in this order."""
    md5: str = ""
    """Hash of the whole file, if known; downloads are checked against it."""
    also: tuple[str, ...] = ()
    """Other names that a user's copy may have."""
    republished: tuple[str, ...] = ()
    """The URLs whose file may have another md5 but the same images; these are checked by content."""
    folder: bool = False
    """Whether a folder of images may replace it."""


@dataclass(frozen=True)
class Source:
    """Files, and how they become one array of images in the order of the grid (`data/store.py`).

    It is pickled with the data set, so its functions must be defined at the top level of a module.
    """

    name: str
    """Name of the data set; `disentune data prepare NAME` makes the array."""
    files: tuple[File, ...]
    read: Callable[[Sequence[Path]], Iterator[np.ndarray]]
    """(paths of the files) -> uint8 (m, c, h, w), in small chunks. Raises DataError if the files are wrong."""
    shape: Shape
    count: int
    variant: str = ""
    """Distinguishes several arrays made from one data set; letters, digits and '_'."""
    options: str = ""
    """Options of the `data prepare` command for this variant: `--set split=training`."""
    binary: bool = False
    """Whether every pixel is 0 or 255, so that it is stored as one bit."""
    published: Statistics | None = None
    """Statistics that the contents must have, whichever file they came from."""
    tolerance: float = 1e-6
    """How far the statistics may differ from the published ones; larger if images are resized."""
    provenance: Callable[[], Mapping[str, Any]] = dict
    """Plain values that are recorded with the array: what it was made from, in addition to files."""

    @property
    def key(self) -> str:
        """Name of its folder in the data root."""
        return f"{self.name}_{self.variant}" if self.variant else self.name

    @property
    def command(self) -> str:
        return f"disentune data prepare {self.name} {self.options}".strip()


_names_known: dict[tuple[str, str], tuple[str, ...]] = {}
"""Names of factors of the data sets that were opened to find them."""


@dataclass(frozen=True)
class Dataset:
    name: str
    params: type[Frozen]
    shape: Callable[[Any], Shape]
    """Shape of an image; known before any image is made, so that a config can be checked cheaply."""
    factor_sizes: Callable[[Any], tuple[int, ...]]
    """Values of each factor; none where images have no known factors."""
    open: Callable[[Any], FactorImages]
    sources: Callable[[Any], tuple[Source, ...]] = lambda params: ()
    """Sources that must be prepared before the data set can be opened."""
    published: Callable[[Any], Statistics | None] = lambda params: None
    """Statistics used by published experiments to standardise: `dataset.statistics: published`."""
    points: bool = False
    """Whether it holds points instead of images: numbers of any size, not pixels."""
    noisy: Callable[[Any], bool] = lambda params: False
    """`FactorImages.noisy` of the opened data set; a table may then have more rows than there are combinations."""
    count: Callable[[Any], int | None] = lambda params: None
    """Number of images, if it is not one per combination of factors; None for the full grid."""
    factor_names: Callable[[Any], tuple[str, ...]] | None = None
    """Names of the factors, if the data set has sources: known before these are prepared, for laws of sampling."""

    def names(self, params: Any) -> tuple[str, ...]:
        """Names of the factors. ValueError if they are unknown until the data set is prepared."""
        if self.factor_names is not None:
            return self.factor_names(params)
        if self.sources(params):
            raise ValueError(f"the record of the data set '{self.name}' does not name its factors; set factor_names")
        key = self.name, repr(params)
        if key not in _names_known:
            _names_known[key] = tuple(self.open(params).factor_names)
        return _names_known[key]

    def population(self, params: Any) -> int:
        """Number of images."""
        count = self.count(params)
        return math.prod(self.factor_sizes(params)) if count is None else count

    def lacks(self, params: Any) -> Literal["", "factors", "grid"]:
        """What is missing for metrics and pair laws: factors, or an image for every combination of them."""
        if not self.factor_sizes(params):
            return "factors"
        return "" if self.count(params) is None else "grid"


# ---- models


def __getattr__(name: str) -> Any:
    """The parts of a model, which need torch: loading it takes two seconds, so it is left to those who use it."""
    if name in ("AutoEncoder", "Posterior"):
        return getattr(importlib.import_module("disentune.networks"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@dataclass(frozen=True)
class Model:
    """`params` has a field `latents`; `build` draws every weight from its generator."""

    name: str
    params: type[Frozen]
    build: Callable[[Shape, int, Any, torch.Generator], AutoEncoder]
    """(image shape, output channels of the decoder, params, generator); the recon loss sets the number of channels."""
    check: Callable[[Shape, Any], None] = lambda shape, params: None
    """Raises ValueError, naming the supported shapes, if images of this shape do not fit."""


# ---- reconstruction losses


@dataclass(frozen=True)
class Recon:
    """A reconstruction loss, and the distance between images that it implies: the perceived distance."""

    name: str
    params: type[Frozen]
    per_image: Callable[[Tensor, Tensor, Any], Tensor]
    """(decoder's output (n, channels, h, w), target (n, c, h, w), params) -> sum over pixels (n,)."""
    distance: Callable[[Tensor, Tensor, Any], Tensor]
    """(images (n, c, h, w), images (n, c, h, w), params) -> (n,): the same loss between two images."""
    to_image: Callable[[Tensor, Any], Tensor] = lambda output, params: output
    """The decoder's output as an image in the target's units."""
    channels: Callable[[int, Any], int] = lambda channels, params: channels
    """Channels of the image -> output channels of the decoder; more if the decoder also outputs its uncertainty."""
    needs_unit_range: Callable[[Any], bool] = lambda params: False
    """Whether targets must be in [0, 1]: `dataset.transform: unit`."""
    check: Callable[[Shape, Any], None] = lambda shape, params: None


# ---- frameworks


class Donor(Frozen):
    """A trained model of an earlier sweep that a later one builds on."""

    role: Literal["best", "worst"] = Field(description="at which end of the donors' scores it was found")
    trial: Annotated[str, AfterValidator(hexadecimal(16))] = Field(description="id of its trial")
    weights: Annotated[str, AfterValidator(hexadecimal(64))] = Field(description="sha256 of its weights")


@dataclass(frozen=True)
class Context:
    """The parts of a trial's config that a framework may depend on; known before any image is made."""

    shape: Shape
    latents: int
    batch_size: int
    factor_sizes: tuple[int, ...]
    count: int | None = None
    """Number of images in the data set, if it is not one per combination of factors."""
    factor_names: tuple[str, ...] = ()
    """Only for a framework that `needs_factors`."""
    donated: Callable[[Donor], AutoEncoder] | None = field(default=None, compare=False)
    """Gives the trained model of a donor; None while a config is only checked."""

    @property
    def population(self) -> int:
        """Number of images in the data set."""
        return math.prod(self.factor_sizes) if self.count is None else self.count


@dataclass(frozen=True)
class Batch:
    """Images (n, c, h, w) in the transform's units, their partners when pairs are drawn, and the recon loss."""

    x: Tensor
    pair: Tensor | None
    recon: Callable[[Tensor, Tensor], Tensor]
    """(decoder's output, target) -> mean over the batch of the sum over pixels; a scalar."""
    population: int
    """Number of images in the data set that the batch was drawn from."""
    factors: Tensor | None = None
    """(n, k), each spread evenly over [-1, 1]; only for a framework that `needs_factors`."""
    labels: Tensor | None = None
    """(n, k) int64: the same factors as indices of their values, from 0."""


State = Mapping[str, "Tensor"]


@dataclass(frozen=True)
class Step:
    """The current step of training; `rng` is the only source of randomness in the step."""

    number: int
    """Number of the update, from 1."""
    steps: int
    rng: np.random.Generator
    state: State = field(default_factory=dict)
    """`Losses.state` of the previous step; the framework's `state` in the first step."""
    extra: Any = None
    """The module of the framework's `extra`, if it has one."""
    helper: Any = None
    """The network of the framework's `helper`, if it has one."""


@dataclass(frozen=True)
class Losses:
    """Losses in nats per image, as in the papers; the training loop applies `loss_scale` for every framework.

    The loop minimises recon + latent (`sum`) or recon / pixels + latent / latents (`mean`). If neither has a
    gradient, the model is not updated in this step.
    """

    recon: Tensor
    latent: Tensor
    """Sum of the terms on latents, already weighted."""
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """The individual unweighted terms, for the row; named as in `Framework.parts`."""
    watch: Mapping[str, Tensor] = field(default_factory=dict)
    """Numbers for the row that are not in nats per image and are never rescaled; named as in `Framework.watch`."""
    helper: Tensor | None = None
    """Loss of the helper network, computed on detached codes."""
    state: State = field(default_factory=dict)
    """`Step.state` of the next step."""


class Optimiser(Protocol):
    """The interface that the loop needs: `disentune.maths.adam.Adam`, or any optimiser of torch.optim."""

    def step(self) -> Any: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> None: ...


@dataclass(frozen=True)
class Helper:
    """A network that is trained beside the model by an optimiser of its own, such as a discriminator.

    The loop keeps the two apart: `latent` moves only the model, `Losses.helper` only the helper.
    """

    build: Callable[[Context, Any, torch.Generator], nn.Module]
    optimiser: Callable[[Iterable[nn.Parameter], Any], Optimiser]
    """(parameters that require gradients, params) -> the optimiser."""


Images = Callable[[int], "Tensor"]
"""n -> n images (n, c, h, w) of the data set on the CPU, in the transform's units; all images if there are fewer."""


@dataclass(frozen=True)
class Framework:
    """`loss` is pure: equal inputs give equal losses.

    If params has a field or property `pairs` that is not None, partners are drawn by that law (`pairs.py`).
    """

    name: str
    params: type[Frozen]
    loss: Callable[[AutoEncoder, Batch, Any, Step], Losses]
    parts: tuple[str, ...] = ("kl",)
    """Names of `Losses.parts`, known before anything runs."""
    watch: tuple[str, ...] = ()
    """Names of `Losses.watch`."""
    extra: Callable[[Context, Any, torch.Generator, Images], nn.Module | None] | None = None
    """Builds parameters that are trained in addition to the model's; returns None if these params need none."""
    helper: Helper | None = None
    state: Callable[[Any], State] = lambda params: {}
    """Initial values of the numbers that pass from step to step."""
    optimiser: Callable[[Iterable[nn.Parameter], float], Optimiser] | None = None
    """(parameters, learning rate) -> the model's optimiser; the default is Adam."""
    needs_factors: bool = False
    """Whether batches must have the factors of their images."""
    needs_unit_range: bool = False
    """Whether images must have pixels in [0, 1]: `dataset.transform: unit`."""
    read_once: tuple[str, ...] = ()
    """Params that are only read before the first step, so that no schedule can change them."""
    check: Callable[[Context, Any], None] = lambda setting, params: None
    """Raises ValueError if the framework cannot be used in this setting, saying what is supported."""
    prior: Callable[[Any, nn.Module | None], Any] = lambda params, extra: None
    """(params, the module of `extra`) -> the prior over codes, with `log_density` and `sample` as those of
    `frameworks/priors.py`; None is N(0, 1) in every latent."""
    to_normal: Callable[[Any], Callable[[np.ndarray], np.ndarray] | None] = lambda params: None
    """params -> the map of codes (n, d) that turns the prior into N(0, 1), if there is one: `codes: normal`."""
    code: Callable[[Posterior, Any, nn.Module | None], Tensor] | None = None
    """(posterior, params, the module of `extra`) -> the code (n, d) that is decoded, scored and shown; by default the
    mean."""
    discrete: bool = False
    """Whether codes have a few values per latent, so that a draw from the posterior is the code itself."""
    posterior: Callable[[AutoEncoder, Tensor, Tensor, Any, nn.Module | None], Posterior] | None = None
    """(model, images, factors (n, k) as in `Batch.factors`, params, the module of `extra`) -> the posterior, if it
    depends on more than the image; then the framework `needs_factors`."""


# ---- metrics


class CodeLaw(NamedTuple):
    """A prior as metrics see it, in float64."""

    log_density: Callable[[np.ndarray], np.ndarray]
    """Codes (n, d) -> (n,), of all latents together."""
    sample: Callable[[int, int, np.random.Generator], np.ndarray]
    """How many, of how many latents -> (n, d)."""


@dataclass(frozen=True)
class Table:
    """The input of metrics: one row per image, checked once for all metrics (`metrics/table.py`)."""

    codes: np.ndarray
    """(n, d) float64, finite: means of the posteriors, or one draw from each."""
    factors: np.ndarray
    """(n, k) int64 labels from 0, in the order of the factor's values; k is 0 if the factors are unknown."""
    values: np.ndarray
    """(n, k) float64: the factors' values, for metrics that use distances between them."""
    logvars: np.ndarray | None = None
    """(n, d) float64: log-variances of the posteriors."""
    means: np.ndarray | None = None
    """(n, d) float64: means of the posteriors, if the codes are draws from them."""
    distance: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """(rows (m,), rows (m,)) -> (m,): distance between the images of two rows under the reconstruction loss."""
    reconstruction: Callable[[np.ndarray], np.ndarray] | None = None
    """rows (m,) -> (m,): the loss of each image when its code is decoded, summed over pixels."""
    gram: Callable[[np.ndarray], np.ndarray] | None = None
    """rows (m,) -> (m, d, d) float64: J^T J, where J is the Jacobian of the decoded image at each code."""
    names: tuple[str, ...] = ()
    """Names of the factors, if they are known."""
    prior: CodeLaw | None = None
    """The prior of the framework; None is N(0, 1) in every latent."""
    discrete: bool = False
    """Whether the codes are known to have a few values per latent, as those of a quantised autoencoder."""

    def encoded(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Codes (..., d) of rows of any shape; sampled codes are drawn afresh, as if encoded again."""
        if self.means is None or self.logvars is None:
            codes: np.ndarray = self.codes[rows]
            return codes
        deviations = np.exp(self.logvars[rows] / 2)
        drawn: np.ndarray = self.means[rows] + deviations * rng.standard_normal(deviations.shape)
        return drawn


Region = Literal["everything", "inside", "outside"]
"""All images, those that a law of sampling draws, as often as it does, or those that it never draws."""
Representation = Literal["mean", "sampled", "normal"]
"""Means of the posteriors, one draw from each, or means mapped from the prior's law to N(0, 1)."""


@dataclass(frozen=True)
class Metric:
    """`score` is pure: equal tables, generators and params give equal scores, whatever the number of threads.

    If a score cannot be computed from a table, it raises a DataError that names the metric; it never returns NaN.
    """

    name: str
    params: type[Frozen]
    """Every field has a default; sizes default to the published ones."""
    keys: tuple[str, ...]
    """Names of its numbers; the first is the metric's name if one number is the score. `wrong_names` lists reserved
    names."""
    score: Callable[[Table, np.random.Generator, Any], Mapping[str, Any]]
    """(table, rng, params) -> a number for each of `keys`, an array for each of `details`, and a string `caution` if
    the numbers must be read with care."""
    details: tuple[str, ...] = ()
    """Names of arrays of numbers or texts that are stored in the row, such as a matrix of importances."""
    fast: Mapping[str, Any] = field(default_factory=dict)
    """Params of a smaller size, for evaluations during training."""
    needs: tuple[Literal["factors", "logvars", "distance", "reconstruction", "gram"], ...] = ("factors",)
    """What the table must have in addition to codes."""
    rows: Callable[[Any], int] = lambda params: 1
    """params -> the minimum number of rows of a table."""
    lines: bool = False
    """Whether it compares images that differ in one factor only; the table then has whole lines of the grid."""
    representations: tuple[Representation, ...] = ("mean",)
    """The codes that are scored unless the sweep chooses others."""
    best: Literal["max", "min"] = "max"


# ---- names of numbers

FIXED = ("trial_id", "arm", "status", "seed", "step")
"""Columns of every table; so is `loss_scale`, the only config key without a dot in its name."""
WATCHED = "watch_"
"""Prefix of numbers in a row that are neither losses nor metrics: `watch_beta`."""
COMPARED = ("dataset", "method", "strength", "run", "cut short")
"""Columns of the tables that `compare` and `analyse` make of a run, beside those of its numbers."""
_TAKEN = {
    **dict.fromkeys((*FIXED, "loss_scale"), "is a column of every table"),
    **dict.fromkeys(COMPARED, "is a column of the tables that `compare` and `analyse` make"),
    **dict.fromkeys(("loss", "recon", "latent"), "is a loss of every row"),
    **dict.fromkeys(("udr", "udr_spearman"), "is a score that compares the trials of a run"),
}
_TAKEN_ENDS = {
    "_sum": "as a loss in nats does",
    "_max": "as the largest value of a metric so far does",
    "_fast": "as a metric in fast size does",
    "_inside": "as a metric of the images that a law draws does",
    "_outside": "as a metric of the images that a law never draws does",
    "_sampled": "as a metric of sampled codes does",
    "_normal": "as a metric of codes mapped to N(0, 1) does",
    "_scored": "as a metric does that the sweep evaluates and `disentune score` computes again",
}
_TAKEN_STARTS = {WATCHED: "as a number that a framework watches does", "_": "as W&B's own keys do"}


def wrong_names(plugin: Any) -> str:
    """Why the names of a metric or a framework cannot be used: they would overwrite other numbers in a row or table."""
    if isinstance(plugin, Metric):
        checked = {"keys": _name_taken, "details": _name_taken}
    else:
        checked = {"parts": _name_taken, "watch": _misspelled} if isinstance(plugin, Framework) else {}
    for kind, refusal in checked.items():
        names = getattr(plugin, kind)
        if isinstance(names, str):
            return f"its {kind} must be a tuple of names, such as ({names!r},), got {names!r}"
        for name in names:
            if reason := refusal(name):
                return f"{name!r} of its {kind} {reason}; rename it"
    kinds = [*checked][: 2 if isinstance(plugin, Metric) else 1]
    every = [name for kind in kinds for name in getattr(plugin, kind)]
    twice = next((name for name in every if every.count(name) > 1), None)
    return f"{twice!r} occurs twice in its {' and '.join(kinds)}; rename one" if twice else ""


def _name_taken(name: Any) -> str:
    if reason := _misspelled(name):
        return reason
    starts = (f"begins with {one}, {why}" for one, why in _TAKEN_STARTS.items() if name.startswith(one))
    ends = (f"ends with {one}, {why}" for one, why in _TAKEN_ENDS.items() if name.endswith(one))
    return _TAKEN.get(name) or next(starts, "") or next(ends, "")


def _misspelled(name: Any) -> str:
    if not isinstance(name, str) or not name:
        return "is not a name"
    if "." in name:
        return "has a dot, which is reserved for keys of the config"
    return "has a slash, which W&B uses to group keys" if "/" in name else ""


# ---- catalogues

P = TypeVar("P", Dataset, Model, Recon, Framework, Metric)


class Modules(MutableMapping[str, P]):
    """Plug-ins by name, each from the file of its name in a package. A file is imported when its plug-in is first
    needed, because together they load libraries that most commands do not use."""

    def __init__(self, package: str, attribute: str, *names: str):
        self.package, self.attribute = package, attribute
        self.found: dict[str, P | None] = dict.fromkeys(names)

    def __getitem__(self, name: str) -> P:
        plugin = self.found[name]
        if plugin is None:
            plugin = self.found[name] = getattr(importlib.import_module(f"{self.package}.{name}"), self.attribute)
        return plugin

    def __setitem__(self, name: str, plugin: P) -> None:
        self.found[name] = plugin

    def __delitem__(self, name: str) -> None:
        del self.found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)

    def __contains__(self, name: object) -> bool:
        return name in self.found


class Catalogue(Generic[P]):
    """The plug-ins of one kind by name; also loads a user's own plug-in by its import path."""

    def __init__(self, kind: str, record: type[P], plugins: MutableMapping[str, P]):
        self.kind = kind
        self.record: type[P] = record
        self.plugins: MutableMapping[str, P] = plugins

    def __iter__(self) -> Iterator[P]:
        return iter(self.plugins.values())

    def names(self) -> list[str]:
        return sorted(self.plugins)

    def __getitem__(self, name: str) -> P:
        """Raises ValueError that suggests the closest known name."""
        if name in self.plugins:
            return self.plugins[name]
        if ":" not in name:
            raise ValueError(unknown(self.kind, name, self.plugins))
        return self._imported(name)

    def _imported(self, path: str) -> P:
        module, _, attribute = path.partition(":")
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # as `python -m` does, but only once a plug-in is requested by its path
        try:
            plugin = getattr(importlib.import_module(module), attribute)
        except (Exception, SystemExit) as error:  # a user's module may fail in any way while it is imported
            raise ValueError(f"cannot import '{path}': {type(error).__name__}: {error}") from error
        if not isinstance(plugin, self.record):
            raise ValueError(f"'{path}' must be a {self.record.__name__}, got a {type(plugin).__name__}")
        if reason := wrong_names(plugin):
            raise ValueError(f"'{path}' cannot be used: {reason}")
        return plugin


def summary(plugin: Any) -> str:
    """First line of the docstring of the plug-in's file."""
    function = getattr(plugin, "loss", None) or getattr(plugin, "per_image", None) or getattr(plugin, "score", None)
    function = function or getattr(plugin, "build", None) or plugin.open
    return first_line(importlib.import_module(function.__module__).__doc__ or "")
