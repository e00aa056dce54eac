"""The training loop: a generator that can stop at any step and continue bit for bit. Independent of Ray and disks.

Every step draws its batch and its noise from generators that depend only on (seed, step), so there is no hidden random
state: only the model, the optimisers, the framework's own state, the step and the sums of the current row have to be
saved.
"""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from disentune.data.factors import FactorGrid, factors_of, full_grid
from disentune.data.prepared.stored import contents
from disentune.errors import DataError, TrialError, first_line
from disentune.files.earlier import earlier
from disentune.learn import evaluation
from disentune.learn.precision import network_in, step_in
from disentune.learn.transforms import Inputs, fits, inputs, moved
from disentune.maths.adam import Adam
from disentune.maths.exact import in_float64, placed
from disentune.maths.laws import partners
from disentune.maths.randomness import stream, torch_seed
from disentune.plugin import AutoEncoder, Batch, Donor, FactorImages, Framework, Losses, Optimiser, Step
from disentune.spec.config import WATCHED, Scored, TrialConfig


@dataclass(frozen=True)
class Progress:
    """The result of a step: `row` at steps that report, and the state to checkpoint (read it before the next step)."""

    step: int
    row: dict[str, Any] | None
    training: "Training"


@dataclass
class _Sums:
    """Losses summed since the last row, in float64, on the device if it has float64."""

    names: list[str] = field(default_factory=list)
    total: Tensor | None = None
    steps: int = 0

    def add(self, losses: Losses) -> None:
        named = {"recon": losses.recon, "latent": losses.latent, **losses.parts}
        named |= {f"{WATCHED}{name}": value for name, value in losses.watch.items()}
        values = in_float64(torch.stack([*named.values()]))
        self.names = [*named]
        self.total = values if self.total is None else self.total.add_(values)
        self.steps += 1

    def take(self) -> dict[str, float]:
        """Means since the last call."""
        assert self.total is not None
        means = (self.total / self.steps).tolist()
        self.total, self.steps = None, 0
        return dict(zip(self.names, means, strict=True))


@dataclass
class _Helper:
    """A framework's helper network and its own optimiser."""

    network: nn.Module
    parameters: list[nn.Parameter]
    optimiser: Optimiser

    def improve(self, loss: Tensor | None) -> None:
        assert loss is not None
        _forget_gradients(self.parameters)
        loss.backward(inputs=self.parameters)
        self.optimiser.step()


def compiled(model: AutoEncoder) -> AutoEncoder:
    """The same weights in compiled networks, only for training; one graph per batch size.

    Resets what this process compiled before: the compiler keeps at most eight graphs and then falls back to eager mode,
    so a trial's bits would depend on earlier trials. Its cache on disk stays.
    """
    torch._dynamo.reset()
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    encoder: Any = torch.compile(model.encoder, dynamic=False)
    decoder: Any = torch.compile(model.decoder, dynamic=False)
    return AutoEncoder(encoder, decoder, model.latents)


def _forget_gradients(parameters: list[nn.Parameter]) -> None:
    """Like `zero_grad`, but saves 2 % of the step time of a small network."""
    for parameter in parameters:
        parameter.grad = None


def _assert_declared(framework: Framework, losses: Losses) -> None:
    """Checks that the losses have what the record declares, so that no number is silently missing from a row."""
    named = (("parts", framework.parts, losses.parts), ("watch", framework.watch, losses.watch))
    for what, promised, given in named:
        if set(promised) != set(given):
            raise TrialError(
                f"framework '{framework.name}': its loss gives the {what} {sorted(given)}, but its record declares "
                f"{sorted(promised)}; make `Framework.{what}` and `Losses.{what}` agree"
            )
    if (framework.helper is None) != (losses.helper is None):
        raise TrialError(f"framework '{framework.name}': set both `Losses.helper` and `Framework.helper`, or neither")


def _set_rate(optimiser: Optimiser, rate: float) -> None:
    if isinstance(optimiser, Adam):
        optimiser.learning_rate = rate
    else:
        for group in getattr(optimiser, "param_groups", ()):
            group["lr"] = rate


def _restore(optimiser: Optimiser, state: Mapping[str, Any]) -> None:
    groups = optimiser.state_dict()["param_groups"]  # the learning rate comes from the config, not the state
    optimiser.load_state_dict({"state": dict(state), "param_groups": groups})


@contextmanager
def _generator(config: TrialConfig, purpose: str) -> Iterator[torch.Generator]:
    """A generator for weights; meanwhile the global generator is seeded too, for plug-ins that use it."""
    seed = torch_seed(config.seed, purpose)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield torch.Generator().manual_seed(seed)


def built_model(config: TrialConfig) -> AutoEncoder:
    """The networks of a trial before the first step; needs no data."""
    model, recon, shape = config.model, config.recon, config.setting().shape
    channels = recon.plugin.channels(shape[0], recon.params)
    with _generator(config, "weights") as generator:
        found: AutoEncoder = model.plugin.build(shape, channels, model.params, generator)
        return found


def donated(donor: Donor) -> AutoEncoder:
    """The trained model of an earlier trial. DataError when the storage does not have it."""
    found = earlier(donor.trial, donor.weights)
    config = TrialConfig.parse(found.tree)
    if config.id != donor.trial:
        raise DataError(f"trial {donor.trial} was trained by another version of disentune, for which this id stood for "
                        "another configuration; train it again")  # fmt: skip
    model = built_model(config)
    model.load_state_dict(found.state["model"])
    return model


def weights_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a state that scoring and later sweeps need; training cannot continue from it."""
    kept = [name for name in ("model", "extra") if name in state]
    weights = {name: {key: one.clone() for key, one in state[name].items()} for name in kept}  # no shared memory
    return {"step": state["step"], **weights, "contents": state.get("contents"), "weights_only": True}


def can_train(state: Mapping[str, Any]) -> bool:
    """Whether training can continue from a state, because it has more than weights."""
    return not state.get("weights_only")


class Training:
    """The live objects of a trial, created from its config or from its config and a saved state."""

    def __init__(self, config: TrialConfig, state: Mapping[str, Any] | None = None, on_device: bool = False):
        """`on_device` keeps all images on the device if they fit; it changes the speed but no result."""
        self.config, self.step = config, 0
        self.device = torch.device(config.training.device)
        self.data: FactorImages = config.dataset.plugin.open(config.dataset.params)
        self.contents = contents(config.dataset.plugin.sources(config.dataset.params))
        self.known = factors_of(self.data)
        self.ordered = np.array([name not in self.data.categorical for name in self.data.factor_names])
        self.sampling = config.sampling
        self.inputs = self._inputs(on_device)
        self.model = built_model(config).to(self.device)
        network = compiled(self.model) if config.training.compile else self.model
        self.network = network_in(config.training.precision, network)
        self.extra = self._extra()
        brought = [*self.model.parameters(), *(self.extra.parameters() if self.extra else ())]
        self.trained = [parameter for parameter in brought if parameter.requires_grad]
        self.optimiser = self._optimiser()
        self.helper = self._helper()
        self.framework_state = dict(config.framework.plugin.state(config.framework.params))
        self.sums = _Sums()
        if state is not None:
            self._load(state, self._take_over)

    def _inputs(self, on_device: bool) -> Inputs:
        dataset = self.config.dataset
        made = inputs(self.config.pixels, self.data, self.device, dataset.plugin.published(dataset.params))
        keep = on_device and fits(self.data, self.device)
        return replace(made, resident=moved(self.data, self.device)) if keep else made

    def _extra(self) -> nn.Module | None:
        framework, setting = self.config.framework, self.config.setting()
        if framework.plugin.extra is None:
            return None
        with _generator(self.config, "extra") as generator:
            built = framework.plugin.extra(setting, framework.params, generator, self._images)
        return None if built is None else built.to(self.device)

    def _optimiser(self) -> Optimiser:
        training = self.config.training
        if own := self.config.framework.plugin.optimiser:
            brought: Optimiser = own(self.trained, training.learning_rate)
            return brought
        (first, second), chosen = training.optimiser.betas, training.optimiser
        return Adam(
            self.trained, training.learning_rate, (first, second), chosen.amsgrad, chosen.weight_decay,
            decoupled=chosen.decoupled, undecayed=self._undecayed(), clip=training.clip,
        )  # fmt: skip

    def _undecayed(self) -> list[int]:
        """Positions in `trained` of the parameters whose name has a part that is listed as not to decay."""
        model = [(name, one) for name, one in self.model.named_parameters()]
        extra = [(f"extra.{name}", one) for name, one in self.extra.named_parameters()] if self.extra else []
        names = [name for name, one in [*model, *extra] if one.requires_grad]
        kept = set(self.config.training.optimiser.undecayed)
        return [number for number, name in enumerate(names) if kept & set(name.split("."))]

    def _helper(self) -> "_Helper | None":
        framework, setting = self.config.framework, self.config.setting()
        if framework.plugin.helper is None:
            return None
        setting = replace(setting, donated=donated)
        with _generator(self.config, "helper") as generator:
            network = framework.plugin.helper.build(setting, framework.params, generator).to(self.device)
        parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        return _Helper(network, parameters, framework.plugin.helper.optimiser(parameters, framework.params))

    # state

    def state(self) -> dict[str, Any]:
        """Everything needed to resume. Tensors are not copied: save them before the next step."""
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict()["state"],
            "sums": {"names": self.sums.names, "total": self.sums.total, "steps": self.sums.steps},
            "framework": self.framework_state,
            "contents": self.contents,
        }
        if self.extra:
            state["extra"] = self.extra.state_dict()
        if self.helper:
            state["helper"] = self.helper.network.state_dict()
            state["helper_optimiser"] = self.helper.optimiser.state_dict()["state"]
        return state

    @classmethod
    def with_weights(cls, config: TrialConfig, state: Mapping[str, Any]) -> "Training":
        """A training for scoring, with the weights of a state (full, or from `weights_of`); it cannot be continued."""
        training = cls(config)
        training._load(state, training._take_weights)
        return training

    def _load(self, state: Mapping[str, Any], take: Callable[[Mapping[str, Any]], None]) -> None:
        if state.get("contents") != self.contents:
            raise DataError(
                f"data set '{self.config.dataset.name}': the checkpoint was trained on contents other than those "
                "prepared here, so it cannot continue; prepare the original contents again, or use another --name"
            )
        try:
            take(state)
        except Exception as error:  # a state of another version or a forged one can fail in any way
            text = f"trial {self.config.id}: the checkpoint does not fit its config ({first_line(error)})"
            raise TrialError(text) from error

    def _take_weights(self, state: Mapping[str, Any]) -> None:
        self.step = int(state["step"])
        self.model.load_state_dict(state["model"])
        if self.extra and "extra" in state:
            self.extra.load_state_dict(state["extra"])

    def _take_over(self, state: Mapping[str, Any]) -> None:
        self._take_weights(state)
        _restore(self.optimiser, state["optimiser"])
        if self.extra and "extra" not in state:
            raise KeyError("extra")
        if self.helper:
            self.helper.network.load_state_dict(state["helper"])
            _restore(self.helper.optimiser, state["helper_optimiser"])
        self.framework_state = {name: placed(value, self.device) for name, value in state["framework"].items()}
        total = state["sums"]["total"]
        total = None if total is None else placed(total, self.device).clone()
        self.sums = _Sums(list(state["sums"]["names"]), total, state["sums"]["steps"])

    # steps

    def run(self, until: int | None = None) -> Iterator[Progress]:
        """Trains to step `until` (default: the config's last step), yielding after every step."""
        last = min(until or self.config.training.steps, self.config.training.steps)
        self.model.train()
        while self.step < last:
            self._advance()
            yield Progress(self.step, self._row() if self._reports() else None, self)

    def _advance(self) -> None:
        self.step += 1
        with step_in(self.config.training.precision):
            losses = self._losses()
            self._improve(self._objective(losses.recon, losses.latent))
            if self.helper:
                self.helper.improve(losses.helper)
        self.framework_state = {name: value.detach() for name, value in losses.state.items()}
        self.sums.add(losses)

    def _improve(self, objective: Tensor) -> None:
        if objective.requires_grad:
            _forget_gradients(self.trained)
            objective.backward(inputs=self.trained)
            if self.config.training.learning_rate_schedule is not None:
                _set_rate(self.optimiser, self.config.training.rate(self.step))
            self.optimiser.step()

    def _losses(self) -> Losses:
        config = self.config
        step = Step(
            number=self.step,
            steps=config.training.steps,
            rng=stream(config.seed, "noise", self.step),
            state=self.framework_state,
            extra=self.extra,
            helper=self.helper.network if self.helper else None,
        )
        framework = config.framework.plugin
        losses: Losses = framework.loss(self.network, self._batch(), config.framework_params(self.step), step)
        _assert_declared(framework, losses)
        return losses

    def _objective(self, recon: Any, latent: Any) -> Any:
        """The only place where `loss_scale` is applied."""
        if self.config.loss_scale == "sum":
            return recon + latent
        return recon / prod(self.data.shape) + latent / self.model.latents

    def _batch(self) -> Batch:
        rng, size = stream(self.config.seed, "data", self.step), self.config.training.batch_size
        indices = self._indices(rng, size)
        law = getattr(self.config.framework.params, "pairs", None)
        population = self.sampling.count if self.sampling else len(self.data)
        if law is None:
            return Batch(self.inputs(indices, rng), None, self._recon, population, *self._factors(indices))
        both = self.inputs(np.concatenate([indices, self._partners(law, indices, rng)]), rng)
        return Batch(both[:size], both[size:], self._recon, population, *self._factors(indices))

    def _factors(self, indices: np.ndarray) -> tuple[Tensor | None, Tensor | None]:
        """`Batch.factors` and `Batch.labels`."""
        if not self.config.framework.plugin.needs_factors:
            return None, None
        evenly, labels = (torch.from_numpy(find(indices)) for find in (self.known.evenly, self.known.factors))
        return evenly.to(self.device), labels.to(self.device)

    def _partners(self, law: Any, indices: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        needs_grid = getattr(law, "needs_grid", True)
        if self.sampling:
            drawn = self.sampling
            return partners(law, indices, drawn, self.ordered, rng) if needs_grid else drawn.draw(rng, len(indices))
        if not isinstance(self.known, FactorGrid) and not needs_grid:
            return rng.integers(len(self.data), size=len(indices))
        grid = full_grid(self.known, f"the pair law '{law.name}'")
        return grid.index(law.draw(grid.factors(indices), grid.sizes, self.ordered, rng))

    def _indices(self, rng: np.random.Generator, size: int) -> np.ndarray:
        if self.sampling:
            return self.sampling.draw(rng, size, self.config.training.replacement)
        if self.config.training.replacement:
            return rng.integers(len(self.data), size=size)
        return rng.choice(len(self.data), size=size, replace=False)

    def _images(self, count: int) -> Tensor:
        """Images on the CPU, for a framework that looks at the data before training starts."""
        rng, size = stream(self.config.seed, "images"), len(self.data)
        if self.sampling:
            every = self.sampling.is_even and self.sampling.count <= count
            indices = self.sampling.inside if every else self.sampling.draw(rng, count)
        else:
            indices = np.arange(size) if size <= count else rng.integers(size, size=count)
        return self.inputs.on_cpu()(indices, rng)

    def _recon(self, output: Tensor, target: Tensor) -> Tensor:
        found: Tensor = self.config.recon.plugin.per_image(output, target, self.config.recon.params).sum() / len(target)
        return found

    # rows

    def _reports(self) -> bool:
        return self.step % self.config.training.log_every == 0 or self.config.evaluates_at(self.step)

    def _row(self) -> dict[str, Any]:
        due = self.config.due(self.step)
        scores = self._scores(due) if due else {"metrics": {}}
        return {"step": self.step, **scores, "metrics": {**self._loss_row(self.sums.take()), **scores["metrics"]}}

    def _scores(self, due: Sequence[Scored]) -> dict[str, Any]:
        scores = evaluation.evaluated(self.config, self.trained_model(), due)
        return {"metrics": scores.numbers, **scores.row()}

    def scores_between(self) -> dict[str, Any] | None:
        """Scores at this step of every metric that its row does not have; None if it has all of them."""
        due = self.config.due(self.step)
        left = [scored for scored in self.config.metrics if scored not in due]
        return {"step": self.step, **self._scores(left)} if left else None

    def _loss_row(self, means: dict[str, float]) -> dict[str, float]:
        """Each loss in the trial's own scale, and in nats per image (`_sum`) so that both conventions can be
        compared."""
        pixels, latents = (prod(self.data.shape), self.model.latents) if self.config.loss_scale == "mean" else (1, 1)
        loss = self._objective(means["recon"], means["latent"])
        row = {"loss": loss, "recon": means["recon"] / pixels}
        parts = {name: means[name] for name in self.config.framework.plugin.parts}
        row |= {name: value / latents for name, value in parts.items()}
        row |= {"loss_sum": loss * pixels, "recon_sum": means["recon"]}
        row |= {f"{name}_sum": value for name, value in parts.items()}
        return row | {name: value for name, value in means.items() if name.startswith(WATCHED)}

    def trained_model(self) -> evaluation.Trained:
        """The current model, with everything needed to evaluate it; on mps a copy on the CPU, because evaluations need
        float64."""
        config, (framework, params, *_) = self.config, self.config.framework
        model, images, extra = self.model, self.inputs, self.extra
        if self.device.type == "mps":
            model, images = copy.deepcopy(model).cpu(), images.on_cpu()
            extra = copy.deepcopy(extra).cpu() if extra else None
        code, posterior = framework.code, framework.posterior
        return evaluation.Trained(
            model, images, config.recon, config.seed, sampling=self.sampling,
            prior=framework.prior(params, extra), to_normal=framework.to_normal(params),
            code=None if code is None else lambda q: code(q, params, extra),
            posterior=None if posterior is None else lambda x, factors: posterior(model, x, factors, params, extra),
            discrete=framework.discrete,
        )  # fmt: skip
