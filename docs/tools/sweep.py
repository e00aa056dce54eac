"""The reference of sweep and search-space files, from the classes that check them."""

import typing
from typing import Any

from pydantic import BaseModel
from tools.keys import sentence, table

from disentune.frameworks.priors import Prior
from disentune.maths.pairs import Pairs
from disentune.maths.ramps import Scheduled
from disentune.spec.config import EvaluationParams, TrainingParams, When
from disentune.spec.figures import FIGURES
from disentune.spec.pixels import Pixels
from disentune.spec.settings import SCHEDULERS, SEARCHES, Settings
from disentune.spec.sweepfile import Domain

TOP = """\
| key | what it does |
|---|---|
| `name` | name of the sweep and of its folder below `runs/`; default: the file's name |
| `question` | what the sweep asks, in one sentence; shown in the report |
| `trial` | keys that all arms share |
| `arms` | search spaces by name: product inside an arm, union across arms |
| `seeds` | a number of seeds (`3` means 0, 1, 2) or a list of them; every seed has the same points. Default: 1 |
| `needs` | [sweeps that must be finished first](../guides/sweeps.md#sweeps-that-need-other-sweeps), by name |
"""
NESTED = ("objective", "resources", "stop", "checkpoint", "retries", "data", "wandb", "pictures")
PLUGINS = (("model", "models"), ("framework", "frameworks"), ("recon", "reconstruction losses"))


def page() -> str:
    return "\n".join(
        [
            "# Sweep files\n",
            "Every key that a file in `sweeps/` may have. `schemas/sweep.schema.json` describes them for editors: put "
            "`# yaml-language-server: $schema=../schemas/sweep.schema.json` on its first line. How to write one: "
            "[Write a sweep](../guides/sweeps.md).\n",
            "## Top level\n",
            TOP,
            "The other top-level keys decide how the sweep runs. None of them changes a trial's numbers:\n",
            table(Settings, omit=["figures"]).rstrip(),
            "| `figures` | list | | [figures](#figures) of the report; default: those that suit the run |\n",
            *trial(),
            *settings(),
            *figures(),
        ]
    )


def trial() -> list[str]:
    """The sections of `trial` and of an arm."""
    return [
        "## trial and arms\n",
        "Keys of `trial`, of an arm and of a [search-space file](search_space.md) are written nested "
        "(`model: {latents: 9}`) or with dots (`model.latents: 9`). Each takes a value or a "
        "[domain](search_space.md#domains). An arm may also name search spaces: `search_space: [beta, latent_size]`.\n",
        "### dataset\n",
        "`name` and the parameters of a [data set](datasets.md), and for every data set:\n",
        table(Pixels),
        *(f"### {key}\n\n`name` and the parameters of one of the [{name}]({key}s.md).\n" for key, name in PLUGINS),
        "### training\n",
        f"{sentence(TrainingParams.__doc__)}\n",
        table(TrainingParams),
        "### evaluation\n",
        f"{sentence(EvaluationParams.__doc__)}\n",
        table(EvaluationParams),
        "A metric of the list may have, besides its [own parameters](metrics.md):\n",
        table(When),
        "### loss_scale\n",
        "`sum` (nats per image) or `mean` (means over pixels and latents); required. "
        "See [Loss scale](../concepts/loss_scale.md).\n",
        "### Schedules\n",
        "A number of a framework may be a mapping that says how it changes with the step: "
        "`framework.beta: {schedule: linear, initial: 0, final: 4, end: 10000}`.\n",
        *(one(kind, "schedule", "####") for kind in members(Scheduled.model_fields["value"].annotation)),
        "### Pairs\n",
        "How the partner of an image is drawn, for frameworks that train on pairs: "
        "`framework.pairs: {name: laplace, rate: 2}`.\n",
        *(one(kind, "name", "####") for kind in members(Pairs)),
        "### Priors\n",
        "Of `decomposition_vae`: `framework.prior: {name: student_t, nu: 9}`.\n",
        *(one(kind, "name", "####") for kind in members(Prior)),
    ]  # fmt: skip


def settings() -> list[str]:
    named = {"search": SEARCHES, "scheduler": SCHEDULERS}
    found = []
    for key, kinds in named.items():
        found.append(f"## {key}\n\nDecides {Settings.model_fields[key].description}.\n")
        found += [one(kind, "name") for kind in kinds.values()]
    for key in NESTED:
        params = next(kind for kind in members(Settings.model_fields[key].annotation))
        found += [f"## {key}\n", f"{sentence(params.__doc__)}\n", table(params)]
        if key == "stop":
            plateau = inner(params, "plateau")
            found += ["### stop.plateau\n", f"{sentence(plateau.__doc__)}\n", table(plateau)]
    return found


def figures() -> list[str]:
    lead = (
        "Figures of the report, in this order; default: those that suit the run. Each is a name "
        "or a mapping: `figures: [violins, {name: trend, x: dataset.spacing}]`. See the [gallery](../gallery.md).\n"
    )
    return ["## figures\n", lead, *(one(kind, "name") for kind in FIGURES.values())]


def one(params: type[BaseModel], tag: str, heading: str = "###") -> str:
    """One of several mappings that a key accepts, by its tag."""
    names = " / ".join(typing.get_args(params.model_fields[tag].annotation))
    return f"{heading} {names}\n\n{sentence(params.__doc__)}\n\n{table(params, omit=[tag])}"


def inner(params: type[BaseModel], key: str) -> type[BaseModel]:
    return next(iter(members(params.model_fields[key].annotation)))


def members(kind: Any) -> list[type[BaseModel]]:
    """The classes of a union, however it is wrapped."""
    if isinstance(kind, type):
        return [kind] if issubclass(kind, BaseModel) else []
    return [found for part in typing.get_args(kind) for found in members(part)]


def search_space() -> str:
    return "\n".join(
        [
            "# Search-space files\n",
            "A file in `search_spaces/` holds keys of `trial` with values or domains. An arm names it without "
            "its folder and ending: `search_space: beta`. Several are merged: `search_space: [beta, latent_size]`; "
            "what the arm sets itself comes last and wins.\n",
            "```yaml\n# search_spaces/beta.yaml\nframework.beta: {grid: [0.001, 0.01, 0.1, 1]}\n```\n",
            "The nearest `search_spaces/` folder counts, from the sweep file's folder upwards. The keys are those of "
            "[trial and arms](sweep.md#trial-and-arms).\n",
            "## Domains\n",
            f"{sentence(Domain.__doc__)}\n",
            table(Domain, omit=()),
        ]
    )
