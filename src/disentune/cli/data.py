"""disentune data: list, prepare and verify data sets."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from disentune.cli.options import AsJson
from disentune.cli.terminal import err, out, print_json, progress_bar
from disentune.errors import ConfigError, DataError

if TYPE_CHECKING:
    from disentune.plugin import Dataset, Source

app = typer.Typer(
    name="data",
    help="Data sets: which there are, which are prepared, and preparing them.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Root = Annotated[
    str | None, typer.Option(help="Folder of prepared data sets; default: the environment's DISENTUNE_DATA.")
]
Sets = Annotated[
    list[str] | None, typer.Option("--set", help="A parameter of the data set: split=training. May be repeated.")
]


def _use(given: str | None) -> None:
    from disentune.data.prepared.store import is_root_set, root, use_root

    if given == "":
        raise ConfigError("--root: must be a folder, but is empty")
    use_root(given, override=True)
    if is_root_set():
        root()  # says what is wrong with it, once


# ---- list


@app.command("list")
def list_(root: Root = None, as_json: AsJson = False) -> None:
    """Every data set with its images, factors and state.

    Example: disentune data list
    """
    from disentune.data import DATASETS

    _use(root)
    listing = [_listed(dataset) for dataset in sorted(DATASETS, key=lambda dataset: dataset.name)]
    if as_json:
        print_json(listing)
        return
    table = Table(box=None, pad_edge=False)
    for title in ("name", "images", "shape", "factors", "state"):
        table.add_column(title, justify="right" if title == "images" else "left", overflow="fold")
    for one in listing:
        factors = ", ".join(map(str, one["factor_sizes"]))
        shape = " x ".join(map(str, one["shape"]))
        images = f"{one['images']:,}" if one["images"] else ""
        table.add_row(one["name"], images, shape, factors, escape(one["state"]))
    out.print(table)
    out.print("\nparameters of each: disentune list datasets", markup=False)


def _listed(dataset: Dataset) -> dict[str, Any]:
    """With default parameters; a data set that requires some has no images of its own."""
    from math import prod

    if any(field.is_required() for field in dataset.params.model_fields.values()):
        unknown: dict[str, Any] = {"images": None, "shape": [], "factor_sizes": []}
        return {"name": dataset.name, **unknown, "state": "made from your own file"}
    params = dataset.params()
    sizes = dataset.factor_sizes(params)
    return {
        "name": dataset.name,
        "images": prod(sizes),
        "shape": list(dataset.shape(params)),
        "factor_sizes": list(sizes),
        "state": _state(dataset.sources(params)),
    }


def _state(sources: tuple[Source, ...]) -> str:
    from disentune.cli.display import size
    from disentune.data.prepared.store import VARIABLE, about_of, command_of, is_checked, is_root_set

    if not sources:
        return "needs no file"
    if not is_root_set():
        return f"unknown: {VARIABLE} is not set"
    try:
        known = [about_of(source) for source in sources]
    except DataError as error:
        return f"damaged: {error}"
    missing = [command_of(source) for source, about in zip(sources, known, strict=True) if about is None]
    if missing:
        return f"not prepared: {'; '.join(missing)}"
    if not all(is_checked(source) for source in sources):
        return "changed since it was checked: disentune data verify"
    other = ", not the published contents" if any(about.published is False for about in known if about) else ""
    return f"prepared, {size(sum(about.file_bytes for about in known if about))}{other}"


# ---- prepare and verify


def _sources(name: str, sets: list[str]) -> tuple[Source, ...]:
    from disentune.data import DATASETS
    from disentune.parameters import chosen
    from disentune.spec.sweepfile import overrides_by_key

    dataset, params = chosen(DATASETS, name, overrides_by_key(sets, example="split=training"))
    return dataset.sources(params)


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="The data set, as in a sweep: dsprites, shapes3d, ...")],
    given: Annotated[
        Path | None, typer.Option("--from", help="A file that you have, or the folder with all of them.")
    ] = None,
    set_: Sets = None,
    again: Annotated[bool, typer.Option("--again", help="Make it anew, also if it is there.")] = False,
    accept: Annotated[bool, typer.Option("--accept", help="Take contents that are not the published ones.")] = False,
    root: Root = None,
) -> None:
    """Makes a data set ready for trials: downloads its public files, or takes yours, and packs them into one array.

    A trial that finds its data set missing does the same by itself, once a node.

    \b
    Examples:
    disentune data prepare dsprites
    disentune data prepare shapes3d --from ~/Downloads/3dshapes.h5
    disentune data prepare smallnorb --set split=training --root /data
    """
    _use(root)
    sources = _sources(name, set_ or [])
    if not sources:
        out.print(f"'{name}' is drawn when it is needed; there is nothing to prepare", markup=False)
        return
    given = given and given.expanduser()
    taken = {source.key: given if given and _takes(source, given, sources) else None for source in sources}
    if given and not any(taken.values()):
        names = [file.name for source in sources for file in source.files]
        raise ConfigError(f"--from {given}: '{name}' is made from {', '.join(names)}; give it one of these names")
    try:
        for source in sources:
            _prepare(source, taken[source.key], again, accept)
    except KeyboardInterrupt:
        err.print("interrupted; the same command goes on with what was downloaded")
        raise typer.Exit(130) from None


def _takes(source: Source, given: Path, sources: tuple[Source, ...]) -> bool:
    """Whether what the user has is for this source: of several, a file is told by its name."""
    if not given.exists():
        raise ConfigError(f"--from {given}: does not exist")
    names = [name for file in source.files for name in (file.name, *file.also)]
    return len(sources) == 1 or given.is_dir() or given.name in names


def _prepare(source: Source, given: Path | None, again: bool, accept: bool) -> None:
    from disentune.cli.display import size
    from disentune.data.prepared.preparing import prepare
    from disentune.data.prepared.store import about_of, folder_of, mapped

    there = not again and about_of(source) is not None
    with progress_bar() as say:
        about = prepare(source, given, again, accept, say)
        mapped(source, about, say)  # what was there may have been altered
    what = "was prepared before" if there else "prepared"
    text = f"{what}: {about.count:,} images of {' x '.join(map(str, about.shape))}, {size(about.file_bytes)}"
    out.print(f"{source.key} {text} in {folder_of(source)}", markup=False)
    if there and given:
        out.print(f"  {given} was not read; --again makes the array from it", markup=False)
    out.print(f"  contents sha256 {about.sha256}", markup=False)
    out.print(f"  mean {_numbers(about.mean)}   std {_numbers(about.std)}{_compared(about.published)}", markup=False)


def _compared(published: bool | None) -> str:
    if published is None:
        return "   (no published ones are known)"
    return "   (as published)" if published else "   (not the published ones)"


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6f}" for value in values)


def _verified(source: Source | DataError) -> dict[str, Any]:
    from disentune.data.prepared.store import verify

    try:
        if isinstance(source, DataError):
            raise source
        with progress_bar() as say:
            return {"sound": True, "sha256": verify(source, say).sha256}
    except DataError as error:
        return {"sound": False, "reason": str(error)}


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="A data set; default: everything that is prepared.")] = None,
    set_: Sets = None,
    root: Root = None,
    as_json: AsJson = False,
) -> None:
    """Reads prepared arrays from end to end and compares them with their hashes. Exit code 1 if one is damaged.

    Examples: disentune data verify; disentune data verify dsprites
    """
    from disentune.data.prepared import store

    _use(root)
    if name is None and set_:
        raise ConfigError(f"--set {set_[0]}: belongs to a data set; name it, or leave --set away")
    named = {source.key: source for source in _sources(name, set_ or [])} if name else None
    sources = store.prepared_sources() if named is None else named
    outcomes = {key: {**_verified(source), "path": str(store.root() / key)} for key, source in sources.items()}
    if as_json:
        print_json(outcomes)
    elif not outcomes:
        out.print("nothing is prepared there" if name is None else f"'{name}' has no files: nothing to verify")
    else:
        for key, outcome in outcomes.items():
            text = f"sound: {outcome['sha256']}" if outcome["sound"] else outcome["reason"]
            out.print(f"{key}  {text}", markup=False)
    raise typer.Exit(0 if all(outcome["sound"] for outcome in outcomes.values()) else 1)
