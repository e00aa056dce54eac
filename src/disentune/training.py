"""The loop: a generator of progress that can stop at any step and go on, to the bit. Knows nothing of Ray or disks.

Every step draws its batch and its noise from generators made from (seed, step) alone, so a training has no hidden
random state: the model, the optimiser, the step and the sums of the current row are all there is to save.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from disentune import evaluation
from disentune.config import TrialConfig
from disentune.data.factors import FactorGrid
from disentune.data.pairs import PAIR_LAWS
from disentune.plugin import AutoEncoder, Batch, FactorImages, Losses, Step
from disentune.randomness import stream, torch_seed
from disentune.transforms import transform


@dataclass(frozen=True)
class Progress:
    """What a finished step leaves: `row` at the steps that report, and the state to checkpoint (read it at once)."""

    step: int
    row: dict[str, Any] | None
    training: "Training"


@dataclass
class _Sums:
    """Losses added up since the last row, in float64 on the device."""

    names: list[str] = field(default_factory=list)
    total: Tensor | None = None
    steps: int = 0

    def add(self, losses: Losses) -> None:
        values = torch.stack([losses.recon, losses.latent, *losses.parts.values()]).detach().double()
        self.names = ["recon", "latent", *losses.parts]
        self.total = values if self.total is None else self.total.add_(values)
        self.steps += 1

    def take(self) -> dict[str, float]:
        """Means since the last call."""
        assert self.total is not None
        means = (self.total / self.steps).tolist()
        self.total, self.steps = None, 0
        return dict(zip(self.names, means, strict=True))


class Training:
    """One trial's live objects; made from its config alone, or from its config and a saved state."""

    def __init__(self, config: TrialConfig, state: Mapping[str, Any] | None = None):
        self.config, self.step = config, 0
        self.device = torch.device(config.training.device)
        self.data: FactorImages = config.dataset.plugin.open(config.dataset.params)
        self.grid = FactorGrid(self.data.factor_names, self.data.factor_sizes)
        self.transform = transform(config.transform, self.data, self.device)
        generator = torch.Generator().manual_seed(torch_seed(config.seed, "weights"))
        build = config.model.plugin.build
        self.model: AutoEncoder = build(self.data.shape, config.model.params, generator).to(self.device)
        self.optimiser = torch.optim.Adam(self.model.parameters(), lr=config.training.learning_rate, fused=True)
        self.sums = _Sums()
        self._table_indices: np.ndarray | None = None
        if state is not None:
            self._load(state)

    # state

    def state(self) -> dict[str, Any]:
        """Everything that resuming needs. Tensors are the live ones: save them before the next step."""
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict()["state"],
            "sums": {"names": self.sums.names, "total": self.sums.total, "steps": self.sums.steps},
        }

    def _load(self, state: Mapping[str, Any]) -> None:
        self.step = state["step"]
        self.model.load_state_dict(state["model"])
        groups = self.optimiser.state_dict()["param_groups"]  # the learning rate is the config's, not the state's
        self.optimiser.load_state_dict({"state": state["optimiser"], "param_groups": groups})
        total = state["sums"]["total"]
        self.sums = _Sums(list(state["sums"]["names"]), None if total is None else total.to(self.device).clone(),
                          state["sums"]["steps"])  # fmt: skip

    # steps

    def run(self, until: int | None = None) -> Iterator[Progress]:
        """Trains to step `until` (the config's end without it), yielding after every step."""
        last = min(until or self.config.training.steps, self.config.training.steps)
        self.model.train()
        while self.step < last:
            self._advance()
            yield Progress(self.step, self._row() if self._reports() else None, self)

    def _advance(self) -> None:
        self.step += 1
        config = self.config
        step = Step(self.step, config.training.steps, stream(config.seed, "noise", self.step))
        losses = config.framework.plugin.loss(self.model, self._batch(), config.framework.params, step)
        self.optimiser.zero_grad(set_to_none=True)
        self._objective(losses.recon, losses.latent).backward()
        self.optimiser.step()
        self.sums.add(losses)

    def _objective(self, recon: Any, latent: Any) -> Any:
        """The one place where `loss_scale` acts."""
        if self.config.loss_scale == "sum":
            return recon + latent
        return recon / prod(self.data.shape) + latent / self.model.latents

    def _batch(self) -> Batch:
        rng, size = stream(self.config.seed, "data", self.step), self.config.training.batch_size
        indices = rng.integers(len(self.data), size=size)
        if self.config.framework.plugin.draws == "single":
            return Batch(self.transform(self.data.images(indices, rng)), None, self._recon)
        law = PAIR_LAWS[self.config.framework.params.pairs]
        partners = self.grid.index(law(self.grid.factors(indices), self.grid.sizes, rng))
        both = self.transform(self.data.images(np.concatenate([indices, partners]), rng))
        return Batch(both[:size], both[size:], self._recon)

    def _recon(self, output: Tensor, target: Tensor) -> Tensor:
        return self.config.recon.plugin.per_image(output, target, self.config.recon.params).sum() / len(target)

    # rows

    def _reports(self) -> bool:
        return self.step % self.config.training.log_every == 0 or self.config.evaluates_at(self.step)

    def _row(self) -> dict[str, Any]:
        row: dict[str, Any] = {"step": self.step, "metrics": self._loss_row(self.sums.take())}
        if self.config.evaluates_at(self.step) and self.config.metrics:
            numbers, notes = evaluation.scores(self.config, self.table())
            row["metrics"] |= numbers
            row |= {"notes": notes} if notes else {}
        return row

    def _loss_row(self, means: dict[str, float]) -> dict[str, float]:
        """Each loss in the trial's own scale, and in nats an image (`_sum`) so that both conventions compare."""
        pixels, latents = (prod(self.data.shape), self.model.latents) if self.config.loss_scale == "mean" else (1, 1)
        loss = self._objective(means["recon"], means["latent"])
        row = {"loss": loss, "recon": means["recon"] / pixels}
        parts = {name: value for name, value in means.items() if name not in ("recon", "latent")}
        row |= {name: value / latents for name, value in parts.items()}
        row |= {"loss_sum": loss * pixels, "recon_sum": means["recon"]}
        return row | {f"{name}_sum": value for name, value in parts.items()}

    def table(self) -> evaluation.Table:
        if self._table_indices is None:
            self._table_indices = evaluation.table_indices(self.config, len(self.data))
        return evaluation.encoded(self.model, self.data, self.transform, self._table_indices)
