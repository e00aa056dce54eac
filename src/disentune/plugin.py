"""What a plug-in of each kind must provide.

A plug-in is one file holding one record, named once in its folder's catalogue. A user's own plug-in is the same
record in a package of theirs, named by its import path: `my_package.my_vae:FRAMEWORK`.
"""

import importlib
import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from torch import Tensor, nn

from disentune.errors import first_line, unknown

Shape = tuple[int, int, int]
"""Channels, height, width."""


class Frozen(BaseModel):
    """Base of every set of parameters: immutable, no unknown keys, no silent conversion of types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def added(default: Any, **limits: Any) -> Any:
    """A field that came after trials had been named: omitted from a config while it has its default, so ids stay."""
    return Field(default, exclude_if=lambda value: value == default, **limits)


def _integral(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _in_int64(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise ValueError("must lie between -2**63 and 2**63, as tables hold no larger whole numbers")
    return value


Whole = Annotated[int, BeforeValidator(_integral)]
"""A whole number; `1e5` counts as one."""
Count = Annotated[Whole, AfterValidator(_in_int64)]
"""One that a table can hold."""


def spelled_out(value: Any) -> Any:
    """A name alone is short for a mapping with that name."""
    return {"name": value} if isinstance(value, str) else value


# ---- data sets


class FactorImages(Protocol):
    """An opened data set: every combination of its factors is one image, the last factor fastest."""

    factor_names: tuple[str, ...]
    factor_sizes: tuple[int, ...]
    shape: Shape
    mean: tuple[float, ...]
    """Per channel, of pixels in [0, 1]: the mean over all images of an image's mean."""
    std: tuple[float, ...]
    """Per channel: the mean over all images of an image's unbiased standard deviation."""
    categorical: tuple[str, ...]
    """Names of the factors whose values have no order, such as a shape."""
    noisy: bool
    """Whether an image is another one at every draw."""

    def __len__(self) -> int: ...

    def images(self, indices: np.ndarray, rng: np.random.Generator | None = None) -> np.ndarray:
        """uint8 (n, c, h, w), or float32 when the data set holds points.

        Of a noisy data set: drawn anew with `rng`; without it each image always has the same noise, its own.
        """
        ...


class Statistics(NamedTuple):
    """Per channel, of pixels in [0, 1], as `FactorImages` defines them."""

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class File:
    """A file that a data set is made from."""

    name: str
    """As it is published; or the path of a user's own file, absolute or below the data root."""
    urls: tuple[str, ...] = ()
    """The same file in several places, tried in this order."""
    md5: str = ""
    """Of the whole file, where it is known; a download is held to it."""
    also: tuple[str, ...] = ()
    """Other names under which a user may have it."""
    republished: tuple[str, ...] = ()
    """Those of the addresses that may have the same images in a file of another md5: its contents decide."""


@dataclass(frozen=True)
class Source:
    """Files, and how they become one array of images in the order of the grid (`data/store.py`).

    It is pickled with the data set, so its functions stand at the top of their modules.
    """

    name: str
    """Of the data set that brings it: `disentune data prepare NAME` makes the array."""
    files: tuple[File, ...]
    read: Callable[[Sequence[Path]], Iterator[np.ndarray]]
    """(where each file is) -> uint8 (m, c, h, w), chunk by chunk, never much at once; DataError if they are wrong."""
    shape: Shape
    count: int
    variant: str = ""
    """Tells the arrays apart that one data set can be made into: letters, digits and '_'."""
    options: str = ""
    """What follows the name in the command that makes this variant: `--set split=training`."""
    binary: bool = False
    """Whether every pixel is 0 or 255: stored as one bit."""
    published: Statistics | None = None
    """What the contents must have, whatever file they came in."""
    tolerance: float = 1e-6
    """How far the statistics may be from the published ones; larger where images are resized."""

    @property
    def key(self) -> str:
        """Its folder below the data root."""
        return f"{self.name}_{self.variant}" if self.variant else self.name

    @property
    def command(self) -> str:
        return f"disentune data prepare {self.name} {self.options}".strip()


@dataclass(frozen=True)
class Dataset:
    name: str
    params: type[Frozen]
    shape: Callable[[Any], Shape]
    """Shape of an image; known before any image is made, so that a config can be checked for nothing."""
    factor_sizes: Callable[[Any], tuple[int, ...]]
    open: Callable[[Any], FactorImages]
    sources: Callable[[Any], tuple[Source, ...]] = lambda params: ()
    """What must be prepared before it can be opened."""
    published: Callable[[Any], Statistics | None] = lambda params: None
    """The statistics by which published experiments standardise: `dataset.statistics: published`."""
    points: bool = False
    """Whether it holds points instead of images: numbers of any size, not pixels."""


# ---- models


@dataclass(frozen=True)
class Posterior:
    """Diagonal Gaussians q(z|x): mean and logvar are (n, d)."""

    mean: Tensor
    logvar: Tensor


class AutoEncoder(nn.Module):
    """An encoder to 2 d numbers (means, then log-variances) and a decoder from d."""

    def __init__(self, encoder: nn.Module, decoder: nn.Module, latents: int):
        super().__init__()
        self.encoder, self.decoder, self.latents = encoder, decoder, latents

    def encode(self, x: Tensor) -> Posterior:
        mean, logvar = self.encoder(x).chunk(2, dim=1)
        return Posterior(mean, logvar)

    def decode(self, z: Tensor) -> Tensor:
        found: Tensor = self.decoder(z)
        return found


@dataclass(frozen=True)
class Model:
    """`params` has a field `latents`; `build` draws every weight from its generator."""

    name: str
    params: type[Frozen]
    build: Callable[[Shape, int, Any, torch.Generator], AutoEncoder]
    """(shape of an image, channels that the decoder gives, params, generator); the recon loss says how many."""
    check: Callable[[Shape, Any], None] = lambda shape, params: None
    """Raises ValueError when images of this shape do not fit, saying which do."""


# ---- reconstruction losses


@dataclass(frozen=True)
class Recon:
    """A loss of images, and the distance between images that it implies: the perceived distance."""

    name: str
    params: type[Frozen]
    per_image: Callable[[Tensor, Tensor, Any], Tensor]
    """(decoder's output (n, channels, h, w), target (n, c, h, w), params) -> sum over pixels (n,)."""
    distance: Callable[[Tensor, Tensor, Any], Tensor]
    """(images (n, c, h, w), images (n, c, h, w), params) -> (n,): the same loss between two images."""
    to_image: Callable[[Tensor, Any], Tensor] = lambda output, params: output
    """The decoder's output as an image in the target's units."""
    channels: Callable[[int, Any], int] = lambda channels, params: channels
    """How many channels the decoder must give for images of so many: more than these when it says how sure it is."""
    needs_unit_range: Callable[[Any], bool] = lambda params: False
    """Whether targets must lie in [0, 1]: `dataset.transform: unit`."""
    check: Callable[[Shape, Any], None] = lambda shape, params: None


# ---- frameworks


@dataclass(frozen=True)
class Context:
    """What a trial has settled around its framework; known before any image is made."""

    shape: Shape
    latents: int
    batch_size: int
    factor_sizes: tuple[int, ...]

    @property
    def population(self) -> int:
        """Images in the data set."""
        return math.prod(self.factor_sizes)


@dataclass(frozen=True)
class Batch:
    """Images (n, c, h, w) in the transform's units, their partners when pairs are drawn, and the recon loss."""

    x: Tensor
    pair: Tensor | None
    recon: Callable[[Tensor, Tensor], Tensor]
    """(decoder's output, target) -> mean over the batch of the sum over pixels; a scalar."""
    population: int
    """Images in the data set that the batch was drawn from."""


State = Mapping[str, Tensor]


@dataclass(frozen=True)
class Step:
    """Where training stands; `rng` gives this step's noise and nothing else does."""

    number: int
    """From 1: the update that this step makes."""
    steps: int
    rng: np.random.Generator
    state: State = field(default_factory=dict)
    """What the last step left in `Losses.state`; at first the framework's `state`."""
    extra: Any = None
    """The module of the framework's `extra`, if it has one."""
    helper: Any = None
    """The network of the framework's `helper`, if it has one."""


@dataclass(frozen=True)
class Losses:
    """In nats an image, as the papers write them; the loop applies `loss_scale` once, for every framework.

    The loop minimises recon + latent (`sum`) or recon / pixels + latent / latents (`mean`).
    """

    recon: Tensor
    latent: Tensor
    """Every term on latents, already weighted."""
    parts: Mapping[str, Tensor] = field(default_factory=dict)
    """The same terms one by one and unweighted, for the row: the names of `Framework.parts`."""
    watch: Mapping[str, Tensor] = field(default_factory=dict)
    """Numbers for the row that are no nats an image, so that no scale applies: the names of `Framework.watch`."""
    helper: Tensor | None = None
    """What the helper network minimises, computed on detached codes."""
    state: State = field(default_factory=dict)
    """What the next step finds in `Step.state`."""


class Optimiser(Protocol):
    """What the loop asks of one: `disentune.maths.adam.Adam`, or any of torch.optim."""

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
    """(parameters, params) -> the optimiser."""


Images = Callable[[int], Tensor]
"""How many -> that many images (n, c, h, w) of the data set, in the transform's units; all when it has fewer."""


@dataclass(frozen=True)
class Framework:
    """`loss` is pure: equal inputs, equal losses.

    With a field or property `pairs` in its params that is not None, partners are drawn by that law (`pairs.py`).
    """

    name: str
    params: type[Frozen]
    loss: Callable[[AutoEncoder, Batch, Any, Step], Losses]
    parts: tuple[str, ...] = ("kl",)
    """Names of `Losses.parts`, known before anything runs."""
    watch: tuple[str, ...] = ()
    """Names of `Losses.watch`."""
    extra: Callable[[Context, Any, torch.Generator, Images], nn.Module | None] | None = None
    """Parameters that the loss needs besides the model's, trained with them; gives None when these params need none."""
    helper: Helper | None = None
    state: Callable[[Any], State] = lambda params: {}
    """Numbers that pass from step to step, before the first one."""
    read_once: tuple[str, ...] = ()
    """Params that only count before the first step, so that no schedule can move them."""
    check: Callable[[Context, Any], None] = lambda setting, params: None
    """Raises ValueError when this setting cannot serve, saying what can."""


# ---- metrics


@dataclass(frozen=True)
class Table:
    """What metrics score: a row for each image, checked once for all of them (`metrics/table.py`)."""

    codes: np.ndarray
    """(n, d) float64, finite: means of the posteriors, or one draw from each."""
    factors: np.ndarray
    """(n, k) int64 labels that count from 0 in the order of a factor's values; k is 0 when factors are unknown."""
    values: np.ndarray
    """(n, k) float64: the factors' values themselves, for metrics to which their distances matter."""
    logvars: np.ndarray | None = None
    """(n, d) float64 of the posteriors."""
    means: np.ndarray | None = None
    """(n, d) float64 of the posteriors, where codes are draws from them."""
    distance: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None
    """(rows (m,), rows (m,)) -> (m,): how far apart the images of two rows are for the reconstruction loss."""
    reconstruction: Callable[[np.ndarray], np.ndarray] | None = None
    """rows (m,) -> (m,): the loss of each image when its code is decoded, summed over pixels."""

    def encoded(self, rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Codes of rows of any shape, (..., d); draws from posteriors are drawn anew, as if encoded again."""
        if self.means is None or self.logvars is None:
            codes: np.ndarray = self.codes[rows]
            return codes
        deviations = np.exp(self.logvars[rows] / 2)
        drawn: np.ndarray = self.means[rows] + deviations * rng.standard_normal(deviations.shape)
        return drawn


Representation = Literal["mean", "sampled"]


@dataclass(frozen=True)
class Metric:
    """`score` is pure: equal tables, generators and params, equal scores, whatever the number of threads.

    What a table cannot tell is a DataError that names the metric, never a NaN.
    """

    name: str
    params: type[Frozen]
    """Every field has a default: the published sizes."""
    keys: tuple[str, ...]
    """Names of its numbers; the first is the metric's name where one number is the score. `wrong_names` says which
    names are taken."""
    score: Callable[[Table, np.random.Generator, Any], Mapping[str, Any]]
    """(table, rng, params) -> a number for each of `keys`, an array for each of `details`, and a text `caution` where
    the numbers must be read with care."""
    details: tuple[str, ...] = ()
    """Names of arrays that are kept in the row beside the numbers, such as a matrix of importances."""
    fast: Mapping[str, Any] = field(default_factory=dict)
    """Params of the smaller size that suits an evaluation during training."""
    needs: tuple[Literal["factors", "logvars", "distance", "reconstruction"], ...] = ("factors",)
    """What the table must have besides codes."""
    rows: Callable[[Any], int] = lambda params: 1
    """params -> rows that a table must have at least."""
    lines: bool = False
    """Whether it looks at images that differ in one factor alone: the table then holds whole lines of the grid."""
    representations: tuple[Representation, ...] = ("mean",)
    """Codes that a sweep scores when it does not say which."""
    best: Literal["max", "min"] = "max"


# ---- names of numbers

FIXED = ("trial_id", "arm", "status", "seed", "step")
"""Columns of every table; `loss_scale` is one too, and the only one of the config whose name has no dot."""
WATCHED = "watch_"
"""Begins the key of a number in a row that is neither a loss nor a metric: `watch_beta`."""
_TAKEN = {
    **dict.fromkeys((*FIXED, "loss_scale"), "is a column of every table"),
    **dict.fromkeys(("loss", "recon", "latent"), "is a loss of every row"),
    **dict.fromkeys(("udr", "udr_spearman"), "is a score that compares the trials of a run"),
}
_TAKEN_ENDS = {
    "_sum": "as a loss in nats does",
    "_max": "as the largest value of a metric so far does",
    "_fast": "as a metric in fast size does",
    "_sampled": "as a metric of sampled codes does",
}
_TAKEN_STARTS = {WATCHED: "as a number that a framework watches does", "_": "as W&B's own keys do"}


def wrong_names(plugin: Any) -> str:
    """Why a metric's or a framework's names cannot be used: in a row or a table they would replace other numbers."""
    if isinstance(plugin, Metric):
        checked = {"keys": _name_taken, "details": _name_taken}
    else:
        checked = {"parts": _name_taken, "watch": _misspelled} if isinstance(plugin, Framework) else {}
    for kind, refusal in checked.items():
        names = getattr(plugin, kind)
        if isinstance(names, str):
            return f"its {kind} must be a tuple of names, such as ({names!r},), but are {names!r}"
        for name in names:
            if reason := refusal(name):
                return f"{name!r} of its {kind} {reason}; rename it"
    kinds = [*checked][: 2 if isinstance(plugin, Metric) else 1]
    every = [name for kind in kinds for name in getattr(plugin, kind)]
    twice = next((name for name in every if every.count(name) > 1), None)
    return f"{twice!r} stands twice among its {' and '.join(kinds)}; rename one" if twice else ""


def _name_taken(name: Any) -> str:
    if reason := _misspelled(name):
        return reason
    starts = (f"begins with {one}, {why}" for one, why in _TAKEN_STARTS.items() if name.startswith(one))
    ends = (f"ends with {one}, {why}" for one, why in _TAKEN_ENDS.items() if name.endswith(one))
    return _TAKEN.get(name) or next(starts, "") or next(ends, "")


def _misspelled(name: Any) -> str:
    if not isinstance(name, str) or not name:
        return "is no name"
    if "." in name:
        return "has a dot, as keys of the config do"
    return "has a slash, by which W&B groups its own keys" if "/" in name else ""


# ---- catalogues

P = TypeVar("P", Dataset, Model, Recon, Framework, Metric)


class Catalogue(Generic[P]):
    """The plug-ins of one kind by name; also finds a user's own by import path."""

    def __init__(self, kind: str, record: type[P], plugins: Iterable[P]):
        self.kind = kind
        self.record: type[P] = record
        self.plugins: dict[str, P] = {plugin.name: plugin for plugin in plugins}

    def __iter__(self) -> Iterator[P]:
        return iter(self.plugins.values())

    def names(self) -> list[str]:
        return sorted(self.plugins)

    def __getitem__(self, name: str) -> P:
        """Raises ValueError with the nearest known name."""
        if name in self.plugins:
            return self.plugins[name]
        if ":" not in name:
            raise ValueError(unknown(self.kind, name, self.plugins))
        return self._imported(name)

    def _imported(self, path: str) -> P:
        module, _, attribute = path.partition(":")
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())  # as with `python -m`, but not before a plug-in is asked for by its path
        try:
            plugin = getattr(importlib.import_module(module), attribute)
        except (Exception, SystemExit) as error:  # a user's module may fail in any way while it is imported
            raise ValueError(f"cannot import '{path}': {type(error).__name__}: {error}") from error
        if not isinstance(plugin, self.record):
            raise ValueError(f"'{path}' must be a {self.record.__name__}, but is a {type(plugin).__name__}")
        if reason := wrong_names(plugin):
            raise ValueError(f"'{path}' cannot be used: {reason}")
        return plugin


def summary(plugin: Any) -> str:
    """First line of the docstring of the file that holds the plug-in."""
    function = getattr(plugin, "loss", None) or getattr(plugin, "per_image", None) or getattr(plugin, "score", None)
    function = function or getattr(plugin, "build", None) or plugin.open
    return first_line(importlib.import_module(function.__module__).__doc__ or "")
