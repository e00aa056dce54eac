"""A trained model that takes images as the data set gives them: its pixel transform is part of it.

Weights come from a checkpoint whose hash is checked. A trial that names code of its own is only built with permission.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from disentune.data.prepared.store import use_root
from disentune.errors import ConfigError, DataError, TrialError
from disentune.files.earlier import storage_known
from disentune.learn.evaluation import CHUNK
from disentune.learn.image_distances import decoded, finite_codes, undisturbed
from disentune.plugin import Shape
from disentune.results.rescore import Rebuilt, rebuilt
from disentune.runs.ledger import Run
from disentune.runs.trial_folder import TrialFolder
from disentune.spec.config import own_plugins

Array = TypeVar("Array", np.ndarray, Tensor)
"""What goes in comes out: arrays of NumPy, or tensors of torch."""
FRAMES = 8
"""Values of a traversal, spread evenly over the span of two standard deviations of the prior."""


def assert_trusted(folder: TrialFolder, trust: bool) -> None:
    """Raises TrialError for a trial whose config names code that is not ours, unless the caller permits it."""
    names = own_plugins(folder.tree())
    if names and not trust:
        own = ", ".join(map(str, names))[:200]
        raise TrialError(
            f"trial {folder.id} names code of its own ({own}), which is not run unless you permit it: "
            "load(run, trust=True), or --trust on the command line"
        )


def model_of(run: Run, trial_id: str, trust: bool = False) -> TrainedModel:
    """The model of a trial from its last intact checkpoint; TrialError if there is none."""
    folder = run.trial(trial_id)
    assert_trusted(folder, trust)
    use_root(run.sweep().settings.data.root)
    with storage_known(run.path.parent.parent):
        return TrainedModel(rebuilt(folder))


@dataclass(frozen=True, repr=False, eq=False)
class TrainedModel:
    """The encoder and decoder of a trial.

    Images have the shape (n, channels, height, width) and are uint8 as the data set gives them, or floats from 0 to 1;
    codes have the shape (n, latents). Arrays of NumPy give arrays of NumPy, tensors give tensors. A data set's noise is
    not added.
    """

    found: Rebuilt

    @property
    def latents(self) -> int:
        return self.found.trained.model.latents

    @property
    def shape(self) -> Shape:
        """Channels, height and width of an image."""
        return self.found.trained.images.data.shape

    @property
    def step(self) -> int:
        """The step of training that the weights are from."""
        return self.found.step

    @property
    def network(self) -> torch.nn.Module:
        """The torch module with the parts `encoder` and `decoder`, which works in the network's own units."""
        return self.found.trained.model

    @property
    def takes_points(self) -> bool:
        """Whether the data set holds points, numbers of any size, instead of images."""
        return bool(self.found.config.dataset.plugin.points)

    def encode(self, images: Array) -> tuple[Array, Array]:
        """Means and standard deviations of the posteriors, (n, latents) each."""
        x = self._checked_images(images)
        with self._at_rest():
            images_of = self.found.trained.images.in_units
            parts = [finite_codes(self.found.trained, images_of(some), None) for some in x.split(CHUNK)]
        mean = torch.cat([q.mean for q in parts])
        std = torch.cat([q.logvar for q in parts]).mul(0.5).exp()
        return _like(images, mean), _like(images, std)

    def decode(self, z: Array) -> Array:
        """Images (n, channels, height, width) from codes; pixels are floats from 0 to 1."""
        codes = self._checked_codes(z)
        with self._at_rest():
            return _like(z, torch.cat([self._decoded(some) for some in codes.split(CHUNK)]))

    def reconstruct(self, images: Array) -> Array:
        """The images decoded from the means of their posteriors."""
        return self.decode(self.encode(images)[0])

    def traverse(
        self, images: Array, latents: Sequence[int] | None = None, values: Sequence[float] | None = None
    ) -> Array:
        """Decoded images (n, latents, values, channels, height, width): from the mean code of each image, one latent at
        a time takes each of the values.

        By default all latents, and eight values from -2 to 2, that is two standard deviations of the prior.
        """
        chosen = self._checked_latents(range(self.latents) if latents is None else latents)
        steps = _checked_values(np.linspace(-2, 2, FRAMES) if values is None else values)
        mean = torch.as_tensor(self.encode(images)[0])
        z = mean[:, None, None].repeat(1, len(chosen), len(steps), 1)
        for place, latent in enumerate(chosen):
            z[:, place, :, latent] = steps.to(z)
        frames = torch.as_tensor(self.decode(z.flatten(0, 2)))
        return _like(images, frames.reshape(*z.shape[:3], *self.shape))

    # torch

    @contextmanager
    def _at_rest(self) -> Iterator[None]:
        """Evaluation mode without gradients; the network is left as it was."""
        with torch.no_grad(), undisturbed(self.network):
            yield

    def _decoded(self, z: Tensor) -> Tensor:
        trained = self.found.trained
        images = decoded(trained, z).to(trained.images.mean.device)
        unit = images * trained.images.std.float() + trained.images.mean.float()
        return unit if self.takes_points else unit.clamp(0, 1)

    # checks

    def _checked_images(self, images: Any) -> Tensor:
        """Raises DataError with one sentence for a wrong type, shape or range."""
        x = _tensor(images, "images")
        if x.shape[1:] != self.shape:
            shape = f"(n, {_listed(self.shape)})"
            raise DataError(f"images: must have the shape {shape}, got {tuple(x.shape)}{self._hint(x)}")
        if not len(x):
            raise DataError("images: must have at least one row, got an empty array")
        if self.takes_points:
            return _finite(x, "images").float()
        if x.dtype == torch.uint8:
            return _of_bytes(x)
        if not x.dtype.is_floating_point:
            raise DataError(f"images: must be uint8 (0 to 255) or floats (0 to 1), got {_kind(x)}")
        low, high = (float(end) for end in _finite(x, "images").aminmax())
        if low < 0 or high > 1:
            raise DataError(f"images: floats must go from 0 to 1, got {low:.4g} to {high:.4g}; the model standardises "
                            "pixels itself")  # fmt: skip
        return x.float()

    def _hint(self, x: Tensor) -> str:
        """What to do about a shape; empty if it is not a usual mistake."""
        channels, height, width = self.shape
        if x.shape == self.shape:
            return "; for a single image pass images[None]"
        if x.shape[1:] == (height, width, channels):
            return "; move the channels first: images.transpose(0, 3, 1, 2)"
        return "; add the channel: images[:, None]" if channels == 1 and x.shape[1:] == (height, width) else ""

    def _checked_codes(self, z: Any) -> Tensor:
        codes = _tensor(z, "z")
        if codes.ndim != 2 or codes.shape[1] != self.latents or not len(codes):
            hint = "; for a single code pass z[None]" if codes.shape == (self.latents,) else ""
            raise DataError(f"z: must have the shape (n, {self.latents}), got {tuple(codes.shape)}{hint}")
        return _finite(codes, "z").to(self.found.trained.images.device, torch.float32)

    def _checked_latents(self, latents: Sequence[int]) -> list[int]:
        try:
            found = [int(latent) for latent in latents if int(latent) == latent]
        except (TypeError, ValueError):
            found = []
        if not found or len(found) < len(latents) or not all(0 <= one < self.latents for one in found):
            raise ConfigError(f"latents: must be a list of whole numbers from 0 to {self.latents - 1}, got {latents!r}")
        return found

    def __repr__(self) -> str:
        config = self.found.config
        names = f"{config.framework.name}, {config.model.name}"
        return f"TrainedModel({names}: images ({_listed(self.shape)}), {self.latents} latents, step {self.step:,})"


def _listed(shape: Sequence[int]) -> str:
    return ", ".join(map(str, shape))


def _kind(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _tensor(given: Any, name: str) -> Tensor:
    if isinstance(given, Tensor):
        return given.detach()
    if not isinstance(given, np.ndarray):
        raise DataError(f"{name}: must be a NumPy array or a torch tensor, got {type(given).__name__}")
    try:
        return torch.from_numpy(np.ascontiguousarray(given))
    except TypeError:
        raise DataError(f"{name}: must be numbers, got {given.dtype}") from None


def _finite(x: Tensor, name: str) -> Tensor:
    if not x.dtype.is_floating_point:
        x = x.float()
    if x.numel() and not all(end.isfinite() for end in x.aminmax()):
        raise DataError(f"{name}: must be finite, but some numbers are not")
    return x


def _of_bytes(x: Tensor) -> Tensor:
    if int(x.max()) == 1:
        text = "uint8 pixels go from 0 to 255, but the largest of these is 1; multiply them by 255"
        raise DataError(f"images: {text}")
    return x


def _checked_values(values: Any) -> Tensor:
    try:
        found = torch.as_tensor(np.asarray(values, float))
    except (TypeError, ValueError):
        found = torch.empty(0)
    if found.ndim != 1 or not len(found) or not found.isfinite().all():
        raise ConfigError(f"values: must be a list of finite numbers, got {values!r:.100}")
    return found


def _like(given: Array, found: Tensor) -> Array:
    return found if isinstance(given, Tensor) else found.cpu().numpy()
