"""From a trained encoder to scores: images are encoded once, into a table that all metrics of an evaluation draw from.

A large data set is sampled. Metrics that follow one factor while the others stand still get a table of whole lines.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disentune.data.factors import FactorGrid
from disentune.environment import without_secrets
from disentune.errors import DataError
from disentune.learn.transforms import Inputs
from disentune.maths.randomness import stream
from disentune.metrics import scored as scores_of
from disentune.metrics.table import table_of
from disentune.plugin import AutoEncoder, Representation, Table
from disentune.spec.config import Named, Scored, TrialConfig

CHUNK = 512


@dataclass(frozen=True)
class Trained:
    """What an evaluation looks at."""

    model: AutoEncoder
    images: Inputs
    """Called without a generator, so that an image has the same noise wherever an evaluation meets it."""
    recon: Named
    seed: int

    @property
    def grid(self) -> FactorGrid:
        return FactorGrid(self.images.data.factor_names, self.images.data.factor_sizes)


@dataclass(frozen=True)
class Encoded:
    """Images by their indices (n,) with their posteriors: means and logvars (n, d), and factors (n, k)."""

    indices: np.ndarray
    means: np.ndarray
    logvars: np.ndarray
    factors: np.ndarray


# ---- which images


def sample_indices(size: int, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """All of a small data set, else distinct ones."""
    return np.arange(size) if size <= wanted else np.sort(rng.choice(size, wanted, replace=False))


def line_indices(grid: FactorGrid, wanted: int, rng: np.random.Generator) -> np.ndarray:
    """Equally many whole lines along each factor: all of its values around a random image; about `wanted` images."""
    if len(grid) <= wanted:
        return np.arange(len(grid))
    lines = max(1, wanted // sum(grid.sizes))
    bases = (rng.integers(len(grid), size=lines) for _ in grid.sizes)
    return np.concatenate([grid.around(base, factor).ravel() for factor, base in enumerate(bases)])


def table_indices(config: TrialConfig, grid: FactorGrid, size: str, lines: bool) -> np.ndarray:
    """The same images at every evaluation of a trial."""
    wanted = config.evaluation.table if size == "full" else config.evaluation.fast_table
    if lines:
        return line_indices(grid, wanted, stream(config.seed, "evaluation/lines"))
    return sample_indices(len(grid), wanted, stream(config.seed, "evaluation"))


# ---- their codes


@torch.no_grad()
def encoded(trained: Trained, indices: np.ndarray) -> Encoded:
    trained.model.eval()
    posteriors = [trained.model.encode(trained.images(chunk)) for chunk in _chunks(indices)]
    trained.model.train()
    return Encoded(
        indices=indices,
        means=torch.cat([q.mean for q in posteriors]).cpu().numpy(),
        logvars=torch.cat([q.logvar for q in posteriors]).cpu().numpy(),
        factors=trained.grid.factors(indices),
    )


def _chunks(indices: np.ndarray) -> list[np.ndarray]:
    return np.array_split(indices, max(1, -(-len(indices) // CHUNK)))


def table_from(trained: Trained, images: Encoded, codes: Representation) -> Table:
    """DataError when the encoder gives no finite codes."""
    table = table_of(_codes(images, codes, trained.seed), images.factors, images.logvars)
    return replace(
        table,
        means=images.means.astype(np.float64) if codes == "sampled" else None,
        distance=lambda first, second: _distances(trained, images.indices, first, second),
        reconstruction=lambda rows: _reconstructions(trained, images.indices[rows], table.codes[rows]),
    )


def _codes(images: Encoded, codes: Representation, seed: int) -> np.ndarray:
    if codes == "mean":
        return images.means
    noise = stream(seed, "evaluation/noise").standard_normal(images.means.shape)
    return images.means + np.exp(images.logvars.astype(np.float64) / 2) * noise


@torch.no_grad()
def _distances(trained: Trained, indices: np.ndarray, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    pairs = zip(_chunks(indices[first]), _chunks(indices[second]), strict=True)
    return _joined(_distance(trained, one, other) for one, other in pairs)


def _distance(trained: Trained, first: np.ndarray, second: np.ndarray) -> Tensor:
    """Each image is drawn once, in however many pairs it stands."""
    distinct, places = np.unique(np.stack([first, second]), return_inverse=True)
    x, (one, other) = trained.images(distinct), torch.from_numpy(places.reshape(2, -1))
    found: Tensor = trained.recon.plugin.distance(x[one], x[other], trained.recon.params)
    return found


@torch.no_grad()
def _reconstructions(trained: Trained, indices: np.ndarray, codes: np.ndarray) -> np.ndarray:
    trained.model.eval()
    losses = _joined(_reconstruction(trained, indices[rows], codes[rows]) for rows in _chunks(np.arange(len(indices))))
    trained.model.train()
    return losses


def _reconstruction(trained: Trained, indices: np.ndarray, codes: np.ndarray) -> Tensor:
    x, recon = trained.images(indices), trained.recon
    output = trained.model.decode(torch.as_tensor(codes, dtype=x.dtype, device=x.device))
    found: Tensor = recon.plugin.per_image(output, x, recon.params)
    return found


def _joined(chunks: Iterable[Tensor]) -> np.ndarray:
    return torch.cat([*chunks]).double().cpu().numpy()


# ---- their scores


@dataclass
class EvaluationScores:
    """What an evaluation adds to a row. A metric that failed has NaN under its keys and its reason in the notes."""

    numbers: dict[str, float] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    """Arrays as nested lists."""
    scored: dict[str, dict[str, Any]] = field(default_factory=dict)
    """How each metric was computed: size, codes, rows of its table, every parameter, and why to read it with care."""
    notes: dict[str, str] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        parts = {"details": self.details, "scored": self.scored, "notes": self.notes}
        return {name: part for name, part in parts.items() if part}


def evaluated(config: TrialConfig, trained: Trained, due: Iterable[Scored]) -> EvaluationScores:
    """Every metric that is due, from as few tables as they need."""
    scores, tables = EvaluationScores(), _Tables(config, trained)
    for scored in due:
        try:
            _add(scores, scored, tables.of(scored), config.seed)
        except DataError as error:
            _fail(scores, scored, str(error).removeprefix(f"{scored.metric.plugin.name}: "))
        except Exception as error:  # a metric may fail in any way; the trial and the other metrics go on
            _fail(scores, scored, f"{type(error).__name__}: {error}")
    return scores


def _add(scores: EvaluationScores, scored: Scored, table: Table, seed: int) -> None:
    metric = scored.metric
    found = scores_of(metric.plugin, table, seed, metric.params)
    scores.numbers |= {f"{key}{scored.suffix}": value for key, value in found.numbers.items()}
    scores.details |= {f"{key}{scored.suffix}": array.tolist() for key, array in found.details.items()}
    made = {"size": scored.size, "codes": scored.codes, "table": len(table.codes)}
    care = {"caution": found.caution} if found.caution else {}
    scores.scored[scored.label] = {**made, **metric.params.model_dump(), **care}


def _fail(scores: EvaluationScores, scored: Scored, reason: str) -> None:
    scores.numbers |= dict.fromkeys(scored.keys, float("nan"))
    scores.notes[scored.label] = without_secrets(reason)


class _Tables:
    """The tables of one evaluation, each made when it is first asked for."""

    def __init__(self, config: TrialConfig, trained: Trained):
        self.config, self.trained = config, trained
        self.images: dict[bytes, Encoded] = {}
        self.tables: dict[Any, Table] = {}

    def of(self, scored: Scored) -> Table:
        kind = (scored.size, scored.metric.plugin.lines, scored.codes)
        if kind not in self.tables:
            indices = table_indices(self.config, self.trained.grid, *kind[:2])
            self.tables[kind] = table_from(self.trained, self._encoded(indices), scored.codes)
        return self.tables[kind]

    def _encoded(self, indices: np.ndarray) -> Encoded:
        """Once, also when a small data set is the whole table of several kinds."""
        name = indices.tobytes()
        if name not in self.images:
            self.images[name] = encoded(self.trained, indices)
        return self.images[name]
