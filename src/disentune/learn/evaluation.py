"""From a trained encoder to scores: images are encoded once, into a table that all metrics of an evaluation use.

A large data set is sampled. Metrics that vary one factor while the others are fixed get a table of whole lines. If
images have nuisance variation, such as a colour that is not a factor, rows are drawn with replacement, each with its
own nuisance, so that the table has the requested number of rows however few combinations there are.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disentune.data.factors import FactorGrid, FactorTable, factors_of, full_grid
from disentune.data.noise import Recalled
from disentune.environment import without_secrets
from disentune.errors import DataError
from disentune.learn.transforms import Inputs
from disentune.maths.laws import Sampling
from disentune.maths.randomness import stream
from disentune.metrics import scored as scores_of
from disentune.metrics.table import table_of
from disentune.plugin import AutoEncoder, CodeLaw, Posterior, Region, Representation, Table
from disentune.spec.config import Named, Scored, TrialConfig

CHUNK = 512
GRAM_CHUNK = 32
"""Images whose Jacobians are held in memory at a time: 126 MB for 128 x 128 colour images with 10 latents."""


@dataclass(frozen=True)
class Trained:
    """The input of an evaluation."""

    model: AutoEncoder
    images: Inputs
    """Called without a generator, or with one that recalls a row's nuisance, which is then the same everywhere."""
    recon: Named
    seed: int
    sampling: Sampling | None = None
    """How often training draws each image, if a law or a held-out set says so."""
    prior: Any = None
    """The law of codes (`Framework.prior`); None is N(0, 1)."""
    to_normal: Callable[[np.ndarray], np.ndarray] | None = None
    """The map from that law to N(0, 1), where there is one."""
    code: Callable[[Posterior], Tensor] | None = None
    """`Framework.code`; None is the mean."""
    posterior: Callable[[Tensor, Tensor], Posterior] | None = None
    """`Framework.posterior`, of images and factors; None is what the encoder makes of the image."""
    discrete: bool = False
    """`Framework.discrete`."""

    def encode(self, x: Tensor, indices: np.ndarray | None) -> Posterior:
        """Posteriors of images, whose mean is the code. DataError if they depend on factors and the images are none of
        the data set's."""
        if self.posterior is None:
            q = self.model.encode(x)
        elif indices is None:
            raise DataError("its codes depend on the factors of an image, so only images of its data set have one")
        else:
            q = self.posterior(x, torch.from_numpy(self.known.evenly(indices)).to(x.device))
        return q if self.code is None else replace(q, mean=self.code(q))

    @property
    def known(self) -> FactorGrid | FactorTable:
        """The factors of the images."""
        return factors_of(self.images.data)

    @property
    def grid(self) -> FactorGrid:
        """DataError where images do not fill it."""
        return full_grid(self.known, "a line along one factor")


@dataclass(frozen=True)
class Encoded:
    """Images by their indices (n,) with their posteriors: means and logvars (n, d), and factors (n, k)."""

    indices: np.ndarray
    means: np.ndarray
    logvars: np.ndarray
    factors: np.ndarray
    keys: np.ndarray | None = None
    """(n,): the key of each image's nuisance, if the data set has any."""


# ---- which images


def sample_indices(size: int, wanted: int, rng: np.random.Generator, noisy: bool = False) -> np.ndarray:
    """All images of a small data set, else distinct ones; for a noisy data set, `wanted` with replacement."""
    if noisy:
        return np.sort(rng.integers(size, size=wanted))
    return np.arange(size) if size <= wanted else np.sort(rng.choice(size, wanted, replace=False))


def line_indices(grid: FactorGrid, wanted: int, rng: np.random.Generator, noisy: bool = False) -> np.ndarray:
    """The same number of whole lines for each factor, through random images; about `wanted` images in total."""
    if len(grid) <= wanted and not noisy:
        return np.arange(len(grid))
    lines = max(1, wanted // sum(grid.sizes))
    bases = (rng.integers(len(grid), size=lines) for _ in grid.sizes)
    return np.concatenate([grid.around(base, factor).ravel() for factor, base in enumerate(bases)])


def table_indices(
    config: TrialConfig,
    known: FactorGrid | FactorTable,
    size: str,
    lines: bool,
    noisy: bool = False,
    region: Region | None = None,
) -> np.ndarray:
    """The images to encode, the same at every evaluation of a trial."""
    wanted = config.evaluation.table if size == "full" else config.evaluation.fast_table
    if region in ("inside", "outside"):
        return region_indices(config, region, wanted, noisy)
    if lines:
        grid = full_grid(known, "a line along one factor")
        return line_indices(grid, wanted, stream(config.seed, "evaluation/lines"), noisy)
    return sample_indices(len(known), wanted, stream(config.seed, "evaluation"), noisy)


def region_indices(config: TrialConfig, region: Region, wanted: int, noisy: bool) -> np.ndarray:
    """Images that the law of sampling draws, as often as it does, or images that it never draws."""
    drawn, rng = config.sampling, stream(config.seed, f"evaluation/{region}")
    assert drawn is not None  # checked with the config
    if region == "inside" and not drawn.is_even:
        return np.sort(drawn.draw(rng, wanted))
    images = drawn.inside if region == "inside" else drawn.outside
    found: np.ndarray = images[sample_indices(len(images), wanted, rng, noisy)]
    return found


# ---- their codes


@torch.no_grad()
def encoded(trained: Trained, indices: np.ndarray) -> Encoded:
    """Encodes images; in a noisy data set each has its own nuisance, the same whenever it is encoded."""
    noisy = trained.images.data.noisy
    keys = stream(trained.seed, "evaluation/nuisance").integers(2**63, size=len(indices)) if noisy else None
    trained.model.eval()
    rows = _chunks(np.arange(len(indices)))
    posteriors = [trained.encode(_shown(trained, indices, keys, some), indices[some]) for some in rows]
    trained.model.train()
    return Encoded(
        keys=keys,
        indices=indices,
        means=torch.cat([q.mean for q in posteriors]).cpu().numpy(),
        logvars=torch.cat([q.logvar for q in posteriors]).cpu().numpy(),
        factors=trained.known.factors(indices),
    )


def _shown(trained: Trained, indices: np.ndarray, keys: np.ndarray | None, rows: np.ndarray) -> Tensor:
    """The images of these rows of a table, with their own nuisance."""
    return trained.images(indices[rows], None if keys is None else Recalled(keys[rows]))


def _chunks(indices: np.ndarray, size: int = CHUNK) -> list[np.ndarray]:
    return np.array_split(indices, max(1, -(-len(indices) // size)))


def table_from(trained: Trained, images: Encoded, codes: Representation) -> Table:
    """Raises DataError if the codes are not finite."""
    factors = images.factors if images.factors.shape[1] else None
    table = table_of(_codes(trained, images, codes), factors, images.logvars)
    return replace(
        table,
        means=images.means.astype(np.float64) if codes == "sampled" and not trained.discrete else None,
        discrete=trained.discrete,
        distance=lambda first, second: _distances(trained, images, first, second),
        reconstruction=lambda rows: _reconstructions(trained, images, rows, table.codes),
        gram=lambda rows: _grams(trained, table.codes[rows]),
        names=trained.known.names,
        prior=None if trained.prior is None else code_law(trained.prior, next(trained.model.parameters()).device),
    )


def _codes(trained: Trained, images: Encoded, codes: Representation) -> np.ndarray:
    if codes == "mean" or (codes == "sampled" and trained.discrete):
        return images.means
    if codes == "normal":
        assert trained.to_normal is not None  # checked with the config
        return trained.to_normal(images.means.astype(np.float64))
    noise = stream(trained.seed, "evaluation/noise").standard_normal(images.means.shape)
    return images.means + np.exp(images.logvars.astype(np.float64) / 2) * noise


def code_law(prior: Any, device: torch.device) -> CodeLaw:
    """A framework's law of tensors on a device as one of arrays."""

    @torch.no_grad()
    def log_density(codes: np.ndarray) -> np.ndarray:
        found: np.ndarray = prior.log_density(torch.as_tensor(codes, dtype=torch.float64, device=device)).cpu().numpy()
        return found

    @torch.no_grad()
    def sample(count: int, latents: int, rng: np.random.Generator) -> np.ndarray:
        like = torch.empty(count, latents, dtype=torch.float64, device=device)
        found: np.ndarray = prior.sample(like, rng).cpu().numpy()
        return found

    return CodeLaw(log_density, sample)


@torch.no_grad()
def _distances(trained: Trained, images: Encoded, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    pairs = zip(_chunks(first), _chunks(second), strict=True)
    return _joined(_distance(trained, images, one, other) for one, other in pairs)


def _distance(trained: Trained, images: Encoded, first: np.ndarray, second: np.ndarray) -> Tensor:
    """Draws each row's image once, however many pairs contain it."""
    distinct, places = np.unique(np.stack([first, second]), return_inverse=True)
    x = _shown(trained, images.indices, images.keys, distinct)
    one, other = torch.from_numpy(places.reshape(2, -1))
    found: Tensor = trained.recon.plugin.distance(x[one], x[other], trained.recon.params)
    return found


@torch.no_grad()
def _reconstructions(trained: Trained, images: Encoded, rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Reconstruction losses of these rows; the codes (n, d) are those of all rows."""
    trained.model.eval()
    shown = ((_shown(trained, images.indices, images.keys, some), codes[some]) for some in _chunks(rows))
    losses = _joined(_reconstruction(trained, x, own) for x, own in shown)
    trained.model.train()
    return losses


def _reconstruction(trained: Trained, x: Tensor, codes: np.ndarray) -> Tensor:
    recon = trained.recon
    output = trained.model.decode(torch.as_tensor(codes, dtype=x.dtype, device=x.device))
    found: Tensor = recon.plugin.per_image(output, x, recon.params)
    return found


def _grams(trained: Trained, codes: np.ndarray) -> np.ndarray:
    trained.model.eval()
    grams = _joined(_gram(trained, codes[rows]) for rows in _chunks(np.arange(len(codes)), GRAM_CHUNK))
    trained.model.train()
    return grams


@torch.enable_grad()
def _gram(trained: Trained, codes: np.ndarray) -> Tensor:
    """J^T J (n, d, d) of the decoded images.

    J v is the derivative of u^T J v with respect to u: two backward passes, because torch's forward mode would load its
    compiler.
    """
    weight = next(trained.model.parameters())
    z = torch.tensor(codes, dtype=weight.dtype, device=weight.device, requires_grad=True)
    image = trained.recon.plugin.to_image(trained.model.decode(z), trained.recon.params).flatten(1)
    u = torch.zeros_like(image, requires_grad=True)
    (pulled,) = torch.autograd.grad(image, z, u, create_graph=True)
    columns = [torch.autograd.grad(column.sum(), u, retain_graph=True)[0] for column in pulled.unbind(1)]
    jacobian = torch.stack(columns, dim=2).double()
    return jacobian.mT @ jacobian


def _joined(chunks: Iterable[Tensor]) -> np.ndarray:
    return torch.cat([*chunks]).double().cpu().numpy()


# ---- their scores


@dataclass
class EvaluationScores:
    """What an evaluation adds to a row. A metric that failed has NaN for its keys, and the reason in the notes."""

    numbers: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    """Arrays as nested lists."""
    scored: dict[str, dict[str, Any]] = field(default_factory=dict)
    """How each metric was computed: size, codes, rows of its table, all parameters, and any caution."""
    notes: dict[str, str] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        parts = {"details": self.details, "scored": self.scored, "notes": self.notes}
        return {name: part for name, part in parts.items() if part}


def evaluated(config: TrialConfig, trained: Trained, due: Iterable[Scored]) -> EvaluationScores:
    """Computes every metric that is due, from as few tables as possible."""
    scores, tables = EvaluationScores(), _Tables(config, trained)
    for scored in due:
        try:
            _add(scores, scored, tables.of(scored), config.seed)
        except DataError as error:
            _fail(scores, scored, str(error).removeprefix(f"{scored.metric.plugin.name}: "))
        except Exception as error:  # a metric may fail in any way; the trial and the other metrics continue
            _fail(scores, scored, f"{type(error).__name__}: {error}")
    return scores


def _add(scores: EvaluationScores, scored: Scored, table: Table, seed: int) -> None:
    metric = scored.metric
    found = scores_of(metric.plugin, table, seed, metric.params)
    scores.numbers |= {f"{key}{scored.suffix}": value for key, value in found.numbers.items()}
    scores.details |= {f"{key}{scored.suffix}": array.tolist() for key, array in found.details.items()}
    made: dict[str, Any] = {"size": scored.size, "codes": scored.codes, "table": len(table.codes)}
    made |= {"region": scored.region} if scored.region else {}
    care = {"caution": found.caution} if found.caution else {}
    scores.scored[scored.label] = {**made, **metric.params.model_dump(), **care}


def _fail(scores: EvaluationScores, scored: Scored, reason: str) -> None:
    scores.numbers |= dict.fromkeys(scored.keys, float("nan"))
    scores.notes[scored.label] = without_secrets(reason)


class _Tables:
    """The tables of one evaluation, each created on first use."""

    def __init__(self, config: TrialConfig, trained: Trained):
        self.config, self.trained = config, trained
        self.images: dict[bytes, Encoded] = {}
        self.tables: dict[Any, Table] = {}

    def of(self, scored: Scored) -> Table:
        kind = (scored.size, scored.metric.plugin.lines, scored.codes, scored.region)
        if kind not in self.tables:
            noisy = self.trained.images.data.noisy
            indices = table_indices(self.config, self.trained.known, *kind[:2], noisy, scored.region)
            self.tables[kind] = table_from(self.trained, self._encoded(indices), scored.codes)
        return self.tables[kind]

    def _encoded(self, indices: np.ndarray) -> Encoded:
        """Encodes each set of images once, even if a small data set serves as the table for several kinds."""
        name = indices.tobytes()
        if name not in self.images:
            self.images[name] = encoded(self.trained, indices)
        return self.images[name]
