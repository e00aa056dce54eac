"""disentune inspect: perceived distances before any training, or the distances that a trained model has learnt."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from disentune.cli.options import AsJson
from disentune.cli.terminal import out, print_json, progress_bar
from disentune.errors import ConfigError
from disentune.files.storage import shown

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from matplotlib.figure import Figure

    from disentune.learn.image_distances import Along, Look
    from disentune.results.inspection import Seen
    from disentune.results.rescore import Rebuilt

MOST_DETAILED = 3
"""Up to this many worlds, every factor is listed even without --factors."""
MOST_LINES = 1_000_000
LEARNT_LINES = 100
"""Lines along each factor of a trained model, as in the paper."""

HELP = """Measures, before any training, how well a reconstruction loss orders the factors of a data set.

For each world (a data set with a reconstruction loss) of a sweep, it measures how far apart
images are under the loss if they differ in one factor, and how well this agrees with the
factor's values (Michlo et al. 2023). The order ranks these worlds before you train on them; it
is not a verdict. On 25 worlds not used to define it, its rank correlation (Spearman) with
the MIG of trained models was 0.60 (95 % interval 0.25 to 0.85; an independent review).

\b
order      (r - r0) / (1 - r0). r: Pearson correlation of perceived distances with the
           steps between values, over the pairs of all lines pooled, including an image
           with itself; r0: r if all distances are equal. 1 only if distances are in
           the same proportion to the steps on every line; lines of different scale give
           less. For a world: the mean over factors, where negative counts as 0
line order the same number for each line separately, averaged over lines
grade      of the order: high from 0.6, low below 0.25, else middle
pearson, spearman   of perceived with ground-truth distances, as published: pairs
           of an image with itself count
distance   mean and standard deviation over pairs of two images, averaged over pixels

Writes distances (Figs. 3, 8), traversals (Figs. 2, 5) and distributions (Fig. A1) as PNG
and SVG; with --json only if --output is given. For a trained trial: distances at
each level of the model (Figs. 4, 10). A law of sampling (dataset.law, dataset.held_out) does
not change distances; it is described and drawn (law).

With --learn-kernel, finds the kernel of the overlap loss that orders the factors best, without
training a model, and writes it as a search space: recon.kernel: learned and its taps.

\b
Examples:
disentune inspect sweeps/quickstart.yaml
disentune inspect sweeps/small/blur_search.yaml --rank
disentune inspect --dataset xysquares --set spacing=4 --set grid_size=8 --recon overlap
disentune inspect --dataset shapes3d --recon mse --exact --json
disentune inspect --dataset xysquares --set spacing=4 --recon overlap --learn-kernel search_spaces/kernel.yaml
disentune inspect runs/quickstart/main/trials/0123456789abcdef
"""


def inspect(
    what: Annotated[
        str | None,
        typer.Argument(metavar="[SWEEP|TRIAL]", help="A sweep file, or a trained trial: runs/x/main/trials/ID."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="A data set, instead of a sweep.")] = None,
    recon: Annotated[str | None, typer.Option(help="The reconstruction loss; default: mse.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Change a key: spacing=4, recon.radius=31; for a sweep, as in run. May be repeated."
        ),
    ] = None,
    lines: Annotated[
        int | None, typer.Option(min=1, max=MOST_LINES, help="Random lines along each factor; default: 64.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Use every line instead of random ones.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random lines and images.")] = 0,
    rank: Annotated[bool, typer.Option("--rank", help="Sort by order, highest first.")] = False,
    factors: Annotated[
        bool, typer.Option("--factors", help="List every factor even if there are many data sets and losses.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Folder for the figures; default: inspect/NAME.")
    ] = None,
    learn_kernel: Annotated[
        Path | None,
        typer.Option(help="Learn the kernel of the overlap loss, and write it to this file as a search space."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Registered with HELP."""
    _refuse_conflicts(what, dataset, recon, lines, exact)
    if learn_kernel is not None:
        _refuse_to_learn(learn_kernel, what, exact)
        seen = _worlds(None, dataset, recon or "overlap", set_ or [])[0][0]
        _learn_kernel(learn_kernel, seen, lines, seed, as_json)
        return
    if what is not None and _is_trial(what):
        if set_:
            raise ConfigError(f"--set {set_[0]}: a trained trial cannot be changed")
        _inspect_trial(what, None if exact else lines or LEARNT_LINES, seed, output, as_json)
        return
    from disentune.learn.image_distances import LINES

    worlds, name = _worlds(what, dataset, recon or "mse", set_ or [])
    looks = _looks(worlds, None if exact else lines or LINES, seed)
    if rank:
        worlds, looks = _ranked(worlds, looks)
    folder = output or (None if as_json else Path("inspect") / name)
    files = _draw(folder, worlds, looks, seed) if folder else []
    if as_json:
        _print_json(what, name, worlds, looks)
        return
    _show(worlds, looks, factors or len(worlds) <= MOST_DETAILED)
    _show_files(files)


def _refuse_conflicts(what: str | None, dataset: str | None, recon: str | None, lines: int | None, exact: bool) -> None:
    if (what is None) == (dataset is None):
        raise ConfigError("give a sweep file, a trial's folder, or a data set: --dataset xysquares --recon mse")
    if exact and lines is not None:
        raise ConfigError(f"--lines {lines}: cannot be combined with --exact, which uses all lines")
    if what is not None and recon is not None:
        raise ConfigError(f"--recon {recon}: only with --dataset; change the loss of a sweep with --set recon.name=...")


def _ranked(worlds: list[Seen], looks: list[Look]) -> tuple[list[Seen], list[Look]]:
    """Highest order first."""
    ranked = sorted(zip(worlds, looks, strict=True), key=lambda both: -(both[1].order or 0.0))
    return [seen for seen, _ in ranked], [look for _, look in ranked]


def _show_files(files: list[Path]) -> None:
    for file in files:
        out.print(f"figure: {shown(file)}", markup=False)


def _is_trial(what: str) -> bool:
    from disentune.runs.ledger import is_trial

    return is_trial(Path(what))


# ---- worlds


def _worlds(what: str | None, dataset: str | None, recon: str, sets: list[str]) -> tuple[list[Seen], str]:
    """The data sets and losses to measure, and a name for them. Raises ConfigError if data is not prepared."""
    from disentune.data.prepared.store import use_root
    from disentune.results import inspection
    from disentune.spec import space

    if dataset is not None:
        worlds, root, name = [inspection.world_asked(dataset, recon, sets)], None, f"{dataset}-{recon}"
    else:
        asked = space.read(Path(str(what)), sets)
        worlds, root, name = inspection.worlds_of(asked), asked.sweep.settings.data.root, asked.sweep.name
    name = "".join(sign if sign.isalnum() or sign in "_-." else "-" for sign in name)
    use_root(root)
    if missing := inspection.missing_data(worlds, root):
        commands = "; ".join(missing.values())
        raise ConfigError(f"not prepared here: {', '.join(missing)}; prepare with: {commands}")
    if len(worlds) > inspection.MOST_WORLDS:
        out.print(
            f"note: showing the first {inspection.MOST_WORLDS} of {len(worlds)} data sets and losses", markup=False
        )
    return worlds[: inspection.MOST_WORLDS], name


def _looks(worlds: list[Seen], lines: int | None, seed: int) -> list[Look]:
    from disentune.learn import image_distances, process

    process.prepare(1, "cpu")
    found = []
    with progress_bar() as say:
        for number, seen in enumerate(worlds):
            say("measuring data sets and losses", number, len(worlds))
            world = image_distances.opened(seen.config)
            found.append(image_distances.look(world, lines, seed, say))
    return found


def _draw(folder: Path, worlds: list[Seen], looks: list[Look], seed: int) -> list[Path]:
    from disentune.learn.image_distances import opened
    from disentune.report import canvas, distances

    titled = {seen.title: look for seen, look in zip(worlds, looks, strict=True)}
    with canvas.style():
        ordered = {title: look for title, look in titled.items() if look.factors}
        figures = {"distances": distances.perceived(ordered)} if ordered else {}
        figures["distributions"] = distances.distributions(titled)
        laws = {seen.title: law for seen in worlds if (law := seen.config.sampling) and law.dependences}
        if laws:
            figures["law"] = distances.laws(laws)
        data = {repr(seen.config.dataset.tree()): seen for seen in worlds}
        for number, seen in enumerate(data.values()):
            drawn = distances.traversals(opened(seen.config).images.data, seen.title, seed)
            figures |= {f"traversals-{number}" if len(data) > 1 else "traversals": drawn} if drawn else {}
        return _saved(folder, figures)


def _saved(folder: Path, figures: dict[str, Figure]) -> list[Path]:
    """Writes PNG and SVG files; returns the paths of the PNGs."""
    from disentune.files.writing import write_atomically
    from disentune.report import canvas

    folder.mkdir(parents=True, exist_ok=True)
    for name, drawn in figures.items():
        write_atomically(folder / f"{name}.png", canvas.png(drawn))
        write_atomically(folder / f"{name}.svg", canvas.svg(drawn).encode())
    return [folder / f"{name}.png" for name in figures]


def _print_json(what: str | None, name: str, worlds: list[Seen], looks: list[Look]) -> None:
    from disentune.results.inspection import as_json, law_as_json

    found = [
        {"title": seen.title, "arms": list(seen.arms), "dataset": seen.config.tree()["dataset"],
         "recon": seen.config.recon.tree(), **as_json(look),
         **({"law": law_as_json(drawn)} if (drawn := seen.config.sampling) else {})}
        for seen, look in zip(worlds, looks, strict=True)
    ]  # fmt: skip
    print_json({"sweep": name, "worlds": found} if what is not None else found[0])


# ---- for people


def _show(worlds: list[Seen], looks: list[Look], detailed: bool) -> None:
    from disentune.cli.display import frame_table
    from disentune.results.inspection import EVIDENCE, grade, law_in_words, sentence

    if len(worlds) > 1:
        out.print(frame_table(_summary(worlds, looks)))
    for seen, look in zip(worlds, looks, strict=True):
        arms = f"{', '.join(seen.arms)}: " if seen.arms else ""
        out.print(f"\n[bold]{escape(arms + seen.title)}[/]: {sentence(look.order, bool(look.factors))}")
        for line in law_in_words(drawn) if (drawn := seen.config.sampling) else ():
            out.print(f"  {line}", markup=False)
        if detailed:
            out.print(frame_table(_details(look)))
        for reason in grade(look).reasons:
            out.print(f"  {reason}", markup=False)
    out.print(f"\n{EVIDENCE}", markup=False)


def _summary(worlds: list[Seen], looks: list[Look]) -> pd.DataFrame:
    """One line per data set and loss; correlations are means over factors."""
    import numpy as np
    import pandas as pd

    from disentune.results.inspection import word_for

    rows = []
    for seen, look in zip(worlds, looks, strict=True):
        along = [one.agreement for one in look.factors.values()]
        rows.append(
            {
                "arms": ", ".join(seen.arms),
                "data set and loss": seen.title,
                **_orders(look),
                "pearson": np.mean([one.pearson for one in along]) if along else None,
                "spearman": np.mean([one.spearman for one in along]) if along else None,
                "random pearson": look.anywhere.pearson,
                "random spearman": look.anywhere.spearman,
                "grade": word_for(look.order),
            }
        )
    return pd.DataFrame(rows)


def _details(look: Look) -> pd.DataFrame:
    """One line per factor; the factor that is learnt first is at the top."""
    import pandas as pd

    factors = sorted(look.factors.items(), key=lambda item: -item[1].agreement.mean_distance)
    rows: list[dict[str, str | float | None]] = [
        {"factor": name, "values": str(len(along.matrix)), **_orders(along), **along.agreement.numbers()}
        for name, along in factors
    ]
    rows.append({"factor": "random pairs", "values": "", **look.anywhere.numbers()})
    return pd.DataFrame(rows)


def _orders(seen: Along | Look) -> dict[str, float | None]:
    """The columns of a factor, or of a data set and loss."""
    return {"order": seen.order, "line order": seen.line_order}


# ---- a kernel


def _refuse_to_learn(file: Path, what: str | None, exact: bool) -> None:
    if what is not None:
        raise ConfigError(f"--learn-kernel {file}: needs --dataset NAME instead of a sweep or a trial")
    if exact:
        raise ConfigError("--exact: cannot be combined with --learn-kernel; choose the number of lines with --lines")
    if file.exists():
        raise ConfigError(f"--learn-kernel {file}: exists already; give another file")


def _learn_kernel(file: Path, seen: Seen, lines: int | None, seed: int, as_json: bool) -> None:
    from disentune.files.writing import write_atomically
    from disentune.learn import image_distances, kernels, process
    from disentune.results.inspection import kernel_asked, kernel_space

    radius, alpha = kernel_asked(seen)
    process.prepare(1, "cpu")
    with progress_bar() as say:
        found = kernels.learned(
            image_distances.opened(seen.config), radius, alpha, lines or kernels.LINES, seed, say=say
        )
    write_atomically(file, kernel_space(seen, found).encode())
    if as_json:
        print_json({"file": str(file), "taps": found.taps, "order_of_the_box": found.before, "order": found.after})
        return
    out.print(f"order {found.after:.3f} on the lines it was learned from; the box has {found.before:.3f}", markup=False)
    out.print(f"kernel: {shown(file)}", markup=False)


# ---- a trained trial


def _inspect_trial(what: str, lines: int | None, seed: int, output: Path | None, as_json: bool) -> None:
    import pandas as pd

    from disentune.cli.display import frame_table
    from disentune.learn.image_distances import levels

    model = _rebuilt(Path(what))
    found = list(levels(model.trained, lines, seed))
    rows = [
        {"factor": name, "level": level, **one.numbers()}
        for name, _, by_level in found
        for level, one in by_level.items()
    ]
    folder = output or (None if as_json else Path("inspect") / model.trial_id)
    files = _draw_levels(folder, {name: matrices for name, matrices, _ in found}) if folder else []
    if as_json:
        print_json({"trial_id": model.trial_id, "step": model.step, "levels": rows})
        return
    out.print(
        f"trial {model.trial_id} at step {model.step:,}: distances at each level, against the factor's", markup=False
    )
    out.print(frame_table(pd.DataFrame(rows)))
    _show_files(files)


def _rebuilt(path: Path) -> Rebuilt:
    from disentune.data.prepared.store import use_root
    from disentune.results.rescore import rebuilt
    from disentune.runs.ledger import trial_at

    folder, run = trial_at(path.parent if path.name == "config.json" else path)
    if run.exists():
        use_root(run.sweep().settings.data.root)
    return rebuilt(folder)


def _draw_levels(folder: Path, matrices: dict[str, dict[str, np.ndarray]]) -> list[Path]:
    from disentune.report import canvas, distances

    with canvas.style():
        return _saved(folder, {"learnt_distances": distances.matrices(matrices)})
