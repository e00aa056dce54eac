"""A training without networks: every number is a hash of all that came before it, so a wrong resume shows at once."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from disentune.learn.training import Progress
from disentune.spec.config import TrialConfig


class HashedTraining:
    """Stands in for `learn.training.Training`: the same config and the same steps give the same numbers, and a step
    left out, repeated or taken with other settings changes all numbers after it."""

    contents: tuple[str, ...] = ()

    def __init__(self, config: TrialConfig, state: Mapping[str, Any] | None = None, on_device: bool = False):
        self.config, self.step, self.past = config, 0, bytes(16)
        if state is not None:
            self.step, self.past = int(state["step"]), bytes(state["model"]["past"].tolist())

    def state(self) -> dict[str, Any]:
        past = torch.tensor(list(self.past), dtype=torch.uint8)
        return {"step": self.step, "model": {"past": past}, "optimiser": {}, "contents": self.contents}

    def run(self, until: int) -> Iterator[Progress]:
        while self.step < min(until, self.config.training.steps):
            self.step += 1
            text = b"%s %s %d" % (self.past, self.config.id.encode(), self.step)
            self.past = hashlib.blake2b(text, digest_size=16).digest()
            yield Progress(self.step, self._row() if self._reports() else None, self)  # type: ignore[arg-type]

    def scores_between(self) -> dict[str, Any] | None:
        return None if self.config.evaluates_at(self.step) else {"step": self.step, "metrics": {"mig": self._score()}}

    def _reports(self) -> bool:
        return self.step % self.config.training.log_every == 0 or self.config.evaluates_at(self.step)

    def _row(self) -> dict[str, Any]:
        scores = {"mig": self._score()} if self.config.evaluates_at(self.step) else {}
        return {"step": self.step, "metrics": {"loss": self._number(0), "recon": self._number(4), **scores}}

    def _score(self) -> float:
        return self._number(8)

    def _number(self, start: int) -> float:
        """From 0 to 1, exact as a float."""
        return int.from_bytes(self.past[start : start + 4], "big") / 2**32
