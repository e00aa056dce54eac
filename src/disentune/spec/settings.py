"""The settings of a sweep: how it searches, schedules, stops and checkpoints; never what a trial's numbers are."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, field_validator

from disentune.plugin import Count, Frozen
from disentune.spec.figures import Figure


def _plain_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}", name):
        raise ValueError("must have letters, digits, '_', '-' or '.', at most 128, and begin with a letter or digit")
    return name


WandbName = Annotated[str, AfterValidator(_plain_name)]
WandbTag = Annotated[str, Field(min_length=1, max_length=64)]


class GridSearch(Frozen):
    """Every combination of the finite domains."""

    name: Literal["grid"] = "grid"


class RandomSearch(Frozen):
    """`points` draws an arm; every grid is crossed with each draw, every seed sees the same draws."""

    name: Literal["random"]
    points: Count = Field(ge=1)
    seed: Count = Field(0, ge=0)


class OptunaSearch(Frozen):
    """`points` suggestions per arm; a point's value is the mean of its seeds at the end of training, or at the step at
    which a scheduler stopped the point.

    Suggestion i knows the results of the points up to i - in_flight and no others, so that the same points are
    suggested whatever the machine's load and however often the sweep is interrupted.
    """

    name: Literal["optuna"]
    points: Count = Field(ge=1)
    sampler: Literal["tpe", "random", "gp", "qmc", "nsgaii", "cmaes"] = "tpe"
    in_flight: Count = Field(4, ge=1, description="points that run at the same time")
    seed: Count = Field(0, ge=0)


class NoScheduler(Frozen):
    """Every trial runs to its end."""

    name: Literal["none"] = "none"


class Asha(Frozen):
    """Successive halving (Li et al., MLSys 2020) in sweep order: at steps grace, grace x reduction, ... a point
    continues if the mean of its seeds is in the best 1/reduction of the points before it in its arm and itself."""

    name: Literal["asha"]
    grace: Count = Field(ge=1, description="steps before the first cut")
    reduction: float = Field(3, ge=1.1, description="of each rung, one trial in so many continues")


class Median(Frozen):
    """Stops a point whose best value, a mean over its seeds, is worse than the median of the running means of the
    points before it in its arm (Golovin et al., KDD 2017)."""

    name: Literal["median"]
    grace: Count = Field(ge=1, description="steps before the first cut")
    min_trials: Count = Field(3, ge=1, description="points to compare with before any is cut")


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
    quantile: float = Field(0.25, gt=0, le=0.5)
    resample: float = Field(0.25, ge=0, le=1, description="chance to draw anew instead of moving a step")
    seed: Count = Field(0, ge=0)

    @field_validator("keys")
    @classmethod
    def _can_change(cls, keys: list[str]) -> list[str]:
        for key in keys:
            if not may_change(key):
                raise ValueError(f"'{key}' cannot change during training; framework.*, recon.* and "
                                 "training.learning_rate can")  # fmt: skip
        return keys


class Objective(Frozen):
    metric: str
    mode: Literal["max", "min"]
    at: Literal["last", "best"] = "last"


class Resources(Frozen):
    """What one trial holds. A fraction of a GPU also caps the memory that the trial may take."""

    cpu: float = Field(1, gt=0)
    gpu: float = Field(0, ge=0)
    concurrent: Count | None = Field(None, ge=1, description="trials at a time; none: as many as fit")

    @field_validator("gpu")
    @classmethod
    def _whole_or_fraction(cls, gpu: float) -> float:
        if gpu > 1 and gpu != int(gpu):
            raise ValueError(f"must be a fraction of one GPU or a whole number of GPUs, got {gpu}")
        return gpu


class Plateau(Frozen):
    """Ends a trial when the objective has not improved by `min_delta` for `evaluations` evaluations."""

    evaluations: Count = Field(ge=1)
    min_delta: float = Field(0, ge=0)


class Stop(Frozen):
    """When to end early. A trial ended by `steps` goes on when the number is raised and the sweep is run again."""

    steps: Count | None = Field(None, ge=1)
    wall_time_s: float | None = Field(None, gt=0, description="for one session; what is unfinished can be resumed")
    plateau: Plateau | None = None
    divergence: float = Field(1e20, gt=0, description="a loss above this, NaN or infinite ends the trial as diverged")


class Checkpoint(Frozen):
    every_s: float = Field(60, gt=0)
    every_steps: Count | None = Field(None, ge=1)
    keep: Count = Field(2, ge=1, description="newest ones kept, beside the best")


Cause = Literal["error", "memory", "lost", "node", "preempted", "hang", "storage"]
"""What can go wrong with a trial. A node that dies or is taken away, and storage that fails, are never the trial's
fault: they use up none of its retries."""


class Retries(Frozen):
    """How often a trial goes on from its last checkpoint after something went wrong, by cause. A node that dies or is
    pre-empted and storage that fails never count; a resumed sweep goes on counting, `--retry-failed` begins anew."""

    error: Count = Field(0, ge=0, description="an exception of the trial's own code")
    memory: Count = Field(1, ge=0, description="out of memory, GPU or host; goes on alone on a whole GPU")
    lost: Count = Field(3, ge=0, description="its worker vanished, in a row without a new checkpoint; its node lives")
    hang: Count = Field(1, ge=0, description="no training step was finished for `hang_after_s`")
    hang_after_s: float = Field(1800, gt=0, le=1e9, description="must be longer than the longest evaluation")

    def allow(self, cause: Cause, times: int) -> bool:
        """Whether a trial goes on after a cause has met it so many times."""
        return cause in ("node", "preempted", "storage") or times <= getattr(self, cause)


class Data(Frozen):
    """Where prepared data sets live, and where their images are kept; neither changes a trial's numbers."""

    root: str | None = Field(None, description="folder on every node; DISENTUNE_DATA of a node's environment wins")
    on_device: bool = Field(False, description="all images in the GPU's memory, when they fit in half of what is free")

    @field_validator("root")
    @classmethod
    def _absolute(cls, root: str | None) -> str | None:
        if root is not None and (not root.startswith(("/", "~")) or "\0" in root):
            raise ValueError(f"must be a path from / or ~, the same on every node, got {root!r}")
        return root


class Wandb(Frozen):
    """Where the rows are streamed to; a trial's numbers and speed do not depend on it. The key is never in a file of
    ours: WANDB_API_KEY or a netrc entry, as `wandb login` makes it."""

    project: WandbName | None = Field(None, description="the sweep's name when not given")
    entity: WandbName | None = Field(None, description="user or team; the key's own when not given")
    group: str | None = Field(None, min_length=1, max_length=128, description="sweep/run when not given")
    tags: list[WandbTag] = Field(default_factory=list, max_length=100)
    mode: Literal["auto", "online", "offline", "disabled"] = Field(
        "auto", description="auto: online when a key is configured, else offline"
    )
    best_checkpoint: bool = Field(False, description="the best trial's checkpoint as an artifact, at the end")


class PictureSettings(Frozen):
    """When a trial draws what its model sees (reconstructions, latent traversals, distances), for W&B and the page."""

    when: Literal["evaluations", "last", "never"] = "evaluations"


Search = Annotated[GridSearch | RandomSearch | OptunaSearch, Field(discriminator="name")]
Scheduler = Annotated[NoScheduler | Asha | Median | Pbt, Field(discriminator="name")]
SEARCHES = {"grid": GridSearch, "random": RandomSearch, "optuna": OptunaSearch}
SCHEDULERS = {"none": NoScheduler, "asha": Asha, "median": Median, "pbt": Pbt}


class Settings(Frozen):
    """Everything in a sweep that decides how it runs, not what a trial's numbers are."""

    search: Search = GridSearch()
    scheduler: Scheduler = NoScheduler()
    objective: Objective | None = None
    resources: Resources = Resources()
    stop: Stop = Stop()
    checkpoint: Checkpoint = Checkpoint()
    retries: Retries = Retries()
    data: Data = Data()
    wandb: Wandb | None = None
    pictures: PictureSettings = PictureSettings()
    figures: list[Figure] | None = Field(None, description="of the report; sensible ones when not given")
