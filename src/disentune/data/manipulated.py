"""Manipulated: Zietlow et al., ICML 2021, section 4: another data set, changed so that VAEs stop disentangling it.

Factors and number of images stay; no pixel changes by more than epsilon. The change is a function of the factors that
the framework `manipulator` learns from trained models of another sweep, the donors. A sweep names that sweep in its
`needs`; once it is finished, `donors` becomes a list of trials and `manipulator` the trial that learns the change.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
import torch
from pydantic import AfterValidator, BeforeValidator, Field, field_validator
from torch import nn

from disentune.data.factors import FactorGrid
from disentune.data.prepared.spelling import options
from disentune.data.prepared.store import about_of, command_of, root
from disentune.data.prepared.stored import StoredImages, contents
from disentune.errors import DataError
from disentune.files.earlier import earlier
from disentune.maths.manipulation import bottleneck, pattern
from disentune.models import MODELS
from disentune.parameters import Mistake, validated, worded
from disentune.plugin import (
    AutoEncoder,
    Count,
    Dataset,
    Donor,
    FactorImages,
    Frozen,
    Model,
    Shape,
    Source,
    hexadecimal,
)

CHUNK = 512
"""Images at a time."""
FINEST = 4096
"""Steps of the hidden unit between 0 and 1: all images of one step are changed alike."""
LARGEST_TABLE = 1 << 29
"""Bytes of the changes of all steps."""


F = TypeVar("F", bound=Frozen)


# ---- parameters


def _donors(given: Any) -> Any:
    """The name of a sweep, or donors."""
    if isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise ValueError(f"must be the name of a sweep in `needs`, or a list of role, trial and weights, got {given!r}")
    return [one if isinstance(one, Donor) else _checked(Donor, one) for one in given]


def _checked(params: type[F], given: Any) -> F:
    """ValueError with every mistake."""
    mistakes: list[Mistake] = []
    found: F = validated(params, given, "", mistakes)
    if mistakes:
        raise ValueError("; ".join(worded(mistake) for mistake in mistakes))
    return found


def _without_name(section: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "name"}


def _original(given: Any) -> dict[str, Any]:
    """A data set's section with every parameter, so that each has one spelling."""
    from disentune.data import DATASETS  # at the call: the catalogue lists this module

    section = {"name": given} if isinstance(given, str) else given
    if not isinstance(section, Mapping) or not isinstance(section.get("name"), str):
        raise ValueError(f"must be a data set: its name, or a mapping with a name, got {given!r}")
    dataset = DATASETS[section["name"]]
    params = _checked(dataset.params, _without_name(section))
    if dataset.points or dataset.noisy(params) or dataset.params is Params:
        raise ValueError(f"must be a data set of fixed images that is not manipulated itself, but is '{dataset.name}'")
    if dataset.lacks(params):
        raise ValueError(f"must have one image for every combination of known factors, as the change is a function of "
                         f"them, which '{dataset.name}' does not have here")  # fmt: skip
    return {"name": section["name"], **params.model_dump()}


Section = Annotated[dict[str, Any], BeforeValidator(_original)]


class Params(Frozen):
    """`decoder`, `recon` and `manipulator` are filled in once the donors are trained: `decoder` may be chosen."""

    base: Section = Field(description="the data set whose images are changed, with its parameters")
    donors: Annotated[str | list[Donor], BeforeValidator(_donors)] = Field(
        description="the key of `needs` that names the sweep of donors"
    )
    metric: str = Field("mig", min_length=1, description="the score by which donors are chosen")
    best: Count = Field(1, ge=1, description="donors with the highest scores")
    worst: Count = Field(1, ge=1, description="donors with the lowest scores")
    epsilon: float = Field(gt=0, le=1, description="largest change of a pixel in [0, 1]")
    steps: Count = Field(ge=1, le=10**9, description="batches that train the donors' decoders")
    batch_size: Count = Field(64, ge=1, le=10**6, description="images per batch")
    learning_rate: float = Field(1e-4, gt=0, description="step size of Adam, for the manipulator and the decoders")
    decoder_batches: Count = Field(3, ge=1, description="batches of the decoders for each batch of the manipulator")
    samples: Count = Field(5, ge=1, le=1000, description="codes drawn from the posterior of each image")
    decoder: dict[str, Any] | None = Field(
        None, description="the model whose decoder draws the change; none: that of the donors"
    )
    recon: dict[str, Any] | None = Field(None, description="the reconstruction loss of the donors; filled in")
    manipulator: Annotated[str, AfterValidator(hexadecimal(16))] | None = Field(
        None, description="the trial that learns the change; filled in"
    )

    @field_validator("decoder")
    @classmethod
    def _known(cls, decoder: dict[str, Any] | None) -> dict[str, Any] | None:
        if decoder is not None:
            _model(decoder)
        return decoder


def _model(section: Mapping[str, Any]) -> tuple[Model, Any]:
    """The plug-in and its params."""
    model = MODELS[str(section.get("name"))]
    return model, _checked(model.params, _without_name(section))


# ---- the data set that is changed


def original(params: Params) -> tuple[Dataset, Any]:
    """The data set that is changed, and its own params."""
    from disentune.data import DATASETS  # at the call: the catalogue lists this module

    dataset = DATASETS[params.base["name"]]
    return dataset, dataset.params.model_validate(_without_name(params.base))


def shape(params: Params) -> Shape:
    dataset, given = original(params)
    return dataset.shape(given)


def factor_sizes(params: Params) -> tuple[int, ...]:
    dataset, given = original(params)
    return dataset.factor_sizes(given)


def factor_names(params: Params) -> tuple[str, ...]:
    dataset, given = original(params)
    return dataset.names(given)


# ---- the prepared array


def sources(params: Params) -> tuple[Source, ...]:
    """Those of the original, and once the donors are known its own."""
    dataset, given = original(params)
    return (*dataset.sources(given), *([source(params)] if params.manipulator else []))


def source(params: Params) -> Source:
    """Named by the trial that trained the manipulator, whose id tells every donor and setting."""
    assert params.manipulator is not None
    return Source(
        name="manipulated",
        files=(),
        read=partial(rendered, params),
        shape=shape(params),
        count=math.prod(factor_sizes(params)),
        variant=params.manipulator,
        options=options(params),
        provenance=partial(provenance, params),
    )


def provenance(params: Params) -> dict[str, Any]:
    dataset, given = original(params)
    trained = earlier(str(params.manipulator))
    return {**params.model_dump(), "weights": trained.weights, "base_contents": contents(dataset.sources(given))}


class Manipulated(StoredImages):
    """Changed images; `original` is the opened data set that they were made from."""

    def __init__(self, params: Params):
        if params.manipulator is None:
            raise DataError(donors_unknown(params))
        self._params = params
        self.original = _opened(params)
        factors = dict(zip(self.original.factor_names, self.original.factor_sizes, strict=True))
        super().__init__(source(params), factors, self.original.categorical)

    def __reduce__(self) -> tuple[Callable[..., "Manipulated"], tuple[Any, ...]]:
        return Manipulated, (self._params,)


def donors_unknown(params: Params) -> str:
    return (
        f"the data set 'manipulated' is made from the trained models of '{params.donors}', which are not known yet; "
        "name their sweep in `needs` and use: disentune run SWEEP"
    )


def _opened(params: Params) -> FactorImages:
    """The original. DataError when its array is not prepared: what it would be made from is another step."""
    dataset, given = original(params)
    for needed in dataset.sources(given):
        if about_of(needed) is None:
            raise DataError(f"'{needed.key}', whose images are manipulated, is not prepared in {root()}; prepare it "
                            f"with: {command_of(needed)}")  # fmt: skip
    return dataset.open(given)


# ---- rendering


def rendered(params: Params, paths: Sequence[Path]) -> Iterator[np.ndarray]:
    """Changed images, uint8 (m, c, h, w), in the order of the grid.

    A change is a whole number of levels, rounded towards 0: with rounding and reflection no pixel moves by more than
    epsilon. The hidden unit is rounded to a step, so that the network draws a table of changes and not every image.
    """
    images = _opened(params)
    grid = FactorGrid(images.factor_names, images.factor_sizes)
    unit, model = networks(params, len(grid.sizes))
    levels = finest(images.shape)
    table = changes(model, levels, params.epsilon, images.shape)
    for start in range(0, len(grid), CHUNK):
        indices = np.arange(start, min(start + CHUNK, len(grid)))
        steps = np.rint(levels * hidden(unit, grid.evenly(indices))).astype(np.int64)
        yield reflected(images.images(indices), table[steps])


def networks(params: Params, factors: int) -> tuple[nn.Module, AutoEncoder]:
    """The hidden unit and the model whose decoder draws the change, as they were trained."""
    state = earlier(str(params.manipulator)).state
    unit = bottleneck(factors, torch.Generator())
    unit.load_state_dict(state["extra"])
    assert params.decoder is not None
    model, given = _model(params.decoder)
    network = model.build(shape(params), shape(params)[0], given, torch.Generator())
    network.load_state_dict(state["model"])
    return unit, network.eval()


def finest(shape: Shape) -> int:
    """Steps of the hidden unit: fewer where images are so large that the table would be."""
    return min(FINEST, LARGEST_TABLE // (2 * math.prod(shape)))


def hidden(unit: nn.Module, factors: np.ndarray) -> np.ndarray:
    """The hidden unit (n,) in [0, 1] of factors (n, k); in float64, so that its rounding rarely depends on a bit."""
    with torch.no_grad():
        found: np.ndarray = unit.double()(torch.from_numpy(factors).double())[:, 0].numpy()
    return found


@torch.no_grad()
def changes(model: AutoEncoder, levels: int, epsilon: float, shape: Shape) -> np.ndarray:
    """What is added to an image at each step of the hidden unit, in levels of grey: int16 (levels + 1, c, h, w)."""
    steps = torch.arange(levels + 1)[:, None] / levels
    table = np.empty((len(steps), *shape), np.int16)
    with _one_thread():
        for start in range(0, len(steps), CHUNK):
            drawn = pattern(model, steps[start : start + CHUNK]).mul_(255 * epsilon)
            table[start : start + CHUNK] = drawn.to(torch.int16).numpy()  # rounds towards 0
    return table


@contextmanager
def _one_thread() -> Iterator[None]:
    """Another number of threads gives other bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def reflected(images: np.ndarray, change: np.ndarray) -> np.ndarray:
    """uint8 (n, c, h, w) plus a change in [-255, 255], reflected at 0 and 255."""
    moved = np.abs(change + images)
    found: np.ndarray = np.minimum(moved, 510 - moved, out=moved).astype(np.uint8)
    return found


DATASET = Dataset(
    name="manipulated",
    params=Params,
    shape=shape,
    factor_sizes=factor_sizes,
    factor_names=factor_names,
    open=Manipulated,
    sources=sources,
)
