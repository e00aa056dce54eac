"""Adam: Kingma & Ba, ICLR 2015, Alg. 1, with torch's fused kernel; the same bits as `torch.optim.Adam(fused=True)`.

With AMSGrad (Reddi et al., ICLR 2018) the largest mean of squares so far replaces the last one. A decoupled weight
decay (Loshchilov & Hutter, ICLR 2019, Alg. 2) shrinks weights before the step, so moments do not see it.

An optimiser of torch.optim loads torch's compiler before its first step, even if it is not used, which costs two
seconds at the start of every worker. The function used here does not.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

EPSILON = 1e-8
MOMENTS = ("exp_avg", "exp_avg_sq")
LARGEST = "max_exp_avg_sq"


class Adam:
    """Its state has the format of torch.optim, but without the learning rate."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
        amsgrad: bool = False,
        weight_decay: float = 0.0,
        epsilon: float = EPSILON,
        decoupled: bool = False,
        undecayed: Collection[int] = (),
        clip: float | None = None,
    ):
        """`weight_decay` times a weight is added to its gradient; if `decoupled`, a share of learning rate times
        `weight_decay` is taken off each weight instead, except of the parameters at the positions `undecayed`. Elements
        of gradients are first cut to `clip`, above and below 0.
        """
        self.parameters, self.learning_rate, self.betas = [*parameters], learning_rate, betas
        self.amsgrad, self.weight_decay, self.epsilon = amsgrad, weight_decay, epsilon
        self.decoupled, self.undecayed, self.clip = decoupled, frozenset(undecayed), clip
        self.moments = (*MOMENTS, LARGEST) if amsgrad else MOMENTS
        self.state: dict[int, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Updates every parameter that has a gradient."""
        moving = [(number, one, one.grad) for number, one in enumerate(self.parameters) if one.grad is not None]
        if self.clip is not None:
            for _, _, gradient in moving:
                gradient.clamp_(-self.clip, self.clip)
        if self.decoupled:
            for number, one, _ in moving:
                if number not in self.undecayed:
                    one.mul_(1 - self.learning_rate * self.weight_decay)
        states = [self.state.get(number) or self._begun(number) for number, _, _ in moving]
        adam(
            [one for _, one, _ in moving],
            [gradient for _, _, gradient in moving],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [state[LARGEST] for state in states if self.amsgrad],
            [state["step"] for state in states],
            fused=True,
            amsgrad=self.amsgrad,
            maximize=False,
            weight_decay=0.0 if self.decoupled else self.weight_decay,
            lr=self.learning_rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            eps=self.epsilon,
        )

    def _begun(self, number: int) -> dict[str, Tensor]:
        parameter = self.parameters[number]
        zeros = {name: torch.zeros_like(parameter, memory_format=torch.preserve_format) for name in self.moments}
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return self.state.setdefault(number, {"step": step, **zeros})

    def state_dict(self) -> dict[str, Any]:
        """The state; tensors are not copied."""
        return {"state": {number: dict(state) for number, state in self.state.items()}, "param_groups": []}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.state = {int(number): self._moved(int(number), state) for number, state in saved["state"].items()}

    def _moved(self, number: int, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        parameter = self.parameters[number]
        if any(state[name].shape != parameter.shape for name in self.moments):
            raise ValueError(f"moments of parameter {number} are not of its shape {tuple(parameter.shape)}")
        step = state["step"].to(device=parameter.device, dtype=torch.float32)
        return {"step": step, **{name: state[name].to(parameter) for name in self.moments}}
