"""Explores a trained model: encodes an image of the data set, moves its code along each latent, and shows the decoded
image beside the nearest image of the data.

Models come from checkpoints of the run, whose hashes are checked and which load as weights only. A trial that names a
plug-in by its import path is never rebuilt here: that would run code which the run brings along.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from disentune.data.prepared.store import use_root
from disentune.errors import ConfigError, DisentuneError, TrialError
from disentune.learn.evaluation import Trained
from disentune.learn.image_distances import decoded, doubled, finite_codes, undisturbed
from disentune.learn.pictures import pixels
from disentune.maths.gaussian import kl_to_prior
from disentune.maths.randomness import stream
from disentune.results.rescore import rebuilt
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import TrialFolder
from disentune.spec.config import own_plugins

SAMPLE = 512
"""Number of images from which the KL and the range of each latent are measured."""
CANDIDATES = 4096
"""Maximum number of images that are searched for the nearest one."""
COARSE = 12
"""Pixels to which the side of an image is averaged for the first search."""
FINALISTS = 48
ROUNDS = 4
"""Rounds in which each factor is varied in turn, starting from the best image of the sample."""
LONGEST_LINE = 128
"""Maximum number of values of a factor that a round tries."""
KEPT = 3
"""Models that are kept in memory."""
REACH = 1.25
"""A slider goes beyond the codes of the sample by this factor."""
FARTHEST = 1e4


def why_not(folder: TrialFolder) -> str:
    """Why a trial has no sliders, judged from its folder without building anything; empty if it should have them."""
    if names := own_plugins(folder.tree()):
        return (
            f"This trial uses a plug-in of its own ({', '.join(map(str, names))[:200]}), and the dashboard runs no "
            "code that a run names. Score or inspect it with: disentune score, disentune inspect."
        )
    if not folder.checkpoints.steps():
        return "This trial has no checkpoint yet, so there is no model to decode with."
    return ""


@dataclass(frozen=True, eq=False)
class Opened:
    """A model that is ready to decode; `order` lists the latents with the largest KL first."""

    trained: Trained
    step: int
    notes: tuple[str, ...]
    order: list[int]
    kl: np.ndarray
    """(d,): KL of each latent to the prior in nats."""
    low: np.ndarray
    high: np.ndarray
    """(d,): the ends of each slider."""
    candidates: np.ndarray
    """(m,): indices of the images that are searched for the nearest one."""
    coarse: np.ndarray
    """(m, p): the same images, averaged to few pixels."""
    is_whole: bool
    """Whether the candidates are all images of the data set."""
    lock: Lock = field(default_factory=Lock)


class Models:
    """The models that were used last; one is built at a time."""

    def __init__(self) -> None:
        self.opened: OrderedDict[tuple[str, tuple[int, ...]], Opened] = OrderedDict()
        self.lock = Lock()

    def get(self, run: Run, folder: TrialFolder) -> Opened:
        """The model of a trial. Raises TrialError with the reason if there is none."""
        if reason := why_not(folder):
            raise TrialError(reason)
        key = (str(folder.path), tuple(folder.checkpoints.steps()))
        with self.lock:
            if key not in self.opened:
                self.opened[key] = _opened(run, folder)
            self.opened.move_to_end(key)
            while len(self.opened) > KEPT:
                self.opened.popitem(last=False)
            return self.opened[key]


def _opened(run: Run, folder: TrialFolder) -> Opened:
    try:
        use_root(run.sweep().settings.data.root)
        return _measured(*_built(folder))
    except DisentuneError:
        raise
    except Exception as error:  # a config that was made up may ask for anything
        raise TrialError(f"the model of trial {folder.id} cannot be built: {type(error).__name__}: {error}") from None


def _built(folder: TrialFolder) -> tuple[Trained, int, tuple[str, ...]]:
    found = rebuilt(folder)
    if found.trained.images.data.images(np.arange(1)).dtype != np.uint8:
        raise TrialError("This trial was trained on points, so there are no images to show.")
    return found.trained, found.step, found.notes


@torch.no_grad()
def _measured(trained: Trained, step: int, notes: tuple[str, ...]) -> Opened:
    rng, count = stream(0, "dashboard"), len(trained.grid)
    candidates = np.sort(rng.choice(count, min(CANDIDATES, count), replace=False))
    with undisturbed(trained.model):
        sample = rng.choice(candidates, min(SAMPLE, len(candidates)), replace=False)
        q = finite_codes(trained, trained.images(sample), sample)
    kl = kl_to_prior(doubled(q)).mean(dim=0)
    low, high = _sliders(q.mean)
    return Opened(
        trained=trained, step=step, notes=notes,
        order=torch.argsort(kl, descending=True, stable=True).tolist(), kl=kl.cpu().numpy(), low=low, high=high,
        candidates=candidates, coarse=_coarse(trained, candidates), is_whole=len(candidates) == count,
    )  # fmt: skip


def _sliders(means: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The range of the codes, and at least that of the prior for a latent that carries nothing."""
    low, high = means.amin(dim=0).cpu().numpy(), means.amax(dim=0).cpu().numpy()
    middle, half = (low + high) / 2, np.maximum((high - low) / 2 * REACH, 2.0)
    return middle - half, middle + half


# ---- the nearest image of the data


def _coarse(trained: Trained, indices: np.ndarray) -> np.ndarray:
    """(m, p) float32 from 0 to 1."""
    chunks = np.array_split(indices, max(1, len(indices) // 256))
    return np.concatenate([_averaged(_unit(trained, some)) for some in chunks])


def _unit(trained: Trained, indices: np.ndarray) -> Tensor:
    """(n, c, h, w) in [0, 1]."""
    return torch.from_numpy(pixels(trained, trained.images(indices))).permute(0, 3, 1, 2).float().div(255)


def _averaged(images: Tensor) -> np.ndarray:
    side = (min(COARSE, images.shape[-2]), min(COARSE, images.shape[-1]))
    found: np.ndarray = functional.adaptive_avg_pool2d(images, side).flatten(1).numpy()
    return found


def nearest(model: Opened, image: Tensor) -> tuple[int, float]:
    """Index of the image of the data with the smallest squared difference in pixels, and the root of its mean, among
    those that look alike at low resolution. For a large data set: the best of a sample, improved factor by factor."""
    rough = ((model.coarse - _averaged(image[None])) ** 2).sum(axis=1)
    best = _closest(model, image, model.candidates[np.argsort(rough, kind="stable")[:FINALISTS]])
    if not model.is_whole:
        best = _improved(model, image, best)
    error = float((_unit(model.trained, np.array([best])) - image).square().mean().sqrt())
    return best, error


def _closest(model: Opened, image: Tensor, indices: np.ndarray) -> int:
    errors = (_unit(model.trained, indices) - image).square().flatten(1).sum(dim=1)
    return int(indices[int(errors.argmin())])


def _improved(model: Opened, image: Tensor, best: int) -> int:
    grid = model.trained.grid
    for _ in range(ROUNDS):
        before = best
        for factor in range(len(grid.sizes)):
            values = np.unique(np.linspace(0, grid.sizes[factor] - 1, LONGEST_LINE).astype(np.int64))
            line = np.unique([best, *grid.around(np.array([best]), factor, values)[0]])
            best = _closest(model, image, line)
        if best == before:
            break
    return best


# ---- what the page asks


def described(model: Opened) -> dict[str, Any]:
    grid = model.trained.grid
    return {
        "step": model.step,
        "notes": list(model.notes),
        "latents": [{"index": i, "kl": float(model.kl[i]), "low": float(model.low[i]), "high": float(model.high[i])}
                    for i in model.order],
        "factors": [{"name": name, "size": size} for name, size in zip(grid.names, grid.sizes, strict=True)],
        "start": [size // 2 for size in grid.sizes],
        "searched": len(model.candidates),
        "whole": model.is_whole,
    }  # fmt: skip


@torch.no_grad()
def encoded(model: Opened, factors: Sequence[int]) -> tuple[np.ndarray, list[float]]:
    """The image of these factors, uint8 (h, w, c), and the mean of its posterior."""
    trained = model.trained
    index = trained.grid.index(np.array([list(factors)]))
    with model.lock, undisturbed(trained.model):
        x = trained.images(index)
        return pixels(trained, x)[0], finite_codes(trained, x, index).mean[0].tolist()


@torch.no_grad()
def shown(model: Opened, code: Sequence[float]) -> dict[str, Any]:
    """The decoded image, and the nearest of the data with its factors; images are uint8 (h, w, c)."""
    trained = model.trained
    if len(code) != trained.model.latents or not all(abs(number) <= FARTHEST for number in code):
        raise ConfigError(f"z: must be {trained.model.latents} numbers between -{FARTHEST:g} and {FARTHEST:g}")
    with model.lock, undisturbed(trained.model):
        image = pixels(trained, decoded(trained, torch.tensor([code], device=trained.images.device)))[0]
        index, error = nearest(model, torch.from_numpy(image).permute(2, 0, 1).float().div(255))
        found = pixels(trained, trained.images(np.array([index])))[0]
    factors = trained.grid.factors(np.array([index]))[0].tolist()
    return {"image": image, "nearest": found, "factors": factors, "error": error}
