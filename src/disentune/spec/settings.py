"""The settings of a sweep: how it searches, schedules, stops and checkpoints. They never change a trial's numbers."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from disentune.plugin import Count, Frozen
from disentune.spec.figures import Figure


def _plain_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", name):
        raise ValueError("must have at most 128 letters, digits, '_', '-' or '.', and begin with a letter or digit")
    return name


WandbName = Annotated[str, AfterValidator(_plain_name)]
WandbTag = Annotated[str, Field(min_length=1, max_length=64)]


class GridSearch(Frozen):
    """Every combination of the finite domains."""

    name: Literal["grid"] = "grid"


class RandomSearch(Frozen):
    """`points` draws per arm; every grid is crossed with each draw, and every seed uses the same draws."""

    name: Literal["random"]
    points: Count = Field(ge=1, description="draws per arm")
    seed: Count = Field(0, ge=0, description="seed of the draws; the seeds of trials do not depend on it")


class OptunaSearch(Frozen):
    """`points` suggestions per arm; a point's value is the mean of its seeds at the end of training, or at the step at
    which a scheduler stopped the point.

    Suggestion i uses the results of points up to i - in_flight only, so the same points are suggested
    whatever the load of the machine and however often the sweep is interrupted.
    """

    name: Literal["optuna"]
    points: Count = Field(ge=1, description="suggestions per arm")
    sampler: Literal["tpe", "random", "gp", "qmc", "nsgaii", "cmaes"] = Field("tpe", description="Optuna's sampler")
    in_flight: Count = Field(4, ge=1, description="points that run at the same time")
    seed: Count = Field(0, ge=0, description="seed of the sampler")


class NoScheduler(Frozen):
    """Every trial runs to its end."""

    name: Literal["none"] = "none"


class Asha(Frozen):
    """Successive halving (Li et al., MLSys 2020) in sweep order: at steps grace, grace x reduction, ... a point
    continues if the mean of its seeds is in the best 1/reduction of the points before it in its arm and itself."""

    name: Literal["asha"]
    grace: Count = Field(ge=1, description="steps before the first cut")
    reduction: float = Field(3, ge=1.1, description="one in this many trials of a rung continues")


class Median(Frozen):
    """Stops a point if its best value (a mean over its seeds) is worse than the median of the running means of the
    earlier points in its arm (Golovin et al., KDD 2017)."""

    name: Literal["median"]
    grace: Count = Field(ge=1, description="steps before the first cut")
    min_trials: Count = Field(3, ge=1, description="points needed for comparison before any is stopped")


def may_change(key: str) -> bool:
    """During training."""
    return key.startswith(("framework.", "recon.")) or key == "training.learning_rate"


class Pbt(Frozen):
    """Population based training (Jaderberg et al. 2017), synchronous: every `every` steps the worst `quantile` copies
    weights and values of the best and perturbs the values of `keys`: x 0.8 or x 1.2 in a range, by at least one among
    whole numbers, to a neighbouring value of a grid or choice (at its end to the one inside)."""

    name: Literal["pbt"]
    every: Count = Field(ge=1, description="steps between perturbations")
    keys: list[str] = Field(min_length=1, description="dotted keys that may change during training")
    quantile: float = Field(0.25, gt=0, le=0.5, description="share of the population that is replaced")
    resample: float = Field(0.25, ge=0, le=1, description="probability of drawing a new value instead of perturbing")
    seed: Count = Field(0, ge=0, description="seed of the perturbations")

    @field_validator("keys")
    @classmethod
    def _can_change(cls, keys: list[str]) -> list[str]:
        for key in keys:
            if not may_change(key):
                raise ValueError(f"'{key}' cannot change during training; framework.*, recon.* and "
                                 "training.learning_rate can")  # fmt: skip
        return keys


class Objective(Frozen):
    """The number by which trials are ranked, searched and stopped."""

    metric: str = Field(description="a key of the rows, such as mig, dci_disentanglement or loss")
    mode: Literal["max", "min"] = Field(description="whether large or small values are better")
    at: Literal["last", "best"] = Field("last", description="the last value of a trial, or its best one")


class Resources(Frozen):
    """What one trial occupies. A fraction of a GPU also limits the GPU memory that the trial may use."""

    cpu: float = Field(1, gt=0, description="CPU cores")
    gpu: float = Field(0, ge=0, description="GPUs, or a fraction of one; 0.25 puts four trials on a GPU")
    concurrent: Count | None = Field(None, ge=1, description="trials that run at a time; null: as many as fit")

    @field_validator("gpu")
    @classmethod
    def _whole_or_fraction(cls, gpu: float) -> float:
        if gpu > 1 and gpu != int(gpu):
            raise ValueError(f"must be a fraction of one GPU or a whole number of GPUs, got {gpu}")
        return gpu


class Plateau(Frozen):
    """Ends a trial when the objective has not improved by `min_delta` for `evaluations` evaluations."""

    evaluations: Count = Field(ge=1, description="evaluations without improvement after which a trial ends")
    min_delta: float = Field(0, ge=0, description="smallest change that counts as an improvement")


class Stop(Frozen):
    """When to end early. A trial ended by `steps` continues when the number is raised and the sweep is run again."""

    steps: Count | None = Field(None, ge=1, description="last step of every trial; null: training.steps")
    wall_time_s: float | None = Field(
        None, gt=0, description="time limit of one session; unfinished trials can be resumed"
    )
    plateau: Plateau | None = Field(None, description="ends trials whose objective no longer improves")
    divergence: float = Field(1e20, gt=0, description="a loss above this, NaN or infinite ends the trial as diverged")


class Checkpoint(Frozen):
    """When a trial saves its state, from which it is resumed."""

    every_s: float = Field(60, gt=0, description="seconds between checkpoints")
    every_steps: Count | None = Field(None, ge=1, description="steps between checkpoints, in addition")
    keep: Count = Field(2, ge=1, description="newest checkpoints kept while a trial trains, in addition to the best")
    finished: Literal["weights", "all"] = Field(
        "weights", description="what the best and last checkpoints of a finished trial keep: weights, or all state"
    )


Cause = Literal["error", "memory", "lost", "node", "preempted", "hang", "storage"]
"""What can go wrong with a trial. Nodes that die or are pre-empted, and failing storage, are never the trial's fault
and use up none of its retries."""


class Retries(Frozen):
    """How often a trial continues from its last checkpoint after a failure, by cause. Nodes that die or are pre-empted
    and failing storage never count. A resumed sweep keeps counting; `--retry-failed` starts again from 0."""

    error: Count = Field(0, ge=0, description="an exception in the trial's own code")
    memory: Count = Field(1, ge=0, description="out of memory, on GPU or host; the trial then gets a whole GPU")
    lost: Count = Field(
        3, ge=0, description="consecutive losses of its worker, without a new checkpoint, on a live node"
    )
    hang: Count = Field(1, ge=0, description="no training step finished for `hang_after_s`")
    hang_after_s: float = Field(1800, gt=0, le=1e9, description="seconds; must be longer than the longest evaluation")

    def allow(self, cause: Cause, times: int) -> bool:
        """Whether a trial continues after it has failed this many times for this cause."""
        return cause in ("node", "preempted", "storage") or times <= getattr(self, cause)


class Data(Frozen):
    """Where prepared data sets are stored and where their images are held; neither changes a trial's numbers."""

    root: str | None = Field(
        None, description="folder on every node; DISENTUNE_DATA in a node's environment overrides it"
    )
    on_device: bool = Field(False, description="keep all images in GPU memory if they fit in half of what is free")

    @field_validator("root")
    @classmethod
    def _absolute(cls, root: str | None) -> str | None:
        if root is not None and (not root.startswith(("/", "~")) or "\0" in root):
            raise ValueError(f"must be a path that starts with / or ~, the same on every node, got {root!r}")
        return root


class Wandb(Frozen):
    """Where rows are streamed to; it does not affect a trial's numbers or speed. The API key is never read from a sweep
    file: set WANDB_API_KEY, or run `wandb login`."""

    project: WandbName | None = Field(None, description="default: the name of the sweep")
    entity: WandbName | None = Field(None, description="user or team; default: the owner of the API key")
    group: str | None = Field(None, min_length=1, max_length=128, description="default: sweep/run")
    tags: list[WandbTag] = Field(default_factory=list, max_length=100, description="tags of every W&B run")
    mode: Literal["auto", "online", "offline", "disabled"] = Field(
        "auto", description="auto: online when a key is configured, else offline"
    )
    system: bool = Field(
        False, description="record what each trial's worker uses: CPU, memory and GPU memory, at every row"
    )
    best_checkpoint: bool = Field(False, description="upload the best trial's checkpoint as an artifact at the end")


class PictureSettings(Frozen):
    """When a trial draws reconstructions, latent traversals and distances, for W&B and the report."""

    when: Literal["evaluations", "last", "never"] = Field(
        "evaluations", description="at every evaluation, only at the end of training, or not at all"
    )
    order: Literal["kl", "variance"] = Field(
        "kl", description="latents with the largest KL first, or with the smallest mean posterior variance (Zietlow)"
    )
    plane: bool = Field(
        False, description="also vary the first two latents together (Zietlow Figs. 10 and 11); for the figure `planes`"
    )


Search = Annotated[GridSearch | RandomSearch | OptunaSearch, Field(discriminator="name")]
Scheduler = Annotated[NoScheduler | Asha | Median | Pbt, Field(discriminator="name")]
SEARCHES = {"grid": GridSearch, "random": RandomSearch, "optuna": OptunaSearch}
SCHEDULERS = {"none": NoScheduler, "asha": Asha, "median": Median, "pbt": Pbt}


class Settings(Frozen):
    """Everything in a sweep that decides how it runs, without changing a trial's numbers."""

    search: Search = Field(GridSearch(), description="which points of the search space become trials")
    scheduler: Scheduler = Field(NoScheduler(), description="which trials are stopped early")
    objective: Objective | None = Field(None, description="the number by which trials are ranked and searched")
    resources: Resources = Field(Resources(), description="what one trial occupies")
    stop: Stop = Field(Stop(), description="when a trial or a session ends early")
    checkpoint: Checkpoint = Field(Checkpoint(), description="when a trial saves its state")
    retries: Retries = Field(Retries(), description="how often a trial continues after a failure")
    data: Data = Field(Data(), description="where prepared data sets are kept")
    wandb: Wandb | None = Field(None, description="streams rows and pictures to Weights & Biases")
    pictures: PictureSettings = Field(PictureSettings(), description="when reconstructions and traversals are drawn")
    figures: list[Figure] | None = Field(None, description="figures of the report; default: chosen from the sweep")
