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
    from disentune.files.remembered import remembered

    if kind is not None and kind not in KINDS:
        raise ConfigError(unknown("kind of plug-in", kind, KINDS))
    every = remembered("list", "", _every)  # else every plug-in would be loaded, which takes seconds
    shown = {key: every[key] for key in KINDS if kind in (None, key)}
    if as_json:
        print_json({key: {name: lines[0] for name, lines in plugins.items()} for key, plugins in shown.items()})
        return
    for title, plugins in shown.items():
        names = plugins if title == "figures" else sorted(plugins)
        _show(title, {name: plugins[name][1:] for name in names})
    if kind == "metrics":
        out.print("udr and udr_spearman compare the trials of a run: disentune score RUN", markup=False)


def _show(title: str, described: dict[str, list[str]]) -> None:
    """Each name with the first of its lines."""
    out.print(f"[bold]{title}[/]")
    width = max(map(len, described))
    for name, lines in described.items():
        for number, line in enumerate(lines):
            out.print(f"  {'' if number else name:<{width}}  {line}", markup=False)


KINDS = ("datasets", "models", "recons", "frameworks", "metrics", "figures")


def _every() -> dict[str, dict[str, list[str]]]:
    """The summary of each plug-in and figure and the lines that describe it, by kind and name."""
    from disentune.metrics import METRICS
    from disentune.spec.config import PLUGIN_SECTIONS

    catalogues = {f"{section}s": catalogue for section, catalogue in PLUGIN_SECTIONS.items()} | {"metrics": METRICS}
    found = {key: {one.name: _described(one) for one in catalogue} for key, catalogue in catalogues.items()}
    return found | {"figures": {name: [text, text] for name, text in _figures().items()}}


def _described(plugin: Plugin) -> list[str]:
    from disentune.plugin import summary

    line = summary(plugin)
    return [line, *(text for text in (*_line_and_paper(line), _parameters(plugin)) if text)]


def _figures() -> dict[str, str]:
    """The figures that a sweep can name, with the keys of each."""
    from disentune.spec.figures import FIGURES

    keys = {name: ", ".join(key for key in kind.model_fields if key != "name") for name, kind in FIGURES.items()}
    return {name: f"{' '.join((kind.__doc__ or '').split())} ({keys[name]})" for name, kind in FIGURES.items()}


def _line_and_paper(summary: str) -> list[str]:
    """`Title: line` and the paper of `Title: paper: line`; any other summary as a whole."""
    parts = summary.split(": ", 2)
    return [f"{parts[0]}: {parts[2]}", parts[1]] if len(parts) == 3 else [summary]


def _parameters(plugin: Plugin) -> str:
    fields = plugin.params.model_fields.items()
    return ", ".join(f"{name} (required)" if f.is_required() else f"{name}={_yaml(f.default)}" for name, f in fields)


def _yaml(default: object) -> object:
    """The value as written in a sweep file; a named choice is shown by its name only."""
    if default is None or isinstance(default, bool):
        return {None: "null", True: "true", False: "false"}[default]
    return getattr(default, "name", default)
