"""The reference of plug-ins: one page per kind, from the records and the docstrings of their files."""

import importlib
from collections.abc import Callable
from typing import Any

from tools.keys import escaped, sentence, table

from disentune.data import DATASETS
from disentune.frameworks import FRAMEWORKS
from disentune.metrics import METRICS
from disentune.models import MODELS
from disentune.plugin import Catalogue, Dataset, Framework, Metric, Model, Recon, summary
from disentune.recon import RECONS


def page(title: str, lead: str, catalogue: Catalogue, facts: Callable[[Any], list[str]]) -> str:
    plugins = sorted(catalogue, key=lambda plugin: plugin.name)
    overview = [f"| [`{plugin.name}`](#{plugin.name}) | {paper(plugin)} | {line(plugin)} |" for plugin in plugins]
    sections = [section(plugin, facts(plugin)) for plugin in plugins]
    head = [f"# {title}\n", f"{lead}\n", "| name | paper | in one line |", "|---|---|---|", *overview, ""]
    return "\n".join([*head, *sections])


def section(plugin: Any, facts: list[str]) -> str:
    described = [text for text in (rest(plugin), sentence(own_docstring(plugin.params))) if text]
    if not plugin.params.model_fields:
        described = [text for text in described if "othing to choose" not in text]
    listed = [f"- {fact}" for fact in facts]
    return "\n\n".join(
        [f"## {plugin.name}", lead(plugin), *described, "\n".join(listed)]
    ).rstrip() + "\n\n" + table(plugin.params)  # fmt: skip


def parts(plugin: Any) -> list[str]:
    """Title, paper and line of a summary such as `MIG: Chen et al., NeurIPS 2018, Eq. 6: ...`."""
    found = summary(plugin).split(": ", 2)
    return found if len(found) == 3 else [found[0], "", ": ".join(found[1:]) or found[0]]


def lead(plugin: Any) -> str:
    title, source, text = parts(plugin)
    if title == text:
        return escaped(text)
    return (
        f"**{title}.** {source[0].upper()}{source[1:]}: {escaped(text)}" if source else f"**{title}**: {escaped(text)}"
    )


def paper(plugin: Any) -> str:
    return parts(plugin)[1]


def line(plugin: Any) -> str:
    return escaped(parts(plugin)[2]).replace("|", "\\|")


def module(plugin: Any) -> Any:
    function = next(
        getattr(plugin, name) for name in ("loss", "per_image", "score", "build", "open") if hasattr(plugin, name)
    )
    return importlib.import_module(function.__module__)


def rest(plugin: Any) -> str:
    """The docstring of its file after the first line."""
    return sentence((module(plugin).__doc__ or "").partition("\n")[2].strip())


def own_docstring(params: type) -> str:
    inherited = params.__mro__[1].__doc__
    return params.__doc__ or "" if params.__doc__ != inherited else ""


def code(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


# ---- what each kind has besides its parameters


def of_framework(framework: Framework) -> list[str]:
    formula = sentence(framework.loss.__doc__).rstrip(".")
    facts = [f"Minimises: {formula}."] if formula else []
    losses = ["loss", "recon", *framework.parts]
    facts.append(f"Writes: {code(losses)}, each also in nats per image as `<name>_sum`")
    if framework.watch:
        facts[-1] += f"; {code(f'watch_{name}' for name in framework.watch)}"
    facts[-1] += "."
    if hasattr(framework.params, "pairs") or "pairs" in framework.params.model_fields:
        facts.append("Draws pairs of images.")
    if framework.helper:
        facts.append("Trains a second network with its own optimiser.")
    return facts


def of_metric(metric: Metric) -> list[str]:
    facts = [f"Writes: {code(metric.keys)}{f'; arrays {code(metric.details)}' if metric.details else ''}."]
    facts.append(f"{'Larger' if metric.best == 'max' else 'Smaller'} is better.")
    if metric.needs:
        facts.append(f"Needs besides codes: {', '.join(metric.needs)}.")
    fast = ", ".join(f"`{key}: {value}`" for key, value in metric.fast.items())
    facts.append(f"Fast size: {fast}." if fast else "Fast size: the same.")
    facts.append(f"Scores by default: {' and '.join(metric.representations)} codes.")
    return facts


def of_dataset(dataset: Dataset) -> list[str]:
    if any(field.is_required() for field in dataset.params.model_fields.values()):
        return []
    params = dataset.params()
    sizes, shape = dataset.factor_sizes(params), dataset.shape(params)
    count = f"{dataset.population(params):,} {'points' if dataset.points else 'images'}"
    factors = f"factor sizes {' × '.join(map(str, sizes))}" if sizes else "no known factors"
    facts = [f"{count}, {factors}, shape {' × '.join(map(str, shape))} by default."]
    files = [file.name for source in dataset.sources(params) for file in source.files]
    facts.append(
        f"Made from {code(files)}: `disentune data prepare {dataset.name}`." if files else "Drawn; no download."
    )
    return facts


def of_model(model: Model) -> list[str]:
    return []


def of_recon(recon: Recon) -> list[str]:
    formula = sentence(recon.per_image.__doc__)
    return [f"Computes: {formula}"] if formula else []


PAGES = {
    "frameworks": (
        "Frameworks",
        "What a trial minimises: `framework: {name: beta_vae, beta: 4}`. Every `number` below can also follow a "
        "[schedule](sweep.md#schedules). Losses are written in nats per image; "
        "[`loss_scale`](../concepts/loss_scale.md) is applied once, by the training loop. Each framework is checked "
        "against its equation by an independent computation. Where the code behind a paper differs from the paper, "
        "both can be run: `averaging: as_published`, `directions: as_published`, `anti_windup: released`.",
        FRAMEWORKS,
        of_framework,
    ),
    "metrics": (
        "Metrics",
        "What scores a trained encoder: `evaluation: {metrics: [mig, {name: dci, every: end}]}`. What the numbers "
        "mean, and where they differ from published code: [Metrics in practice](../concepts/metrics.md).",
        METRICS,
        of_metric,
    ),
    "datasets": (
        "Data sets",
        "What a trial is trained on: `dataset: {name: xysquares, spacing: 4}`. Every data set also accepts "
        "[the keys for pixels](sweep.md#dataset). How to prepare one: [Data sets](../guides/data.md).",
        DATASETS,
        of_dataset,
    ),
    "models": ("Models", "Encoder and decoder: `model: {name: conv64, latents: 9}`.", MODELS, of_model),
    "recons": (
        "Reconstruction losses",
        "The pixel-wise part of the loss: `recon: {name: mse}`. It also defines the "
        "[perceived distance](../guides/inspect.md) between two images.",
        RECONS,
        of_recon,
    ),
}  # fmt: skip


def pages() -> dict[str, str]:
    return {f"reference/{name}.md": page(*described) for name, described in PAGES.items()}
