"""`disentune list`: every plug-in and figure that a sweep file can name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from disentune.cli.options import AsJson
from disentune.cli.terminal import out, print_json
from disentune.errors import ConfigError

if TYPE_CHECKING:
    from disentune.plugin import Dataset, Framework, Metric, Model, Recon

    Plugin = Dataset | Framework | Metric | Model | Recon


def list_(
    kind: Annotated[
        str | None, typer.Argument(help="frameworks, models, recons, datasets, metrics or figures.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Lists everything that a sweep file can name.

    Examples: disentune list; disentune list frameworks
    """
    from disentune.errors import unknown
    from disentune.metrics import METRICS
    from disentune.plugin import summary
    from disentune.spec.config import PLUGIN_SECTIONS

    catalogues = {f"{section}s": catalogue for section, catalogue in PLUGIN_SECTIONS.items()} | {"metrics": METRICS}
    if kind is not None and kind not in (*catalogues, "figures"):
        raise ConfigError(unknown("kind of plug-in", kind, [*catalogues, "figures"]))
    shown = {key: catalogue for key, catalogue in catalogues.items() if kind in (None, key)}
    listing = {key: {plugin.name: summary(plugin) for plugin in catalogue} for key, catalogue in shown.items()}
    if kind in (None, "figures"):
        listing["figures"] = _figures()
    if as_json:
        print_json(listing)
        return
    for title, catalogue in shown.items():
        _show(title, {plugin.name: _described(plugin) for plugin in sorted(catalogue, key=lambda plugin: plugin.name)})
    if "figures" in listing:
        _show("figures", {name: [text] for name, text in listing["figures"].items()})
    if kind == "metrics":
        out.print("udr and udr_spearman compare the trials of a run: disentune score RUN", markup=False)


def _show(title: str, described: dict[str, list[str]]) -> None:
    """Each name with the first of its lines."""
    out.print(f"[bold]{title}[/]")
    width = max(map(len, described))
    for name, lines in described.items():
        for number, line in enumerate(lines):
            out.print(f"  {'' if number else name:<{width}}  {line}", markup=False)


def _described(plugin: Plugin) -> list[str]:
    from disentune.plugin import summary

    return [line for line in (*_line_and_paper(summary(plugin)), _parameters(plugin)) if line]


def _figures() -> dict[str, str]:
    """The figures that a sweep can name, with the keys of each."""
    from disentune.spec.figures import FIGURES

    keys = {name: ", ".join(key for key in kind.model_fields if key != "name") for name, kind in FIGURES.items()}
    return {name: f"{' '.join((kind.__doc__ or '').split())} ({keys[name]})" for name, kind in FIGURES.items()}


def _line_and_paper(summary: str) -> list[str]:
    """The parts of `Title: paper: line`, the line first; any other summary as a whole."""
    parts = summary.split(": ", 2)
    return [parts[2], parts[1]] if len(parts) == 3 else [summary]


def _parameters(plugin: Plugin) -> str:
    fields = plugin.params.model_fields.items()
    return ", ".join(f"{name} (required)" if f.is_required() else f"{name}={_yaml(f.default)}" for name, f in fields)


def _yaml(default: object) -> object:
    """The value as written in a sweep file; a named choice is shown by its name only."""
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    return getattr(default, "name", default)
