"""Adam: Kingma & Ba, ICLR 2015, Alg. 1, by torch's own fused kernel; the bits of `torch.optim.Adam(fused=True)`.

An optimiser of torch.optim loads torch's compiler before its first step, compiled or not: two seconds of every worker
that starts. Its function does not.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

EPSILON = 1e-8
MOMENTS = ("exp_avg", "exp_avg_sq")


class Adam:
    """Speaks of its state as torch.optim does; its learning rate is not part of that."""

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        learning_rate: float,
        betas: tuple[float, float] = (0.9, 0.999),
    ):
        self.parameters, self.learning_rate, self.betas = [*parameters], learning_rate, betas
        self.state: dict[int, dict[str, Tensor]] = {}

    @torch.no_grad()
    def step(self) -> None:
        """Moves every parameter that has a gradient."""
        moving = [(number, one, one.grad) for number, one in enumerate(self.parameters) if one.grad is not None]
        states = [self.state.get(number) or self._begun(number) for number, _, _ in moving]
        adam(
            [one for _, one, _ in moving],
            [gradient for _, _, gradient in moving],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            maximize=False,
            weight_decay=0.0,
            lr=self.learning_rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            eps=EPSILON,
        )

    def _begun(self, number: int) -> dict[str, Tensor]:
        parameter = self.parameters[number]
        zeros = {name: torch.zeros_like(parameter, memory_format=torch.preserve_format) for name in MOMENTS}
        step = torch.zeros((), dtype=torch.float32, device=parameter.device)
        return self.state.setdefault(number, {"step": step, **zeros})

    def state_dict(self) -> dict[str, Any]:
        """The live tensors."""
        return {"state": {number: dict(state) for number, state in self.state.items()}, "param_groups": []}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self.state = {int(number): self._moved(int(number), state) for number, state in saved["state"].items()}

    def _moved(self, number: int, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        parameter = self.parameters[number]
        if any(state[name].shape != parameter.shape for name in MOMENTS):
            raise ValueError(f"moments of parameter {number} are not of its shape {tuple(parameter.shape)}")
        step = state["step"].to(device=parameter.device, dtype=torch.float32)
        return {"step": step, **{name: state[name].to(parameter) for name in MOMENTS}}
